"""The plan for one Node: a list of changes, each with its reason. Pure.

| The Node                           | Then                                                                       |
|------------------------------------|----------------------------------------------------------------------------|
| has the taint `uninitialized`      | providerID, topology labels and taint in one write; addresses; event Synced |
| is initialised                     | addresses and topology follow its VM, also after a migration               |
| is Ready                           | the taint `shutdown` is removed                                            |
| is not Ready, its VM is off        | the taint `shutdown` is added                                              |
| is not Ready, its VM is not found  | it is deleted; not before six minutes of the taint `out-of-service`        |

Zone and region follow the host of the VM, under present and old keys. Harvester writes them as annotations of the
instance, and removes them when the host has none. We write them to the node, and beside them a record of what we wrote:

| The host has | The record has | The node's labels                                              |
|--------------|----------------|----------------------------------------------------------------|
| one          | anything       | both keys are set to it; the record says it                    |
| none         | one            | those keys that still have the recorded value go; so does the record |
| none         | none           | are a user's, and stay                                         |

An instance that has just been started has no annotations until Harvester has written them. So nothing is taken
away before an instance has been known for `TOPOLOGY_GRACE`.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from datetime import timedelta

from windrow.cloudprovider import names
from windrow.cloudprovider.nodes.addresses import (
    NO_ADDRESSES,
    BadProvidedIp,
    has_ip,
    missing_provided_ips,
    node_addresses,
    parse_provided_ips,
    prefer_provided,
)
from windrow.cloudprovider.nodes.identity import OtherCloud, VmFound, VmMatch, VmMissing, VmUnknown
from windrow.cloudprovider.nodes.readings import Address, GuestNode, GuestVm, Instance, Taint
from windrow.cloudprovider.options import Options
from windrow.cloudprovider.services.actions import describe_entries
from windrow.core.formats.json import dumps
from windrow.harvester.identity import provider_id
from windrow.kubernetes.taints import FORCED_DETACH_TIMEOUT, UNINITIALIZED

Labels = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True)
class SetProviderId:
    provider_id: str
    because: str

    def __str__(self) -> str:
        return f"providerID {self.provider_id} set because {self.because}"


@dataclass(frozen=True, slots=True)
class SetLabels:
    """None removes a label."""

    labels: Labels
    because: str

    def __str__(self) -> str:
        return f"{describe_entries('labels', self.labels)} because {self.because}"


@dataclass(frozen=True, slots=True)
class RecordAnnotation:
    """Record on the node which topology was written, so that it survives a restart; "" for none."""

    topology: str
    because: str

    def __str__(self) -> str:
        what = f"topology {self.topology} recorded" if self.topology else "record of its topology removed"
        return f"{what} because {self.because}"


@dataclass(frozen=True, slots=True)
class RemoveTaint:
    """All taints with this key, whatever their value and effect."""

    key: str
    because: str

    def __str__(self) -> str:
        return f"taint {self.key} removed because {self.because}"


@dataclass(frozen=True, slots=True)
class AddTaint:
    taint: Taint
    because: str

    def __str__(self) -> str:
        return f"taint {self.taint.key} added because {self.because}"


@dataclass(frozen=True, slots=True)
class SetAddresses:
    addresses: tuple[Address, ...]
    because: str

    def __str__(self) -> str:
        addresses = ", ".join(one.address for one in self.addresses) or "none"
        return f"addresses set to {addresses} because {self.because}"


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """An event on the node."""

    source: str
    reason: str
    message: str
    because: str


@dataclass(frozen=True, slots=True)
class DeleteNode:
    because: str

    def __str__(self) -> str:
        return f"deleted because {self.because}"


Change = (
    SetProviderId
    | SetLabels
    | RecordAnnotation
    | RemoveTaint
    | AddTaint
    | SetAddresses
    | EmitEvent
    | DeleteNode
)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, what is waited for ("" for nothing), and when to reconcile again without a watch event."""

    changes: tuple[Change, ...] = ()
    waits_for: str = ""
    requeue_after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class NodeState:
    """The observed state of one node and its VM.

    `is_gone` is true only after a live list without the VM. `known_for` is how long the instance has been known;
    `virtual` are the addresses of services of the guest, None while they are not known.
    """

    node: GuestNode
    identity: VmMatch
    instance: Instance | None = None
    is_gone: bool = False
    known_for: timedelta = timedelta.max
    virtual: Set[str] | None = NO_ADDRESSES
    # For how long the node has had the taint out-of-service, where that has a date.
    out_of_service_for: timedelta | None = None

    @property
    def is_being_released(self) -> bool:
        """Whether its volumes may still be detached from it at once: without the node they are waited for much longer."""
        return self.out_of_service_for is not None and self.out_of_service_for < FORCED_DETACH_TIMEOUT


def plan_node(state: NodeState, options: Options) -> Plan:
    node = state.node
    if node.is_deleting or isinstance(state.identity, OtherCloud):
        return Plan()
    plan = plan_sync(state, options) if names.NODE_CONTROLLER in options.controllers else Plan()
    if names.LIFECYCLE_CONTROLLER in options.controllers:
        plan = replace(plan, changes=(*plan.changes, *plan_lifecycle(state)))
    return plan


def needs_initialisation(node: GuestNode) -> bool:
    return node.has_taint(UNINITIALIZED)


def plan_sync(state: NodeState, options: Options) -> Plan:
    """What the framework's node controller does: initialise a node once, and update it later."""
    match (state.identity, needs_initialisation(state.node)):
        case (VmFound(vm), True):
            return plan_initialisation(state, vm, options)
        case (VmFound(), False):
            return plan_update(state, options)
        case (VmMissing(vm_uid), True):
            return Plan(waits_for=f"no VirtualMachine has the uid {vm_uid} of its providerID")
        case (VmUnknown(because), True):
            return Plan(waits_for=because)
        case _:
            return Plan()


def plan_initialisation(state: NodeState, vm: GuestVm, options: Options) -> Plan:
    """Everything that an uninitialised node needs, or what is still missing for it."""
    node, instance = state.node, state.instance
    if instance is None:
        return Plan(waits_for=f"VirtualMachine {vm.name} has no VirtualMachineInstance yet")
    known = node_addresses(instance, node, options, state.virtual or NO_ADDRESSES)
    problem = _provided_ip_problem(node, instance, known)
    if problem:
        return Plan(waits_for=f'provided node ip for node "{node.name}" is not valid: {problem}')
    because = f"it runs in VM {vm.name}"
    changes: list[Change] = []
    if not node.provider_id:
        changes.append(SetProviderId(provider_id(vm.uid), because))
    topology, requeue_after = plan_topology(state, instance, f"the host of VM {vm.name} has this topology")
    changes += topology
    changes.append(RemoveTaint(UNINITIALIZED, because))
    wanted = prefer_provided(node, known)
    if wanted != node.addresses and (has_ip(wanted) or not has_ip(node.addresses)):
        changes.append(SetAddresses(wanted, f"VM {vm.name} reports them"))
    changes.append(EmitEvent(names.NODE_CONTROLLER, "Synced", "Node synced successfully", because))
    return Plan(tuple(changes), requeue_after=requeue_after)


def _provided_ip_problem(node: GuestNode, instance: Instance, known: tuple[Address, ...]) -> str:
    """Why the kubelet's address is not valid, "" when it is. The text before ";" is the framework's."""
    try:
        parse_provided_ips(node.provided_ip)
    except BadProvidedIp as error:
        return f"{error}; correct --node-ip of its kubelet, or the annotation {names.PROVIDED_NODE_IP}"
    missing = missing_provided_ips(node, known)
    if not missing:
        return ""
    found = ", ".join(one.address for one in known if one.type != "Hostname")
    if found:
        state = f"its VM reports {found}"
    elif instance.has_agent:
        state = "its guest agent has not reported an address on the node's network"
    else:
        state = "its guest agent is not connected (is qemu-guest-agent installed and running?)"
    return f"failed to get node address from cloud provider that matches ip: {', '.join(missing)}; {state}"


def plan_update(state: NodeState, options: Options) -> Plan:
    """What has changed on the host since. No address is removed because a report is missing."""
    node, instance = state.node, state.instance
    changes: list[Change] = []
    requeue_after = None
    is_steady = instance is not None and not instance.is_migrating
    if instance is not None and is_steady and not options.disable_vmi_controller:
        changes, requeue_after = plan_topology(state, instance, "the topology of the VM's host has changed")
    if not changes and (labels := missing_successors(node.topology)):
        changes = [SetLabels(labels, "their old keys are there")]
    if instance is None or not is_steady or state.virtual is None:
        return Plan(tuple(changes), requeue_after=requeue_after)
    known = node_addresses(instance, node, options, state.virtual)
    wanted = prefer_provided(node, known)
    if has_ip(wanted) and not _provided_ip_problem(node, instance, known) and wanted != node.addresses:
        changes.append(SetAddresses(wanted, f"VM {instance.name} reports them"))
    return Plan(tuple(changes), requeue_after=requeue_after)


def plan_lifecycle(state: NodeState) -> list[Change]:
    """What the framework's lifecycle controller does: a VM that is off, or not found."""
    node = state.node
    is_marked = node.has_taint(names.SHUTDOWN)
    is_off = state.instance is None or state.instance.is_stopped
    if node.is_ready:
        return [RemoveTaint(names.SHUTDOWN, "the node is Ready")] if is_marked else []
    match state.identity:
        case VmMissing() if state.is_being_released:
            return []  # asked again, as every node whose VM is missing
        case VmMissing(vm_uid) if state.is_gone:
            because = f"no VirtualMachine has the uid {vm_uid}"
            message = f"Deleting node {node.name} because it does not exist in the cloud provider"
            return [
                EmitEvent(names.LIFECYCLE_CONTROLLER, "DeletingNode", message, because),
                DeleteNode(because),
            ]
        # A kubelet that has just registered runs, even where the watch lags behind with its instance.
        case VmFound(vm) if is_off and not is_marked and not needs_initialisation(node):
            taint = Taint(names.SHUTDOWN, "NoSchedule")
            return [AddTaint(taint, f"VM {vm.name} is off")]
        case _:
            return []


# --- zone and region ---------------------------------------------------------------------------------------------------

TOPOLOGY_GRACE = timedelta(seconds=30)

_TOPOLOGY_KEYS = {"zone": (names.ZONE_BETA, names.ZONE), "region": (names.REGION_BETA, names.REGION)}


def plan_topology(
    state: NodeState, instance: Instance, because: str
) -> tuple[list[Change], timedelta | None]:
    """The labels and the record to write, and when to reconcile again."""
    node = state.node
    on_host = {"zone": instance.zone, "region": instance.region}
    before = node.topology_record or {}
    labels: dict[str, str | None] = {}
    record: dict[str, str] = {}
    requeue_after = None
    for what, keys in _TOPOLOGY_KEYS.items():
        if on_host[what]:
            record[what] = on_host[what]
            labels |= {key: on_host[what] for key in keys if node.topology.get(key) != on_host[what]}
        elif before.get(what) and state.known_for < TOPOLOGY_GRACE:
            record[what] = before[what]
            requeue_after = TOPOLOGY_GRACE - state.known_for
        elif before.get(what):
            labels |= {key: None for key in keys if node.topology.get(key) == before[what]}
    changes: list[Change] = []
    if labels:
        after = {key: value for key, value in {**node.topology, **labels}.items() if value is not None}
        labels |= dict(missing_successors(after))
        changes.append(SetLabels(tuple(labels.items()), because))
    if record != before:
        changes.append(RecordAnnotation(dumps(record).decode() if record else "", because))
    return changes, requeue_after


def missing_successors(labels: Mapping[str, str]) -> Labels:
    """Present keys that are missing beside their old ones. A present key that differs is a user's choice."""
    return tuple(
        (present, labels[old]) for old, present in names.SUCCESSORS if old in labels and present not in labels
    )
