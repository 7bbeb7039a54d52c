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

from windrow.client.middleware.reload import ReloadableTransport
from windrow.client.transport import Transport
from windrow.cloudprovider.cmd.flags import Options
from windrow.cloudprovider.connection.completeness import find_missing_part
from windrow.cloudprovider.connection.expiry import Expiry, find_expiry, render_warning
from windrow.cloudprovider.metrics import Metrics
from windrow.core.clock import Clock
from windrow.kubernetes.kubeconfig import (
    BadKubeconfig,
    ClientConfig,
    ReadFile,
    in_cluster_config,
    parse_kubeconfig,
)

Connect = Callable[[ClientConfig], Transport]
Side = Literal["host", "guest"]
_DISPLAY_NAMES: Mapping[Side, str] = {"host": "Harvester", "guest": "the guest cluster"}
DEFAULT_NAMESPACE = "default"
# How long a doubt lasts until it is asked again.
VALIDATION_RETRY = timedelta(minutes=1)

Validate = Callable[[Transport, str], Awaitable[str]]


async def _accept_any(transport: Transport, namespace: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class KubeconfigSource:
    """Where one credential comes from. `title` is where people look for it, such as `--cloud-config FILE`."""

    title: str
    read: Callable[[ReadFile], ClientConfig]

    @contextmanager
    def naming_source(self) -> Iterator[None]:
        """Faults met meanwhile name the source, on one line. Raises BadKubeconfig only."""
        try:
            yield
        except BadKubeconfig as error:
            raise BadKubeconfig(f"{self.title}: {_one_line(error.message)}", _one_line(error.hint)) from error


@dataclass(frozen=True, slots=True)
class _NewConfig:
    """A credential that could be used, from files of these texts."""

    access: ClientConfig
    transport: Transport
    texts: dict[str, str]


class ClusterConnection:
    """The way to one cluster. `transport` stays the same object; what is behind it follows `access`.

    Raises BadKubeconfig at first, when there is nothing to begin with. `moved` is called when what was known of the
    cluster may not be true any more: another server or namespace, or a credential after one that was refused. `stuck`
    is called when only a new start of the program would bring the new credential: `is_replaced` says of a file that it
    is not under this name any more where it was mounted from.
    """

    def __init__(
        self,
        side: Side,
        source: KubeconfigSource,
        connect: Connect,
        read_file: ReadFile,
        clock: Clock,
        say: Callable[[str], None],
        metrics: Metrics,
        is_replaced: Callable[[str], bool] = lambda path: False,
    ) -> None:
        self.side: Side = side
        self.on_changed: Callable[[str], None] = lambda why: None
        self.on_restart_needed: Callable[[str], None] = lambda why: None
        # Why what is behind a transport, in a namespace, may not be our Harvester; "" when it is.
        self.validate: Validate = _accept_any
        self._is_replaced = is_replaced
        self._source = source
        self._connect = connect
        self._read_file = read_file
        self._clock = clock
        self._say = say
        self._metrics = metrics
        self._texts: dict[str, str] = {}
        self._problem = ""
        self._last_texts: Mapping[str, str] | None = None
        self._rejected: tuple[Mapping[str, str], datetime] | None = None
        self._unauthorized_since: datetime | None = None
        self._expiry: Expiry | None = None
        self._warned_at: datetime | None = None
        with source.naming_source():
            self.access = source.read(self._recording_reader(self._texts))
            if side == "host":
                _require_complete(self.access, self._texts, {})
            self.transport = ReloadableTransport(connect(self.access), self._on_unauthorized)
        self._update_expiry()

    @property
    def namespace(self) -> str:
        return self.access.namespace or DEFAULT_NAMESPACE

    def namespace_warning(self) -> str:
        """What may not be meant as it is written; "" for nothing."""
        if self.side == "guest" or self.access.namespace:
            return ""
        return (
            f"{self._source.title}: its context names no namespace, so VMs are looked for in {DEFAULT_NAMESPACE!r}; "
            "name the namespace of the VMs in the context"
        )

    async def reload(self) -> bool:
        """Whether the files say something new, which is in use from now on. Never raises."""
        new = self._read_files()
        before, self._last_texts = self._last_texts, new.texts if new else None
        if new is None:
            return False
        moves = self._changes_endpoint(new.access)
        if self._unauthorized_since is not None and not moves:
            return self._adopt(new)  # there is nothing to lose
        if new.texts != before or (moves and not await self._is_validated(new)):
            return False
        return self._adopt(new)

    def _read_files(self) -> _NewConfig | None:
        """What the files say now, when it is something new and whole."""
        if not self._files_differ(self._texts):
            if replaced := self._replaced_file():
                self._reject(
                    f"another file took the place of {replaced} on the node, and our mount shows the old one"
                )
            else:
                self._problem = ""
            return None
        texts: dict[str, str] = {}
        try:
            with self._source.naming_source():
                fresh = self._source.read(self._recording_reader(texts))
                _require_complete(fresh, texts, self._texts)
                transport = self._connect(fresh) if fresh != self.access else None
        except BadKubeconfig as error:
            self._reject(str(error))
            return None
        if transport is None:
            self._texts, self._problem = texts, ""
            return None
        return _NewConfig(fresh, transport, texts)

    def _changes_endpoint(self, fresh: ClientConfig) -> bool:
        """Whether it leads to another server, or another namespace that counts."""
        namespace = fresh.namespace or DEFAULT_NAMESPACE
        return fresh.server != self.access.server or (self.side == "host" and namespace != self.namespace)

    async def _is_validated(self, new: _NewConfig) -> bool:
        if (
            self._rejected is not None
            and self._rejected[0] == new.texts
            and self._clock.now() < self._rejected[1]
        ):
            return False
        problem = await self.validate(new.transport, new.access.namespace or DEFAULT_NAMESPACE)
        if problem:
            self._rejected = new.texts, self._clock.now() + VALIDATION_RETRY
            self._reject(f"{self._source.title} names {new.access.server}: {problem}")
            return False
        return not self._files_differ(new.texts)  # it may have changed while that was asked

    def _adopt(self, new: _NewConfig) -> bool:
        self._texts, self._problem, self._rejected = new.texts, "", None
        self._activate(new.access, new.transport)
        return True

    def _files_differ(self, texts: Mapping[str, str]) -> bool:
        """Whether the files say something else than `texts`."""
        try:
            return any(self._read_file(path) != text for path, text in texts.items())
        except (OSError, UnicodeError):
            return True

    def _replaced_file(self) -> str:
        """A file of ours that is not under its name any more; "" when all are."""
        return next((path for path in self._texts if self._is_replaced(path)), "")

    def _activate(self, fresh: ClientConfig, transport: Transport) -> None:
        before, self.access = self.access, fresh
        was = before.namespace or DEFAULT_NAMESPACE
        self.transport.replace(transport)
        self._metrics.count_credential_reload(self.side, "success")
        self._update_expiry()
        display_name = _DISPLAY_NAMES[self.side]
        self._say(f"the credential for {display_name} was read anew: {fresh.server} ({fresh.credential})")
        refused, self._unauthorized_since = self._unauthorized_since, None
        left_behind = "; load balancers that were made there stay there, and a person has to delete them"
        if fresh.server != before.server:
            self.on_changed(
                f"{display_name} is at {fresh.server} now, not at {before.server}{left_behind if self.side == 'host' else ''}"
            )
        elif self.side == "host" and self.namespace != was:
            self.on_changed(f"the VMs are in namespace {self.namespace!r} now, not in {was!r}{left_behind}")
        elif refused is not None:
            # Whoever was refused waits longer and longer; nobody should wait on.
            self.on_changed(f"{display_name} has a new credential after one that was refused")

    def _reject(self, problem: str) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        self._metrics.count_credential_reload(self.side, "failure")
        self._say(
            f"warning: {problem}; the credential that was read before stays in use for {_DISPLAY_NAMES[self.side]}"
        )

    def _on_unauthorized(self) -> bool:
        """A 401: is there something newer to try?"""
        new = self._read_files()
        if new is not None and not self._changes_endpoint(new.access):
            return self._adopt(new)
        if self._unauthorized_since is None:
            self._unauthorized_since = self._clock.now()
        if replaced := self._replaced_file():
            self.on_restart_needed(
                f"the credential is refused, and the newer {replaced} shows in a new mount only"
            )
        # Those that renew themselves were told of the refusal, too.
        return bool(self.access.token_file or self.access.exec)

    def expiry_warning(self) -> str:
        """What is to be said now of the credential's end; "" for nothing, or nothing new."""
        now = self._clock.now()
        if self._expiry is None or now < self._expiry.next_warning(self._warned_at):
            return ""
        self._warned_at = now
        return render_warning(self.access, self._expiry, now)

    def _update_expiry(self) -> None:
        self._expiry, self._warned_at = find_expiry(self.access), None
        self._metrics.set_credential_expiry(self.side, self._expiry.expires_at if self._expiry else None)

    def _recording_reader(self, texts: dict[str, str]) -> ReadFile:
        def read(path: str) -> str:
            texts[path] = text = self._read_file(path)
            return text

        return read


def _require_complete(access: ClientConfig, texts: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Raises BadKubeconfig where something is missing."""
    if missing := find_missing_part(access, texts, before):
        raise BadKubeconfig(f"the file is not whole: {missing}", "write it whole")


def host_source(options: Options) -> KubeconfigSource:
    """`--cloud-config`: a whole kubeconfig, in the words of the Go program where there is none."""
    hint = "check the --cloud-config flag and the file it names"
    path = options.cloud_config

    def read(read_file: ReadFile) -> ClientConfig:
        try:
            text = read_file(path)
        except (OSError, UnicodeError) as error:
            message = f"couldn't open cloud provider configuration: {_os_error_text(error)}"
            raise BadKubeconfig(message, hint) from error
        if not text.strip():
            raise BadKubeconfig("the file is empty: can't init from an empty reader (io.Reader)", hint)
        return parse_kubeconfig(text, read_file=_relative_to(path, read_file))

    return KubeconfigSource(f"--cloud-config {path}", read)


def guest_source(options: Options, env: Mapping[str, str]) -> KubeconfigSource:
    """`--kubeconfig`, else KUBECONFIG, else the pod's service account; `--master` has the last word."""
    if options.kubeconfig:
        return _guest_file("--kubeconfig", options.kubeconfig, options.master)
    if path := env.get("KUBECONFIG", ""):
        return _guest_file("$KUBECONFIG", path, options.master)
    if options.master:
        return KubeconfigSource(f"--master {options.master}", lambda read_file: ClientConfig(options.master))
    return KubeconfigSource(
        "the guest cluster, without --kubeconfig", lambda read_file: _in_cluster(env, read_file)
    )


def _guest_file(source: str, path: str, master: str) -> KubeconfigSource:
    def read(read_file: ReadFile) -> ClientConfig:
        try:
            text = read_file(path)
        except (OSError, UnicodeError) as error:
            message = f"the guest's kubeconfig cannot be read: {_os_error_text(error)}"
            raise BadKubeconfig(message, f"correct {source}") from error
        access = parse_kubeconfig(text, read_file=_relative_to(path, read_file))
        return replace(access, server=master) if master else access

    return KubeconfigSource(f"{source} {path}", read)


def _in_cluster(env: Mapping[str, str], read_file: ReadFile) -> ClientConfig:
    try:
        return in_cluster_config(env, read_file)
    except BadKubeconfig as error:
        raise BadKubeconfig(
            error.message, f"{error.hint} for the guest cluster: --kubeconfig=FILE"
        ) from error


def _relative_to(path: str, read_file: ReadFile) -> ReadFile:
    """Reads files that a kubeconfig names: from its own directory, unless they say a whole path."""
    return lambda name: read_file(posixpath.join(posixpath.dirname(path), name))


def _os_error_text(error: Exception) -> str:
    """What the system says, without the path that stands beside it."""
    return (error.strerror if isinstance(error, OSError) else "") or str(error)


def _one_line(text: str) -> str:
    return " ".join(text.split())
