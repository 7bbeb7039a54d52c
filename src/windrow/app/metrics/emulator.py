"""Metrics of an emulated Harvester: its VirtualMachines, the faults that were injected, and its API."""

from __future__ import annotations

from collections import Counter

from windrow.app.metrics.api_server import ApiServerMetrics
from windrow.emulator.harvester import Harvester
from windrow.kubernetes.objects import nested
from windrow.probes.metrics import Registry


class EmulatorMetrics:
    """All metrics of one emulated Harvester. Without `harvester` they are defined only, for the reference."""

    def __init__(self, harvester: Harvester | None) -> None:
        self._harvester = harvester
        self.registry = Registry()
        ApiServerMetrics(self.registry, harvester.api if harvester is not None else None)
        self._machines = self.registry.snapshot_gauge(
            "windrow_emulator_virtual_machines", "VirtualMachines by printable status.", ("status",)
        )
        self._faults = self.registry.snapshot_gauge(
            "windrow_emulator_faults", "Faults that are active.", ("effect",)
        )
        self._injected = self.registry.snapshot_gauge(
            "windrow_emulator_faults_injected",
            "How often a fault was injected, by what it does.",
            ("effect",),
        )
        if harvester is not None:
            self.registry.on_scrape(self._read)

    def _read(self) -> None:
        harvester = self._harvester
        assert harvester is not None
        statuses: Counter[tuple[str, ...]] = Counter(
            (str(nested(raw, "status", "printableStatus", default="") or "Unknown"),)
            for raw in harvester.listers.vms.values()
        )
        self._machines.set_all(statuses)
        faults = harvester.faults
        active: Counter[tuple[str, ...]] = Counter((type(one.effect).__name__,) for one in faults.script)
        self._faults.set_all(active)
        injected: Counter[tuple[str, ...]] = Counter()
        for fault in (*faults.script, *faults.ended):
            injected[(type(fault.effect).__name__,)] += faults.times_injected(fault)
        self._injected.set_all(injected)
