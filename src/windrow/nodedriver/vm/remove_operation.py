"""Removing a machine to the end, for a host that waits for it.

    PATCH VM: these claims go along ──> DELETE VM ──> watch until it is gone

Where the VM's uid is on record the PATCH needs no look before it: it carries its own proofs, and the VM in its answer
shows whether the record of claims is still right, and whether a cluster manager wants every volume of the cluster gone.
Nothing is deleted before that is settled.
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

    A VM of this name that is provably another's is not touched: then this machine has none. `astray` says why that
    would prove nothing here; then it is refused.
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
            # It changed hands or was changed since it was read.
            if attempt == _ATTEMPTS:
                raise


def _delete_orphans(configuration: Configuration) -> Operation[None]:
    """The VM is gone, which is what counts; what it left behind is removed as far as the credential may."""
    try:
        yield from delete_orphans(configuration, frozenset(configuration.volumes))
    except Forbidden as error:
        yield Log(f"what {configuration.machine_name} left behind may not be looked at: {error.message}")


def _find_annotated(configuration: Configuration) -> Operation[Any]:
    """The machine's VM, with the claims on it that go along; None where it has none."""
    raw = yield from _patch_recorded(configuration)
    if raw is None:
        raw = yield from find_object(configuration.ref, "see what is to be removed")
    if raw is None:
        return None
    match owner_of(configuration, raw):
        case "another's":
            yield Log(f"VM {configuration.machine_name} is another machine's; it stays")
            return None
        case "unclear":
            raise Refused(ownership_unknown(configuration, raw))
    claims = yield from _claims_to_delete(configuration, raw)
    if annotations_of(raw).get(REMOVED_CLAIMS, "") == claims:
        return raw
    change = {"metadata": {"uid": uid_of(raw), "annotations": {REMOVED_CLAIMS: claims or None}}}
    try:
        return (
            yield Call(requests.merge_patch(configuration.ref, change), f"these disks go along: {claims}")
        )
    except NotFound as error:
        if not is_not_found(error, configuration.machine_name):
            raise
        return None


def _patch_recorded(configuration: Configuration) -> Operation[Any]:
    """Name the recorded claims on the recorded VM, if it still is that one; None where a look has to come first."""
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
            yield Call(requests.json_patch(configuration.ref, operations), f"these disks go along: {claims}")
        )
    except (Conflict, Invalid, BadRequest, UnsupportedMediaType):
        return None
    except NotFound as error:
        if not is_not_found(error, configuration.machine_name):
            raise
        return None


def _claims_to_delete(configuration: Configuration, raw: Raw) -> Operation[str]:
    """The value of the annotation: the machine's own claims, those that the order names, and all of its cluster where
    the VM says so."""
    claims = claims_to_delete(configuration, raw) | frozenset(configuration.volumes)
    if annotations_of(raw).get(REMOVE_ALL_CLAIMS) == "true":
        claims |= frozenset(read_vm(raw).claims)
        # Without a cluster's name the label would be the empty one, which may be anybody's.
        if configuration.cluster_name:
            labels = f"{GUEST_CLUSTER}={label_value(configuration.cluster_name)}"
            listed = yield Call(
                requests.list_(PVC, configuration.vm_namespace, labels=labels),
                "its cluster goes, with all of its volumes",
            )
            listed_claims = listed.get("items") or ()
            others = claims_owned_by_others(configuration, listed_claims)
            if others - claims:
                yield Log(f"these are another's, and stay: {', '.join(sorted(others - claims))}")
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
            return  # it went at once
    yield from wait_for_removal(configuration.ref, uid, version)


def _annotation(name: str) -> str:
    """The JSON pointer of an annotation."""
    return f"/metadata/annotations/{name.replace('~', '~0').replace('/', '~1')}"
