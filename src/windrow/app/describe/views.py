"""Views of Cluster and Machine objects, which every screen prints.

Objects are read leniently: a field that is absent, or of a later version, leaves a gap in the picture and never
an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from windrow.app.describe.conditions import condition_of
from windrow.core.clock import parse_time
from windrow.kubernetes.objects import is_deleting, mappings_at, nested

Raw = Mapping[str, Any]

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Wait:
    """status.waiting: what for, since when, what comes next."""

    what: str
    since: datetime | None = None
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class MachineView:
    name: str
    namespace: str
    cluster: str
    pool: str
    phase: str = ""
    ready: bool = False
    deleting: bool = False
    address: str = ""
    version: str = ""  # that its kubelet runs
    is_outdated: bool = False  # the cluster is to run another
    created: datetime | None = None
    problem: str = ""  # why its Ready condition is not True, where it says more than the wait
    wait: Wait | None = None
    has_failed_update: bool = False


@dataclass(frozen=True, slots=True)
class PoolView:
    name: str
    wanted: int
    roles: tuple[str, ...] = ()
    machines: tuple[MachineView, ...] = ()
    paused: bool = False

    @property
    def ready(self) -> int:
        return sum(machine.ready and not machine.deleting for machine in self.machines)


@dataclass(frozen=True, slots=True)
class ClusterView:
    name: str
    namespace: str
    version: str = ""  # that runs
    desired_version: str = ""
    ready: bool = False
    deleting: bool = False
    phase: str = ""
    is_observed: bool = True  # the status is about the present spec
    created: datetime | None = None
    problem: str = ""
    refused_change: str = ""  # what of the spec is refused, where `problem` does not say it
    remediation_blocked: str = ""  # why repair is held back or turned off
    warnings: tuple[str, ...] = ()
    wait: Wait | None = None
    pools: tuple[PoolView, ...] = ()

    @property
    def refused(self) -> bool:
        return self.phase == "Refused"

    @property
    def machines(self) -> tuple[MachineView, ...]:
        return tuple(machine for pool in self.pools for machine in pool.machines)


def parse_or_none(text: Any) -> datetime | None:
    """The instant that `text` writes, None for what is none."""
    try:
        return parse_time(str(text)) if text else None
    except ValueError:
        return None


def _wait(raw: Raw) -> Wait | None:
    waiting = nested(raw, "status", "waiting")
    if not isinstance(waiting, Mapping) or not waiting.get("for"):
        return None
    return Wait(str(waiting["for"]), parse_or_none(waiting.get("since")), str(waiting.get("next") or ""))


def _is_ready(raw: Raw) -> bool:
    found = condition_of(raw, "Ready")
    return found is not None and found.status == "True"


def _problem(raw: Raw, wait: Wait | None) -> str:
    """What the Ready condition says is wrong, unless the wait says the same."""
    found = condition_of(raw, "Ready")
    if found is None or found.status == "True":
        return ""
    same = wait is not None and (wait.what in found.message or found.message in wait.what)
    return "" if same else found.message


def _refused_change(raw: Raw, problem: str) -> str:
    """What of the spec the manager does not accept: a cluster that runs goes on without, and may be Ready."""
    found = condition_of(raw, "Accepted")
    refused = found is not None and found.status == "False" and not is_deleting(raw)
    return found.message if found is not None and refused and not problem.startswith(found.message) else ""


def _is_observed(raw: Raw) -> bool:
    wanted, seen = nested(raw, "metadata", "generation"), nested(raw, "status", "observedGeneration")
    return not (isinstance(wanted, int) and isinstance(seen, int)) or seen >= wanted


def _remediation_blocked(raw: Raw) -> str:
    found = condition_of(raw, "RemediationAllowed")
    return found.message if found is not None and found.status == "False" else ""


def _preflight_warnings(raw: Raw) -> list[str]:
    """What the preflight found that is no error, a line for each, until the cluster is Ready: it may be why it is not."""
    found = condition_of(raw, "PreflightPassed")
    warned = found is not None and found.status == "True" and found.reason == "PassedWithWarnings"
    return found.message.splitlines() if found is not None and warned and not _is_ready(raw) else []


_ROLES = {"etcdRole": "etcd", "controlPlaneRole": "control plane", "workerRole": "worker"}


def _roles_of_pool(pool: Raw) -> tuple[str, ...]:
    return tuple(role for field, role in _ROLES.items() if pool.get(field))


def read_machine(raw: Raw) -> MachineView:
    """The view of one Machine object."""
    wait = _wait(raw)
    return MachineView(
        name=str(raw["metadata"]["name"]),
        namespace=str(raw["metadata"].get("namespace", "")),
        cluster=str(nested(raw, "spec", "clusterName", default="")),
        pool=str(nested(raw, "spec", "pool", default="")),
        phase=str(nested(raw, "status", "phase", default="")),
        ready=_is_ready(raw),
        deleting=is_deleting(raw),
        address=str(nested(raw, "status", "addresses", 0, default="")),
        version=str(nested(raw, "status", "version", default="")),
        created=parse_or_none(nested(raw, "metadata", "creationTimestamp")),
        problem=_problem(raw, wait),
        wait=wait,
        has_failed_update=_has_failed_update(raw),
    )


def _has_failed_update(raw: Raw) -> bool:
    found = condition_of(raw, "Updating")
    return found is not None and found.reason == "UpdateFailed"


def _read_pools(raw: Raw, machines: Sequence[MachineView]) -> tuple[PoolView, ...]:
    views = [
        PoolView(
            name=str(pool.get("name") or ""),
            wanted=int(pool["quantity"]) if isinstance(pool.get("quantity"), int) else 1,
            roles=_roles_of_pool(pool),
            machines=tuple(one for one in machines if one.pool == pool.get("name")),
            paused=pool.get("paused") is True,
        )
        for pool in mappings_at(raw, "spec", "rkeConfig", "machinePools")
    ]
    named = {view.name for view in views}
    # A pool that was removed from the Cluster is shown until its machines are gone.
    for gone in sorted({one.pool for one in machines} - named):
        views.append(PoolView(gone, 0, machines=tuple(one for one in machines if one.pool == gone)))
    return tuple(views)


def read_cluster(raw: Raw, machines: Iterable[MachineView]) -> ClusterView:
    """The view of one Cluster object with its machines."""
    name, namespace = str(raw["metadata"]["name"]), str(raw["metadata"].get("namespace", ""))
    desired = str(nested(raw, "spec", "kubernetesVersion", default=""))
    mine = sorted(
        (
            replace(one, is_outdated=one.version not in ("", desired))
            for one in machines
            if one.cluster == name and one.namespace == namespace
        ),
        key=lambda one: (one.created or _LONG_AGO, one.name),
    )
    wait = _wait(raw)
    phase = str(nested(raw, "status", "phase", default=""))
    # A refusal lists every problem; the wait only the first.
    problem = _problem(raw, None if phase == "Refused" else wait)
    return ClusterView(
        name=name,
        namespace=namespace,
        version=str(nested(raw, "status", "version", default="")),
        desired_version=desired,
        ready=_is_ready(raw),
        deleting=is_deleting(raw),
        phase=phase,
        is_observed=_is_observed(raw),
        created=parse_or_none(nested(raw, "metadata", "creationTimestamp")),
        problem=problem,
        refused_change=_refused_change(raw, problem),
        remediation_blocked=_remediation_blocked(raw),
        warnings=(*map(str, nested(raw, "status", "warnings", default=())), *_preflight_warnings(raw)),
        wait=wait,
        pools=_read_pools(raw, mine),
    )


def read_views(clusters: Iterable[Raw], machines: Iterable[Raw]) -> tuple[ClusterView, ...]:
    """Every cluster with its pools and machines, by namespace and name."""
    views = [read_machine(raw) for raw in machines]
    return tuple(
        sorted((read_cluster(raw, views) for raw in clusters), key=lambda one: (one.namespace, one.name))
    )
