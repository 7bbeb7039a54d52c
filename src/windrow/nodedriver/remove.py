"""Removing a machine: what it made, and nothing else.

    GET VM ──> mark the claims that go along ──> DELETE VM

Harvester deletes the claims named in an annotation when the VM is gone; claims that are not named survive. Named are
those this machine made itself (recorded at birth, or bearing its marks in the VM's claim templates) and that are
still in the VM, and those that the order names. A volume that was hot-plugged by a CSI driver, a screen or a person
is neither. A disk that was moved to another VM is no longer in this one, and survives too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.harvester.cloud_init_secret import secret_ref
from windrow.harvester.identity import is_marked
from windrow.harvester.names import REMOVED_CLAIMS
from windrow.harvester.vms import read_vm
from windrow.harvester.volumes import own_claims
from windrow.kube import requests
from windrow.kube.errors import Conflict, KubeError, NotFound
from windrow.kube.objects import annotations_of, is_deleting, uid_of
from windrow.kube.refs import PVC, Ref
from windrow.nodedriver.configuration import Configuration
from windrow.nodedriver.plans import planned_claims
from windrow.nodedriver.steps import Call, Gather, Note, Talk


def remove(configuration: Configuration, volumes: frozenset[str]) -> Talk[None]:
    """Order the removal. May be repeated at any time, and continues; at most three calls while the VM is there.

    A VM of this name that is not this machine's is not touched: then the machine is gone. Raises the KubeError that
    stopped it.
    """
    vm = yield from find(configuration.ref, "see what is to be removed")
    if vm is None or not is_marked(vm, configuration.cluster_uid, configuration.machine_uid):
        yield from _clear_up(configuration, volumes)
        return
    wanted = ",".join(sorted(_own(configuration, vm) | volumes))
    if wanted and annotations_of(vm).get(REMOVED_CLAIMS) != wanted:
        change = {"metadata": {"annotations": {REMOVED_CLAIMS: wanted}}}
        yield Call(requests.merge_patch(configuration.ref, change), f"its own disks go along: {wanted}")
    if is_deleting(vm):
        return
    try:
        yield Call(
            requests.delete(configuration.ref, propagation="Foreground", uid=uid_of(vm)),
            f"remove VM {configuration.machine_name}",
        )
    except NotFound:
        return
    except Conflict:
        # Another VM took the name between the reading and the order. It was not touched; look again.
        yield from remove(configuration, volumes)


def find(ref: Ref, because: str) -> Talk[Any]:
    """The object as it is now, None where there is none."""
    try:
        return (yield Call(requests.get(ref), because))
    except NotFound:
        return None


def _own(configuration: Configuration, vm: Mapping[str, Any]) -> frozenset[str]:
    marked = own_claims(vm, configuration.cluster_uid, configuration.machine_uid)
    return (marked | frozenset(configuration.claims)) & frozenset(read_vm(vm).claims)


def _clear_up(configuration: Configuration, volumes: frozenset[str]) -> Talk[None]:
    """What a VM that is gone left behind: its Secret and its disks, if they bear its marks, and named volumes.

    A disk that Harvester does not give up (it is in another VM, or we may not delete it) stays, and is named.
    """
    claims = configuration.claims or planned_claims(configuration)
    refs = [secret_ref(configuration.vm_namespace, configuration.machine_name)]
    refs += [PVC.ref(claim, configuration.vm_namespace) for claim in sorted({*claims, *volumes})]
    answers = yield Gather(tuple(requests.get(ref) for ref in refs), "see what the VM left behind")
    for ref, answer in zip(refs, answers, strict=True):
        if isinstance(answer, NotFound):
            continue
        if isinstance(answer, KubeError):
            raise answer
        mine = is_marked(answer, configuration.cluster_uid, configuration.machine_uid)
        if not is_deleting(answer) and (mine or (ref.kind == PVC and ref.name in volumes)):
            yield from _delete(ref, uid_of(answer))


def _delete(ref: Ref, uid: str) -> Talk[None]:
    try:
        yield Call(requests.delete(ref, uid=uid), f"the VM of {ref.name} is gone")
    except NotFound:
        return
    except KubeError as error:
        if error.status not in (403, 409, 422):
            raise
        yield Note(f"{ref} stays: {error.message}")
