"""The observed state of one Cluster, with its own `now`: a frozen snapshot from which the plan is made."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property, wraps
from typing import Any, Literal, TypeVar, cast

from windrow.bootstrap import LAYOUTS
from windrow.bootstrap.node_config import WORKER_LABEL
from windrow.bootstrap.spec import ClusterSecrets, GuestCredential
from windrow.clusters.api import names
from windrow.clusters.api.addresses import IPAddress
from windrow.clusters.api.cluster import DRAIN_TIMEOUT, Cluster, Pool
from windrow.clusters.api.guest_volumes import GuestVolumes
from windrow.clusters.api.machine import Machine
from windrow.clusters.api.operations.snapshot import ETCDSnapshot, SnapshotFile
from windrow.clusters.api.status import RecordedStatus
from windrow.clusters.change.fields import OptionRules
from windrow.clusters.endpoint_balancer import ObservedBalancer
from windrow.clusters.orphans import MachineClaim, Orphans, OrphanVm
from windrow.clusters.updates.charts import ObservedCharts
from windrow.clusters.updates.observed import ObservedJob
from windrow.harvester.hosts.maintenance import HostMaintenance
from windrow.harvester.names import MacvlanState, read_macvlan
from windrow.harvester.problems import join_hint
from windrow.harvester.shutdown import Shutdown
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import (
    annotations_of,
    labels_of,
    name_of,
    nested,
    objects_at,
    resource_version_of,
    text_at,
    time_of,
    uid_of,
)
from windrow.kubernetes.taints import UNINITIALIZED, list_out_of_service
from windrow.machines.port import HARVESTER, MachineStatus, Problem

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Node:
    """A guest Node as the guest API shows it."""

    name: str
    uid: str = ""
    machine_uid: str = ""
    ready: bool = False
    ready_message: str = ""  # of the condition, by kubelet or the node controller
    since: datetime | None = None
    provider_id: str = ""
    addresses: tuple[str, ...] = ()
    uninitialized: bool = False
    etcd_voter: bool | None = None  # None: not said (not an etcd node, or too early)
    unschedulable: bool = False
    is_cordoned_by_manager: bool = False
    labels: frozenset[str] = frozenset()  # their keys
    label_items: frozenset[tuple[str, str]] = frozenset()
    taints: frozenset[str] = (
        frozenset()
    )  # KEY=VALUE:EFFECT, as pools write them; not those of Kubernetes itself
    macvlan: MacvlanState = ""  # whether its kernel has the module
    applied_revision: str = ""
    encryption_hash: str = (
        ""  # of its server: the stage of a rotation of encryption keys, and a digest of the keys
    )
    kubelet_version: str = ""
    boot_id: str = ""  # of its kernel's last boot
    etcd_removal_requested: bool = False
    etcd_removed: bool = False
    # Whether it has the taint out-of-service, since when (where that is said), and whether the manager has set it.
    out_of_service: bool = False
    out_of_service_since: datetime | None = None
    out_of_service_by_manager: bool = False
    resource_version: str = field(default="", compare=False)  # resourceVersion


def read_node(raw: Mapping[str, Any]) -> Node:
    conditions = objects_at(raw, "status", "conditions")
    ready = find_condition(conditions, "Ready")
    voter = find_condition(conditions, names.ETCD_VOTER)
    annotations, labels = annotations_of(raw), labels_of(raw)
    taints = objects_at(raw, "spec", "taints")
    shutdowns = list_out_of_service(raw)
    return Node(
        name=name_of(raw),
        uid=uid_of(raw),
        machine_uid=labels.get(names.NODE_MACHINE, ""),
        ready=ready is not None and ready.status == "True",
        ready_message=(ready.message or ready.reason) if ready else "kubelet has not reported yet",
        since=ready.since if ready else None,
        provider_id=text_at(raw, "spec", "providerID"),
        addresses=tuple(
            text_at(entry, "address")
            for entry in objects_at(raw, "status", "addresses")
            if entry.get("type") == "InternalIP"
        ),
        uninitialized=any(taint.get("key") == UNINITIALIZED for taint in taints),
        etcd_voter=None if voter is None else voter.status == "True",
        unschedulable=nested(raw, "spec", "unschedulable", default=False) is True,
        is_cordoned_by_manager=names.CORDONED in annotations,
        labels=frozenset(labels),
        label_items=frozenset(labels.items()),
        taints=frozenset(_write_taint(one) for one in taints if not _is_of_kubernetes(one)),
        macvlan=read_macvlan(labels),
        applied_revision=annotations.get(names.APPLIED_REVISION, ""),
        encryption_hash=next(
            filter(None, (annotations.get(f"{layout.name}.io/encryption-config-hash") for layout in LAYOUTS)),
            "",
        ),
        kubelet_version=text_at(raw, "status", "nodeInfo", "kubeletVersion"),
        boot_id=text_at(raw, "status", "nodeInfo", "bootID"),
        etcd_removal_requested=any(annotations.get(layout.etcd_remove) == "true" for layout in LAYOUTS),
        etcd_removed=any(annotations.get(layout.etcd_removed) for layout in LAYOUTS),
        out_of_service=bool(shutdowns),
        out_of_service_since=time_of(shutdowns[0], "timeAdded") if shutdowns else None,
        out_of_service_by_manager=any(
            taint.get("value") == names.OUT_OF_SERVICE_VALUE for taint in shutdowns
        ),
        resource_version=resource_version_of(raw),
    )


def _is_of_kubernetes(taint: Mapping[str, Any]) -> bool:
    return text_at(taint, "key").startswith(("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/"))


def _write_taint(taint: Mapping[str, Any]) -> str:
    value = text_at(taint, "value")
    return f"{text_at(taint, 'key')}{f'={value}' if value else ''}:{text_at(taint, 'effect')}"


@dataclass(frozen=True, slots=True)
class GuestState:
    """What the guest API says. `unreachable` is not gone: nothing is known then."""

    state: Literal["unknown", "unreachable", "reachable"] = "unknown"
    because: str = ""
    nodes: tuple[Node, ...] = ()
    published_server: str = ""  # the server in the kubeconfig for people, "" when there is none yet
    probed_since: datetime | None = None  # by this process; what happened before is unknown
    interruption: str = ""  # why a reachable guest is not watched at this moment
    # When the certificates of API servers end that have just shown them, by URL.
    certificate_ends: Mapping[str, datetime] = field(default_factory=dict)

    @property
    def is_reachable(self) -> bool:
        return self.state == "reachable"


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod that has to leave a Node that is drained."""

    namespace: str
    name: str
    is_deleting: bool = False
    is_bare: bool = False  # no controller would create it again
    has_empty_dir: bool = False  # a volume whose data goes with the pod


# States of a VM that does not run and will not by itself.
STOPPED_STATES = frozenset({"stopped", "failed"})
# Those, and of one that is about to stop running.
GOING_STATES = STOPPED_STATES | {"stopping", "deleting"}

# The phase of a machine whose Node is Ready, but not initialized yet.
INITIALIZING = "Initializing"
# The phase of a machine that has not joined, and whose server to join through is lost.
STALLED = "Stalled"


@dataclass(frozen=True, slots=True)
class ActionFailure:
    """Why the last action on a machine, or on the cluster, failed. `waits_for` is what has to change before it succeeds,
    where that is neither time nor Harvester."""

    message: str
    hint: str
    waits_for: str = ""


@dataclass(frozen=True, slots=True)
class CredentialProblem:
    """Why a credential does not work now. `is_rejected`: the credential is wrong, not only Harvester unreachable.

    `is_allowed`: its Secret allows the namespace of the Cluster.
    `is_for_another_harvester`: it works, and not on the Harvester that the cluster is on.
    """

    message: str
    hint: str
    is_rejected: bool
    is_for_another_harvester: bool = False
    is_allowed: bool = True

    def __str__(self) -> str:
        return join_hint(self.message, self.hint)


@dataclass(frozen=True, slots=True)
class Place:
    """Where things of a Cluster are made, and the namespace of the Cluster, which the credential must allow."""

    credential: str
    namespace: str
    cluster_namespace: str


@dataclass(frozen=True, slots=True)
class AddressScope:
    """Under which identity of its Harvester a Cluster claims addresses.

    `name` is "" while it is not shown that its server is the Harvester that other Clusters claim addresses on; that is asked
    again at `retry_at`. `because` is what a machine waits for then, where it is something else. `servers` are digests of the
    servers that are that Harvester, `server` is its own.
    """

    name: str
    servers: frozenset[str] = frozenset()
    server: str = ""
    retry_at: datetime | None = None
    because: str = ""


@dataclass(frozen=True, slots=True)
class HeldAddress:
    """An address that a VM is told to have, or reports, on one network."""

    address: str
    vm: str  # "VirtualMachine namespace/name", or what `name_if_own` has for one of another namespace
    machine_uid: str = ""  # that the VM was made for


@dataclass(frozen=True, slots=True)
class ContestedAddress:
    """An address that a VM has, and that an IPAddress gives to another machine."""

    vm: str  # as that of a HeldAddress
    machine_uid: str
    claim: IPAddress

    machine: str = ""  # "Machine namespace/name" of the other, or what `name_if_own` has for it

    def __str__(self) -> str:
        other = self.machine or f"Machine {self.claim.machine}"
        return f"{self.vm} has {self.claim.address}, which {self.claim} gives to {other}"


def name_if_own(kind: str, name: str, namespaces: Container[str]) -> str:
    """The object `name`, namespace/name, for a sentence: by its name in one of `namespaces`, else without, since who reads
    the sentence may not read the objects of other namespaces."""
    if name.partition("/")[0] in namespaces:
        return f"{kind} {name}"
    return f"a {kind} of another namespace"


@dataclass(frozen=True, slots=True)
class ManagerLease:
    """Whether this manager holds its Lease on Harvester, which keeps managers apart that have copies of one state.

    taken: another manager holds it. pending: it is not acquired, or not renewed, yet. unguarded: there can be none.
    """

    state: Literal["held", "unguarded", "pending", "taken"] = "held"
    name: str = ""  # namespace/name
    holder: str = ""
    because: str = ""  # where unguarded for want of a permission

    @property
    def permits(self) -> bool:
        return self.state in ("held", "unguarded")

    def __str__(self) -> str:
        return f"Lease {self.name}"


@dataclass(frozen=True, slots=True)
class MachineState:
    """One machine: its record, its VM on Harvester, its Node in the guest."""

    record: Machine
    vm: MachineStatus | None = None
    node: Node | None = None
    pods: tuple[Pod, ...] = ()
    # The PersistentVolumes that are attached to its Node, where it goes or is gone; None: unknown.
    attached: tuple[str, ...] | None = ()
    # Those of them that a drain leaves there: pods use them that belong to the Node.
    staying: frozenset[str] = frozenset()
    # Where it seems to be shut down, what live reads say of that.
    shutdown: Shutdown | None = None
    # Those that were made for it and are left, once its VM is gone; None: unknown.
    claims: tuple[MachineClaim, ...] | None = ()
    deletion_requested: datetime | None = None
    # Until when a request to create its VM that was not answered may be carried out; None: there is none.
    may_be_made_until: datetime | None = None
    node_deleted: bool = False  # with its password Secret, by this process
    # Its VM as all VMs of the cluster are watched, where an address of its pool is not claimed for it: before anything was
    # requested by this record there is one where it is being adopted.
    found_vm: OrphanVm | None = None
    addresses: tuple[IPAddress, ...] = ()  # claimed for it
    family: int = 4  # of IP, by which it is reached where it has addresses of both
    # While it is changed in place: its Job in the guest, None where it is unknown, and static pods of another release.
    update_job: ObservedJob | None = None
    outdated_static_pods: tuple[str, ...] | None = None  # None: unknown
    # Why the API server on its own address is not ready, once its Job is done; "": it is. None: it was not asked.
    api_problem: str | None = None
    former_jobs: tuple[ObservedJob, ...] | None = ()  # of former turns; None: unknown
    # That of the host on Harvester which its VM is on, or was on before it was shut down; and whether hosts are known now.
    maintenance: HostMaintenance | None = None
    are_hosts_known: bool = False

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def pool(self) -> str:
        return self.record.pool

    @property
    def is_etcd(self) -> bool:
        return self.record.is_etcd

    @property
    def is_deleting(self) -> bool:
        return self.record.deletion_timestamp is not None

    @property
    def presence(self) -> Literal["present", "missing", "unknown"]:
        return self.vm.presence if self.vm else "unknown"

    @property
    def is_ready(self) -> bool:
        return self.node is not None and self.node.ready

    @property
    def is_down(self) -> bool:
        """Whether Harvester shows for certain that it does not run."""
        vm = self.vm
        return vm is not None and (vm.presence == "missing" or vm.state in STOPPED_STATES)

    @property
    def is_going_down(self) -> bool:
        """Whether it does not run, or is about to stop: its Node is still shown as Ready for a while then."""
        vm = self.vm
        return vm is not None and (vm.presence == "missing" or vm.state in GOING_STATES)

    @property
    def vm_ref(self) -> str:
        """Its VM as sentences name it: `VirtualMachine default/prod-workers-x7k2p`, else the Machine of another driver."""
        if self.record.driver != HARVESTER:
            return f"Machine {self.record.namespace}/{self.name}"
        return f"VirtualMachine {self.record.vm_namespace}/{self.name}"

    @property
    def node_name(self) -> str:
        return self.node.name if self.node else self.record.node or self.name

    @property
    def claimed_addresses(self) -> tuple[str, ...]:
        """The addresses that were claimed for its Node: its VM has them, or will have."""
        return tuple(claim.address for claim in self.addresses if claim.is_of_node)

    @property
    def address(self) -> str:
        """The address under which others reach it: what was claimed for it, which needs no guest agent, else what Harvester
        reports, else what the Node has. One of its family, where it has any."""
        claimed = self.claimed_addresses if self.record.was_created else ()
        shown = self.vm.addresses if self.vm else ()
        known = (*claimed, *shown, *(self.node.addresses if self.node else ()))
        fitting = (text for text in known if (":" in text) == (self.family == 6))
        return next(fitting, known[0] if known else "")


@dataclass(frozen=True, slots=True)
class GuestCredentialState:
    """Whether the guest has a credential for Harvester."""

    state: Literal["unneeded", "missing", "pending", "ready", "lost", "refused"] = "unneeded"
    credential: GuestCredential | None = field(default=None, repr=False)
    because: str = ""  # where refused


@dataclass(frozen=True)
class ClusterState:
    """The observed state of one Cluster."""

    now: datetime
    cluster: Cluster
    problems: tuple[Problem, ...] = ()
    machines: tuple[MachineState, ...] = ()
    # Where anything of the cluster is on Harvester, by credentials that its namespace may use.
    places: frozenset[Place] = frozenset()
    guest: GuestState = field(default_factory=GuestState)
    secrets: ClusterSecrets | None = field(default=None, repr=False)
    guest_credential: GuestCredentialState = field(default_factory=GuestCredentialState)
    # None: not run, because it passed before. Empty: no problems.
    preflight: tuple[Problem, ...] | None = None
    # What of its versions does not fit, the one that it runs and the one that it is to run; None before it runs, and before
    # Harvester was asked.
    version_problems: tuple[Problem, ...] | None = None
    config_hashes: Mapping[str, str] = field(default_factory=dict)  # of the configuration, by pool
    # The same with the version that is asked for, where that is another one.
    wanted_hashes: Mapping[str, str] = field(default_factory=dict)
    # The same with each version that machines were updated to, and that is asked for no longer.
    left_hashes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    option_rules: OptionRules = field(default_factory=OptionRules, repr=False, compare=False)
    # Of its credentials. None: not all of them were probed yet.
    credential_problems: tuple[CredentialProblem, ...] | None = None
    # Of those that are client certificates, which ends first, and when.
    credential_end: tuple[str, datetime] | None = None
    # Whether the preflight waits for the first probe of a credential; then nothing else of Harvester was read.
    awaits_probe: bool = False
    # Whether the uid of the guest is not recorded, and is due to be read.
    needs_guest_uid: bool = False
    # VMs on Harvester with the cluster's uid that no Machine records. None: they could not be listed yet.
    unrecorded: tuple[OrphanVm, ...] | None = ()
    # Disks on Harvester of machines that no Machine records and whose VM is gone, as far as they are known.
    unrecorded_claims: tuple[MachineClaim, ...] = ()
    # Until when a request to create the guest's ServiceAccount that was not answered may be carried out; None: there is none.
    account_may_be_made_until: datetime | None = None
    # Of a cluster that is deleted, as the guest lists them while they are not recorded. None: it has not.
    guest_volumes: GuestVolumes | None = None
    # Of the guest, while machines go to another version. None: not known.
    charts: ObservedCharts | None = None
    # For how long this process has asked for them; None where it did not.
    volumes_asked_for: timedelta | None = None
    # On Harvester, of a deleted cluster without machines. None: there can be none, or it is too early to list them.
    orphans: Orphans | None = None
    lease: ManagerLease = field(default_factory=ManagerLease)
    # A credential with which it cannot be read which Harvester this is, where machines are to have addresses of pools.
    harvester_hidden_from: str = ""
    # None: no address is claimed.
    address_scope: AddressScope | None = None
    # Addresses that are claimed, by whatever machine, on each network of its address pools.
    taken: Mapping[str, frozenset[str]] = field(default_factory=dict)
    # Addresses that VMs have on those networks, whether an IPAddress records them or not.
    held: Mapping[str, Mapping[str, HeldAddress]] = field(default_factory=dict)
    # Whether these were read, as far as Harvester lets the credentials of the cluster see them.
    is_held_known: bool = True
    # Addresses of VMs of the cluster that are claimed for other machines.
    contested: tuple[ContestedAddress, ...] = ()
    # IPAddresses with the cluster's uid, those of Machines that do not exist any more among them.
    claims: tuple[IPAddress, ...] = ()
    # The LoadBalancers of its endpoint, by name. None: unknown, perhaps for the reason given.
    balancers: Mapping[str, ObservedBalancer] | None = None
    balancers_unknown: str = ""
    # Until when a request to create one that was not answered may be carried out; None: there is none.
    balancers_may_be_made_until: datetime | None = None
    # What Harvester says of a VM and its watch does not show, although it had the time; "" for nothing.
    stale_watch: str = ""
    snapshots: tuple[ETCDSnapshot, ...] = ()  # that are recorded
    s3_digest: str = ""  # of what the guest is to know of S3, keys included; "" where it is to know nothing
    snapshot_files: tuple[SnapshotFile, ...] | None = None  # that the guest lists; None: unknown
    requests: frozenset[str] = frozenset()  # to its servers, that go on beside the reconciles, by their names
    hosts_hidden: str = ""  # why its credentials may not see hosts and upgrades of Harvester
    # What was concluded from this state, see `once_per_state`; a state that is made of it by `replace` begins anew.
    _concluded: dict[object, object] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def recorded(self) -> RecordedStatus:
        return self.cluster.recorded

    @cached_property
    def harvester_uid(self) -> str:
        """The identity of the Harvester that the cluster is on; "" before the first contact.

        Clusters from before it was recorded have it in the records of what was made there.
        """
        account = self.recorded.service_account
        configs = (m.record.driver_config or {} for m in self.machines if m.record.driver == HARVESTER)
        made = (str(config.get("WindrowHarvesterUID") or "") for config in configs)
        known = (self.recorded.harvester_uid, account.harvester if account else "", *made)
        return next(filter(None, known), "")

    @property
    def vm_namespaces(self) -> frozenset[str]:
        """Where its machines are on Harvester."""
        now = {pool.vm_namespace for pool in self.cluster.pools}
        return frozenset(now | {machine.record.vm_namespace for machine in self.machines})

    @property
    def claims_on(self) -> str:
        """The identity of Harvester under which it claims addresses; "" while it may not, or its server is not known."""
        scope = self.address_scope
        return scope.name if scope is not None and scope.server else ""

    @property
    def scope_name(self) -> str:
        """The same also while it may not claim: that of what it has claimed."""
        had = (claim.harvester for claim in self.claims)
        return self.claims_on or next(had, self.harvester_uid)

    @property
    def is_on_another_harvester(self) -> bool:
        """Whether a credential now leads to another Harvester than the one that the cluster is on."""
        return any(problem.is_for_another_harvester for problem in self.credential_problems or ())

    @property
    def has_begun(self) -> bool:
        """Whether anything of the cluster may be on Harvester."""
        recorded = self.recorded
        begun = recorded.init_server_uid or recorded.initialized or recorded.service_account is not None
        begun = begun or (recorded.endpoint is not None and recorded.endpoint.location is not None)
        return bool(begun) or any(machine.record.was_requested for machine in self.machines)

    @property
    def has_failed_preflight(self) -> bool:
        return any(problem.severity == "error" for problem in self.preflight or ())

    @property
    def has_lost_secrets(self) -> bool:
        """Whether the Secret that its machines were made with does not exist any more."""
        return self.secrets is None and bool(self.recorded.init_server_uid or self.recorded.initialized)

    @cached_property
    def active(self) -> tuple[MachineState, ...]:
        return tuple(machine for machine in self.machines if not machine.is_deleting)

    @cached_property
    def deleting(self) -> tuple[MachineState, ...]:
        return tuple(machine for machine in self.machines if machine.is_deleting)

    @cached_property
    def servers(self) -> tuple[MachineState, ...]:
        """The machines that others may join through, those being deleted included."""
        return tuple(machine for machine in self.machines if machine.record.is_server)

    @cached_property
    def machines_by_name(self) -> Mapping[str, MachineState]:
        return {machine.name: machine for machine in reversed(self.machines)}

    def find_machine(self, name: str) -> MachineState | None:
        return self.machines_by_name.get(name)

    @cached_property
    def init_server(self) -> MachineState | None:
        """The machine elected to start the cluster, while its record is there."""
        uid = self.cluster.recorded.init_server_uid
        return next((machine for machine in self.machines if uid and machine.record.uid == uid), None)

    @cached_property
    def etcd_members(self) -> tuple[MachineState, ...]:
        """The machines that are etcd members as far as is known, those being removed included."""
        return tuple(machine for machine in self.machines if self.is_etcd_member(machine))

    def why_no_quorum(self) -> str:
        """Why the etcd members whose VMs run can agree on nothing; "" where they may.

        Nodes cannot say it: without quorum their last conditions stay. So the VMs are counted.
        """
        members = self.etcd_members
        running = sum(not member.is_down for member in members)
        if not members or 2 * running > len(members):
            return ""
        return f"{running} of {len(members)} etcd members run, so etcd has no quorum"

    def is_etcd_member(self, machine: MachineState) -> bool:
        if not machine.is_etcd:
            return False
        if machine.node is None:
            # The distribution removes the member of a Node that is deleted. An unreachable API proves nothing: what was created may
            # have joined, also where no `nodeRef` was written before a restart.
            may_have_joined = machine.record.has_joined or (
                self.recorded.initialized and machine.record.was_created
            )
            return may_have_joined and not self.guest.is_reachable
        return not machine.node.etcd_removed

    def is_healthy_etcd_member(self, machine: MachineState) -> bool:
        """Ready, and a voter as far as the node says; not one whose VM goes, which the Node does not show yet."""
        return (
            self.is_etcd_member(machine)
            and machine.is_ready
            and not machine.is_going_down
            and machine.node is not None
            and machine.node.etcd_voter is not False
        )

    @cached_property
    def _active_by_pool(self) -> Mapping[str, tuple[MachineState, ...]]:
        found: dict[str, list[MachineState]] = {}
        for machine in self.active:
            found.setdefault(machine.pool, []).append(machine)
        return {pool: tuple(machines) for pool, machines in found.items()}

    def of_pool(self, pool: Pool) -> tuple[MachineState, ...]:
        """The machines of the pool that are not being deleted."""
        return self._active_by_pool.get(pool.name, ())

    def lacks_cloud_provider(self, node: Node) -> bool:
        """Whether the cloud provider has yet to initialize the Node."""
        return self.cluster.cloud_provider == "harvester" and (not node.provider_id or node.uninitialized)

    def is_drainable(self, machine: MachineState) -> bool:
        """Whether the Node of a machine that is being deleted is to be drained, and still can be.

        Pods on a Node that is not Ready never terminate, so nothing is waited for there.
        """
        return machine.is_ready and self.guest.is_reachable and self._has_time_to_drain(machine)

    def awaits_drain(self, machine: MachineState) -> bool:
        """Whether nothing can be said of the pods of a machine that is being deleted, and that is to be drained.

        The guest cannot be asked, which is so after each start of this process. A VM that does not run has no pods.
        """
        joined = machine.record.has_joined or self._may_have_joined_meanwhile(machine)
        may_have_pods = joined and not machine.is_going_down
        return may_have_pods and not self.guest.is_reachable and self._has_time_to_drain(machine)

    def _may_have_joined_meanwhile(self, machine: MachineState) -> bool:
        """Whether it may have joined while no process looked, which had recorded that."""
        is_unasked = self.guest.state == "unknown" and self.recorded.initialized
        return is_unasked and machine.record.was_created

    def _has_time_to_drain(self, machine: MachineState) -> bool:
        pool = self.cluster.find_pool(machine.pool)
        if not (pool is None or pool.drain) or machine.presence == "missing":
            return False
        if machine.deletion_requested is not None or (machine.node and machine.node.etcd_removal_requested):
            return False
        until = self.find_drain_end(machine)
        return until is None or self.now < until

    def find_drain_end(self, machine: MachineState) -> datetime | None:
        """Until when a machine that is being deleted may be drained; None where that has no limit."""
        pool, since = self.cluster.find_pool(machine.pool), machine.record.deletion_timestamp
        assert since is not None  # it is being deleted
        timeout = pool.drain_timeout if pool else DRAIN_TIMEOUT
        return None if timeout is None else since + timeout

    def is_initialized(self, machine: MachineState) -> bool:
        """Whether its Node is Ready and initialized by the cloud provider, and has its role label.

        A node is shown as Ready for a while after its VM is deleted or stopped; Harvester reports it at once.
        """
        node = machine.node
        if node is None or not node.ready or machine.is_down:
            return False
        if self.lacks_cloud_provider(node):
            return False
        return not machine.record.is_worker or WORKER_LABEL in node.labels


def once_per_state(conclude: Callable[[ClusterState], V]) -> Callable[[ClusterState], V]:
    """`conclude`, which is run once for a state: what is asked again for each machine would go through all of them each time."""

    @wraps(conclude)
    def concluded(state: ClusterState) -> V:
        known = state._concluded
        if conclude not in known:
            known[conclude] = conclude(state)
        return cast(V, known[conclude])

    return concluded


def unreachable_reason(guest: GuestState) -> str:
    return guest.because or "the guest API does not answer"
