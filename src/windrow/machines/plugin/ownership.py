"""Whether a machine exists that a foreign driver created: which answers prove what.

A foreign driver writes no owner annotations. It finds its machine by an id in its config or by the name alone, and
answers "not found" for any other. So:

* On Harvester our own client reads the VM of the name: none; a VM with another machine's owner annotations, or another
  uid than was read after creation, unless an earlier Create had no answer; or one with the labels that the Go driver
  writes, that of the machine's cluster among them. Only the last one is the machine's: its name has two random suffixes.
* Elsewhere, for a machine whose Create was started according to this host's state file, the driver's answer counts: it
  has the id. Not where the credential leads to another account by now, whose "not found" proves nothing about the
  first.
* Where it is uncertain whether Create was started (planned, and no state file: another node, a lost directory), the
  driver's "not found" proves nothing, since it may have no id. A machine that it finds under the name is this
  machine's: the name has two random suffixes and was recorded before anything could be created under it. Where it
  finds none the state is reported as lost, never as missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from windrow.harvester.connection import describe_credential
from windrow.harvester.identity import is_owned_by
from windrow.harvester.names import GUEST_CLUSTER, MACHINE_UID, label_value
from windrow.kubernetes.objects import annotations_of, labels_of, uid_of
from windrow.machines.plugin.credentials import (
    SAME_ACCOUNT,
    CredentialResolver,
    ResolvedCredential,
    StartState,
)
from windrow.machines.plugin.process.client import DriverError, Plugin
from windrow.machines.plugin.status import PollResult, poll
from windrow.machines.plugin.tracked_machine import TrackedMachine
from windrow.machines.port import HARVESTER, InfrastructureUnknown, is_synthetic_uid
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.config_json import load_driver_config
from windrow.nodedriver.vm.ownership import owner_of, ownership_unknown

# The key of the uid of the VM that the Go driver created.
SEEN_UID_KEY = "WindrowSeenUID"
# Set where a Create before that of this VM ended without a certain answer: another VM may be made by it.
UNANSWERED_KEY = "WindrowUnanswered"
_DEFINITE_STATES = frozenset({"starting", "running", "stopping", "stopped"})


async def find_vm_uid(resolver: CredentialResolver, machine: TrackedMachine) -> str | None:
    """The uid of the machine's VM on Harvester, "" for none; None for a machine elsewhere. Raises InfrastructureUnknown,
    also for a VM whose owner cannot be determined."""
    if machine.driver != HARVESTER:
        return None
    configuration = load_driver_config(machine.config)
    raw_vm = await resolver.find_vm(
        machine.credential, configuration.machine_name, configuration.vm_namespace
    )
    if raw_vm is None or (owner := _find_owner(machine, configuration, raw_vm)) == "another":
        return ""
    if owner == "unknown":
        problem = ownership_unknown(
            configuration if configuration.vm_uid == uid_of(raw_vm) else _without_owner(configuration), raw_vm
        )
        raise InfrastructureUnknown(problem.message, problem.hint)
    return uid_of(raw_vm)


def _find_owner(machine: TrackedMachine, configuration: Configuration, raw_vm: Mapping[str, Any]) -> str:
    if configuration.vm_uid and not is_synthetic_uid(configuration.vm_uid):
        return owner_of(configuration, raw_vm)
    if is_owned_by(raw_vm, configuration.cluster_uid, configuration.machine_uid):
        return "this machine"
    if MACHINE_UID in annotations_of(raw_vm):
        return "another"
    seen = str(machine.config.get(SEEN_UID_KEY) or "")
    if seen == uid_of(raw_vm):
        return "this machine"
    if seen and not machine.config.get(UNANSWERED_KEY):
        return "another"
    may_be_late = bool(seen) or not machine.was_created
    if may_be_late and _is_in_another_cluster(configuration, raw_vm):
        return "another"
    owner = owner_of(_without_owner(configuration), raw_vm)
    # The Go driver creates no VM without its labels; they can be missing only on one that it created before.
    return "another" if owner == "unknown" and may_be_late else owner


def _is_in_another_cluster(configuration: Configuration, raw_vm: Mapping[str, Any]) -> bool:
    """By its label, which drivers before v1.0 do not write."""
    found, own = labels_of(raw_vm).get(GUEST_CLUSTER), configuration.cluster_name
    return bool(found and own) and found != label_value(own)


def _without_owner(configuration: Configuration) -> Configuration:
    return replace(configuration, machine_uid="")  # without that no other uid proves anything


async def exists(
    resolver: CredentialResolver, machine: TrackedMachine, credential: ResolvedCredential, plugin: Plugin
) -> bool:
    """Whether there is something to remove or adopt, by a plugin that has the machine's config. False proves that
    there is nothing. Raises InfrastructureUnknown where that cannot be determined, and DriverError."""
    vm_uid = await find_vm_uid(resolver, machine)
    if vm_uid is not None:
        return bool(vm_uid)
    if credential.is_for_account(machine.account) and not machine.create_uncertain:
        return True  # the driver has the id
    try:
        status = (await poll(plugin, machine)).status
    except DriverError:
        if machine.create_uncertain:
            raise state_lost(machine) from None
        raise
    if machine.create_uncertain and status.state not in _DEFINITE_STATES:
        raise state_lost(machine)
    if status.presence == "missing":
        raise account_changed(machine)
    return True


async def observe_start(resolver: CredentialResolver, machine: TrackedMachine) -> StartState | None:
    """Of the machine's VM on Harvester; None where there is none, or elsewhere. Raises InfrastructureUnknown."""
    if machine.driver != HARVESTER:
        return None
    configuration = load_driver_config(machine.config)
    return await resolver.observe_start(
        machine.credential, configuration.machine_name, configuration.vm_namespace
    )


def is_adoptable(result: PollResult | None, start: StartState | None) -> bool:
    """Whether what an earlier Create left is the machine from now on: it starts, or is stopped, or has run. Not where its
    state is unknown, or where it cannot start."""
    if result is None or (start is not None and start.missing_secrets):
        return False
    has_run = start is not None and bool(start.run) and result.status.presence == "present"
    return result.is_accepted or result.is_stopped or has_run


def cannot_start(start: StartState) -> InfrastructureUnknown:
    """The machine's VM can neither be adopted nor, since it has run, be made anew."""
    name = start.name
    if missing := " and ".join(start.missing_secrets):
        found = f"does not run, and Secret {missing}, which it starts with, does not exist"
        hint = f"create Secret {missing} again and start the VM; or delete VirtualMachine {name}, then it is made anew"
    else:
        found = "is in a state that its driver cannot read"
        hint = f"look at the VM on Harvester and repair it; or delete VirtualMachine {name}, then it is made anew"
    return InfrastructureUnknown(
        f"VirtualMachine {name} exists and {found}; it {start.run}, so its disks may hold data and it is not replaced",
        hint,
    )


def state_lost(machine: TrackedMachine) -> InfrastructureUnknown:
    return InfrastructureUnknown(
        f"cannot determine whether driver {machine.driver} created machine {machine.name}: the plugin host's state of it is "
        "on another node or lost, and the driver does not find the machine by name",
        f"search {machine.name} in the account of {describe_credential(machine.credential)} and remove it there; then delete the "
        "Machine and remove its finalizer",
    )


def account_changed(machine: TrackedMachine) -> InfrastructureUnknown:
    return InfrastructureUnknown(
        f"driver {machine.driver} does not find machine {machine.name}, but {describe_credential(machine.credential)} has changed since its "
        "creation, perhaps to another account",
        "restore the credential of its account; or, if this one is for the same account, add the field "
        f"{machine.driver}credentialConfig-{SAME_ACCOUNT}: {machine.account} to that Secret",
    )
