"""Mutators of VirtualMachines: fields that the API sets (reference 05 §2.1.1).

Each function changes the object in place and may be repeated: a second round changes nothing.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from windrow.core.rng import Rng
from windrow.emulator import names
from windrow.emulator.admission.denials import MUTATOR, internal
from windrow.emulator.kit.listers import Listers
from windrow.emulator.kit.vm_readings import networks_of, read_strategy
from windrow.emulator.quantities import (
    MI,
    BadQuantity,
    parse_quantity,
    render_cpu,
    render_memory,
)
from windrow.kubernetes.objects import Raw, annotations_of, namespace_of, nested

LEAST_GUEST_MEMORY = 10 * MI
RESERVED_BY_DEFAULT = 100 * MI


def mutate_vm(vm: Raw, old: Raw | None, listers: Listers, rng: Rng) -> None:
    """All mutators in their order. Raises the KubeError of a refusal."""
    if old is not None:
        _remember_strategy(vm, old)
    spec = vm["spec"]["template"].setdefault("spec", {})
    domain = spec.setdefault("domain", {})
    _overcommit(vm, domain, listers)
    _topology(domain)
    _network_affinity(vm, spec, listers)
    _grace(spec, listers)
    _addresses(domain, _known_addresses(old), rng)
    _kubevirt(vm, spec, domain, rng)


def _remember_strategy(vm: Raw, old: Raw) -> None:
    if read_strategy(old) == "Halted" and read_strategy(vm) != "Halted":
        vm["spec"].pop("running", None)
        vm["spec"]["runStrategy"] = annotations_of(vm).get(names.RUN_STRATEGY) or "RerunOnFailure"


def _overcommit(vm: Raw, domain: Raw, listers: Listers) -> None:
    limits = nested(domain, "resources", "limits", default={})
    percent = listers.overcommit()
    requests: dict[str, str] = domain.setdefault("resources", {}).setdefault("requests", {})
    if limits.get("cpu"):
        requests["cpu"] = render_cpu(_number(limits["cpu"]) * 100 / percent.cpu)
    if limits.get("memory"):
        asked = _number(limits["memory"])
        requests["memory"] = f"{int(asked * 100 / percent.memory) // MI}Mi"
        domain.setdefault("memory", {})["guest"] = render_memory(_guest_memory(vm, asked, listers))
    if not requests:
        del domain["resources"]["requests"]
    if not domain["resources"]:
        del domain["resources"]


def _number(text: Any) -> Fraction:
    try:
        return parse_quantity(text)
    except BadQuantity as error:
        raise internal(str(error), MUTATOR) from error


def _guest_memory(vm: Raw, limit: Fraction, listers: Listers) -> Fraction:
    if listers.setting("additional-guest-memory-overhead-ratio"):
        return limit
    reserved = annotations_of(vm).get(names.RESERVED_MEMORY)
    try:
        kept = parse_quantity(reserved) if reserved else Fraction(RESERVED_BY_DEFAULT)
    except BadQuantity as error:
        text = f"annotation {names.RESERVED_MEMORY} can't be converted to memory unit"
        raise internal(text, MUTATOR) from error
    guest = limit - kept
    if guest < LEAST_GUEST_MEMORY:
        text = (
            "guest memory is under the minimum requirement (10 Mi), "
            f"original: {render_memory(limit)}, final: {render_memory(guest)}"
        )
        raise internal(text, MUTATOR)
    return guest


def _topology(domain: Raw) -> None:
    cpu = domain.setdefault("cpu", {})
    for key in ("sockets", "cores", "threads"):
        cpu.setdefault(key, 1)
    cpu.setdefault("maxSockets", cpu["sockets"])


_RULED_BY_HARVESTER = (names.NETWORK_PREFIX, names.CPU_MANAGER)


def _network_affinity(vm: Raw, spec: Raw, listers: Listers) -> None:
    """Node affinity follows the networks: replaces the terms about cluster networks and the CPU manager."""
    wanted = []
    for nad in networks_of(spec, namespace_of(vm)).values():
        if not nad:
            continue
        if nad.count("/") != 1 or not all(nad.split("/")):
            raise internal(f"invalid network name {nad}", MUTATOR)
        cluster_network = listers.cluster_network(nad)
        if cluster_network:
            key = f"{names.NETWORK_PREFIX}/{cluster_network}"
            expression = {"key": key, "operator": "In", "values": ["true"]}
            if expression not in wanted:
                wanted.append(expression)
    if nested(spec, "domain", "cpu", "dedicatedCpuPlacement"):
        wanted.append({"key": names.CPU_MANAGER, "operator": "In", "values": ["true"]})
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    terms = nested(spec, "affinity", "nodeAffinity", required, "nodeSelectorTerms", default=[])
    kept = [_without_ruled(term) for term in terms]
    kept = [term for term in kept if term.get("matchExpressions") or term.get("matchFields")]
    if not wanted and not terms:
        return
    if wanted:
        kept = [
            {**term, "matchExpressions": [*(term.get("matchExpressions") or []), *wanted]} for term in kept
        ] or [{"matchExpressions": wanted}]
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    if kept:
        affinity[required] = {"nodeSelectorTerms": kept}
    else:
        affinity.pop(required, None)


def _without_ruled(term: Raw) -> Raw:
    expressions = [
        one
        for one in term.get("matchExpressions") or ()
        if not str(one.get("key", "")).startswith(_RULED_BY_HARVESTER)
    ]
    return {**term, "matchExpressions": expressions}


def _grace(spec: Raw, listers: Listers) -> None:
    if spec.get("terminationGracePeriodSeconds") is None:
        text = listers.setting("default-vm-termination-grace-period-seconds")
        spec["terminationGracePeriodSeconds"] = int(text) if text.isdigit() else 120


def _known_addresses(old: Raw | None) -> dict[str, str]:
    """The MACs of the VM before this change, by interface: an omitted MAC is kept."""
    interfaces = nested(old, "spec", "template", "spec", "domain", "devices", "interfaces", default=[])
    return {one["name"]: one["macAddress"] for one in interfaces if one.get("macAddress")}


def _addresses(domain: Raw, known: dict[str, str], rng: Rng) -> None:
    """Harvester 1.7 and later give each interface a locally administered MAC."""
    for one in nested(domain, "devices", "interfaces", default=[]):
        if not one.get("macAddress"):
            one["macAddress"] = known.get(one.get("name", "")) or new_mac(rng)


def new_mac(rng: Rng) -> str:
    # Bit 1 of the first byte set, bit 0 clear: locally administered, unicast.
    first = (rng.below(64) << 2) | 0b10
    return ":".join(f"{byte:02x}" for byte in (first, *(rng.below(256) for _ in range(5))))


def _kubevirt(vm: Raw, spec: Raw, domain: Raw, rng: Rng) -> None:
    firmware = domain.setdefault("firmware", {})
    for key in ("uuid", "serial"):
        firmware.setdefault(key, rng.uid())
    domain.setdefault("machine", {}).setdefault("type", "q35")
    spec.setdefault("architecture", "amd64")
    annotations = vm["metadata"].setdefault("annotations", {})
    annotations.setdefault("kubevirt.io/latest-observed-api-version", "v1")
    annotations.setdefault("kubevirt.io/storage-observed-api-version", "v1")
