"""The Machine: the durable record of one machine, read and rendered."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from string import hexdigits
from typing import Any

from windrow.bootstrap.spec import HasRoles, Role
from windrow.clusters.api import names
from windrow.clusters.api.cluster import DEFAULT_VM_NAMESPACE, Cluster, Pool, machine_labels
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.clusters.api.updates.maintenance import RecordedMaintenance, read_maintenance
from windrow.clusters.api.updates.turn import MachineUpdate, read_machine_update
from windrow.core.clock import parse_time
from windrow.core.rng import Rng
from windrow.harvester.names import CLUSTER_UID
from windrow.kubernetes.conditions import Condition, find_condition, is_true
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    finalizers_of,
    name_of,
    namespace_of,
    nested,
    new_object,
    owner_reference,
    time_of,
    uid_of,
)
from windrow.kubernetes.resources import ObjectRef
from windrow.machines.port import HARVESTER

# Raised when our builders would shape an equal request differently. Recorded, never compared: an upgrade of
# Windrow does not roll machines.
BUILDER_REVISION = "1"

_ROLE_ORDER = (Role.ETCD, Role.CONTROL_PLANE, Role.WORKER)
INFRASTRUCTURE_READY = "InfrastructureReady"  # of Cluster API's Machine


@dataclass(frozen=True, slots=True)
class Machine(HasRoles):
    """One machine's record.

    `uid` is the machine's: its VM and its Node carry it. It is that of the object, unless the VM was adopted: then it is
    that of the object that the VM was made for, and `object_uid` this object's.
    """

    namespace: str
    name: str
    uid: str
    cluster: str
    cluster_uid: str
    pool: str
    roles: frozenset[Role]
    created: datetime
    provisioned: datetime | None = None  # when it was first known that its VM had been created
    deletion_timestamp: datetime | None = None
    has_finalizer: bool = True  # Windrow's
    options: Mapping[str, Any] = field(default_factory=dict)
    credential: str = ""
    driver: str = HARVESTER
    version: str = ""
    config_hash: str = ""
    # Of its Node, as its pool has them; None: a Machine of an earlier release, which does not say.
    labels: Mapping[str, str] | None = None
    taints: tuple[str, ...] | None = None
    join_server: str = ""
    is_init_server: bool = False
    driver_config: Mapping[str, Any] | None = None
    node: str = ""
    restart_count: int = 0
    last_restart: datetime | None = None
    delete_first: bool = False
    replace_now: bool = False
    retry_update: bool = False
    conditions: tuple[Mapping[str, Any], ...] = ()
    status: Mapping[str, Any] = field(default_factory=dict, repr=False)
    resource_version: str = field(default="", compare=False)
    object_uid: str = ""

    @property
    def ref(self) -> ObjectRef:
        return MACHINE.ref(self.name, self.namespace)

    @property
    def vm_namespace(self) -> str:
        recorded = (self.driver_config or {}).get("VMNamespace")
        return str(recorded or self.options.get("vmNamespace") or DEFAULT_VM_NAMESPACE)

    @property
    def has_joined(self) -> bool:
        """Whether its Node was ever observed."""
        return bool(self.node)

    @property
    def was_ready(self) -> bool:
        """Whether its Node was ever Ready: before that it is starting up, not unhealthy."""
        return is_true(self.conditions, "Joined")

    @property
    def was_adopted(self) -> bool:
        """Whether its VM was made for an earlier object of its name, and is there already."""
        return self.object_uid not in ("", self.uid)

    @property
    def was_requested(self) -> bool:
        """Whether anything may have been created for it outside: its driver config is recorded before that."""
        return self.driver_config is not None

    @property
    def was_created(self) -> bool:
        """Whether its VM was created on Harvester once."""
        return bool(self.vm_uid)

    @property
    def vm_uid(self) -> str:
        """The uid of its VM as its driver recorded it; "" before that."""
        return str((self.driver_config or {}).get("WindrowVMUID") or "")

    @property
    def last_addresses(self) -> tuple[str, ...]:
        """What its VM reported last, also while it reports none."""
        return tuple(map(str, self.status.get("addresses") or ()))

    @property
    def update(self) -> MachineUpdate | None:
        """The change that is being carried out on it, or has failed on it; None while it has no turn."""
        return read_machine_update(self.status)

    @property
    def maintenance(self) -> RecordedMaintenance | None:
        """That of its host on Harvester; None while there is none, and it is well after the last."""
        return read_maintenance(self.status)

    @property
    def restarted(self) -> str:
        """The request to restart its service that it has followed last."""
        return str(self.status.get("restarted") or "")

    def find_condition(self, type: str) -> Condition | None:
        return find_condition(self.conditions, type)


def read_machine(raw: Mapping[str, Any]) -> Machine:
    spec, status = raw["spec"], raw.get("status") or {}
    annotations = annotations_of(raw)
    return Machine(
        namespace=namespace_of(raw),
        name=name_of(raw),
        uid=spec.get("machineUID") or uid_of(raw),
        object_uid=uid_of(raw),
        cluster=spec["clusterName"],
        cluster_uid=spec["clusterUID"],
        pool=spec["pool"],
        roles=frozenset(Role(role) for role in spec.get("roles") or ()),
        created=parse_time(raw["metadata"]["creationTimestamp"]),
        deletion_timestamp=time_of(raw, "metadata", "deletionTimestamp"),
        has_finalizer=names.MACHINE_FINALIZER in finalizers_of(raw),
        options=spec.get("options") or {},
        credential=spec.get("credential") or "",
        driver=spec.get("driver") or HARVESTER,
        version=spec.get("version") or "",
        config_hash=spec.get("configHash") or "",
        labels=spec.get("labels"),
        taints=tuple(spec["taints"]) if spec.get("taints") is not None else None,
        join_server=spec.get("joinServer") or "",
        is_init_server=spec.get("initServer") is True,
        delete_first=names.DELETE_FIRST in annotations,
        replace_now=names.REPLACE_NOW in annotations,
        retry_update=names.RETRY_UPDATE in annotations,
        resource_version=raw["metadata"].get("resourceVersion", ""),
        **_read_status(status),
    )


def with_status(machine: Machine, status: Mapping[str, Any]) -> Machine:
    """The reading of the Machine with another status."""
    return replace(machine, **_read_status(status))


def _read_status(status: Mapping[str, Any]) -> dict[str, Any]:
    provisioned = find_condition(status.get("conditions"), INFRASTRUCTURE_READY)
    return {
        "provisioned": provisioned.since if provisioned is not None else None,
        "driver_config": status.get("driverConfig"),
        "node": nested(status, "nodeRef", "name", default=""),
        "restart_count": int(status.get("restartCount") or 0),
        "last_restart": time_of(status, "lastRestartTime"),
        "conditions": tuple(status.get("conditions") or ()),
        "status": status,
    }


def render_machine(
    cluster: Cluster,
    pool: Pool,
    name: str,
    *,
    version: str,
    config_hash: str,
    join_server: str,
    is_init_server: bool,
    machine_uid: str = "",
) -> Raw:
    """The Machine of a VM that is going to be provisioned, or with `machine_uid` of one that is adopted."""
    spec: Raw = {
        "clusterName": cluster.name,
        "clusterUID": cluster.uid,
        "pool": pool.name,
        "roles": [role.value for role in _ROLE_ORDER if role in pool.roles],
        "options": dict(pool.options or {}),
        "credential": pool.credential,
        "driver": pool.driver,
        "version": version,
        "configHash": config_hash,
        "labels": dict(pool.labels),
        "taints": list(pool.taints),
        "builderRevision": BUILDER_REVISION,
        "joinServer": join_server,
        "initServer": is_init_server,
    }
    if machine_uid:
        spec["machineUID"] = machine_uid
    return new_object(
        MACHINE,
        name,
        cluster.namespace,
        labels=machine_labels(cluster.name, pool),
        annotations={**pool.machine_annotations, CLUSTER_UID: cluster.uid},
        owners=[owner_reference(CLUSTER, cluster.raw, controller=True, block=True)],
        finalizers=[names.MACHINE_FINALIZER],
        spec=spec,
    )


def machine_name_stem(cluster: Cluster, pool: str) -> str:
    """`<cluster>-<pool>-<5>-`, with which the names of a pool's machines begin, and no other pool's."""
    return f"{cluster.name}-{pool}-{Rng(f'{cluster.uid}/{pool}').name_suffix()}-"


def shorten_name(name: str, limit: int) -> str:
    """`name`, or where it is longer than `limit`, as much of it as leaves room for a dash and 5 digits of its hash, 6 where
    it would end with a dash: as Rancher shortens host names."""
    if len(name) <= limit:
        return name
    kept, digest = name[: limit - 6], hashlib.sha256(name.encode()).hexdigest()
    return f"{kept}{digest[:6]}" if kept.endswith("-") else f"{kept}-{digest[:5]}"


def new_machine_name(cluster: Cluster, pool: Pool, rng: Rng) -> str:
    """A name for a machine of the pool, within its limit. Machine, VM, host and Node have the same."""
    return shorten_name(machine_name_stem(cluster, pool.name) + rng.name_suffix(), pool.hostname_limit)


_NAME_LENGTH = 5  # of the word after a stem


def _shortens(cluster: Cluster, pool: Pool) -> bool:
    return len(machine_name_stem(cluster, pool.name)) + _NAME_LENGTH > pool.hostname_limit


def is_name_in_pool(cluster: Cluster, pool: Pool, name: str) -> bool:
    """Whether names of the pool's machines are like it. Of one that was shortened as much can be told as is left."""
    stem, limit = machine_name_stem(cluster, pool.name), pool.hostname_limit
    if not _shortens(cluster, pool):
        return name.startswith(stem)
    kept = f"{stem[: limit - 6].removesuffix('-')}-"
    return len(name) == limit and name.startswith(kept) and not set(name[len(kept) :]) - set(hexdigits)


def is_machine_name(cluster: Cluster, name: str) -> bool:
    """Whether this Cluster named it: the stem of a pool, also of one that it has no more, and one word after it; or a name
    that a pool's limit has shortened."""
    if any(_shortens(cluster, pool) and is_name_in_pool(cluster, pool, name) for pool in cluster.pools):
        return True
    pool, *rest = name.removeprefix(f"{cluster.name}-").rsplit("-", 2)
    return len(rest) == 2 and f"{machine_name_stem(cluster, pool)}{rest[1]}" == name


def format_roles(roles: frozenset[Role]) -> str:
    """`etcd,control-plane,worker`, in that order, for tables."""
    return ",".join(role.value for role in _ROLE_ORDER if role in roles)
