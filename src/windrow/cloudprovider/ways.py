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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal

from windrow.client.replaceable import ReplaceableTransport
from windrow.client.transport import Transport
from windrow.cloudprovider.expiry import Expiry, expiry_of, sentence
from windrow.cloudprovider.flags import Options
from windrow.cloudprovider.measures import Measures
from windrow.kube.kubeconfig import Access, BadKubeconfig, ReadFile, in_cluster_access, parse_kubeconfig
from windrow.values.clock import Clock

Dial = Callable[[Access], Transport]
Whose = Literal["host", "guest"]
_CALLED: Mapping[Whose, str] = {"host": "Harvester", "guest": "the guest cluster"}
DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Source:
    """Where one credential comes from. `title` is where people look for it, such as `--cloud-config FILE`."""

    title: str
    read: Callable[[ReadFile], Access]

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """Faults met meanwhile name the source, on one line. Raises BadKubeconfig only."""
        try:
            yield
        except BadKubeconfig as error:
            raise BadKubeconfig(f"{self.title}: {_one_line(error.fact)}", _one_line(error.cure)) from error


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
        source: Source,
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
        self._source = source
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
        with source.blamed():
            self.access = source.read(self._recorder(self._texts))
            self.transport = ReplaceableTransport(dial(self.access), self._was_refused)
        self._learn_end()

    @property
    def namespace(self) -> str:
        return self.access.namespace or DEFAULT_NAMESPACE

    def find_doubt(self) -> str:
        """What may not be meant as it is written; "" for nothing."""
        if self.whose == "guest" or self.access.namespace:
            return ""
        return (
            f"{self._source.title}: its context names no namespace, so VMs are looked for in {DEFAULT_NAMESPACE!r}; "
            "name the namespace of the VMs in the context"
        )

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
            with self._source.blamed():
                fresh = self._source.read(self._recorder(texts))
                transport = self._dial(fresh) if fresh != self.access else None
        except BadKubeconfig as error:
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
        was = before.namespace or DEFAULT_NAMESPACE
        self.transport.replace(transport)
        self._measures.credential_renewed(self.whose, "success")
        self._learn_end()
        called = _CALLED[self.whose]
        self._say(f"the credential for {called} was read anew: {fresh.server} ({fresh.credential})")
        refused, self._refused_since = self._refused_since, None
        if fresh.server != before.server:
            self.moved(f"{called} is at {fresh.server} now, not at {before.server}")
        elif self.whose == "host" and self.namespace != was:
            self.moved(f"the VMs are in namespace {self.namespace!r} now, not in {was!r}")
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


def host_source(options: Options) -> Source:
    """`--cloud-config`: a whole kubeconfig, in the words of the Go program where there is none."""
    cure = "check the --cloud-config flag and the file it names"
    path = options.cloud_config

    def read(read_file: ReadFile) -> Access:
        try:
            text = read_file(path)
        except (OSError, UnicodeError) as error:
            fact = f"couldn't open cloud provider configuration: {_reason(error)}"
            raise BadKubeconfig(fact, cure) from error
        if not text.strip():
            raise BadKubeconfig("the file is empty: can't init from an empty reader (io.Reader)", cure)
        return parse_kubeconfig(text, read_file=_beside(path, read_file))

    return Source(f"--cloud-config {path}", read)


def guest_source(options: Options, env: Mapping[str, str]) -> Source:
    """`--kubeconfig`, else KUBECONFIG, else the pod's service account; `--master` has the last word."""
    if options.kubeconfig:
        return _guest_file("--kubeconfig", options.kubeconfig, options.master)
    if path := env.get("KUBECONFIG", ""):
        return _guest_file("$KUBECONFIG", path, options.master)
    if options.master:
        return Source(f"--master {options.master}", lambda read_file: Access(options.master))
    return Source("the guest cluster, without --kubeconfig", lambda read_file: _in_cluster(env, read_file))


def _guest_file(said: str, path: str, master: str) -> Source:
    def read(read_file: ReadFile) -> Access:
        try:
            text = read_file(path)
        except (OSError, UnicodeError) as error:
            fact = f"the guest's kubeconfig cannot be read: {_reason(error)}"
            raise BadKubeconfig(fact, f"correct {said}") from error
        access = parse_kubeconfig(text, read_file=_beside(path, read_file))
        return replace(access, server=master) if master else access

    return Source(f"{said} {path}", read)


def _in_cluster(env: Mapping[str, str], read_file: ReadFile) -> Access:
    try:
        return in_cluster_access(env, read_file)
    except BadKubeconfig as error:
        raise BadKubeconfig(error.fact, f"{error.cure} for the guest cluster: --kubeconfig=FILE") from error


def _beside(path: str, read_file: ReadFile) -> ReadFile:
    """Reads files that a kubeconfig names: from its own directory, unless they say a whole path."""
    return lambda name: read_file(posixpath.join(posixpath.dirname(path), name))


def _reason(error: Exception) -> str:
    """What the system says, without the path that stands beside it."""
    return (error.strerror if isinstance(error, OSError) else "") or str(error)


def _one_line(text: str) -> str:
    return " ".join(text.split())
