"""Removing a machine for a host that waits until it is gone.

    PATCH VM: claims to delete ──> DELETE VM ──> watch until it is gone

Where the VM's uid is recorded the PATCH needs no GET before it: it tests uid and annotations, and the VM in its answer
shows whether the recorded claims are still right, and whether a cluster manager wants every volume of the cluster deleted.
Nothing is deleted before that is decided.
"""

from __future__ import annotations

from typing import Any

from windrow.harvester.names import (
    CLUSTER_UID,
    GUEST_CLUSTER,
    MACHINE_UID,
    REMOVE_ALL_CLAIMS,
    REMOVED_CLAIMS,
    label_value,
)
from windrow.harvester.problems import Problem
from windrow.harvester.vms import read_vm
from windrow.kubernetes import requests
from windrow.kubernetes.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    UnsupportedMediaType,
    is_not_found,
)
from windrow.kubernetes.objects import Raw, annotations_of, is_deleting, name_of, uid_of
from windrow.kubernetes.resources import PVC
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.effects import Call, Log, Operation, WaitingOperation
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.vm.conditions import wait_for_removal
from windrow.nodedriver.vm.observe import find_object
from windrow.nodedriver.vm.ownership import (
    claims_owned_by_others,
    claims_to_delete,
    owner_of,
    ownership_unknown,
)
from windrow.nodedriver.vm.remove import delete_orphans

# A few writers may change a VM at the same moment; more in a row is something else.
_ATTEMPTS = 4


def remove_and_wait(
    configuration: Configuration, wrong_harvester: Problem | None = None
) -> WaitingOperation[None]:
    """Return when the machine is gone; it may be so already. Raises Refused where nothing tells whose the VM is.

    A VM of this name that another machine owns is not touched: then this machine has none. `wrong_harvester` says why a
    404 proves nothing here; then the removal is refused.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            raw = yield from _find_annotated(configuration)
            if raw is None and wrong_harvester is not None:
                raise Refused(wrong_harvester)
            if raw is None:
                return (yield from _delete_orphans(configuration))
            return (yield from _delete(configuration, raw))
        except (Conflict, Invalid):
            # It was changed or replaced since it was read.
            if attempt == _ATTEMPTS:
                raise


def _delete_orphans(configuration: Configuration) -> Operation[None]:
    """The VM is gone, which is what counts; its orphans are deleted as far as the credential allows."""
    try:
        yield from delete_orphans(configuration, frozenset(configuration.volumes))
    except Forbidden as error:
        yield Log(f"orphans of {configuration.machine_name} may not be read: {error.message}")


def _find_annotated(configuration: Configuration) -> Operation[Any]:
    """The machine's VM, annotated with the claims to delete; None where it has none."""
    raw = yield from _patch_recorded(configuration)
    if raw is None:
        raw = yield from find_object(configuration.ref, "read what is to be removed")
    if raw is None:
        return None
    match owner_of(configuration, raw):
        case "another":
            yield Log(f"VM {configuration.machine_name} belongs to another machine; it stays")
            return None
        case "unknown":
            raise Refused(ownership_unknown(configuration, raw))
    claims = yield from _claims_to_delete(configuration, raw)
    if annotations_of(raw).get(REMOVED_CLAIMS, "") == claims:
        return raw
    change = {"metadata": {"uid": uid_of(raw), "annotations": {REMOVED_CLAIMS: claims or None}}}
    try:
        return (
            yield Call(requests.merge_patch(configuration.ref, change), f"claims to delete with it: {claims}")
        )
    except NotFound as error:
        if not is_not_found(error, configuration.machine_name):
            raise
        return None


def _patch_recorded(configuration: Configuration) -> Operation[Any]:
    """Annotate the recorded VM with the recorded claims, if it is still that one; None where it has to be read first."""
    if not (configuration.vm_uid and configuration.machine_uid and configuration.claims):
        return None
    claims = ",".join(sorted({*configuration.claims, *configuration.volumes}))
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": configuration.vm_uid},
        {"op": "test", "path": _annotation(MACHINE_UID), "value": configuration.machine_uid},
        {"op": "add", "path": _annotation(REMOVED_CLAIMS), "value": claims},
    ]
    if configuration.cluster_uid:
        operations.insert(
            1, {"op": "test", "path": _annotation(CLUSTER_UID), "value": configuration.cluster_uid}
        )
    try:
        return (
            yield Call(
                requests.json_patch(configuration.ref, operations), f"claims to delete with it: {claims}"
            )
        )
    except (Conflict, Invalid, BadRequest, UnsupportedMediaType):
        return None
    except NotFound as error:
        if not is_not_found(error, configuration.machine_name):
            raise
        return None


def _claims_to_delete(configuration: Configuration, raw: Raw) -> Operation[str]:
    """The annotation's value: the machine's own claims, those that config.json names, and all of its cluster where the VM
    has removeAllPersistentVolumeClaims."""
    claims = claims_to_delete(configuration, raw) | frozenset(configuration.volumes)
    if annotations_of(raw).get(REMOVE_ALL_CLAIMS) == "true":
        claims |= frozenset(read_vm(raw).claims)
        # Without a cluster's name the label would be empty, which any cluster may have.
        if configuration.cluster_name:
            labels = f"{GUEST_CLUSTER}={label_value(configuration.cluster_name)}"
            listed = yield Call(
                requests.list_(PVC, configuration.vm_namespace, labels=labels),
                "its cluster is deleted with all of its volumes",
            )
            listed_claims = listed.get("items") or ()
            others = claims_owned_by_others(configuration, listed_claims)
            if others - claims:
                yield Log(f"claims of other owners stay: {', '.join(sorted(others - claims))}")
            claims |= frozenset(map(name_of, listed_claims)) - others
    return ",".join(sorted(claims))


def _delete(configuration: Configuration, raw: Raw) -> WaitingOperation[None]:
    uid, version = uid_of(raw), str(raw["metadata"].get("resourceVersion", ""))
    if not is_deleting(raw):
        try:
            reply = yield Call(
                requests.delete(configuration.ref, propagation="Foreground", uid=uid),
                f"remove VM {configuration.machine_name}",
            )
        except NotFound as error:
            if not is_not_found(error, configuration.machine_name):
                raise
            return
        if reply.get("kind") == "Status":
            return  # it was deleted at once
    yield from wait_for_removal(configuration.ref, uid, version)


def _annotation(name: str) -> str:
    """The JSON pointer of an annotation."""
    return f"/metadata/annotations/{name.replace('~', '~0').replace('/', '~1')}"
