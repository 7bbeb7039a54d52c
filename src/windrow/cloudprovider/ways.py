"""The ways to the two clusters, which follow the files that their credentials come from.

Files are compared by content every few seconds: then a rename, a write in place and the swap of links in a mounted
Secret are all the same. What cannot be used is told once, and the old credential goes on. A 401 has the files looked
at at once, and the request made again where they brought something new.

A mount of one file (`subPath`, or a hostPath of type File) keeps showing the old file after another took its name.
That is told; and once the old credential is refused only a new mount helps, so the program ends and its pod starts it
anew. Better: mount the directory, or the Secret as a whole.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Literal

from windrow.client.replaceable import ReplaceableTransport
from windrow.client.transport import Transport
from windrow.cloudprovider.expiry import Expiry, expiry_of, sentence
from windrow.cloudprovider.flags import Options
from windrow.cloudprovider.measures import Measures
from windrow.kube.kubeconfig import Access, BadKubeconfig, ReadFile, in_cluster_access, parse_kubeconfig
from windrow.values.clock import Clock

Load = Callable[[ReadFile], Access]
Dial = Callable[[Access], Transport]
Whose = Literal["host", "guest"]
_CALLED: Mapping[Whose, str] = {"host": "Harvester", "guest": "the guest cluster"}
DEFAULT_NAMESPACE = "default"


class Way:
    """The way to one cluster. `transport` stays the same object; what is behind it follows `access`.

    Raises BadKubeconfig at first, when there is nothing to begin with. `moved` is called when what was known of the
    cluster may not be true any more: another server or namespace, or a credential after one that was refused. `stuck`
    is called when only a new start of the program would bring the new credential: `is_replaced` says of a file that it
    is not under this name any more where it was mounted from.
    """

    def __init__(
        self,
        whose: Whose,
        load: Load,
        dial: Dial,
        read_file: ReadFile,
        clock: Clock,
        say: Callable[[str], None],
        measures: Measures,
        is_replaced: Callable[[str], bool] = lambda path: False,
    ) -> None:
        self.whose: Whose = whose
        self.moved: Callable[[str], None] = lambda why: None
        self.stuck: Callable[[str], None] = lambda why: None
        self._is_replaced = is_replaced
        self._load = load
        self._dial = dial
        self._read_file = read_file
        self._clock = clock
        self._say = say
        self._measures = measures
        self._texts: dict[str, str] = {}
        self._problem = ""
        self._refused_since: datetime | None = None
        self._expiry: Expiry | None = None
        self._warned: datetime | None = None
        self.access = load(self._recorder(self._texts))
        self.transport = ReplaceableTransport(dial(self.access), self._was_refused)
        self._learn_end()

    @property
    def namespace(self) -> str:
        return self.access.namespace or DEFAULT_NAMESPACE

    def look(self) -> bool:
        """Whether the files say something new, which is in use from now on. Never raises."""
        if not self._differs():
            if replaced := self._replaced():
                self._cannot_use(
                    f"another file took the place of {replaced} on the node, and our mount shows the old one"
                )
            else:
                self._problem = ""
            return False
        texts: dict[str, str] = {}
        try:
            fresh = self._load(self._recorder(texts))
            transport = self._dial(fresh) if fresh != self.access else None
        except (OSError, UnicodeError, BadKubeconfig) as error:
            self._cannot_use(str(error))
            return False
        self._problem = ""
        self._texts = texts
        if transport is None:
            return False
        self._use(fresh, transport)
        return True

    def _differs(self) -> bool:
        try:
            return any(self._read_file(path) != text for path, text in self._texts.items())
        except (OSError, UnicodeError):
            return True

    def _replaced(self) -> str:
        """A file of ours that is not under its name any more; "" when all are."""
        return next((path for path in self._texts if self._is_replaced(path)), "")

    def _use(self, fresh: Access, transport: Transport) -> None:
        before, self.access = self.access, fresh
        self.transport.replace(transport)
        self._measures.credential_renewed(self.whose, "success")
        self._learn_end()
        called = _CALLED[self.whose]
        self._say(f"the credential for {called} was read anew: {fresh.server} ({fresh.credential})")
        refused, self._refused_since = self._refused_since, None
        if fresh.server != before.server:
            self.moved(f"{called} is at {fresh.server} now, not at {before.server}")
        elif self.whose == "host" and self.namespace != (before.namespace or DEFAULT_NAMESPACE):
            self.moved(f"the VMs are in namespace {self.namespace!r} now, not in {before.namespace!r}")
        elif refused is not None:
            # Whoever was refused waits longer and longer; nobody should wait on.
            self.moved(f"{called} has a new credential after one that was refused")

    def _cannot_use(self, problem: str) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        self._measures.credential_renewed(self.whose, "failure")
        self._say(
            f"warning: {problem}; the credential that was read before stays in use for {_CALLED[self.whose]}"
        )

    def _was_refused(self) -> bool:
        """A 401: is there something newer to try?"""
        if self.look():
            return True
        if self._refused_since is None:
            self._refused_since = self._clock.now()
        if replaced := self._replaced():
            self.stuck(f"the credential is refused, and the newer {replaced} shows in a new mount only")
        # Those that renew themselves were told of the refusal, too.
        return bool(self.access.token_file or self.access.exec)

    def warning(self) -> str:
        """What is to be said now of the credential's end; "" for nothing, or nothing new."""
        now = self._clock.now()
        if self._expiry is None or now < self._expiry.next_warning(self._warned):
            return ""
        self._warned = now
        return sentence(self.access, self._expiry, now)

    def _learn_end(self) -> None:
        self._expiry, self._warned = expiry_of(self.access), None
        self._measures.credential_ends(self.whose, self._expiry.ends if self._expiry else None)

    def _recorder(self, texts: dict[str, str]) -> ReadFile:
        def read(path: str) -> str:
            texts[path] = text = self._read_file(path)
            return text

        return read


def load_host(options: Options) -> Load:
    """Reads `--cloud-config`: a whole kubeconfig, in the words of the Go program where there is none."""
    cure = "check the --cloud-config flag and the file it names"
    path = options.cloud_config

    def load(read_file: ReadFile) -> Access:
        if not path:
            raise BadKubeconfig("can't init from an empty reader (io.Reader)", cure)
        try:
            text = read_file(path)
        except (OSError, UnicodeError) as error:
            raise BadKubeconfig(
                f"couldn't open cloud provider configuration {path}: {error}", cure
            ) from error
        if not text.strip():
            raise BadKubeconfig(f"can't init from an empty reader (io.Reader): {path} is empty", cure)
        return parse_kubeconfig(text, read_file=_beside(path, read_file))

    return load


def load_guest(options: Options, env: Mapping[str, str]) -> Load:
    """Reads `--kubeconfig`, else KUBECONFIG, else the pod's service account; `--master` has the last word."""
    path = options.kubeconfig or env.get("KUBECONFIG", "")

    def load(read_file: ReadFile) -> Access:
        if not path:
            return in_cluster_access(env, read_file) if not options.master else Access(options.master)
        try:
            text = read_file(path)
        except (OSError, UnicodeError) as error:
            raise BadKubeconfig(
                f"the guest's kubeconfig cannot be read: {error}", "correct --kubeconfig"
            ) from error
        access = parse_kubeconfig(text, read_file=_beside(path, read_file))
        return replace(access, server=options.master) if options.master else access

    return load


def _beside(path: str, read_file: ReadFile) -> ReadFile:
    """Reads files that a kubeconfig names: from its own directory, unless they say a whole path."""
    return lambda name: read_file(posixpath.join(posixpath.dirname(path), name))
