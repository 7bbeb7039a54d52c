"""Removing a machine: what it created, and nothing else. `remove_operation` is for hosts that wait.

    GET VM ──> PATCH the claims to delete into it ──> DELETE VM

Harvester deletes the claims named in an annotation when the VM is gone; claims that are not named survive. Named are
those this machine created (recorded at creation, or with its owner annotations in the VM's claim templates) and that are
still in the VM, and those that the caller names. A volume that was hot-plugged by a CSI driver or a user is neither. A disk that was moved to another VM is no longer in this one, and survives too.
"""

from __future__ import annotations

from windrow.harvester.cloud_init_secret import secret_ref
from windrow.harvester.identity import is_owned_by
from windrow.harvester.names import REMOVED_CLAIMS
from windrow.harvester.vms import Vm, read_vm
from windrow.kubernetes import requests
from windrow.kubernetes.errors import Conflict, Invalid, KubeError, NotFound, is_not_found
from windrow.kubernetes.objects import is_deleting, uid_of
from windrow.kubernetes.resources import PVC, ObjectRef
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.effects import Call, Gather, Log, Operation
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.vm.observe import find_object
from windrow.nodedriver.vm.ownership import claims_to_delete, owner_of, ownership_unknown
from windrow.nodedriver.vm.plan import planned_claims


def remove(configuration: Configuration, volumes: frozenset[str], known: Vm | None = None) -> Operation[bool]:
    """Request the removal; return whether the VM is gone already. May be repeated at any time, and continues.

    At most three calls while the VM exists. `known` is a reading from a current cache in place of the first: both writes
    carry the VM's uid, so they cannot hit another. A VM of this name that another machine owns is not touched: then this
    machine is gone. Raises Refused where the owner is unknown, and the KubeError that stopped it.
    """
    if known is None or not configuration.claims:
        raw = yield from find_object(configuration.ref, "read what is to be removed")
        owner = "another" if raw is None else owner_of(configuration, raw)
        if owner == "unknown":
            raise Refused(ownership_unknown(configuration, raw))
        if raw is None or owner == "another":
            yield from delete_orphans(configuration, volumes)
            return True
        known = read_vm(raw)
        own_claims = claims_to_delete(configuration, raw)
    else:
        own_claims = frozenset(configuration.claims) & frozenset(known.claims)
    try:
        yield from _delete_vm(known, ",".join(sorted(own_claims | volumes)))
    except (NotFound, Conflict, Invalid):
        # The VM was deleted since it was read, perhaps without its disks, or another has its name and was not touched.
        return (yield from remove(configuration, volumes))
    return False


def _delete_vm(vm: Vm, claims: str) -> Operation[None]:
    if claims and vm.removed_claims != claims:
        change = {"metadata": {"uid": vm.uid, "annotations": {REMOVED_CLAIMS: claims}}}
        yield Call(requests.merge_patch(vm.ref, change), f"delete its own claims with it: {claims}")
    if not vm.is_deleting:
        yield Call(requests.delete(vm.ref, propagation="Foreground", uid=vm.uid), f"remove VM {vm.ref.name}")


def delete_orphans(configuration: Configuration, volumes: frozenset[str]) -> Operation[None]:
    """Delete the orphans of a VM that is gone: its Secret and claims by their owner annotations, and named claims.

    Nothing of a VM of the Go driver has annotations, and its Secret was garbage-collected. A claim that Harvester does
    not delete (it is in another VM, or the credential lacks the right) stays, and is logged.
    """
    if not configuration.machine_uid and not volumes:
        return
    claims = configuration.claims or planned_claims(configuration)
    refs = [secret_ref(configuration.vm_namespace, configuration.machine_name)]
    refs += [PVC.ref(claim, configuration.vm_namespace) for claim in sorted({*claims, *volumes})]
    answers = yield Gather(tuple(requests.get(ref) for ref in refs), "read the orphans of the VM")
    for ref, answer in zip(refs, answers, strict=True):
        if is_not_found(answer, ref.name):
            continue
        if isinstance(answer, KubeError):
            raise answer
        is_ours = is_owned_by(answer, configuration.cluster_uid, configuration.machine_uid)
        if not is_deleting(answer) and (is_ours or (ref.kind == PVC and ref.name in volumes)):
            yield from _delete(ref, uid_of(answer))


def _delete(ref: ObjectRef, uid: str) -> Operation[None]:
    try:
        yield Call(requests.delete(ref, uid=uid), f"the VM of {ref.name} is gone")
    except NotFound:
        return
    except Conflict:
        raise  # it changed since it was read: the next attempt reads it again
    except KubeError as error:
        if error.status not in (403, 409, 422):
            raise
        yield Log(f"{ref} stays: {error.message}")
