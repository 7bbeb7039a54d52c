"""docker-machine's commands and queries as operations that wait until they are done.

Calls, where all goes well, with one image and one network:

    pre-create check   VM, image, network                        3
    create             POST VM, POST Secret, watch its instance  3
    remove             PATCH VM, DELETE VM, watch VM             3
    start, stop, kill  VM, PUT, watch                            3
    restart            VM, instance, PUT, watch                  4
    state, addresses   VM, instance                              2

Every command first checks that the VM is this machine's, since KubeVirt's subresources address VMs by name; `remove` has
that check in the recorded VM uid, a precondition of both of its writes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from windrow.harvester.problems import Problem, only_errors
from windrow.harvester.vms import read_vm
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.resources import ObjectRef
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.effects import Log, Operation, WaitingOperation
from windrow.nodedriver.errors import MachineNotFound, NotRunning, Refused
from windrow.nodedriver.ssh.access import needs_ssh
from windrow.nodedriver.validate.references import (
    ReferencedObjects,
    all_references,
    check_references,
    read_references,
)
from windrow.nodedriver.validate.rules import find_problems
from windrow.nodedriver.vm import power
from windrow.nodedriver.vm.conditions import RESTARTED, wait_for_address, wait_for_stopped
from windrow.nodedriver.vm.create import ensure_created
from windrow.nodedriver.vm.observe import VmObservation, find_object, observe_vm
from windrow.nodedriver.vm.ownership import name_taken, ownership_problem, require_owner
from windrow.protocols.dockermachine import ERROR, RUNNING, STARTING, STOPPED, STOPPING

_MACHINE_STATES: Mapping[str, int] = {
    "provisioning": STARTING,
    "starting": STARTING,
    "running": RUNNING,
    "migrating": RUNNING,
    "stopping": STOPPING,
    "deleting": STOPPING,
    "stopped": STOPPED,
    "failed": ERROR,
}


def pre_create_check(configuration: Configuration, bootstrap: str = "") -> Operation[ReferencedObjects]:
    """Everything that can be known before anything is made: what it read, for the creation that follows in the same
    process. Raises Refused with all problems.

    A VM of this machine, from an interrupted creation, is no problem: the next creation continues with it.
    """
    stated = find_problems(configuration, bootstrap, needs_private_key=needs_ssh(configuration))
    if problems := only_errors(stated):
        raise Refused(*problems)
    existing = yield from find_object(configuration.ref, "check that the name is free")
    if existing is not None and (problem := _name_problem(configuration, existing)):
        problems.append(problem)
    references = yield from read_references(all_references(configuration))
    found = list(dict.fromkeys([*stated, *check_references(configuration, references)]))
    for warning in (problem for problem in found if problem.severity == "warning"):
        yield Log(f"{warning}")
    if problems := problems + only_errors(found):
        raise Refused(*problems)
    return references


def _name_problem(configuration: Configuration, raw_vm: Mapping[str, Any]) -> Problem | None:
    """A machine without a uid was never created by this driver: any VM of its name is a problem."""
    if not configuration.machine_uid:
        return name_taken(configuration, raw_vm)
    return ownership_problem(configuration, raw_vm, creating=True)


def create_and_wait(
    configuration: Configuration,
    bootstrap: str,
    references: ReferencedObjects | None = None,
    *,
    save: Callable[[Configuration], object] = lambda made: None,
) -> WaitingOperation[Configuration]:
    """Create the machine, and return when it has an address. May be repeated, and continues.

    `save` gets the configuration as soon as the VM exists, minutes before the end. The guest agent is not added: users of
    this driver bring it in their user data or image.
    """
    created = yield from ensure_created(configuration, bootstrap, agent=False, references=references)
    save(created)
    yield Log(f"VM {created.vm_namespace}/{created.machine_name} is created; waiting for its address")
    return (yield from _wait_for_addresses(created))


def start_and_wait(configuration: Configuration) -> WaitingOperation[Configuration]:
    """Start it, and return when it has an address. A running machine stays as it is."""
    yield from _require_own_vm(configuration)
    yield from power.start(configuration.ref)
    return (yield from _wait_for_addresses(configuration))


def stop_and_wait(configuration: Configuration) -> WaitingOperation[None]:
    """Ask the guest to power off, and return when it has. A stopped machine stays as it is."""
    yield from _power_down(configuration, power.stop)


def kill_and_wait(configuration: Configuration) -> WaitingOperation[None]:
    """Stop it without grace period, and return when it is stopped."""
    yield from _power_down(configuration, power.kill)


def restart_and_wait(configuration: Configuration) -> WaitingOperation[Configuration]:
    """Return when another instance of it runs and has an address. A stopped machine is started."""
    observed = yield from _observe_own_vm(configuration)
    yield from power.restart(configuration.ref)
    addresses = yield from wait_for_address(
        configuration.ref, except_instance=observed.vmi_uid, stage=RESTARTED
    )
    return with_addresses(configuration, addresses)


def get_state(configuration: Configuration) -> Operation[int]:
    """docker-machine's number for its state. Raises MachineNotFound where there is no such VM."""
    observed = yield from _observe_own_vm(configuration)
    return _machine_state(observed)


def get_ip(configuration: Configuration) -> Operation[str]:
    """Its first address, IPv4 before IPv6. Raises NotRunning."""
    addresses = yield from _addresses(configuration)
    return addresses[0]


def get_ipv6(configuration: Configuration) -> Operation[str]:
    """Its first IPv6 address. Raises NotRunning, and Refused where it has none."""
    addresses = yield from _addresses(configuration)
    for address in addresses:
        if ":" in address:
            return address
    raise Refused(Problem("the machine has no IPv6 address", "use GetIP", go="IPv6 address is not set"))


def get_url(configuration: Configuration) -> Operation[str]:
    """Where a Docker daemon would be. Raises NotRunning."""
    address = yield from get_ip(configuration)
    return f"tcp://[{address}]:2376" if ":" in address else f"tcp://{address}:2376"


def with_addresses(configuration: Configuration, addresses: tuple[str, ...]) -> Configuration:
    """The configuration with the addresses that GetIP and GetIPv6 return now."""
    six = next((address for address in addresses if ":" in address), "")
    return replace(configuration, ip_address=addresses[0], ipv6_address=six)


def _wait_for_addresses(configuration: Configuration) -> WaitingOperation[Configuration]:
    addresses = yield from wait_for_address(configuration.ref)
    return with_addresses(configuration, addresses)


def _power_down(
    configuration: Configuration, request: Callable[[ObjectRef], Operation[None]]
) -> WaitingOperation[None]:
    yield from _require_own_vm(configuration)
    yield from request(configuration.ref)
    yield from wait_for_stopped(configuration.ref)


def _machine_state(observed: VmObservation) -> int:
    vm = read_vm(observed.raw_vm)
    # KubeVirt before 1.3 does not report status.runStrategy, so a stopped VM looks like a new one.
    if (
        not observed.vmi_uid
        and not vm.observed_run_strategy
        and not vm.start_requested
        and vm.status == "Stopped"
    ):
        return STOPPED
    return _MACHINE_STATES[observed.status.state]


def _addresses(configuration: Configuration) -> Operation[tuple[str, ...]]:
    observed = yield from _observe_own_vm(configuration)
    if _machine_state(observed) != RUNNING:
        raise NotRunning
    if not observed.status.addresses:
        because = observed.status.because or "none is reported"
        raise KubeError(f"machine {configuration.machine_name} has no address yet: {because}")
    return observed.status.addresses


def _observe_own_vm(configuration: Configuration) -> Operation[VmObservation]:
    observed = yield from observe_vm(configuration.ref)
    if observed is None:
        raise MachineNotFound(configuration.machine_name)
    require_owner(configuration, observed.raw_vm)
    return observed


def _require_own_vm(configuration: Configuration) -> Operation[None]:
    raw = yield from find_object(configuration.ref, "check the owner of the VM")
    if raw is None:
        raise MachineNotFound(configuration.machine_name)
    require_owner(configuration, raw)
