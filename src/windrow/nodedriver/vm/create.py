"""Creating a machine, and replacing its user data, so that a crash at any point leaves something that the next attempt continues.

    read images ──> POST VM ──> POST its Secret, owned by the VM

The VM comes first. A VM that Harvester refuses then leaves nothing behind, the Secret with the tokens is never
without an owner that garbage collection follows, and no third write is needed. The guest cannot start too early: KubeVirt holds
the pod until the Secret is there. The names of all three (VM, Secret, claims) derive from the machine's record, so
"already exists" is decided by the owner annotations on what exists, and nothing can be created twice.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from windrow.cloudinit.document import BadUserData
from windrow.harvester.cloud_init_secret import (
    INLINE_LIMIT,
    USER_DATA,
    build_secret,
    read_cloud_init_secret,
    secret_data,
    secret_ref,
)
from windrow.harvester.identity import is_owned_by, owner_annotations
from windrow.harvester.problems import Problem, only_errors
from windrow.harvester.resources import VM
from windrow.harvester.vms import build_vm
from windrow.kubernetes import requests
from windrow.kubernetes.errors import (
    AdmissionDenied,
    AlreadyExists,
    BadRequest,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    OutcomeUnknown,
    Unauthorized,
    Unreachable,
)
from windrow.kubernetes.objects import uid_of
from windrow.kubernetes.resources import SECRET
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.effects import Call, Log, Operation
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.user_data import render_user_data
from windrow.nodedriver.validate.references import (
    ReferencedObjects,
    check_references,
    image_ref,
    key_pair_ref,
    name_near_images,
    read_references,
    references_to_build,
)
from windrow.nodedriver.vm.observe import find_object
from windrow.nodedriver.vm.ownership import require_owner
from windrow.nodedriver.vm.plan import plan_vm, planned_claims
from windrow.nodedriver.vm.remove import remove


def ensure_created(
    configuration: Configuration,
    bootstrap: str,
    *,
    agent: bool = True,
    references: ReferencedObjects | None = None,
) -> Operation[Configuration]:
    """Create what is missing of the machine; return its configuration with VM uid, claims and public key.

    `references` are those that the pre-create check read; without them, they are read here.

    May be repeated at any time. Raises Refused (with nothing left behind), or the KubeError that stopped it, after
    which it may be repeated.
    """
    references = references or (yield from read_references(references_to_build(configuration)))
    existing = None
    if problems := only_errors(list(check_references(configuration, references))):
        # An image may be deleted after its machine was created; that machine still needs its Secret.
        existing = yield from _find_own_vm(configuration)
        if existing is None:
            raise Refused(*(yield from name_near_images(problems, references)))
    with_key = replace(configuration, ssh_public_key=_public_key(configuration, references))
    user_data = _render_user_data(with_key, bootstrap, agent=agent)
    vm_uid = uid_of(existing) if existing is not None else (yield from _ensure_vm(with_key, references))
    yield from _ensure_secret(with_key, vm_uid, user_data)
    return replace(with_key, vm_uid=vm_uid, claims=planned_claims(with_key))


def replace_user_data(configuration: Configuration, bootstrap: str, *, agent: bool = True) -> Operation[None]:
    """Merge the user's document with `bootstrap` again and put it into the machine's Secret: the user data that it reads at
    its next boot, above all without the secrets of its first one.

    Network data, password and keys stay as they were. May be repeated; writes only where something differs.
    """
    ref = secret_ref(configuration.vm_namespace, configuration.machine_name)
    existing = yield from find_object(ref, "read the cloud-init Secret")
    if existing is None or not is_owned_by(existing, configuration.cluster_uid, configuration.machine_uid):
        raise Refused(
            Problem(
                f"machine {configuration.machine_name} has no cloud-init Secret {ref.namespace}/{ref.name} of its own",
                "there is nothing to rewrite; replace the machine if it has to start again",
            )
        )
    user_data = _render_user_data(configuration, bootstrap, agent=agent)
    if read_cloud_init_secret(existing).user_data != user_data:
        change = {"data": {USER_DATA: secret_data(user_data)[USER_DATA]}}
        yield Call(
            requests.merge_patch(ref, change), f"replace the cloud-init of {configuration.machine_name}"
        )


def _render_user_data(configuration: Configuration, bootstrap: str, *, agent: bool) -> str:
    """Raises Refused."""
    try:
        return render_user_data(configuration, bootstrap, agent=agent)
    except BadUserData as bad:
        raise Refused(Problem(bad.message, bad.hint, "userData")) from bad


def _public_key(configuration: Configuration, references: ReferencedObjects) -> str:
    if not configuration.key_pair_name:
        return configuration.ssh_public_key
    pair = references.key_pair(key_pair_ref(configuration))
    return pair.public_key if pair is not None else configuration.ssh_public_key


def _ensure_vm(configuration: Configuration, references: ReferencedObjects) -> Operation[str]:
    classes = {
        disk.image: image.storage_class
        for disk in configuration.disks
        if disk.image and (image := references.image(image_ref(configuration, disk.image))) is not None
    }
    vm = build_vm(plan_vm(configuration, classes, references.class_modes, references.release.vgpu_field))
    try:
        created = yield Call(requests.create(VM, vm), f"create VM {configuration.machine_name}")
    except AlreadyExists:
        return uid_of((yield from _get_own_vm(configuration)))
    except (Unreachable, Unauthorized):
        raise
    except KubeError as error:
        # An unknown outcome may be a success; and admission runs before names are compared, so the VM may exist.
        existing = yield from _find_own_vm(configuration)
        if existing is None:
            raise_if_rejected(error, f"VM {configuration.vm_namespace}/{configuration.machine_name}")
            raise
        return uid_of(existing)
    return uid_of(created)


def _find_own_vm(configuration: Configuration) -> Operation[Any]:
    """The machine's VM, None where there is none. Raises Refused where another machine owns it, or may own it."""
    existing = yield from find_object(configuration.ref, "check the owner of the VM of this name")
    if existing is not None:
        require_owner(configuration, existing, creating=True)
    return existing


def _get_own_vm(configuration: Configuration) -> Operation[Any]:
    existing = yield from _find_own_vm(configuration)
    if existing is None:
        raise NotFound(
            f"VM {configuration.machine_name} was deleted meanwhile; it is created again", status=404
        )
    return existing


def _ensure_secret(configuration: Configuration, vm_uid: str, user_data: str) -> Operation[None]:
    try:
        yield from _create_secret(configuration, vm_uid, user_data)
    except Refused:
        yield Log(f"deleting VM {configuration.machine_name}: its cloud-init Secret was refused")
        yield from remove(replace(configuration, vm_uid=vm_uid), frozenset())
        raise


def _create_secret(configuration: Configuration, vm_uid: str, user_data: str) -> Operation[None]:
    long = len(configuration.network_data.encode()) > INLINE_LIMIT
    secret = build_secret(
        configuration.vm_namespace,
        configuration.machine_name,
        vm_uid,
        user_data=user_data,
        network_data=configuration.network_data if long else "",
        owner_annotations=owner_annotations(configuration.cluster_uid, configuration.machine_uid),
    )
    creation = Call(
        requests.create(SECRET, secret), f"create the cloud-init Secret of VM {configuration.machine_name}"
    )
    try:
        yield creation
    except AlreadyExists:
        if not (yield from _has_own_secret(configuration, vm_uid)):
            yield creation
    except OutcomeUnknown:
        if not (yield from _has_own_secret(configuration, vm_uid)):
            raise
    except KubeError as error:
        raise_if_rejected(error, f"Secret {configuration.vm_namespace}/{secret['metadata']['name']}")
        raise


def _has_own_secret(configuration: Configuration, vm_uid: str) -> Operation[bool]:
    """Whether the machine's Secret exists and is owned by this VM. One of an earlier VM of this machine is about to be
    garbage-collected, so it is deleted here."""
    ref = secret_ref(configuration.vm_namespace, configuration.machine_name)
    existing = yield from find_object(ref, "check the owner of the Secret of this name")
    if existing is None:
        return False
    if not is_owned_by(existing, configuration.cluster_uid, configuration.machine_uid):
        raise Refused(
            Problem(
                f"a Secret {ref.namespace}/{ref.name} exists and is not this machine's",
                "choose another machine name, or remove that Secret",
                "name",
            )
        )
    if read_cloud_init_secret(existing).owner_uid == vm_uid:
        return True
    with suppress(NotFound):
        yield Call(requests.delete(ref, uid=uid_of(existing)), "its VM is gone")
    return False


_FINAL = (AdmissionDenied, Invalid, BadRequest, NotFound)


def raise_if_rejected(error: KubeError, what: str) -> None:
    """Raise Refused where Harvester rejected this object; return where repeating may succeed.

    A 404 of the API server to a POST means that the namespace does not exist; a 403 with "exceeded quota" is about the
    object, any other 403 about the credential.
    """
    if (isinstance(error, _FINAL) and not _is_foreign_404(error)) or (
        isinstance(error, Forbidden) and "exceeded quota" in error.message
    ):
        text = error.message.partition("denied the request: ")[2] or error.message
        raise Refused(
            Problem(f"Harvester refuses {what}: {text}", "correct the field it names, or raise the quota")
        ) from error


def _is_foreign_404(error: KubeError) -> bool:
    """A 404 page of a proxy in between, which proves nothing about the object."""
    return isinstance(error, NotFound) and not error.reason
