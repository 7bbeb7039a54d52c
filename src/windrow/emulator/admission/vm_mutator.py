"""Mutators of VirtualMachines: fields that the API sets (reference 05 §2.1.1).

Each function changes the object in place and may be repeated: a second round changes nothing. Harvester's comes first,
then KubeVirt's, as the API server orders them by the names of their configurations.
"""

from __future__ import annotations

import re
from fractions import Fraction

from windrow.core.formats.json import NotJson, loads
from windrow.core.rng import Rng
from windrow.emulator import names
from windrow.emulator.admission.denials import (
    KUBEVIRT_MUTATOR,
    MUTATOR,
    check_decodes,
    internal,
    patch_failed,
    refused_by_kubevirt,
)
from windrow.emulator.admission.kubevirt.affinity import PREFERRED_TERMS, REQUIRED_TERMS
from windrow.emulator.admission.kubevirt.causes import flag, objects, quantity, section, text, whole
from windrow.emulator.admission.kubevirt.defaults import DEFAULT_MACHINE
from windrow.emulator.admission.kubevirt.openapi import find_schema_causes
from windrow.emulator.admission.kubevirt.typed import AFFINITY, SPEC, write_as_go
from windrow.emulator.kit.listers import Listers
from windrow.emulator.kit.macs import new_mac
from windrow.emulator.quantities import MI, Quantity
from windrow.emulator.release import Release
from windrow.kubernetes.objects import Raw, annotations_of, is_deleting, labels_of, namespace_of, nested

LEAST_GUEST_MEMORY = 10 * MI
RESERVED_BY_DEFAULT = 100 * MI
FORKLIFT_LABELS = ("migration", "plan", "vmID")


def mutate_vm(vm: Raw, old: Raw | None, listers: Listers, rng: Rng, release: Release) -> None:
    """All mutators in their order. Raises the KubeError of a refusal."""
    check_decodes("VirtualMachine", vm)
    if nested(vm, "spec", "template") is not None and not is_deleting(vm):
        _mutate_as_harvester(vm, old, listers, rng, release)
    if causes := find_schema_causes(vm):
        raise refused_by_kubevirt(causes, KUBEVIRT_MUTATOR)
    if not is_deleting(vm):
        _mutate_as_kubevirt(vm, old, rng)


def _mutate_as_harvester(vm: Raw, old: Raw | None, listers: Listers, rng: Rng, release: Release) -> None:
    """Where a VM has no template this webhook fails, and is left out."""
    spec = vm["spec"]["template"].get("spec") or {}
    domain = spec.get("domain")
    if domain is None:
        raise patch_failed("/spec/template/spec/domain/cpu")
    if old is None or _needs_overcommit(vm, old):
        _overcommit(vm, spec, domain, listers)
    _topology(domain)
    if old is not None:
        _remember_strategy(vm, old)
    _node_affinity(vm, spec, listers)
    _grace(spec, listers)
    if release.generates_mac_addresses:
        _addresses(vm, domain, rng)
    if old is None:
        _forklift_limits(vm, domain)


def _mutate_as_kubevirt(vm: Raw, old: Raw | None, rng: Rng) -> None:
    vm["spec"] = write_as_go(vm["spec"], SPEC)
    spec = vm["spec"]["template"]["spec"]
    domain = spec["domain"]
    if old is None:
        _firmware(domain, rng)
    spec["architecture"] = text(spec, "architecture") or "amd64"
    if not text(domain, "machine", "type"):
        domain["machine"] = {"type": DEFAULT_MACHINE.get(spec["architecture"], "q35")}


# --- run strategy ------------------------------------------------------------------------------------------------


def _strategy_of(vm: Raw) -> str:
    """As KubeVirt reads it. Raises the denial of a VM that has both forms."""
    strategy, running = nested(vm, "spec", "runStrategy"), nested(vm, "spec", "running")
    if strategy is not None and running is not None:
        raise internal("running and runstrategy are mutually exclusive", MUTATOR)
    if running is not None:
        return "Always" if running is True else "Halted"
    return str(strategy) if strategy is not None else "Halted"


def _remember_strategy(vm: Raw, old: Raw) -> None:
    """A VM that is started gets the strategy it had; not where its spec has the deprecated `running`."""
    if nested(vm, "spec", "running") is not None:
        return
    if _strategy_of(vm) != "Halted" and _strategy_of(old) == "Halted":
        vm["spec"]["runStrategy"] = annotations_of(vm).get(names.RUN_STRATEGY) or "RerunOnFailure"


# --- resources ---------------------------------------------------------------------------------------------------


def _domain_of(vm: Raw) -> Raw:
    return section(vm, "spec", "template", "spec", "domain")


def _devices_of(domain: Raw) -> tuple[int, int]:
    """How many host devices and GPUs."""
    return len(objects(domain, "devices", "hostDevices")), len(objects(domain, "devices", "gpus"))


def _is_pinned(domain: Raw) -> bool:
    return flag(domain, "cpu", "dedicatedCpuPlacement")


def _needs_overcommit(vm: Raw, old: Raw) -> bool:
    """Whether an update changes what requests and guest memory are computed from; else these are kept as they are."""
    domain, before = _domain_of(vm), _domain_of(old)
    for kind in ("cpu", "memory"):
        limit = quantity(domain, "resources", "limits", kind).number
        if limit and limit != quantity(before, "resources", "limits", kind).number:
            return True
    reserved, reserved_before = (annotations_of(one).get(names.RESERVED_MEMORY, "") for one in (vm, old))
    if reserved != reserved_before or _is_pinned(domain) != _is_pinned(before):
        return True
    if _devices_of(domain) != _devices_of(before):
        return True
    guest = quantity(domain, "memory", "guest").whole
    requested = quantity(domain, "resources", "requests", "memory").whole
    return any(_devices_of(domain)) and domain.get("memory") is not None and guest != requested


def _overcommit(vm: Raw, spec: Raw, domain: Raw, listers: Listers) -> None:
    """Requests by the overcommit ratios, the guest's memory, and the greatest number of sockets."""
    cpu, memory = (quantity(domain, "resources", "limits", kind) for kind in ("cpu", "memory"))
    percent = listers.overcommit()
    requests = {**section(domain, "resources", "requests")}
    if cpu.number:
        milli = cpu.milli if _is_pinned(domain) else _towards_zero(cpu.milli * 100, percent.cpu)
        requests["cpu"] = str(Quantity(Fraction(milli, 1000), cpu.format))
    if memory.number:
        guest = _guest_memory(vm, domain, memory, listers)
        if _is_pinned(domain):
            requested = memory
        elif any(_devices_of(domain)):
            requested = guest
        else:
            shared = _towards_zero(memory.whole * 100, percent.memory)
            requested = Quantity(Fraction(shared // MI * MI), memory.format)
        requests["memory"] = str(requested)
        _set_memory(vm, spec, domain, guest)
    if requests:
        domain["resources"]["requests"] = requests


def _towards_zero(number: int, by: int) -> int:
    """The quotient, of a number of 64 bits, which runs over."""
    number = (number + (1 << 63)) % (1 << 64) - (1 << 63)
    return number // by if number >= 0 else -(-number // by)


def _has_hotplug(vm: Raw) -> bool:
    return annotations_of(vm).get(names.HOTPLUG, "").lower() == "true"


def _guest_memory(vm: Raw, domain: Raw, limit: Quantity, listers: Listers) -> Quantity:
    """The limit less what is reserved: what the annotation says, else 100 Mi, else nothing where the cluster has a
    ratio for QEMU's own memory. With hot-plug the guest's own memory in place of the limit."""
    written = annotations_of(vm).get(names.RESERVED_MEMORY)
    reserved = Fraction(RESERVED_BY_DEFAULT)
    if written:
        found = Quantity.find(written)
        if found is None:
            raise internal(f"annotation {written} can't be converted to memory unit", MUTATOR)
        if found.whole >= limit.whole:
            why = f"reservedMemory can't be equal or greater than limits.memory  {found.whole} {limit.whole}"
            raise internal(why, MUTATOR)
        reserved = found.number
    elif _has_overhead_ratio(listers):
        reserved = Fraction(0)
    guest = limit
    if _has_hotplug(vm) and nested(domain, "memory", "guest") is not None:
        guest = quantity(domain, "memory", "guest")
    guest = guest.minus(reserved)
    if guest.whole < LEAST_GUEST_MEMORY:
        sizes = f"original: {limit.whole}, final: {guest.whole}"
        raise internal(f"guest memory is under the minimum requirement (10 Mi), {sizes}", MUTATOR)
    return guest


def _has_overhead_ratio(listers: Listers) -> bool:
    written = listers.setting("additional-guest-memory-overhead-ratio")
    return bool(re.fullmatch(r"\d+(\.\d*)?", written)) and 1.0 <= float(written) <= 10.0


def _set_memory(vm: Raw, spec: Raw, domain: Raw, guest: Quantity) -> None:
    if domain.get("memory") is None:
        domain["memory"] = {"guest": str(guest)}
    elif not _has_hotplug(vm):
        domain["memory"]["guest"] = str(guest)
    if _has_hotplug(vm) or text(spec, "architecture") == "arm64":
        return
    if domain.get("cpu") is None:
        raise patch_failed("/spec/template/spec/domain/cpu/maxSockets")
    domain["cpu"]["maxSockets"] = 1


def _topology(domain: Raw) -> None:
    cpu = domain.setdefault("cpu", {})
    for key in ("cores", "sockets", "threads"):
        cpu[key] = whole(cpu, key) or 1


def _forklift_limits(vm: Raw, domain: Raw) -> None:
    """A VM that Forklift imports has no limits; it gets those of its topology and memory."""
    labels = labels_of(vm)
    if not all(key in labels for key in FORKLIFT_LABELS) or section(domain, "resources", "limits"):
        return
    cpu = domain["cpu"]
    limits = {"cpu": str(cpu["cores"] * cpu["sockets"] * cpu["threads"])}
    if guest := nested(domain, "memory", "guest"):
        limits["memory"] = guest
    domain.setdefault("resources", {})["limits"] = limits


# --- placement ---------------------------------------------------------------------------------------------------


def _node_affinity(vm: Raw, spec: Raw, listers: Listers) -> None:
    """Node affinity follows the networks: replaces the terms about cluster networks and the CPU manager."""
    affinity = {**section(spec, "affinity")}
    node = {**section(affinity, "nodeAffinity")}
    terms = [
        kept for term in objects(node, REQUIRED_TERMS, "nodeSelectorTerms") if (kept := _without_ruled(term))
    ]
    for wanted in _requirements(vm, spec, listers):
        if not terms:
            terms = [{"matchExpressions": []}]
        for term in terms:
            if wanted not in term["matchExpressions"]:
                term["matchExpressions"] = [*term["matchExpressions"], wanted]
    node.pop(REQUIRED_TERMS, None)
    if terms:
        node[REQUIRED_TERMS] = {"nodeSelectorTerms": terms}
    affinity.pop("nodeAffinity", None)
    if terms or node.get(PREFERRED_TERMS):
        affinity["nodeAffinity"] = node
    spec["affinity"] = write_as_go(affinity, AFFINITY)


def _requirements(vm: Raw, spec: Raw, listers: Listers) -> list[Raw]:
    wanted = []
    for network in objects(spec, "networks"):
        name = text(network, "multus", "networkName")
        if not name:
            continue
        words = name.split("/")
        if len(words) > 2:
            raise internal(f"invalid network name {name}", MUTATOR)
        key = (namespace_of(vm), name) if len(words) == 1 else (words[0], words[1])
        nad = listers.networks.get(key)
        if nad is None:
            why = f'network-attachment-definitions.k8s.cni.cncf.io "{key[1]}" not found'
            raise internal(why, MUTATOR)
        if names.CLUSTER_NETWORK in labels_of(nad):
            wanted.append(f"{names.NETWORK_PREFIX}/{labels_of(nad)[names.CLUSTER_NETWORK]}")
    if _is_pinned(section(spec, "domain")):
        wanted.append(names.CPU_MANAGER)
    return [{"key": key, "operator": "In", "values": ["true"]} for key in wanted]


def _without_ruled(term: Raw) -> Raw:
    """The term without Harvester's expressions; empty where nothing else is in them, whatever fields it matches."""
    expressions = [
        one
        for one in objects(term, "matchExpressions")
        if not text(one, "key").startswith(names.NETWORK_PREFIX) and text(one, "key") != names.CPU_MANAGER
    ]
    return {**term, "matchExpressions": expressions} if expressions else {}


def _grace(spec: Raw, listers: Listers) -> None:
    if spec.get("terminationGracePeriodSeconds") is None:
        setting = listers.setting("default-vm-termination-grace-period-seconds")
        spec["terminationGracePeriodSeconds"] = int(setting) if setting.isdigit() else 120


# --- addresses and firmware ---------------------------------------------------------------------------------------


def _addresses(vm: Raw, domain: Raw, rng: Rng) -> None:
    """Give each interface a locally administered MAC, unless one was seen on it before."""
    observed = _observed_addresses(vm)
    for place, one in enumerate(nested(domain, "devices", "interfaces", default=[]) or ()):
        if one is None:
            raise patch_failed(f"/spec/template/spec/domain/devices/interfaces/{place}/macAddress")
        if not text(one, "macAddress") and text(one, "name") not in observed:
            one["macAddress"] = new_mac(rng)


def _observed_addresses(vm: Raw) -> Raw:
    try:
        found = loads(annotations_of(vm).get(names.MAC_ADDRESSES, "{}"))
    except NotJson:
        return {}
    return found if isinstance(found, dict) else {}


def _firmware(domain: Raw, rng: Rng) -> None:
    firmware = domain["firmware"] = {**section(domain, "firmware")}
    for key in ("uuid", "serial"):
        firmware[key] = text(firmware, key) or rng.uid()
