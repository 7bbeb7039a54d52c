"""Ordering a machine, so that a crash anywhere leaves something that the next order continues.

    read images ──> POST VM ──> POST its Secret, owned by the VM

The VM comes first. A VM that Harvester refuses then leaves nothing behind, the Secret with the tokens is never
without an owner that takes it along, and no third write is needed. The guest cannot start too early: KubeVirt holds
the pod until the Secret is there. The names of all three (VM, Secret, claims) derive from the machine's record, so
"already exists" is answered by the marks on what exists, and nothing can be made twice.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from windrow.cloudinit.document import BadUserData
from windrow.harvester.cloud_init_secret import (
    INLINE_LIMIT,
    build_secret,
    read_cloud_init_secret,
    secret_ref,
)
from windrow.harvester.identity import is_marked, marks
from windrow.harvester.kinds import VM
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
from windrow.nodedriver.configuration import Configuration
from windrow.nodedriver.lookups import Found, image_ref, judge, key_pair_ref, look_up, needed_to_build
from windrow.nodedriver.observe import find
from windrow.nodedriver.ownership import prove
from windrow.nodedriver.plans import plan_vm, planned_claims
from windrow.nodedriver.problems import Problem, Refused, errors
from windrow.nodedriver.remove import remove
from windrow.nodedriver.steps import Call, Note, Talk
from windrow.nodedriver.user_data import render_user_data


def order(
    configuration: Configuration, bootstrap: str, *, agent: bool = True, found: Found | None = None
) -> Talk[Configuration]:
    """Make what is missing of the machine; return its configuration with VM uid, claims and public key.

    `found` is what the check looked up a moment ago; without it, it is looked up here.

    May be repeated at any time. Raises Refused (with nothing left behind), or the KubeError that stopped it, after
    which it may be repeated.
    """
    found = found or (yield from look_up(needed_to_build(configuration)))
    there = None
    if problems := errors(list(judge(configuration, found))):
        # An image may vanish after its machine was made; that machine still wants its Secret.
        there = yield from _find_mine(configuration)
        if there is None:
            raise Refused(*problems)
    keyed = replace(configuration, ssh_public_key=_public_key(configuration, found))
    try:
        user_data = render_user_data(keyed, bootstrap, agent=agent)
    except BadUserData as bad:
        raise Refused(Problem(bad.message, bad.hint, "userData")) from bad
    vm_uid = uid_of(there) if there is not None else (yield from _ensure_vm(keyed, found))
    yield from _ensure_secret(keyed, vm_uid, user_data)
    return replace(keyed, vm_uid=vm_uid, claims=planned_claims(keyed))


def _public_key(configuration: Configuration, found: Found) -> str:
    if not configuration.key_pair_name:
        return configuration.ssh_public_key
    pair = found.key_pair(key_pair_ref(configuration))
    return pair.public_key if pair is not None else configuration.ssh_public_key


def _ensure_vm(configuration: Configuration, found: Found) -> Talk[str]:
    classes = {
        disk.image: image.storage_class
        for disk in configuration.disks
        if disk.image and (image := found.image(image_ref(configuration, disk.image))) is not None
    }
    vm = build_vm(plan_vm(configuration, classes, found.class_modes))
    try:
        made = yield Call(requests.create(VM, vm), f"order VM {configuration.machine_name}")
    except AlreadyExists:
        return uid_of((yield from _get_mine(configuration)))
    except (Unreachable, Unauthorized):
        raise
    except KubeError as error:
        # Silence may hide a yes; and admission speaks before names are compared, so the machine may be there.
        there = yield from _find_mine(configuration)
        if there is None:
            raise_refusal(error, f"VM {configuration.vm_namespace}/{configuration.machine_name}")
            raise
        return uid_of(there)
    return uid_of(made)


def _find_mine(configuration: Configuration) -> Talk[Any]:
    """The machine's VM, None where there is none. Raises Refused where another has the name, or may have it."""
    there = yield from find(configuration.ref, "see whose VM stands under this name")
    if there is not None:
        prove(configuration, there, making=True)
    return there


def _get_mine(configuration: Configuration) -> Talk[Any]:
    there = yield from _find_mine(configuration)
    if there is None:
        raise NotFound(
            f"VM {configuration.machine_name} was there and is gone; it is ordered again", status=404
        )
    return there


def _ensure_secret(configuration: Configuration, vm_uid: str, user_data: str) -> Talk[None]:
    try:
        yield from _make_secret(configuration, vm_uid, user_data)
    except Refused:
        yield Note(f"taking VM {configuration.machine_name} back: it would never get its cloud-init")
        yield from remove(replace(configuration, vm_uid=vm_uid), frozenset())
        raise


def _make_secret(configuration: Configuration, vm_uid: str, user_data: str) -> Talk[None]:
    long = len(configuration.network_data.encode()) > INLINE_LIMIT
    secret = build_secret(
        configuration.vm_namespace,
        configuration.machine_name,
        vm_uid,
        user_data=user_data,
        network_data=configuration.network_data if long else "",
        marks=marks(configuration.cluster_uid, configuration.machine_uid),
    )
    creation = Call(requests.create(SECRET, secret), f"give VM {configuration.machine_name} its cloud-init")
    try:
        yield creation
    except AlreadyExists:
        if not (yield from _is_in_place(configuration, vm_uid)):
            yield creation
    except OutcomeUnknown:
        if not (yield from _is_in_place(configuration, vm_uid)):
            raise
    except KubeError as error:
        raise_refusal(error, f"Secret {configuration.vm_namespace}/{secret['metadata']['name']}")
        raise


def _is_in_place(configuration: Configuration, vm_uid: str) -> Talk[bool]:
    """Whether the machine's Secret stands and belongs to this VM. One that belonged to an earlier VM of this
    machine is about to be collected, so it is deleted to make room."""
    ref = secret_ref(configuration.vm_namespace, configuration.machine_name)
    there = yield from find(ref, "see whose Secret stands under this name")
    if there is None:
        return False
    if not is_marked(there, configuration.cluster_uid, configuration.machine_uid):
        raise Refused(
            Problem(
                f"a Secret {ref.namespace}/{ref.name} exists and is not this machine's",
                "choose another machine name, or remove that Secret",
                "name",
            )
        )
    if read_cloud_init_secret(there).owner_uid == vm_uid:
        return True
    with suppress(NotFound):
        yield Call(requests.delete(ref, uid=uid_of(there)), "its VM is gone")
    return False


_FINAL = (AdmissionDenied, Invalid, BadRequest, NotFound)


def raise_refusal(error: KubeError, what: str) -> None:
    """Raise Refused where Harvester's answer is a no to this very object; return where it may change by itself.

    A 404 of the API server to a POST means that the namespace does not exist; a 403 that speaks of quota is about the object, any
    other 403 about the credential.
    """
    if (isinstance(error, _FINAL) and not _is_no_answer(error)) or (
        isinstance(error, Forbidden) and "exceeded quota" in error.message
    ):
        text = error.message.partition("denied the request: ")[2] or error.message
        raise Refused(
            Problem(f"Harvester refuses {what}: {text}", "change what it names, or make room for it")
        ) from error


def _is_no_answer(error: KubeError) -> bool:
    """A 404 page of something in between, which knows nothing of the object."""
    return isinstance(error, NotFound) and not error.reason
