"""Fencing: a Node whose machine was shut down gets the taint out-of-service, so that its volumes can go elsewhere.

Kubernetes cannot tell a Node that is dead from one that is cut off, so it leaves the pods and volumes of a Node that is not
Ready where they are: evicted pods terminate for ever, and their volumes are detached by force after six minutes, or never
while the pods are there. The taint says what only an observer of the machine knows: nothing there can write any more.
kube-controller-manager then deletes the pods and detaches the volumes at once.

| The VM, by live reads                     | The Node has        | Then                                             |
|-------------------------------------------|---------------------|--------------------------------------------------|
| deleted; no launcher pod                  | no taint            | tainted at once, where volumes are attached to it |
| not found by the driver of another cloud  | no taint, NotReady  | tainted: its word alone does not suffice         |
| exists; no VMI, no launcher pod           | no taint, NotReady  | tainted                                          |
| exists; no VMI, no launcher pod           | no taint, Ready     | nothing: it may only be restarted                |
| anything else, or unknown                 | no taint            | nothing                                          |
| runs                                      | our taint, Ready    | the taint is removed                             |
| runs                                      | our taint, NotReady | nothing yet                                      |
| anything                                  | another's taint     | nothing: who set it removes it                   |

A drain leaves the pods of DaemonSets, as `kubectl drain --ignore-daemonsets` does, and so their volumes stay attached. They are not
waited for while the VM runs: the guest is shut down in order, then the machine is gone, the Node is tainted, and they are detached.

A Node that is deleted takes the taint with it, and then its volumes are waited for again. So the Node of a machine that is
gone is deleted only when nothing is attached to it any more, or after `FORCED_DETACH_TIMEOUT`.
"""

from __future__ import annotations

from datetime import timedelta

from windrow.clusters.plan.actions import PartialPlan, TaintNode, UntaintNode
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.text import join_some
from windrow.kubernetes.taints import FORCED_DETACH_TIMEOUT
from windrow.machines.port import HARVESTER

RECHECK = timedelta(seconds=10)
# The states of a VM whose guest runs; of other drivers nothing more is known than that it is there.
_RUNS = frozenset({"", "running", "migrating"})


def plan(state: ClusterState) -> PartialPlan:
    """Taint the Nodes of machines that were shut down, and remove our taint of those that are back."""
    partial = PartialPlan()
    if not state.guest.is_reachable:
        return partial
    for machine in state.machines:
        if machine.node is None:
            continue
        if is_shutdown_suspected(machine):
            _taint(machine, state, partial)
        elif machine.node.out_of_service_by_manager and _is_back(machine):
            because = f"{machine.vm_ref} runs and its Node is Ready"
            partial.actions.append(UntaintNode(because, machine.name, machine.node.name, machine.node.uid))
    return partial


def is_shutdown_suspected(machine: MachineState) -> bool:
    """Whether it is worth live reads to prove that the machine was shut down, and its Node is to have the taint then.

    A VM that exists may be started again at once: then its pods stay, as after any reboot. A Node that is shown as Ready is
    therefore left alone until its kubelet has missed its reports. So is that of another driver's machine, whatever the
    driver says: one error text proves little of a machine whose kubelet reports.
    """
    node = machine.node
    if node is None or node.out_of_service:
        return False
    is_gone = machine.presence == "missing" and machine.record.driver == HARVESTER
    return is_gone or (machine.is_down and not node.ready)


def _taint(machine: MachineState, state: ClusterState, partial: PartialPlan) -> None:
    node, shutdown = machine.node, machine.shutdown
    assert node is not None  # else nothing is suspected
    if shutdown is None or (machine.is_deleting and machine.attached == ()):
        return
    if shutdown.is_proven:
        partial.actions.append(TaintNode(shutdown.because, machine.name, node.name, node.uid))
        return
    then = f"Node {node.name} is tainted as out of service, so that its volumes are released"
    partial.wait(
        f"proof that {machine.vm_ref} was shut down ({shutdown.because})",
        then,
        machine.name,
        state.now + RECHECK,
    )


def _is_back(machine: MachineState) -> bool:
    vm = machine.vm
    return machine.is_ready and vm is not None and vm.presence == "present" and vm.state in _RUNS


def must_detach(machine: MachineState, state: ClusterState) -> bool:
    """Whether a machine that is being deleted, and was drained, has to keep its VM since volumes are attached to its Node."""
    return state.is_drainable(machine) and (machine.attached is None or bool(_to_detach(machine)))


def _to_detach(machine: MachineState) -> list[str]:
    """The volumes that a drain takes from the Node. Those of a DaemonSet's pods are none: the pods stay until the VM is off."""
    return [volume for volume in machine.attached or () if volume not in machine.staying]


def awaits_release(machine: MachineState, state: ClusterState) -> bool:
    """Whether the Node of a machine whose VM is gone has to stay since volumes are attached to it."""
    node = machine.node
    if node is None or machine.attached == ():
        return False
    # A taint of `kubectl taint` has no date; the deletion is requested in the same plan at the latest.
    since = node.out_of_service_since or machine.deletion_requested or state.now
    return state.now < since + FORCED_DETACH_TIMEOUT


def describe_attached(machine: MachineState) -> str:
    """What is waited for: `PersistentVolume pvc-… and 2 more to be detached from Node n`."""
    attached = _to_detach(machine)
    if machine.attached is None or not attached:
        return f"VolumeAttachments of Node {machine.node_name} to be listed"
    return f"PersistentVolume {join_some(attached, 1)} to be detached from Node {machine.node_name}"
