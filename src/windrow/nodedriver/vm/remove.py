"""Removing a machine: what it created, and nothing else.

    read VM ──> PATCH the claims to delete into it ──> DELETE VM (──> watch until it is gone, for hosts that wait)

Harvester deletes the claims named in an annotation when the VM is gone; claims that are not named survive. Named are
those this machine created (recorded at creation, or with its owner annotations in the VM's claim templates) and that are
still in the VM, and those that the caller names. A volume that was hot-plugged by a CSI driver or a user is neither. A
disk that was moved to another VM is no longer in this one, and survives too.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from windrow.harvester.cloud_init_secret import secret_ref
from windrow.harvester.identity import is_owned_by, owner_annotations
from windrow.harvester.names import (
    GUEST_CLUSTER,
    REMOVE_ALL_CLAIMS,
    REMOVED_CLAIMS,
    label_value,
)
from windrow.harvester.problems import Problem
from windrow.harvester.vms import Vm, read_vm
from windrow.kubernetes import requests
from windrow.kubernetes.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    UnsupportedMediaType,
    is_not_found,
    list_items,
)
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_deleting,
    name_of,
    nested,
    resource_version_of,
    uid_of,
)
from windrow.kubernetes.resources import PVC, ObjectRef
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.effects import Call, Effect, Gather, Log, Operation, WaitFor, WaitingOperation
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.vm.conditions import wait_for_removal
from windrow.nodedriver.vm.observe import find_object
from windrow.nodedriver.vm.ownership import (
    claims_owned_by_others,
    claims_to_delete,
    owner_of,
    ownership_unknown,
    with_uid_of,
)
from windrow.nodedriver.vm.plan import planned_claims

# A few writers may change a VM at the same moment; more in a row is something else.
_ATTEMPTS = 4

R = TypeVar("R")
E = TypeVar("E", bound=Effect | WaitFor[Any])


def remove(configuration: Configuration, volumes: frozenset[str], known: Vm | None = None) -> Operation[bool]:
    """Request the removal; return whether the VM is gone already. May be repeated at any time, and continues.

    At most three calls while the VM exists. `known` is a reading from a current cache in place of the first: both writes
    carry the VM's uid, so they cannot hit another. A VM of this name that another machine owns is not touched: then this
    machine is gone. Raises Refused where the owner is unknown, and the KubeError that stopped it.
    """

    def request(attempt: int) -> Operation[bool]:
        if known is not None and configuration.claims and attempt == 1:
            own_claims = frozenset(configuration.claims) & frozenset(known.claims)
            yield from _request_removal(known, own_claims | volumes)
            return False
        raw = yield from _find_own_vm(configuration)
        if raw is None:
            yield from _delete_orphans(configuration, volumes)
            return True
        yield from _request_removal(read_vm(raw), claims_to_delete(configuration, raw) | volumes)
        return False

    return (yield from _repeat_if_changed(configuration, request))


def remove_and_wait(
    configuration: Configuration, wrong_harvester: Problem | None = None
) -> WaitingOperation[None]:
    """Return when the machine is gone; it may be so already. Raises Refused where nothing tells whose the VM is.

    Where the VM's uid is recorded there is no GET before the PATCH: it tests uid and annotations, and the VM in its
    answer shows whether the recorded claims are still right, and whether a cluster manager wants every volume of the
    cluster deleted. `wrong_harvester` says why a 404 proves nothing here; then the removal is refused.
    """

    def request(attempt: int) -> WaitingOperation[None]:
        raw = yield from _find_own_vm(configuration, (yield from _patch_recorded(configuration)))
        if raw is not None:
            claims = yield from _claims_of_host(configuration, raw)
            if (version := (yield from _request_removal(read_vm(raw), claims))) is not None:
                yield from wait_for_removal(
                    configuration.ref, uid_of(raw), version or resource_version_of(raw)
                )
        elif wrong_harvester is not None and attempt == 1:
            raise Refused(wrong_harvester)
        else:
            try:
                yield from _delete_orphans(configuration, frozenset(configuration.volumes))
            except Forbidden as error:  # the VM is gone, which is what counts
                yield Log(f"orphans of {configuration.machine_name} may not be read: {error.message}")

    yield from _repeat_if_changed(configuration, request)


def _repeat_if_changed(
    configuration: Configuration, request: Callable[[int], Generator[E, Any, R]]
) -> Generator[E, Any, R]:
    """The result of `request`, repeated where the VM was changed, replaced or deleted after it was read."""
    for attempt in range(1, _ATTEMPTS):
        try:
            return (yield from request(attempt))
        except (NotFound, Conflict, Invalid) as error:
            if isinstance(error, NotFound) and not is_not_found(error, configuration.machine_name):
                raise
    return (yield from request(_ATTEMPTS))


def _find_own_vm(configuration: Configuration, raw: Any = None) -> Operation[Any]:
    """The machine's VM (`raw`, if it was read before); None where it has none. Raises Refused for an unknown owner."""
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
    return raw


def _request_removal(vm: Vm, claims: frozenset[str]) -> Operation[str | None]:
    """Delete the VM with `claims`. Its resourceVersion if that is known anew, None where it is gone at once."""
    version, names = "", ",".join(sorted(claims))
    if vm.removed_claims != names:
        change = {"metadata": {"uid": vm.uid, "annotations": {REMOVED_CLAIMS: names or None}}}
        patched = yield Call(requests.merge_patch(vm.ref, change), f"claims to delete with it: {names}")
        version = str(nested(patched, "metadata", "resourceVersion", default=""))
    if not vm.is_deleting:
        deletion = requests.delete(vm.ref, propagation="Foreground", uid=vm.uid)
        reply = yield Call(deletion, f"remove VM {vm.ref.name}")
        if reply.get("kind") == "Status":
            return None
    return version


def _patch_recorded(configuration: Configuration) -> Operation[Any]:
    """Annotate the recorded VM with the recorded claims, if it is still that one; None where it has to be read first."""
    if not (configuration.vm_uid and configuration.machine_uid and configuration.claims):
        return None
    claims = ",".join(sorted({*configuration.claims, *configuration.volumes}))
    owner = owner_annotations(configuration.cluster_uid, configuration.machine_uid)
    operations = [
        {"op": "test", "path": "/metadata/uid", "value": configuration.vm_uid},
        *({"op": "test", "path": _annotation(name), "value": uid} for name, uid in owner.items()),
        {"op": "add", "path": _annotation(REMOVED_CLAIMS), "value": claims},
    ]
    patch = requests.json_patch(configuration.ref, operations)
    try:
        patched = yield Call(patch, f"claims to delete with it: {claims}")
    except (Conflict, Invalid, BadRequest, UnsupportedMediaType):
        return None
    except NotFound as error:
        if not is_not_found(error, configuration.machine_name):
            raise
        return None
    return patched if "metadata" in patched else None  # an answer without the object: it has to be read


def _claims_of_host(configuration: Configuration, raw: Raw) -> Operation[frozenset[str]]:
    """The machine's own claims, those that config.json names, and all of its cluster where the VM has
    removeAllPersistentVolumeClaims."""
    configuration = with_uid_of(configuration, raw)
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
            listed_claims = list_items(listed)
            others = claims_owned_by_others(configuration, listed_claims)
            if others - claims:
                yield Log(f"claims of other owners stay: {', '.join(sorted(others - claims))}")
            claims |= frozenset(map(name_of, listed_claims)) - others
    return claims


def _annotation(name: str) -> str:
    """The JSON pointer of an annotation."""
    return f"/metadata/annotations/{name.replace('~', '~0').replace('/', '~1')}"


def _delete_orphans(configuration: Configuration, volumes: frozenset[str]) -> Operation[None]:
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
            yield from _delete_orphan(ref, uid_of(answer))


def _delete_orphan(ref: ObjectRef, uid: str) -> Operation[None]:
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
