"""Harvester's own upgrade: one host after the other is cordoned, emptied, upgraded and given back.

Object Upgrade (`upgrades.harvesterhci.io`) in `harvester-system` asks for it. VMs migrate, two at a time; one that cannot, or
that has no host to go to, is shut down and stays off, as without `restoreVM`. The states of the hosts are in `status.nodeStatuses`, the
conditions `NodesUpgraded` and `Completed` say when it is over, and setting `server-version` changes with the last. Not simulated: the
images and charts that it brings, the hosts' restarts (no VM is on them then), the emulator's own behaviour of another version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from windrow.emulator import kinds
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.host.maintenance import PARALLEL_MIGRATIONS, halt, instances_on, why_stuck
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.listers import Key, Listers, key_of
from windrow.emulator.kit.vm_readings import FINAL, phase_of
from windrow.kubernetes.conditions import Condition, is_true, set_condition
from windrow.kubernetes.objects import Raw, is_deleting, labels_of, name_of, nested, new_object
from windrow.kubernetes.resources import NODE

PRE_DRAINING, POST_DRAINING, SUCCEEDED = "Pre-draining", "Post-draining", "Succeeded"
LATEST, STATE = "harvesterhci.io/latestUpgrade", "harvesterhci.io/upgradeState"


@dataclass(frozen=True, slots=True)
class Evacuation:
    """One step to empty a host: instances to migrate now, VMs to shut down."""

    migrate: tuple[Key, ...] = ()
    stop: tuple[Key, ...] = ()


def plan_evacuation(
    host: str, hosts: Sequence[Raw], instances: Iterable[Raw], migrations: Iterable[Raw]
) -> Evacuation | None:
    """The next step to empty the host; None where it is empty."""
    here = [one for one in instances_on(host, instances) if not is_deleting(one)]
    if not instances_on(host, instances):
        return None
    others = [one for one in hosts if name_of(one) != host and not nested(one, "spec", "unschedulable")]
    stop = tuple(key_of(one) for one in here if why_stuck(one) or not others)
    moving = {
        (one["metadata"]["namespace"], nested(one, "spec", "vmiName"))
        for one in migrations
        if phase_of(one) not in FINAL
    }
    waiting = [key for key in map(key_of, here) if key not in stop]
    free = max(PARALLEL_MIGRATIONS - sum(key in moving for key in waiting), 0)
    return Evacuation(tuple(key for key in waiting if key not in moving)[:free], stop)


class UpgradeController:
    """Keys are those of Upgrades. Everything may be repeated."""

    def __init__(
        self,
        client: AdminClient,
        listers: Listers,
        clock: ScaledClock,
        delays: Delays,
        log: Callable[[str], None],
    ) -> None:
        self._client, self._listers, self._clock, self._delays = client, listers, clock, delays
        self._log = log
        # When the VMs of a host are moved, and when one that is upgraded will be back.
        self._drain_due: dict[tuple[Key, str], timedelta] = {}
        self._due: dict[tuple[Key, str], timedelta] = {}

    async def reconcile(self, key: Key) -> timedelta | None:
        ref = kinds.UPGRADE.ref(key[1], key[0])
        raw = await self._client.find(ref)
        if raw is None or is_true(nested(raw, "status", "conditions"), "Completed"):
            return None
        hosts = [self._listers.nodes[one] for one in sorted(self._listers.nodes)]
        states = nested(raw, "status", "nodeStatuses", default={})
        left = [name_of(one) for one in hosts if states.get(name_of(one), {}).get("state") != SUCCEEDED]
        if not left:
            await self._finish(raw)
            return None
        host = left[0]
        match states.get(host, {}).get("state", ""):
            case "":
                await self._cordon(host, cordoned=True)
                await self._set_state(raw, host, PRE_DRAINING)
            case "Pre-draining":
                due = self._drain_due.setdefault((key, host), self._clock.after(self._delays.host_pre_drain))
                if self._clock.monotonic() < due:
                    return due
                return await self._evacuate(raw, host, hosts)
            case _:
                due = self._due.setdefault((key, host), self._clock.after(self._delays.host_upgrade))
                if self._clock.monotonic() < due:
                    return due
                await self._cordon(host, cordoned=False)
                await self._set_state(raw, host, SUCCEEDED)
        return self._clock.after(0)

    async def _evacuate(self, raw: Raw, host: str, hosts: Sequence[Raw]) -> timedelta | None:
        listers = self._listers
        step = plan_evacuation(host, hosts, listers.instances.values(), listers.migrations.values())
        if step is None:
            await self._set_state(raw, host, POST_DRAINING)
            return self._clock.after(0)
        for namespace, name in step.stop:
            self._log(f"upgrade: VirtualMachine {namespace}/{name} is shut down, since it cannot migrate")
            await self._client.mutate(kinds.VM.ref(name, namespace), halt)
        for namespace, name in step.migrate:
            migration = new_object(kinds.MIGRATION, "", namespace, spec={"vmiName": name})
            migration["metadata"] = {"generateName": "kubevirt-evacuation-", "namespace": namespace}
            await self._client.create(kinds.MIGRATION, migration)
        return None  # until an instance or a migration changes

    async def _cordon(self, host: str, *, cordoned: bool) -> None:
        def edit(raw: Raw) -> None:
            if cordoned:
                raw["spec"]["unschedulable"] = True
            else:
                raw["spec"].pop("unschedulable", None)

        await self._client.mutate(NODE.ref(host), edit)

    async def _set_state(self, upgrade: Raw, host: str, state: str) -> None:
        def edit(raw: Raw) -> None:
            raw["metadata"]["labels"] = {**labels_of(raw), LATEST: "true", STATE: "UpgradingNodes"}
            status = raw.setdefault("status", {})
            status.setdefault("nodeStatuses", {})[host] = {"state": state}

        await self._client.mutate(kinds.UPGRADE.ref(*reversed(key_of(upgrade))), edit)

    async def _finish(self, upgrade: Raw) -> None:
        now, version = self._clock.base.now(), str(nested(upgrade, "spec", "version", default=""))

        def edit(raw: Raw) -> None:
            raw["metadata"]["labels"] = {**labels_of(raw), STATE: "Succeeded"}
            status = raw.setdefault("status", {})
            for type in (
                "ImageReady",
                "RepoReady",
                "NodesPrepared",
                "SystemServicesUpgraded",
                "NodesUpgraded",
                "Completed",
            ):
                status["conditions"] = set_condition(
                    status.get("conditions"), Condition(type, "True", "", ""), now
                )

        if version:
            ref = kinds.SETTING.ref("server-version")
            await self._client.mutate(ref, lambda raw: raw.update(value=version))
        await self._client.mutate(kinds.UPGRADE.ref(*reversed(key_of(upgrade))), edit)
