"""What a user asks for, as frozen views: a Cluster with its machine pools; `manifest.reading` reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from windrow.bootstrap.spec import HasRoles, Role
from windrow.clusters.api import names
from windrow.clusters.api.addresses import AddressPool
from windrow.clusters.api.endpoint import ControlPlaneEndpoint
from windrow.clusters.api.kinds import HARVESTER_CONFIG
from windrow.clusters.api.operations.recorded import Operations
from windrow.clusters.api.status import RecordedStatus
from windrow.clusters.api.updates.int_or_percent import IntOrPercent
from windrow.clusters.api.updates.strategy import UpgradeStrategy
from windrow.machines.port import HARVESTER

DEFAULT_VM_NAMESPACE = "default"
UNHEALTHY_TIMEOUT = timedelta(minutes=5)
STARTUP_TIMEOUT = timedelta(minutes=10)
DRAIN_TIMEOUT = timedelta(minutes=5)
# Rancher's bounds of hostnameLengthLimit.
LEAST_HOSTNAME, LONGEST_HOSTNAME = 10, 63


@dataclass(frozen=True, slots=True)
class Pool(HasRoles):
    """One machine pool as asked for. `options` is None while its machine config is absent."""

    name: str
    quantity: int = 1
    roles: frozenset[Role] = frozenset({Role.WORKER})
    config_name: str = ""
    options: Mapping[str, Any] | None = None
    credential: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    machine_labels: Mapping[str, str] = field(default_factory=dict)
    machine_annotations: Mapping[str, str] = field(default_factory=dict)
    hostname_limit: int = LONGEST_HOSTNAME
    drain: bool = False
    drain_timeout: timedelta | None = DRAIN_TIMEOUT  # None: for as long as it takes
    unhealthy_timeout: timedelta = UNHEALTHY_TIMEOUT
    startup_timeout: timedelta | None = STARTUP_TIMEOUT
    max_unhealthy: IntOrPercent = field(default_factory=IntOrPercent)
    max_surge: IntOrPercent = field(default_factory=lambda: IntOrPercent(None, 1))
    max_unavailable: IntOrPercent = field(default_factory=lambda: IntOrPercent(None, 0))
    paused: bool = False
    kind: str = HARVESTER_CONFIG.kind  # of its machine config
    driver: str = HARVESTER  # that makes its machines
    address_pools: tuple[AddressPool, ...] = ()  # of which each machine has an address

    @property
    def is_on_harvester(self) -> bool:
        """Whether its machines are known to be VMs on Harvester."""
        return self.options is not None and self.driver == HARVESTER

    @property
    def vm_namespace(self) -> str:
        return str((self.options or {}).get("vmNamespace") or DEFAULT_VM_NAMESPACE)


_ROLE_LABELS = (
    (Role.ETCD, names.ETCD_ROLE),
    (Role.CONTROL_PLANE, names.CONTROL_PLANE_ROLE),
    (Role.WORKER, names.WORKER_ROLE),
)


def machine_labels(cluster: str, pool: Pool) -> dict[str, str]:
    """What selectors of machines (`machineSelectorConfig`) select on, as Rancher labels its machines: with those of the pool's
    Nodes too. A pool cannot take the labels of the cluster, of its own name and of its roles away."""
    labels = {**pool.machine_labels, **pool.labels}
    labels |= {names.CLUSTER_NAME: cluster, names.RKE_CLUSTER_NAME: cluster, names.POOL_NAME: pool.name}
    labels |= {label: "true" for role, label in _ROLE_LABELS if role in pool.roles}
    labels[names.NODE_OS] = "linux"
    return labels


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Cluster as asked for, and what its status has recorded."""

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    created: datetime | None = None
    deletion_timestamp: datetime | None = None
    has_finalizer: bool = False  # Windrow's
    version: str = ""
    credential: str = ""
    pools: tuple[Pool, ...] = ()
    config_generations: Mapping[str, int] = field(
        default_factory=dict
    )  # of the machine configs of its pools, by name
    remediation_disabled: bool = False
    keeps_volumes: bool = False  # on Harvester, when it is deleted
    renewal_disabled: bool = False  # of certificates near their end, by itself
    replaces: bool = False  # machines, where they could be changed in place
    canary: int = 0  # how many machines are changed before the others wait; 0: none waits
    paused: bool = False  # spec.paused: no machine that exists is changed
    upgrade_strategy: UpgradeStrategy = field(default_factory=UpgradeStrategy)
    update_image: str = ""  # annotation windrow.io/update-image
    global_config: Mapping[str, Any] = field(default_factory=dict)
    selector_config: tuple[Mapping[str, Any], ...] = ()
    chart_values: Mapping[str, Any] = field(default_factory=dict)
    additional_manifest: str = ""
    registries: Mapping[str, Any] = field(default_factory=dict)
    etcd: Mapping[str, Any] = field(default_factory=dict)
    data_directory: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    selector_files: tuple[Mapping[str, Any], ...] = ()
    pod_security: str = ""
    # By which people reach the API server beside its addresses, with a port where it is not 443.
    endpoint_name: str = ""
    endpoint_ca: str = ""
    # By which machines join it, and people reach it.
    control_plane_endpoint: ControlPlaneEndpoint = field(default_factory=ControlPlaneEndpoint)
    # Of `selector_files`, read by the one who renders them: by source, name and key.
    file_contents: Mapping[tuple[str, str, str], bytes] = field(default_factory=dict, repr=False)
    stack: str = ""  # networking.stackPreference; "" where it is not set
    # The IP families of its pods, 4 and 6, the preferred one first.
    families: tuple[int, ...] = (4,)
    cloud_provider: str = ""
    cloud_config_secret: str = ""  # "namespace:name" of a secret:// reference
    operations: Operations = field(default_factory=Operations)  # that are carried out once
    recorded: RecordedStatus = field(default_factory=RecordedStatus)
    # What its servers must share: whether they do, and, before it has started, what its init server began with otherwise.
    servers_agree: bool = True
    init_server_changes: tuple[str, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self) -> str:
        return f"Cluster {self.namespace}/{self.name}"

    @property
    def uses_harvester_driver(self) -> bool:
        """Whether machines of it are VMs of Harvester, also while their machine config cannot be read."""
        return any(pool.driver == HARVESTER for pool in self.pools)

    def find_pool(self, name: str) -> Pool | None:
        return next((pool for pool in self.pools if pool.name == name), None)

    @property
    def endpoint_hosts(self) -> tuple[str, ...]:
        """The names and addresses of its endpoints, for certificates: `endpoint_name` without its port, too."""
        found = (*self.control_plane_endpoint.hosts, self.endpoint_name.partition(":")[0])
        return tuple(dict.fromkeys(filter(None, found)))

    @property
    def vm_namespace(self) -> str:
        """All machines of a cluster share one, because CCM and CSI look in one only."""
        return next((pool.vm_namespace for pool in self.pools if pool.is_on_harvester), DEFAULT_VM_NAMESPACE)
