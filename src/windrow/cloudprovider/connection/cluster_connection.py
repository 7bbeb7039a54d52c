"""Connections to the two clusters, which reload when the files of their credentials change.

Files are compared by content every few seconds: a rename, a write in place and the swap of links in a mounted Secret
are all the same. A file that cannot be used is reported once, and the config before it stays in use. After a 401 the
files are read at once, and the request is sent again where they held another config.

A change counts when the file is complete and was the same at two reads in a row (after a 401, at once), because the
beginning of a file may be a file, too. A config that names another server or namespace of Harvester counts only when
`validate` finds the VMs of our nodes there. At a start it is not validated: no Node may have a providerID yet, or every
VM was restored from a backup; `namespace_check` then protects the addresses that services have. Objects that were
created on Harvester are not moved, and the load balancer of a service that is deleted afterwards stays; the log says so.

A mount of one file (`subPath`, or a hostPath of type File) shows the old file after another took its name. That is
reported; once the old credential is rejected only a new mount helps, so the process exits and its pod restarts. Better:
mount the directory, or the Secret as a whole.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from windrow.client.middleware.reload import ReloadableTransport
from windrow.client.transport import Transport
from windrow.cloudprovider.connection.expiry import Expiry, find_expiry, render_warning
from windrow.cloudprovider.connection.sources import KubeconfigSource, require_complete
from windrow.cloudprovider.metrics import Metrics
from windrow.core.clock import Clock
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, ReadFile

Connect = Callable[[ClientConfig], Transport]
Side = Literal["host", "guest"]
_DISPLAY_NAMES: Mapping[Side, str] = {"host": "Harvester", "guest": "the guest cluster"}
DEFAULT_NAMESPACE = "default"
# How soon a config that was not validated is validated again.
VALIDATION_RETRY = timedelta(minutes=1)

Validate = Callable[[Transport, str], Awaitable[str]]


async def _accept_any(transport: Transport, namespace: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class _NewConfig:
    """A config that could be used, from files of these texts."""

    config: ClientConfig
    transport: Transport
    texts: dict[str, str]


class ClusterConnection:
    """The connection to one cluster. `transport` stays the same object; `config` is the one it uses now.

    Raises BadKubeconfig when there is no config to begin with. `on_changed` is called when the caches may not be true
    any more: another server or namespace, or a credential after one that was rejected. `on_restart_needed` is called
    when only a restart of the pod brings the new credential: `is_replaced` says of a file that its name on the node
    belongs to another file by now.
    """

    def __init__(
        self,
        side: Side,
        source: KubeconfigSource,
        connect: Connect,
        read_file: ReadFile,
        clock: Clock,
        log: logging.Logger,
        metrics: Metrics,
        is_replaced: Callable[[str], bool] = lambda path: False,
    ) -> None:
        self.side: Side = side
        self.on_changed: Callable[[str], None] = lambda why: None
        self.on_restart_needed: Callable[[str], None] = lambda why: None
        # Why a namespace behind a transport may not be that of our VMs; "" when it is.
        self.validate: Validate = _accept_any
        self._is_replaced = is_replaced
        self._source = source
        self._connect = connect
        self._read_file = read_file
        self._clock = clock
        self._log = log
        self._metrics = metrics
        self._texts: dict[str, str] = {}
        self._problem = ""
        self._last_texts: Mapping[str, str] | None = None
        self._rejected: tuple[Mapping[str, str], timedelta] | None = None
        self._unauthorized_since: datetime | None = None
        self._expiry: Expiry | None = None
        self._warned_at: datetime | None = None
        with source.naming_source():
            self.config = source.read(self._recording_reader(self._texts))
            if side == "host":
                require_complete(self.config, self._texts, {})
            self.transport = ReloadableTransport(connect(self.config), self._on_unauthorized)
        self._update_expiry()

    @property
    def namespace(self) -> str:
        return self.config.namespace or DEFAULT_NAMESPACE

    def namespace_warning(self) -> str:
        """A warning where the context names no namespace; else ""."""
        if self.side == "guest" or self.config.namespace:
            return ""
        return (
            f"{self._source.title}: its context names no namespace, so VirtualMachines are watched in namespace "
            f"{DEFAULT_NAMESPACE!r}; set the namespace of the VMs in the context"
        )

    async def reload(self) -> bool:
        """Read the files again, and use a new config from now on; whether there was one. Never raises."""
        new = self._read_files()
        before, self._last_texts = self._last_texts, new.texts if new else None
        if new is None:
            return False
        moves = self._changes_endpoint(new.config)
        if self._unauthorized_since is not None and not moves:
            return self._adopt(new)  # there is nothing to lose
        if new.texts != before or (moves and not await self._is_validated(new)):
            return False
        return self._adopt(new)

    def _read_files(self) -> _NewConfig | None:
        """The config in the files, when it is new and complete."""
        if not self._files_differ(self._texts):
            if replaced := self._replaced_file():
                self._reject(f"{replaced} was replaced on the node, and the mount shows the old file")
            else:
                self._problem = ""
            return None
        texts: dict[str, str] = {}
        try:
            with self._source.naming_source():
                fresh = self._source.read(self._recording_reader(texts))
                require_complete(fresh, texts, self._texts)
                transport = self._connect(fresh) if fresh != self.config else None
        except BadKubeconfig as error:
            self._reject(str(error))
            return None
        if transport is None:
            self._texts, self._problem = texts, ""
            return None
        return _NewConfig(fresh, transport, texts)

    def _changes_endpoint(self, fresh: ClientConfig) -> bool:
        """Whether it names another server, or for Harvester another namespace."""
        namespace = fresh.namespace or DEFAULT_NAMESPACE
        return fresh.server != self.config.server or (self.side == "host" and namespace != self.namespace)

    async def _is_validated(self, new: _NewConfig) -> bool:
        texts, until = self._rejected or ({}, self._clock.monotonic())
        if texts == new.texts and self._clock.monotonic() < until:
            return False
        problem = await self.validate(new.transport, new.config.namespace or DEFAULT_NAMESPACE)
        if problem:
            self._rejected = new.texts, self._clock.monotonic() + VALIDATION_RETRY
            self._reject(f"{self._source.title} names {new.config.server}: {problem}")
            return False
        return not self._files_differ(new.texts)  # they may have changed meanwhile

    def _files_differ(self, texts: Mapping[str, str]) -> bool:
        """Whether the files hold other texts than these."""
        try:
            return any(self._read_file(path) != text for path, text in texts.items())
        except (OSError, UnicodeError):
            return True

    def _replaced_file(self) -> str:
        """A file whose name on the node belongs to another file by now; "" for none."""
        return next((path for path in self._texts if self._is_replaced(path)), "")

    def _adopt(self, new: _NewConfig) -> bool:
        self._texts, self._problem, self._rejected = new.texts, "", None
        before, fresh = self.config, new.config
        was, self.config = self.namespace, fresh
        self.transport.replace(new.transport)
        self._metrics.credential_reloads.labels(self.side, "success").inc()
        self._update_expiry()
        display_name = _DISPLAY_NAMES[self.side]
        self._log.info(
            "reloaded the credential for %s: %s (%s)", display_name, fresh.server, fresh.credential
        )
        rejected, self._unauthorized_since = self._unauthorized_since, None
        left_behind = "; LoadBalancers that were created there are not deleted: delete them by hand"
        if fresh.server != before.server:
            self.on_changed(
                f"the server of {display_name} changed from {before.server} to {fresh.server}"
                f"{left_behind if self.side == 'host' else ''}"
            )
        elif self.side == "host" and self.namespace != was:
            self.on_changed(
                f"the namespace of the VMs changed from {was!r} to {self.namespace!r}{left_behind}"
            )
        elif rejected is not None:
            # Requests that were rejected back off longer and longer.
            self.on_changed(f"{display_name} has a new credential after one that was rejected")
        return True

    def _reject(self, problem: str) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        self._metrics.credential_reloads.labels(self.side, "failure").inc()
        self._log.warning(
            "%s; the credential for %s that was read before stays in use", problem, _DISPLAY_NAMES[self.side]
        )

    def _on_unauthorized(self) -> bool:
        """After a 401: whether the request is worth a second try, with a config that may be newer."""
        new = self._read_files()
        if new is not None and not self._changes_endpoint(new.config):
            return self._adopt(new)
        if self._unauthorized_since is None:
            self._unauthorized_since = self._clock.now()
        if replaced := self._replaced_file():
            self.on_restart_needed(
                f"the credential was rejected (401), and only a new mount shows the newer {replaced}"
            )
        # Those that renew themselves do so after a 401.
        return bool(self.config.token_file or self.config.exec)

    def expiry_warning(self) -> str:
        """The warning that is due about the expiry of the credential; "" for none."""
        now = self._clock.now()
        if self._expiry is None or now < self._expiry.next_warning(self._warned_at):
            return ""
        self._warned_at = now
        return render_warning(self.config, self._expiry, now)

    def _update_expiry(self) -> None:
        self._expiry, self._warned_at = find_expiry(self.config), None
        self._metrics.set_credential_expiry(self.side, self._expiry.expires_at if self._expiry else None)

    def _recording_reader(self, texts: dict[str, str]) -> ReadFile:
        def read(path: str) -> str:
            texts[path] = text = self._read_file(path)
            return text

        return read
