"""What may be believed of a machine that a driver of somebody else made.

Such a driver marks nothing. It finds its machine by an id that it noted, or by the name alone, and says "not found" of
whatever it was not told of. So:

* Of a VM on Harvester our own client sees what bears the name: nothing; a VM with another machine's marks, or of
  another uid than was seen at birth; or one with the labels that the Go driver gives. Only the last is touched.
* Of any other machine that a driver was told to make, by a note of this host, its word counts: it knows the id. Not
  where the credential leads to another account by now, whose "not found" says nothing of the first.
* Where a machine is in doubt (planned, and no note tells whether it was begun: another node, a lost directory), a
  driver's "not found" proves nothing, since it may know no id. What it shows under the name is this machine's: a
  Machine's name has two random suffixes and was written down before anything could be made under it, so that somebody
  else's is far less likely than a machine that would run for ever, unrecorded. Where it shows nothing, nobody can
  tell, and that is said; it is never called missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from windrow.harvester.identity import is_owned_by
from windrow.harvester.names import MACHINE_UID
from windrow.kubernetes.objects import annotations_of, uid_of
from windrow.machines.plugin.credentials import SAME_ACCOUNT, CredentialResolver, ResolvedCredential
from windrow.machines.plugin.process.client import DriverError, Plugin
from windrow.machines.plugin.status import poll
from windrow.machines.plugin.tracked_machine import TrackedMachine
from windrow.machines.port import HARVESTER, InfrastructureUnknown, is_synthetic_uid
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.config_json import load_driver_config
from windrow.nodedriver.vm.ownership import owner_of, ownership_unknown

# The uid of the VM that the Go driver made.
SEEN_UID_KEY = "WindrowSeenUID"
_DEFINITE_STATES = frozenset({"starting", "running", "stopping", "stopped"})

Existence = Literal["exists", "absent", "not_queried"]


async def find_existence(resolver: CredentialResolver, machine: TrackedMachine) -> tuple[Existence, str]:
    """Whether the machine's VM stands on Harvester, and its uid. Raises InfrastructureUnknown, also where a VM stands of
    which nothing tells whose it is."""
    if machine.driver != HARVESTER:
        return "not_queried", ""
    configuration = load_driver_config(machine.config)
    raw_vm = await resolver.find_vm(
        machine.credential, configuration.machine_name, configuration.vm_namespace
    )
    if raw_vm == "not_queried":
        return "not_queried", ""
    if raw_vm is None or (owner := _find_owner(machine, configuration, raw_vm)) == "another's":
        return "absent", ""
    if owner == "unclear":
        problem = ownership_unknown(
            configuration if configuration.vm_uid == uid_of(raw_vm) else _without_owner(configuration), raw_vm
        )
        raise InfrastructureUnknown(problem.message, problem.hint)
    return "exists", uid_of(raw_vm)


def _find_owner(machine: TrackedMachine, configuration: Configuration, raw_vm: Mapping[str, Any]) -> str:
    if configuration.vm_uid and not is_synthetic_uid(configuration.vm_uid):
        return owner_of(configuration, raw_vm)
    if is_owned_by(raw_vm, configuration.cluster_uid, configuration.machine_uid):
        return "mine"
    if MACHINE_UID in annotations_of(raw_vm):
        return "another's"
    seen = str(machine.config.get(SEEN_UID_KEY) or "")
    if seen:
        return "mine" if seen == uid_of(raw_vm) else "another's"
    owner = owner_of(_without_owner(configuration), raw_vm)
    # The Go driver makes no VM without its labels; only of one that it made may somebody have taken them.
    return "another's" if owner == "unclear" and not machine.was_created else owner


def _without_owner(configuration: Configuration) -> Configuration:
    return replace(configuration, machine_uid="", cluster_uid="", vm_uid="")


async def exists(
    resolver: CredentialResolver, machine: TrackedMachine, credential: ResolvedCredential, plugin: Plugin
) -> bool:
    """Whether there is something to remove or take up, by a plugin that was told of the machine; False is a proof that
    there is nothing. Raises InfrastructureUnknown where nobody can tell, and DriverError."""
    existence, _ = await find_existence(resolver, machine)
    if existence != "not_queried":
        return existence == "exists"
    if credential.is_for_account(machine.account) and not machine.create_uncertain:
        return True  # the driver knows
    try:
        status = (await poll(plugin, machine)).status
    except DriverError:
        if machine.create_uncertain:
            raise state_lost(machine) from None
        raise
    if machine.create_uncertain and machine.driver == HARVESTER:
        return status.presence != "missing"  # it finds its machines by their names
    if machine.create_uncertain and status.state not in _DEFINITE_STATES:
        raise state_lost(machine)
    if status.presence == "missing":
        raise account_changed(machine)
    return True


def state_lost(machine: TrackedMachine) -> InfrastructureUnknown:
    return InfrastructureUnknown(
        f"it is not known whether driver {machine.driver} has begun to make {machine.name}: what was noted of it was on "
        "another node, or is lost, and the driver does not find it by its name",
        f"look for {machine.name} in the account of credential {machine.credential} and remove it there; then delete its "
        "Machine, and take the finalizer off it",
    )


def account_changed(machine: TrackedMachine) -> InfrastructureUnknown:
    return InfrastructureUnknown(
        f"driver {machine.driver} does not find {machine.name}, but credential {machine.credential} has changed since it "
        "was made, perhaps to another account",
        "put the credential of its account back; or, if it opens the same account, add the field "
        f"{machine.driver}credentialConfig-{SAME_ACCOUNT}: {machine.account} to that Secret",
    )
