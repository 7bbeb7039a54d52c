"""TCP probes of the machines behind load balancers: a machine that accepts is Ready (reference 02 §4.7).

A probe is a connection to the machine's address in the simulated network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from windrow.emulator.delays import ScaledClock
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.listers import Key, key_of
from windrow.emulator.load_balancers.services import ENDPOINT_SLICE, with_dummy
from windrow.kubernetes.objects import Raw, nested


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """The probe's settings. Missing numbers have the controller's own defaults."""

    port: int
    successes: int
    failures: int
    period_s: float

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> HealthCheck:
        return cls(
            int(raw["port"]),
            int(raw.get("successThreshold") or 1),
            int(raw.get("failureThreshold") or 3),
            float(raw.get("periodSeconds") or 5),
        )


@dataclass(slots=True)
class Probe:
    """The probe of one machine."""

    check: HealthCheck
    next_at: timedelta  # by the monotonic clock
    answered: bool = False  # the last result
    streak: int = 0  # results equal to the last one since a threshold was reached

    def record(self, answered: bool) -> bool | None:
        """Record one result; healthy or unhealthy when a threshold is reached, else None."""
        self.streak = self.streak + 1 if answered == self.answered else 1
        self.answered = answered
        if self.streak < (self.check.successes if answered else self.check.failures):
            return None
        self.streak = 0
        return answered


class Probes:
    """`reconcile` runs the probes that are due for one LoadBalancer and writes readiness into its EndpointSlice."""

    def __init__(
        self,
        client: AdminClient,
        clock: ScaledClock,
        accepts: Callable[[str, int], bool],
    ) -> None:
        self.on_targets_changed: Callable[[Key], None] = lambda key: None
        self.on_readiness_changed: Callable[[Key], None] = lambda key: None
        self._client = client
        self._clock = clock
        self._accepts = accepts
        self._probes: dict[Key, dict[str, Probe]] = {}

    def set_targets(self, balancer: Raw, addresses: Iterable[str]) -> None:
        """Make these the probe targets of the LoadBalancer; none without a health check. May be repeated."""
        key, raw = key_of(balancer), nested(balancer, "spec", "healthCheck", default={})
        if not raw.get("port"):
            self.forget(key)
            return
        check, before = HealthCheck.read(raw), self._probes.get(key, {})
        first = self._clock.after(check.period_s)
        wanted = {}
        for address in addresses:
            known = before.get(address)
            wanted[address] = known if known is not None and known.check == check else Probe(check, first)
        self._probes[key] = wanted
        if wanted != before:
            self.on_targets_changed(key)

    def forget(self, key: Key) -> None:
        self._probes.pop(key, None)

    async def reconcile(self, key: Key) -> timedelta | None:
        probes = self._probes.get(key)
        if not probes:
            return None
        now = self._clock.monotonic()
        results = {}
        for address, probe in probes.items():
            if now < probe.next_at:
                continue
            probe.next_at = self._clock.after(probe.check.period_s)
            result = probe.record(self._accepts(address, probe.check.port))
            if result is not None:
                results[address] = result
        if results and await self._write(key, results):
            self.on_readiness_changed(key)
        return min(probe.next_at for probe in probes.values())

    async def _write(self, key: Key, results: Mapping[str, bool]) -> bool:
        """Write the readiness; True when an endpoint changed."""
        changed = False

        def edit(raw: Raw) -> None:
            nonlocal changed
            changed = False
            for one in raw.get("endpoints") or ():
                result = results.get(one["addresses"][0])
                if result is not None and nested(one, "conditions", "ready") is not result:
                    one["conditions"] = {"ready": result}
                    changed = True
            if changed:
                raw["endpoints"] = with_dummy(raw["endpoints"], key)

        await self._client.mutate(ENDPOINT_SLICE.ref(key[1], key[0]), edit)
        return changed
