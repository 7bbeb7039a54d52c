"""The orders of docker-machine, each with its waits: what a host asks of the plugin, as talks.

Calls, where all goes well, with one image and one network:

    pre-create check   VM, image, network                        3
    create             POST VM, POST Secret, watch its instance  3
    remove             PATCH VM, DELETE VM, watch VM             3
    start, stop, kill  VM, PUT, watch                            3
    restart            VM, instance, PUT, watch                  4
    state, addresses   VM, instance                              2

Every order first proves that the VM is this machine's, since KubeVirt's verbs know names only; `remove` has its proof
in the record of the VM's uid, which both of its writes carry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from windrow.harvester.vms import read_vm
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.resources import ObjectRef
from windrow.nodedriver import power
from windrow.nodedriver.configuration import Configuration
from windrow.nodedriver.create import order
from windrow.nodedriver.lookups import Found, judge, look_up, needed_to_run
from windrow.nodedriver.observe import Look, find, look_at
from windrow.nodedriver.ownership import find_doubt, name_taken, prove
from windrow.nodedriver.problems import Gone, NotRunning, Problem, Refused, errors
from windrow.nodedriver.rules import find_problems
from windrow.nodedriver.ssh_access import logs_in
from windrow.nodedriver.steps import Note, Talk
from windrow.nodedriver.waits import RESTARTED, wait_for_address, wait_for_stopped
from windrow.protocols.dockermachine import ERROR, RUNNING, STARTING, STOPPED, STOPPING

_NUMBERS: Mapping[str, int] = {
    "provisioning": STARTING,
    "starting": STARTING,
    "running": RUNNING,
    "migrating": RUNNING,
    "stopping": STOPPING,
    "deleting": STOPPING,
    "stopped": STOPPED,
    "failed": ERROR,
}


@dataclass(frozen=True, slots=True)
class Checked:
    """What the check looked up, for the creation that follows it in the same process."""

    found: Found = field(default_factory=Found)


def pre_create_check(configuration: Configuration, bootstrap: str = "") -> Talk[Checked]:
    """Everything that can be known before anything is made. Raises Refused with all problems.

    A VM of this very machine, from a creation that was cut off, is no problem: the next one continues with it.
    """
    problems = errors(find_problems(configuration, bootstrap, needs_private_key=logs_in(configuration)))
    if problems:
        raise Refused(*problems)
    there = yield from find(configuration.ref, "see whether the name is free")
    if there is not None and (doubt := _doubt_at_birth(configuration, there)):
        problems.append(doubt)
    found = yield from look_up(needed_to_run(configuration))
    judged = list(dict.fromkeys(judge(configuration, found)))
    for warning in (problem for problem in judged if problem.severity == "warning"):
        yield Note(f"{warning}")
    if problems := problems + errors(judged):
        raise Refused(*problems)
    return Checked(found)


def _doubt_at_birth(configuration: Configuration, raw_vm: Mapping[str, Any]) -> Problem | None:
    """A machine without a uid has not been made by us before: whatever has its name is in its way."""
    if not configuration.machine_uid:
        return name_taken(configuration, raw_vm)
    return find_doubt(configuration, raw_vm, making=True)


def create_and_wait(
    configuration: Configuration,
    bootstrap: str,
    checked: Checked | None = None,
    *,
    agent: bool = False,
    keep: Callable[[Configuration], object] = lambda made: None,
) -> Talk[Configuration]:
    """Make the machine, and return when it has an address. May be repeated, and continues.

    `keep` is told what is made as soon as it is, minutes before the end. The guest agent is not added unless asked
    for: users of this driver bring it in their user data or image.
    """
    found = checked.found if checked is not None else None
    made = yield from order(configuration, bootstrap, agent=agent, found=found)
    keep(made)
    yield Note(f"VM {made.vm_namespace}/{made.machine_name} is ordered; waiting for its address")
    return (yield from _addressed(made))


def start_and_wait(configuration: Configuration) -> Talk[Configuration]:
    """Start it, and return when it has an address. A machine that runs is left alone."""
    yield from _insist(configuration)
    yield from power.start(configuration.ref)
    return (yield from _addressed(configuration))


def stop_and_wait(configuration: Configuration) -> Talk[None]:
    """Ask the guest to power off, and return when it has. A machine that is down is left alone."""
    yield from _end(configuration, power.stop)


def kill_and_wait(configuration: Configuration) -> Talk[None]:
    """Switch it off, whatever its guest does, and return when it is down."""
    yield from _end(configuration, power.kill)


def restart_and_wait(configuration: Configuration) -> Talk[Configuration]:
    """Return when another instance of it runs and has an address. A machine that is down is started."""
    look = yield from _look(configuration)
    yield from power.restart(configuration.ref)
    addresses = yield from wait_for_address(configuration.ref, not_of=look.vmi_uid, stage=RESTARTED)
    return with_addresses(configuration, addresses)


def get_state(configuration: Configuration) -> Talk[int]:
    """docker-machine's number for its state. Raises Gone where there is no such VM."""
    look = yield from _look(configuration)
    return _number(look)


def get_ip(configuration: Configuration) -> Talk[str]:
    """Its first address, IPv4 before IPv6. Raises NotRunning."""
    addresses = yield from _addresses(configuration)
    return addresses[0]


def get_ipv6(configuration: Configuration) -> Talk[str]:
    """Its first IPv6 address. Raises NotRunning, and Refused where it has none."""
    addresses = yield from _addresses(configuration)
    for address in addresses:
        if ":" in address:
            return address
    raise Refused(Problem("the machine has no IPv6 address", "use GetIP", go="IPv6 address is not set"))


def get_url(configuration: Configuration) -> Talk[str]:
    """Where a Docker daemon would be. Raises NotRunning."""
    address = yield from get_ip(configuration)
    return f"tcp://[{address}]:2376" if ":" in address else f"tcp://{address}:2376"


def with_addresses(configuration: Configuration, addresses: tuple[str, ...]) -> Configuration:
    """The record of what GetIP and GetIPv6 would say now."""
    six = next((address for address in addresses if ":" in address), "")
    return replace(configuration, ip_address=addresses[0], ipv6_address=six)


def _addressed(configuration: Configuration) -> Talk[Configuration]:
    addresses = yield from wait_for_address(configuration.ref)
    return with_addresses(configuration, addresses)


def _end(configuration: Configuration, order_: Callable[[ObjectRef], Talk[None]]) -> Talk[None]:
    yield from _insist(configuration)
    yield from order_(configuration.ref)
    yield from wait_for_stopped(configuration.ref)


def _number(look: Look) -> int:
    vm = read_vm(look.raw_vm)
    # KubeVirt before 1.3 never tells which strategy it has acted on, so a VM that is down looks like one that is new.
    if not look.vmi_uid and not vm.started_strategy and not vm.awaits_start and vm.status == "Stopped":
        return STOPPED
    return _NUMBERS[look.sight.state]


def _addresses(configuration: Configuration) -> Talk[tuple[str, ...]]:
    look = yield from _look(configuration)
    if _number(look) != RUNNING:
        raise NotRunning
    if not look.sight.addresses:
        because = look.sight.because or "none is reported"
        raise KubeError(f"machine {configuration.machine_name} has no address yet: {because}")
    return look.sight.addresses


def _look(configuration: Configuration) -> Talk[Look]:
    look = yield from look_at(configuration.ref)
    if look is None:
        raise Gone(configuration.machine_name)
    prove(configuration, look.raw_vm)
    return look


def _insist(configuration: Configuration) -> Talk[None]:
    raw = yield from find(configuration.ref, "see whose VM it is")
    if raw is None:
        raise Gone(configuration.machine_name)
    prove(configuration, raw)
