"""Texts for the log and for events: what an action did, why Harvester refused, and what an operator can do. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from windrow.cloudprovider import names
from windrow.cloudprovider.services.actions import (
    WAIT_TIMEOUT,
    Action,
    ClearStatus,
    ConfirmDeleted,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    EmitEvent,
    PatchService,
    RemoveFinalizer,
    UpdateLoadBalancer,
)
from windrow.cloudprovider.services.readings import LoadBalancer, Service
from windrow.kubernetes.errors import AdmissionDenied, Forbidden, Invalid, KubeError, Unauthorized


def describe_entries(what: str, entries: Iterable[tuple[str, str | None]]) -> str:
    """Which labels or annotations were set, and which were removed (None). "" for none."""
    known = tuple(entries)
    written = ", ".join(f"{key}={value}" for key, value in known if value is not None)
    removed = ", ".join(key for key, value in known if value is None)
    parts = [f"{what} {keys} {verb}" for keys, verb in ((written, "set"), (removed, "removed")) if keys]
    return " and ".join(parts)


def describe_action(action: Action) -> str:
    """What was done, and why; "" for events, and for actions that only read."""
    return (
        ""
        if isinstance(action, (ConfirmDeleted, EmitEvent))
        else f"{_describe(action)} because {action.because}"
    )


def _describe(
    action: PatchService
    | ClearStatus
    | CreateLoadBalancer
    | UpdateLoadBalancer
    | DeleteLoadBalancer
    | RemoveFinalizer,
) -> str:
    match action:
        case PatchService(add_finalizer=protects):
            return _joined("finalizer added" if protects else "", action)
        case RemoveFinalizer():
            return _joined("finalizer removed", action)
        case ClearStatus():
            return "addresses removed from its status"
        case CreateLoadBalancer(name=name):
            return f"load balancer {name} created"
        case UpdateLoadBalancer(balancer=balancer):
            return f"load balancer {balancer.name} updated"
        case DeleteLoadBalancer(balancer=balancer):
            return f"load balancer {balancer.name} deleted"


def _joined(text: str, action: PatchService | RemoveFinalizer) -> str:
    entries = (
        describe_entries("annotations", action.annotations.items()),
        describe_entries("labels", action.labels.items()),
    )
    return "; ".join(part for part in (text, *entries) if part)


# Signs in the Ready condition's message (reference 02 §4.3, §4.4) and their hints; the first match counts.
_HINTS: tuple[tuple[str, str], ...] = (
    (
        r"no matched IPPool",
        "no IP pool on Harvester is for this network, project, namespace and guest cluster; widen the scope of a pool "
        f"or create one, name a pool in the annotation {names.IP_POOL}, or use DHCP from the start",
    ),
    (
        r"fail to get allocator",
        f"there is no IP pool of this name on Harvester; create it, or correct the annotation {names.IP_POOL}",
    ),
    (
        r"no IP addresses available in range set|no available IP",
        "all addresses of the IP pool are taken; widen its range, delete load balancers that are not used, or name "
        f"another pool in the annotation {names.IP_POOL}; Harvester then allocates an address within two minutes",
    ),
    (
        r"requested IP address|requested ip|not in range set",
        "the address that this service had before cannot be had again; free it or put it back into the pool's range, "
        "or delete and create the service to get another one",
    ),
    (
        r"duplicate allocation",
        "Harvester before 1.5 does not recover from this; its administrator has to release the address in the IP pool "
        "(annotation loadbalancer.harvesterhci.io/manuallyReleaseIP), or delete and create the service",
    ),
)
_ANY = "ask Harvester's administrator; Harvester allocates an address once this is solved"


def explain_refusal(service: Service, balancer: LoadBalancer) -> str:
    """The hint first, because tables cut long texts off; then Harvester's message, as the Go program passes it on."""
    hint = next((hint for sign, hint in _HINTS if re.search(sign, balancer.refusal)), _ANY)
    pool = f", pool: {service.pool}" if service.pool else ""
    return f"{hint} (ip is not allocated, mode: {service.mode}{pool}, message: {balancer.refusal})"


def explain_error(error: KubeError, namespace: str) -> str:
    """Why a request to Harvester failed, with a hint."""
    match error:
        case Unauthorized():
            return (
                f"Harvester does not accept the credential of the cloud config: {error.message}; put a valid "
                "kubeconfig there, it is reloaded within seconds"
            )
        case Forbidden():
            return (
                f"the credential of the cloud config may not do this in namespace {namespace} of Harvester: "
                f"{error.message}; the kubeconfig's context must name the namespace that the credential is for"
            )
        case AdmissionDenied():
            return f"Harvester refuses the load balancer: {error.message}"
        case Invalid():
            return f"Harvester does not accept the load balancer: {error.message}"
        case _:
            return f"Harvester cannot be reached: {error.message}; retrying"


def allocation_timeout(service: Service) -> str:
    return (
        "failed to ensure load balancer: ip is not allocated after "
        f"{WAIT_TIMEOUT.seconds} s, mode: {service.mode}, message: none; is the load balancer controller "
        "(harvester-load-balancer in harvester-system) running on Harvester?"
    )


def deletion_timeout(balancer: LoadBalancer) -> str:
    held = ", ".join(balancer.finalizers) or "nothing"
    return (
        f"failed to delete load balancer: {balancer.namespace}/{balancer.name} is still there {WAIT_TIMEOUT.seconds} s "
        f"after its deletion, held by {held}; is the load balancer controller (harvester-load-balancer in "
        "harvester-system) running on Harvester, and does the IP pool of its address still exist?"
    )
