"""The ways to the two clusters, which follow the files that their credentials come from.

Files are compared by content every few seconds: then a rename, a write in place and the swap of links in a mounted
Secret are all the same. What cannot be used is told once, and the old credential goes on. A 401 has the files looked
at at once, and the request made again where they brought something new.

The beginning of a file is a file, too, so a change counts when it is whole and was the same at two looks in a row
(after a 401, at once). One that names another server or namespace of Harvester counts only when `vet` has no doubt
that our VMs are there. A start takes it as it is, when it is whole: there may be no node yet that says where it runs,
or every VM was made anew from a backup. What services have is safe all the same (`kinship`). What was made on Harvester
stays where it is, also the load balancer of a service that is deleted afterwards; that is told with the move.

A mount of one file (`subPath`, or a hostPath of type File) keeps showing the old file after another took its name.
That is told; and once the old credential is refused only a new mount helps, so the program ends and its pod starts it
anew. Better: mount the directory, or the Secret as a whole.
"""

from __future__ import annotations

import posixpath
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from windrow.client.replaceable import ReplaceableTransport
from windrow.client.transport import Transport
from windrow.cloudprovider.expiry import Expiry, expiry_of, sentence
from windrow.cloudprovider.flags import Options
from windrow.cloudprovider.measures import Measures
from windrow.cloudprovider.wholeness import find_gap
from windrow.kube.kubeconfig import Access, BadKubeconfig, ReadFile, in_cluster_access, parse_kubeconfig
from windrow.values.clock import Clock

Dial = Callable[[Access], Transport]
Whose = Literal["host", "guest"]
_CALLED: Mapping[Whose, str] = {"host": "Harvester", "guest": "the guest cluster"}
DEFAULT_NAMESPACE = "default"
# How long a doubt lasts until it is asked again.
DOUBT_LASTS = timedelta(minutes=1)

Vet = Callable[[Transport, str], Awaitable[str]]


async def _trust(transport: Transport, namespace: str) -> str:
    return ""


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


@dataclass(frozen=True, slots=True)
class _Offer:
    """A credential that could be used, from files of these texts."""

    access: Access
    transport: Transport
    texts: dict[str, str]


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
        # Why what is behind a transport, in a namespace, may not be our Harvester; "" when it is.
        self.vet: Vet = _trust
        self._is_replaced = is_replaced
        self._source = source
        self._dial = dial
        self._read_file = read_file
        self._clock = clock
        self._say = say
        self._measures = measures
        self._texts: dict[str, str] = {}
        self._problem = ""
        self._seen: Mapping[str, str] | None = None
        self._doubted: tuple[Mapping[str, str], datetime] | None = None
        self._refused_since: datetime | None = None
        self._expiry: Expiry | None = None
        self._warned: datetime | None = None
        with source.blamed():
            self.access = source.read(self._recorder(self._texts))
            if whose == "host":
                _require_whole(self.access, self._texts, {})
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

    async def look(self) -> bool:
        """Whether the files say something new, which is in use from now on. Never raises."""
        offer = self._read_anew()
        before, self._seen = self._seen, offer.texts if offer else None
        if offer is None:
            return False
        moves = self._moves(offer.access)
        if self._refused_since is not None and not moves:
            return self._take(offer)  # there is nothing to lose
        if offer.texts != before or (moves and not await self._is_vetted(offer)):
            return False
        return self._take(offer)

    def _read_anew(self) -> _Offer | None:
        """What the files say now, when it is something new and whole."""
        if not self._differ(self._texts):
            if replaced := self._replaced():
                self._cannot_use(
                    f"another file took the place of {replaced} on the node, and our mount shows the old one"
                )
            else:
                self._problem = ""
            return None
        texts: dict[str, str] = {}
        try:
            with self._source.blamed():
                fresh = self._source.read(self._recorder(texts))
                _require_whole(fresh, texts, self._texts)
                transport = self._dial(fresh) if fresh != self.access else None
        except BadKubeconfig as error:
            self._cannot_use(str(error))
            return None
        if transport is None:
            self._texts, self._problem = texts, ""
            return None
        return _Offer(fresh, transport, texts)

    def _moves(self, fresh: Access) -> bool:
        """Whether it leads to another server, or another namespace that counts."""
        namespace = fresh.namespace or DEFAULT_NAMESPACE
        return fresh.server != self.access.server or (self.whose == "host" and namespace != self.namespace)

    async def _is_vetted(self, offer: _Offer) -> bool:
        if (
            self._doubted is not None
            and self._doubted[0] == offer.texts
            and self._clock.now() < self._doubted[1]
        ):
            return False
        doubt = await self.vet(offer.transport, offer.access.namespace or DEFAULT_NAMESPACE)
        if doubt:
            self._doubted = offer.texts, self._clock.now() + DOUBT_LASTS
            self._cannot_use(f"{self._source.title} names {offer.access.server}: {doubt}")
            return False
        return not self._differ(offer.texts)  # it may have changed while that was asked

    def _take(self, offer: _Offer) -> bool:
        self._texts, self._problem, self._doubted = offer.texts, "", None
        self._use(offer.access, offer.transport)
        return True

    def _differ(self, texts: Mapping[str, str]) -> bool:
        """Whether the files say something else than `texts`."""
        try:
            return any(self._read_file(path) != text for path, text in texts.items())
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
        stay = "; load balancers that were made there stay there, and a person has to delete them"
        if fresh.server != before.server:
            self.moved(
                f"{called} is at {fresh.server} now, not at {before.server}{stay if self.whose == 'host' else ''}"
            )
        elif self.whose == "host" and self.namespace != was:
            self.moved(f"the VMs are in namespace {self.namespace!r} now, not in {was!r}{stay}")
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
        offer = self._read_anew()
        if offer is not None and not self._moves(offer.access):
            return self._take(offer)
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


def _require_whole(access: Access, texts: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Raises BadKubeconfig where something is missing."""
    if gap := find_gap(access, texts, before):
        raise BadKubeconfig(f"the file is not whole: {gap}", "write it whole")


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
