"""The connection to Harvester, whose credential is reloaded when its file changes.

The file is compared by content every few seconds, and at once after a 401; a changed one is used when it is a whole
kubeconfig for the same server and namespace. Another server or namespace holds other volumes, so the process ends, and starts
anew with it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta

from windrow.client.middleware.awaited_writes import AwaitedWrites
from windrow.client.middleware.rate_limit import RateLimitedTransport
from windrow.client.middleware.reload import ReloadableTransport
from windrow.client.middleware.retry import RetryingTransport
from windrow.client.transport import Transport
from windrow.core.clock import Clock, sleep
from windrow.core.rng import Rng
from windrow.csi.cmd.arguments import FALLBACK_KUBECONFIG
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, ReadFile, parse_kubeconfig

CHECK_PERIOD = timedelta(seconds=5)
DEFAULT_NAMESPACE = "default"
HOST_QPS, HOST_BURST = 50.0, 100


def host_transport(inner: Transport, clock: Clock, rng: Rng) -> Transport:
    """What volumes are asked through: limited, repeated where that is safe, and with each write waited for."""
    limited = RateLimitedTransport(AwaitedWrites(inner), clock, per_second=HOST_QPS, burst=HOST_BURST)
    return RetryingTransport(limited, clock, rng)


class OtherHarvester(Exception):
    """The kubeconfig leads to another server or namespace; the message says from where to where."""


class HarvesterConnection:
    """`transport` stays the same object. Raises BadKubeconfig where there is nothing to begin with."""

    def __init__(
        self,
        path: str,
        read_file: ReadFile,
        connect: Callable[[ClientConfig], Transport],
        clock: Clock,
        log: logging.Logger,
    ) -> None:
        self._read_file, self._connect = read_file, connect
        self._clock, self._log = clock, log
        self._path, self._text = self._find(path)
        self.config = self._parse(self._text)
        self._problem = ""
        self.transport = ReloadableTransport(connect(self.config), self._reload)

    @property
    def namespace(self) -> str:
        return self.config.namespace or DEFAULT_NAMESPACE

    async def run(self) -> None:
        """Look for a new credential until cancelled. Raises OtherHarvester."""
        while True:
            await sleep(self._clock, CHECK_PERIOD)
            self._reload()
            self._require_same()

    def _find(self, path: str) -> tuple[str, str]:
        problem = ""
        for one in (path, FALLBACK_KUBECONFIG):
            try:
                return one, self._read_file(one)
            except (OSError, UnicodeError) as error:
                problem = problem or str(error)
        raise BadKubeconfig(
            f"the kubeconfig for Harvester cannot be read: {problem}",
            "correct --kubeconfig and the file it names",
        )

    def _parse(self, text: str) -> ClientConfig:
        return parse_kubeconfig(text, read_file=self._read_file)

    def _reload(self) -> bool:
        """Use what the file holds now; whether that is new."""
        try:
            text = self._read_file(self._path)
            if text == self._text:
                return False
            config = self._parse(text)
        except (OSError, UnicodeError, BadKubeconfig) as error:
            self._report(f"the kubeconfig for Harvester was not reloaded: {error}")
            return False
        self._latest = config
        if (config.server, config.namespace) != (self.config.server, self.config.namespace):
            return False
        self._text, self.config, self._problem = text, config, ""
        self.transport.replace(self._connect(config))
        self._log.info("reloaded the credential for Harvester: %s (%s)", config.server, config.credential)
        return True

    _latest: ClientConfig | None = None

    def _require_same(self) -> None:
        new, old = self._latest, self.config
        if new is not None and (new.server, new.namespace) != (old.server, old.namespace):
            raise OtherHarvester(
                f"the kubeconfig leads to namespace {new.namespace or DEFAULT_NAMESPACE} of {new.server} now, "
                f"not to {self.namespace} of {old.server}"
            )

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            self._log.warning("%s; the one before stays in use", problem)
        self._problem = problem
