"""What is to be done about one node: plans as lists of changes, each with its reason. Pure.

| The node                           | Then                                                                       |
|------------------------------------|----------------------------------------------------------------------------|
| carries the taint `uninitialized`  | providerID, topology labels and taint in one write; addresses; event Synced |
| is initialised                     | addresses and topology follow its VM                                       |
| is Ready                           | the taint `shutdown` is taken away                                         |
| is not Ready, its VM is off        | it gets the taint `shutdown`                                               |
| is not Ready, its VM is surely gone | it is deleted                                                             |
"""

from __future__ import annotations

from dataclasses import dataclass

from windrow.cloudprovider import names
from windrow.cloudprovider.addresses import has_ip, missing_provided_ips, node_addresses, preferred
from windrow.cloudprovider.flags import LIFECYCLE_CONTROLLER, NODE_CONTROLLER, Options
from windrow.cloudprovider.identities import Foreign, Found, Identity, Missing, Unknown
from windrow.cloudprovider.readings import Address, GuestNode, GuestVm, Instance, Taint
from windrow.harvester.identity import provider_id


@dataclass(frozen=True, slots=True)
class SetProviderId:
    provider_id: str
    because: str


@dataclass(frozen=True, slots=True)
class SetLabels:
    labels: tuple[tuple[str, str], ...]
    because: str


@dataclass(frozen=True, slots=True)
class RemoveTaint:
    """All taints with this key, whatever their value and effect."""

    key: str
    because: str


@dataclass(frozen=True, slots=True)
class AddTaint:
    taint: Taint
    because: str


@dataclass(frozen=True, slots=True)
class SetAddresses:
    addresses: tuple[Address, ...]
    because: str


@dataclass(frozen=True, slots=True)
class Announce:
    """An event on the node."""

    source: str
    reason: str
    message: str
    because: str


@dataclass(frozen=True, slots=True)
class DeleteNode:
    because: str


Change = SetProviderId | SetLabels | RemoveTaint | AddTaint | SetAddresses | Announce | DeleteNode


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, and what is waited for ("" when nothing)."""

    changes: tuple[Change, ...] = ()
    waits_for: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """One node and what is known of its VM. `is_gone` is true only when the host was asked and said so."""

    node: GuestNode
    identity: Identity
    instance: Instance | None = None
    is_gone: bool = False


def plan_node(seen: Seen, options: Options) -> Plan:
    node = seen.node
    if node.is_deleting or isinstance(seen.identity, Foreign):
        return Plan()
    initial = needs_initialisation(node)
    if initial and NODE_CONTROLLER in options.controllers:
        plan = plan_first(seen, options)
    elif isinstance(seen.identity, Found) and NODE_CONTROLLER in options.controllers:
        plan = Plan(tuple(plan_upkeep(node, seen.instance, options)))
    else:
        plan = Plan()
    if LIFECYCLE_CONTROLLER in options.controllers:
        plan = Plan((*plan.changes, *plan_lifecycle(seen)), plan.waits_for)
    return plan


def needs_initialisation(node: GuestNode) -> bool:
    return node.has_taint(names.UNINITIALISED)


def plan_first(seen: Seen, options: Options) -> Plan:
    match seen.identity:
        case Found(vm):
            return plan_initialisation(seen.node, vm, seen.instance, options)
        case Missing(vm_uid):
            return Plan(waits_for=f"node {seen.node.name!r}: no VM has the uid {vm_uid} of its providerID")
        case Unknown(because):
            return Plan(waits_for=f"node {seen.node.name!r}: {because}")
        case Foreign():
            return Plan()


def plan_initialisation(node: GuestNode, vm: GuestVm, instance: Instance | None, options: Options) -> Plan:
    """Everything a fresh node needs from its cloud, or what is still missing for it."""
    if instance is None:
        return Plan(waits_for=f"node {node.name!r}: VM {vm.name!r} has no running instance yet")
    known = node_addresses(instance, node, options)
    missing = missing_provided_ips(node, known)
    if missing:
        return Plan(waits_for=_unconfirmed(node, instance, known, missing))
    because = f"it runs in VM {vm.name}"
    changes: list[Change] = []
    if not node.provider_id:
        changes.append(SetProviderId(provider_id(vm.uid), because))
    labels = _missing_labels(node, instance)
    if labels:
        changes.append(SetLabels(labels, f"the host of VM {vm.name} is there"))
    changes.append(RemoveTaint(names.UNINITIALISED, because))
    wanted = preferred(node, known)
    if wanted != node.addresses and (has_ip(wanted) or not has_ip(node.addresses)):
        changes.append(SetAddresses(wanted, f"VM {vm.name} reports them"))
    changes.append(Announce(names.NODE_CONTROLLER, "Synced", "Node synced successfully", because))
    return Plan(tuple(changes))


def _unconfirmed(
    node: GuestNode, instance: Instance, known: tuple[Address, ...], missing: tuple[str, ...]
) -> str:
    found = ", ".join(one.address for one in known if one.type != "Hostname")
    if found:
        state = f"its VM reports {found}"
    elif instance.has_agent:
        state = "its guest agent has not reported an address on the node's network"
    else:
        state = "its guest agent is not connected (is qemu-guest-agent installed and running?)"
    return (
        f'provided node ip for node "{node.name}" is not valid: failed to get node address from cloud provider '
        f"that matches ip: {', '.join(missing)}; {state}"
    )


def plan_upkeep(node: GuestNode, instance: Instance | None, options: Options) -> list[Change]:
    """What has changed on the host side since. Nothing is taken away because a report is missing."""
    changes: list[Change] = []
    labels = dict(_missing_old_labels(node))
    if instance is not None and not instance.is_migrating and not options.disable_vmi_controller:
        labels.update(_missing_labels(node, instance))
    if labels:
        changes.append(SetLabels(tuple(labels.items()), "the VM's host says so"))
    if instance is None or instance.is_migrating:
        return changes
    known = node_addresses(instance, node, options)
    wanted = preferred(node, known)
    if has_ip(wanted) and not missing_provided_ips(node, known) and wanted != node.addresses:
        changes.append(SetAddresses(wanted, f"VM {instance.name} reports them"))
    return changes


def _missing_labels(node: GuestNode, instance: Instance) -> tuple[tuple[str, str], ...]:
    wanted = (
        (names.ZONE_BETA, instance.zone),
        (names.ZONE, instance.zone),
        (names.REGION_BETA, instance.region),
        (names.REGION, instance.region),
    )
    return tuple((key, value) for key, value in wanted if value and node.topology.get(key) != value)


def _missing_old_labels(node: GuestNode) -> list[tuple[str, str]]:
    """Present keys that are missing beside their old ones. A present key that differs is a user's choice."""
    pairs = ((names.ZONE_BETA, names.ZONE), (names.REGION_BETA, names.REGION))
    return [
        (present, node.topology[old])
        for old, present in pairs
        if old in node.topology and present not in node.topology
    ]


def plan_lifecycle(seen: Seen) -> list[Change]:
    """What a VM that is off, or gone, means for its node."""
    node = seen.node
    is_marked = node.has_taint(names.SHUTDOWN)
    is_off = seen.instance is None or seen.instance.is_over
    if node.is_ready:
        return [RemoveTaint(names.SHUTDOWN, "the node is Ready")] if is_marked else []
    match seen.identity:
        case Missing(vm_uid) if seen.is_gone:
            because = f"no VM has the uid {vm_uid} any more"
            message = f"Deleting node {node.name} because it does not exist in the cloud provider"
            return [
                Announce(names.LIFECYCLE_CONTROLLER, "DeletingNode", message, because),
                DeleteNode(because),
            ]
        # A kubelet that has just registered runs, even where the watch has not brought its instance yet.
        case Found(vm) if is_off and not is_marked and not needs_initialisation(node):
            taint = Taint(names.SHUTDOWN, "NoSchedule")
            return [AddTaint(taint, f"VM {vm.name} is off")]
        case _:
            return []
