"""Harvester's validator of VirtualMachines, one function per rule, with its messages; and KubeVirt's before it.

Reference 05 §3.2 and 01 §3.7. A rule reads the object, its old state (None on create) and the Listers, and raises the
denial. The first denial in the order below is the result.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from windrow.emulator import names
from windrow.emulator.admission.claim_expansion import check_expansion, provisioner_of
from windrow.emulator.admission.denials import (
    KUBEVIRT_VALIDATOR,
    VALIDATOR,
    internal,
    invalid,
    refused_by_kubevirt,
    webhook_failed,
)
from windrow.emulator.admission.kubevirt.admitter import find_vm_causes
from windrow.emulator.admission.kubevirt.causes import flag, has, objects, quantity, section, text
from windrow.emulator.admission.kubevirt.compute import kubevirt_panics
from windrow.emulator.kit.listers import Key, Listers, key_of
from windrow.emulator.kit.vm_readings import BadTemplates, read_claim_templates
from windrow.emulator.quantities import BadQuantity, Quantity
from windrow.emulator.vms import quotas
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    nested,
)

Rule = Callable[[Raw, Raw | None, Listers], None]

VOLUMES = "spec.templates.spec.volumes"  # the plural is as shipped
ANNOTATIONS = "metadata.annotations"
LONGHORN = "driver.longhorn.io"


def check_vm(vm: Raw, old: Raw | None, listers: Listers) -> None:
    """Raises the denial of a create of `vm`, or of an update from `old`."""
    if not is_deleting(vm) and kubevirt_panics(_spec(vm)):
        raise webhook_failed(KUBEVIRT_VALIDATOR)
    if causes := find_vm_causes(vm, old):
        raise refused_by_kubevirt(causes)
    for rule in RULES_OF_ALL:
        rule(vm, old, listers)
    for rule in RULES_OF_CREATION if old is None else RULES_OF_UPDATE:
        rule(vm, old, listers)
    if old is not None and _interfaces(vm) != _interfaces(old):
        _macs_are_unique(vm, old, listers)
        _cd_roms_use_sata(vm, old, listers)


def _spec(vm: Raw) -> Raw:
    return section(vm, "spec", "template", "spec")


def _interfaces(vm: Raw) -> list[Raw]:
    return objects(_spec(vm), "domain", "devices", "interfaces")


def _claims(vm: Raw) -> list[str]:
    """Names of the claims of the VM's volumes, in order."""
    return [
        text(one, "persistentVolumeClaim", "claimName")
        for one in objects(_spec(vm), "volumes")
        if has(one, "persistentVolumeClaim")
    ]


def _templates(vm: Raw | None) -> list[Raw]:
    """The claim templates; [] for an invalid annotation, which another rule denies."""
    try:
        return read_claim_templates(vm) if vm is not None else []
    except BadTemplates:
        return []


# --- the spec, on create and update ---------------------------------------------------------------------------------


def _templates_are_readable(vm: Raw, old: Raw | None, listers: Listers) -> None:
    try:
        read_claim_templates(vm)
    except BadTemplates as error:
        raise invalid(f"the volumeClaimTemplates annotaion is invalid: {error}", ANNOTATIONS) from error


def _claims_are_no_golden_images(vm: Raw, old: Raw | None, listers: Listers) -> None:
    """A VM that the import controller made boots from such a claim."""
    if labels_of(vm).get(names.VM_IMPORT) == "true":
        return
    for claim in _claims(vm):
        raw = listers.claims.get((namespace_of(vm), claim))
        if raw is not None and annotations_of(raw).get(names.GOLDEN_IMAGE) == "true":
            why = f"PVC {namespace_of(vm)}/{claim} is a golden image, it can't be used as a volume in VM"
            raise invalid(why, VOLUMES)


def _claims_are_free(vm: Raw, old: Raw | None, listers: Listers) -> None:
    """A claim that exists is shared where its class can be written from several hosts, which Longhorn's cannot, or
    where the other VM's disk says that it may be."""
    for claim in _claims(vm):
        key = (namespace_of(vm), claim)
        raw = listers.claims.get(key)
        if raw is None or _is_shared_by_class(raw, listers):
            continue
        others = listers.vms_by_claim.get(key, frozenset()) - {key_of(vm)}
        if any(_holds_alone(listers.vms[other], claim) for other in others if other in listers.vms):
            why = f"PVC {key[0]}/{claim} is already used by other VM, please use a shareable RWX volume."
            raise invalid(why, VOLUMES)


def _is_shared_by_class(claim: Raw, listers: Listers) -> bool:
    return provisioner_of(claim, listers) != LONGHORN and "ReadWriteMany" in nested(
        claim, "spec", "accessModes", default=[]
    )


def _holds_alone(vm: Raw, claim: str) -> bool:
    alone = {
        text(disk, "name")
        for disk in objects(_spec(vm), "domain", "devices", "disks")
        if not flag(disk, "shareable")
    }
    return any(
        text(one, "persistentVolumeClaim", "claimName") == claim and text(one, "name") in alone
        for one in objects(_spec(vm), "volumes")
    )


def _grace_is_not_negative(vm: Raw, old: Raw | None, listers: Listers) -> None:
    if (_spec(vm).get("terminationGracePeriodSeconds") or 0) < 0:
        why = "Termination grace period can't be negative"
        raise invalid(why, "spec.Template.Spec.TerminationGracePeriodSeconds")


def _memory_is_set(vm: Raw, old: Raw | None, listers: Listers) -> None:
    domain = section(_spec(vm), "domain")
    if has(domain, "memory") and nested(domain, "memory", "guest") is None:
        raise webhook_failed(VALIDATOR)  # the real rule reads a nil pointer
    if not quantity(domain, "memory", "guest").number and not _memory_limit(vm).number:
        why = "either memory.guest or resources.limits.memory must be set"
        raise invalid(why, "spec.template.spec.domain")


def _memory_limit(vm: Raw) -> Quantity:
    return quantity(_spec(vm), "domain", "resources", "limits", "memory")


def _reserved_memory_fits(vm: Raw, old: Raw | None, listers: Listers) -> None:
    written, limit = annotations_of(vm).get(names.RESERVED_MEMORY), _memory_limit(vm)
    if not written or not limit.number:
        return
    field = f"{ANNOTATIONS}[{names.RESERVED_MEMORY}]"
    try:
        reserved = Quantity.parse(written)
    except BadQuantity as error:
        raise invalid(str(error), field) from error
    if reserved.number >= limit.number:
        raise invalid("reservedMemory cannot be equal or greater than limits.memory", field)
    guest = quantity(_spec(vm), "domain", "memory", "guest")
    if (
        guest.number + reserved.number > limit.number
        and nested(_spec(vm), "domain", "memory", "guest") is not None
    ):
        sizes = f"guest memory {guest.whole} plus reservedMemory {reserved.whole}"
        raise invalid(f"{sizes} cannot be greater than limits.memory {limit.whole}", field)
    if reserved.number < 0:
        raise invalid("reservedMemory cannot be less than 0", field)


def _quota_allows_a_start(vm: Raw, old: Raw | None, listers: Listers) -> None:
    """CPU and memory count when a machine that is down is changed or started; at create they do not, and the
    controller halts the machine afterwards."""
    if not text(vm, "status", "printableStatus") or _strategy(vm) == "Halted":
        return
    if why := quotas.find_exceeded_quota(vm, listers.instances.get(key_of(vm)), listers):
        raise internal(why)


def _strategy(vm: Raw) -> str:
    running = nested(vm, "spec", "running")
    if running is not None:
        return "Always" if running is True else "Halted"
    return text(vm, "spec", "runStrategy") or "Halted"


# --- create, or update alone ------------------------------------------------------------------------------------------


def _added_volumes_are_no_golden_images(vm: Raw, old: Raw | None, listers: Listers) -> None:
    if labels_of(vm).get(names.VM_IMPORT) == "true":
        return
    for request in objects(vm, "status", "volumeRequests"):
        claim = text(request, "addVolumeOptions", "volumeSource", "persistentVolumeClaim", "claimName")
        raw = listers.claims.get((namespace_of(vm), claim))
        if raw is not None and annotations_of(raw).get(names.GOLDEN_IMAGE) == "true":
            where = f"PVC {namespace_of(vm)}/{claim}"
            why = f"{where} is a golden image, it can't be used as a hotplug volume in VM"
            raise invalid(why, "status.volumeRequests")


def _quota_allows_the_storage(vm: Raw, old: Raw | None, listers: Listers) -> None:
    templates = _templates(vm)
    if old is not None and _storage(templates) <= _storage(_templates(old)):
        return
    if why := quotas.find_exceeded_storage_quota(templates, namespace_of(vm), listers):
        raise internal(why)


def _storage(templates: list[Raw]) -> Fraction:
    sizes = (_size(one).number for one in templates)
    return sum(sizes, Fraction(0))


def _size(claim: Raw) -> Quantity:
    return quantity(claim, "spec", "resources", "requests", "storage")


def _volumes_stay(vm: Raw, old: Raw | None, listers: Listers) -> None:
    """Claim templates keep their class and do not shrink; one that grows must be expandable."""
    if old is None:
        return
    before, after = (annotations_of(one).get(names.CLAIM_TEMPLATES, "") for one in (old, vm))
    if not before or not after or before == after:
        return
    field = f"{ANNOTATIONS}.{names.CLAIM_TEMPLATES}"
    wanted = {text(one, "metadata", "name"): one for one in _templates(vm)}
    changed = ""
    for earlier in _templates(old):
        name = text(earlier, "metadata", "name")
        if name not in wanted:
            continue
        if _size(wanted[name]).number < _size(earlier).number:
            raise invalid(f"{name} PVC requests storage can't be less than previous value", field)
        if _size(wanted[name]).number > _size(earlier).number:
            namespace = text(earlier, "metadata", "namespace") or namespace_of(old)
            claim = listers.claims.get((namespace, name))
            if claim is None:
                raise internal(f'persistentvolumeclaims "{name}" not found')
            check_expansion(claim, listers)
        classes = [nested(one, "spec", "storageClassName") for one in (earlier, wanted[name])]
        if None not in classes and classes[0] != classes[1]:
            changed += f" new name {classes[1]} in volume {name};"
    if changed:
        why = f"storage class names for the volumes in the {names.CLAIM_TEMPLATES} annotation cannot be changed;"
        raise internal(why + changed)


def _target_volumes_can_be_used(vm: Raw, old: Raw | None, listers: Listers) -> None:
    """A volume moves to another claim while the VM runs, one at a time."""
    field = f"{ANNOTATIONS}[{names.CLAIM_TEMPLATES}]"
    wanted = [one for one in _templates(vm) if text(one, "targetVolume")]
    for place, one in enumerate(wanted):
        if place:
            raise invalid("only one volume migration is allowed at a time", field)
        if why := _target_fault(one, vm, listers):
            raise invalid(why, field)


def _target_fault(one: Raw, vm: Raw, listers: Listers) -> str:
    name, target, claims = text(one, "metadata", "name"), text(one, "targetVolume"), _claims(vm)
    if target in claims:
        return ""  # it moves already
    if name in {text(volume, "dataVolume", "name") for volume in objects(_spec(vm), "volumes")}:
        return f"source volume {name} is a DataVolume, only PVC sources are supported for storage migration"
    if name not in claims:
        return f"PVC {name} is not attached to the VM"
    if text(vm, "status", "printableStatus") != "Running":
        return "VM must be running to set targetVolume for volume migration"
    claim = listers.claims.get((namespace_of(vm), target))
    if claim is None:
        return f"targetVolume PVC {namespace_of(vm)}/{target} not found"
    if _size(claim).number < _size(one).number:
        sizes = f"size ({_size(claim)}) must not be less than source volume {name} size ({_size(one)})"
        return f"targetVolume {target} {sizes}"
    return ""


MAINTAIN_MODES = ("Migrate", "ShutdownAndRestartAfterEnable", "ShutdownAndRestartAfterDisable", "Shutdown")


def _maintain_mode_is_known(vm: Raw, old: Raw | None, listers: Listers) -> None:
    """An unknown one that was there before may stay."""
    mode = labels_of(vm).get(names.MAINTAIN_MODE)
    before = labels_of(old).get(names.MAINTAIN_MODE) if old is not None else None
    if mode is None or mode in MAINTAIN_MODES or mode == before:
        return
    raise invalid(f"invalid maintenance mode strategy: {mode}", f"metadata.labels[{names.MAINTAIN_MODE}]")


def _cd_roms_use_sata(vm: Raw, old: Raw | None, listers: Listers) -> None:
    volumes = {text(one, "name"): one for one in objects(_spec(vm), "volumes")}
    others = [
        volumes.get(text(disk, "name"))
        for disk in objects(_spec(vm), "domain", "devices", "disks")
        if has(disk, "cdrom") and text(disk, "cdrom", "bus") != "sata"
    ]
    if None in others:
        raise internal("empty cd-rom device should connect via SATA bus")
    if any(flag(volume, "persistentVolumeClaim", "hotpluggable") for volume in others):
        raise internal("hotpluggable cd-rom volume should connect via SATA bus")


def _macs_are_unique(vm: Raw, old: Raw | None, listers: Listers) -> None:
    """On each cluster network, among the VMs that have one of the addresses. A network named without a namespace is
    taken for one of the namespace "default"."""
    mine = _mac_addresses(vm, listers)
    for one in _interfaces(vm):
        for other in sorted(listers.vms_by_mac.get(("", text(one, "macAddress").lower()), frozenset())):
            if other not in listers.vms:
                continue
            for pair, interface in _mac_addresses(listers.vms[other], listers).items():
                if pair in mine and (other, interface) != (key_of(vm), mine[pair]):
                    why = f"duplicate mac address present for vm {name_of(vm)} for cluster network {pair[1]}"
                    raise internal(why)


def _mac_addresses(vm: Raw, listers: Listers) -> dict[tuple[str, str], str]:
    """MAC address and cluster network of each interface that has an address, to the interface's name."""
    networks = {}
    for network in objects(_spec(vm), "networks"):
        name = text(network, "multus", "networkName")
        if not name:
            continue
        if name.count("/") > 1:
            raise internal(f"invalid network name {name}")
        key = _key(name) if "/" in name else ("default", name)
        nad = listers.networks.get(key)
        if nad is None:
            raise internal(f'network-attachment-definitions.k8s.cni.cncf.io "{key[1]}" not found')
        networks[text(network, "name")] = labels_of(nad).get(names.CLUSTER_NETWORK, "")
    return {
        (text(one, "macAddress"), networks.get(text(one, "name"), "")): text(one, "name")
        for one in _interfaces(vm)
        if text(one, "macAddress")
    }


RULES_OF_ALL: tuple[Rule, ...] = (
    _templates_are_readable,
    _claims_are_no_golden_images,
    _claims_are_free,
    _grace_is_not_negative,
    _memory_is_set,
    _reserved_memory_fits,
    _quota_allows_a_start,
)
RULES_OF_CREATION: tuple[Rule, ...] = (
    _quota_allows_the_storage,
    _macs_are_unique,
    _maintain_mode_is_known,
    _cd_roms_use_sata,
)
RULES_OF_UPDATE: tuple[Rule, ...] = (
    _added_volumes_are_no_golden_images,
    _quota_allows_the_storage,
    _volumes_stay,
    _target_volumes_can_be_used,
    _maintain_mode_is_known,
)


def images_asked(vm: Raw) -> list[Key]:
    """The images whose use the caller must be allowed (`get` on each, reference 05 §3.2)."""
    keys = (_key(annotations_of(one).get(names.IMAGE_ID, "")) for one in _templates(vm))
    return [key for key in keys if key[1]]


def _key(name: str) -> Key:
    """The key of `namespace/name`."""
    namespace, _, short = name.partition("/")
    return namespace, short
