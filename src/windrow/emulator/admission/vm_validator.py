"""Validators of VirtualMachines, of KubeVirt and Harvester, one function per rule, with their messages.

Reference 05 §3.2 and 01 §3.7. A rule reads the object, its old state (None on create) and the Listers, and raises the
denial. The first denial in the order below is the result.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from windrow.emulator import names
from windrow.emulator.admission.denials import KUBEVIRT_VALIDATOR, internal, invalid
from windrow.emulator.kit.listers import Key, Listers, key_of
from windrow.emulator.kit.vm_readings import BadTemplates, networks_of, read_claim_templates
from windrow.emulator.quantities import BadQuantity, parse_quantity, quantity_or_zero
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, name_of, namespace_of, nested

Rule = Callable[[Raw, Raw | None, Listers], None]

MAX_INLINE_DATA_BYTES = 2048
VOLUMES = "spec.templates.spec.volumes"  # the plural is as shipped
ANNOTATIONS = "metadata.annotations"


def check_vm(vm: Raw, old: Raw | None, listers: Listers) -> None:
    """Raises the denial of a create of `vm`, or of an update from `old`."""
    for rule in (*KUBEVIRT_RULES, *HARVESTER_RULES):
        rule(vm, old, listers)


def _spec(vm: Raw) -> Raw:
    found: Raw = nested(vm, "spec", "template", "spec", default={})
    return found


def _devices(vm: Raw, kind: str) -> list[Raw]:
    found: list[Raw] = nested(_spec(vm), "domain", "devices", kind, default=[])
    return found


def _templates(vm: Raw | None) -> list[Raw]:
    """The claim templates; [] for an invalid annotation, which another rule denies."""
    try:
        return read_claim_templates(vm) if vm is not None else []
    except BadTemplates:
        return []


# --- KubeVirt ---------------------------------------------------------------------------------------------------


def _kubevirt(message: str, field: str) -> KubeError:
    return invalid(message, field, KUBEVIRT_VALIDATOR)


STRATEGIES = ("Always", "RerunOnFailure", "Manual", "Halted", "Once", "WaitAsReceiver")


def _run_strategy(vm: Raw, old: Raw | None, listers: Listers) -> None:
    strategy, running = vm["spec"].get("runStrategy"), vm["spec"].get("running")
    if strategy is not None and running is not None:
        raise _kubevirt(
            "Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy instead",
            "spec.running",
        )
    if strategy is None and running is None:
        raise _kubevirt("One of Running or RunStrategy must be specified", "spec.running")
    if strategy is not None and strategy not in STRATEGIES:
        raise _kubevirt(f"Invalid RunStrategy ({strategy})", "spec.runStrategy")


def _disks_have_volumes(vm: Raw, old: Raw | None, listers: Listers) -> None:
    volumes = {volume.get("name") for volume in _spec(vm).get("volumes") or ()}
    for place, disk in enumerate(_devices(vm, "disks")):
        # An empty CD-ROM drive is legal since hot-plug became declarative.
        if disk.get("name") not in volumes and "cdrom" not in disk:
            field = f"spec.template.spec.domain.devices.disks[{place}].name"
            raise _kubevirt(f"{field} '{disk.get('name')}' not found.", field)


def _interfaces_have_networks(vm: Raw, old: Raw | None, listers: Listers) -> None:
    networks = {network.get("name") for network in _spec(vm).get("networks") or ()}
    for place, one in enumerate(_devices(vm, "interfaces")):
        if one.get("name") not in networks:
            field = f"spec.template.spec.domain.devices.interfaces[{place}].name"
            raise _kubevirt(f"{field} '{one.get('name')}' not found.", field)


_INLINE = (
    ("userData", "userdata", "UserDataSecretRef"),
    ("networkData", "networkdata", "NetworkDataSecretRef"),
)


def _inline_data_is_short(vm: Raw, old: Raw | None, listers: Listers) -> None:
    for place, volume in enumerate(_spec(vm).get("volumes") or ()):
        source = volume.get("cloudInitNoCloud") or {}
        for key, word, hint in _INLINE:
            if len((source.get(key) or "").encode()) > MAX_INLINE_DATA_BYTES:
                field = f"spec.template.spec.volumes[{place}].cloudInitNoCloud.{key}"
                text = f"{field} {word} exceeds {MAX_INLINE_DATA_BYTES} byte limit. Should use {hint} for larger data."
                raise _kubevirt(text, field)


def _name_fits(vm: Raw, old: Raw | None, listers: Listers) -> None:
    name = name_of(vm)
    if len(name) > 63:
        raise _kubevirt(f"metadata.name '{name}' must be no more than 63 characters", "metadata.name")


_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _hostname_is_a_label(vm: Raw, old: Raw | None, listers: Listers) -> None:
    """The name of a VM may have dots: without a hostname the guest is named after the part before the first."""
    hostname = str(_spec(vm).get("hostname") or "")
    if hostname and not _DNS_LABEL.fullmatch(hostname):
        field = "spec.template.spec.hostname"
        raise _kubevirt(f"{field} does not conform to the kubernetes DNS_LABEL rules : {hostname}", field)


KUBEVIRT_RULES: tuple[Rule, ...] = (
    _name_fits,
    _hostname_is_a_label,
    _run_strategy,
    _disks_have_volumes,
    _interfaces_have_networks,
    _inline_data_is_short,
)


# --- Harvester --------------------------------------------------------------------------------------------------


def _templates_are_readable(vm: Raw, old: Raw | None, listers: Listers) -> None:
    try:
        read_claim_templates(vm)
    except BadTemplates as error:
        raise invalid(f"the volumeClaimTemplates annotaion is invalid: {error}", ANNOTATIONS) from error


def _claims_are_free(vm: Raw, old: Raw | None, listers: Listers) -> None:
    namespace = namespace_of(vm)
    shareable = {disk.get("name") for disk in _devices(vm, "disks") if disk.get("shareable")}
    for volume in _spec(vm).get("volumes") or ():
        claim = nested(volume, "persistentVolumeClaim", "claimName")
        if not claim:
            continue
        raw = listers.claims.get((namespace, claim))
        if raw is not None and annotations_of(raw).get(names.GOLDEN_IMAGE) == "true":
            text = f"PVC {namespace}/{claim} is a golden image, it can't be used as a volume in VM"
            raise invalid(text, VOLUMES)
        others = listers.vms_by_claim.get((namespace, claim), frozenset()) - {key_of(vm)}
        if others and volume.get("name") not in shareable:
            text = f"PVC {namespace}/{claim} is already used by other VM, please use a shareable RWX volume."
            raise invalid(text, VOLUMES)


def _grace_is_not_negative(vm: Raw, old: Raw | None, listers: Listers) -> None:
    if (_spec(vm).get("terminationGracePeriodSeconds") or 0) < 0:
        raise invalid(
            "Termination grace period can't be negative", "spec.template.spec.terminationGracePeriodSeconds"
        )


def _memory_is_set(vm: Raw, old: Raw | None, listers: Listers) -> None:
    domain = _spec(vm).get("domain") or {}
    if nested(domain, "memory", "guest") or nested(domain, "resources", "limits", "memory"):
        return
    raise invalid(
        "either memory.guest or resources.limits.memory must be set",
        "spec.template.spec.domain.resources.limits.memory",
    )


def _reserved_memory_fits(vm: Raw, old: Raw | None, listers: Listers) -> None:
    text = annotations_of(vm).get(names.RESERVED_MEMORY)
    if not text:
        return
    field = f"{ANNOTATIONS}[{names.RESERVED_MEMORY}]"
    domain = _spec(vm).get("domain") or {}
    limit = quantity_or_zero(nested(domain, "resources", "limits", "memory"))
    try:
        reserved = parse_quantity(text)
    except BadQuantity as error:
        raise invalid(str(error), field) from error
    if reserved < 0:
        raise invalid("reservedMemory cannot be less than 0", field)
    if limit and reserved >= limit:
        raise invalid("reservedMemory cannot be equal or greater than limits.memory", field)


MAINTAIN_MODES = ("Migrate", "ShutdownAndRestartAfterEnable", "ShutdownAndRestartAfterDisable", "Shutdown")


def _maintain_mode_is_known(vm: Raw, old: Raw | None, listers: Listers) -> None:
    mode = labels_of(vm).get(names.MAINTAIN_MODE)
    if mode is None or mode in MAINTAIN_MODES:
        return
    raise invalid(f"invalid maintenance mode strategy: {mode}", f"metadata.labels[{names.MAINTAIN_MODE}]")


def _cd_roms_use_sata(vm: Raw, old: Raw | None, listers: Listers) -> None:
    volumes = {volume.get("name"): volume for volume in _spec(vm).get("volumes") or ()}
    for place, disk in enumerate(_devices(vm, "disks")):
        if "cdrom" not in disk or nested(disk, "cdrom", "bus") == "sata":
            continue
        field = f"spec.template.spec.domain.devices.disks[{place}]"
        volume = volumes.get(disk.get("name"))
        if volume is None:
            raise invalid("empty cd-rom device should connect via SATA bus", field)
        if nested(volume, "persistentVolumeClaim", "hotpluggable"):
            raise invalid("hotpluggable cd-rom volume should connect via SATA bus", field)


def _classes_exist(vm: Raw, old: Raw | None, listers: Listers) -> None:
    known = {nested(one, "metadata", "name") for one in _templates(old)}
    for one in _templates(vm):
        name = nested(one, "spec", "storageClassName")
        if name is None or ("", name) in listers.classes:
            continue
        if old is None:
            text = f'failed to get storage class {name}: storageclasses.storage.k8s.io "{name}" not found'
            raise internal(text)
        if nested(one, "metadata", "name") not in known:
            raise invalid(f"storage class {name} does not exist", ANNOTATIONS)


def _images_match_classes(vm: Raw, old: Raw | None, listers: Listers) -> None:
    for one in _templates(vm):
        image_id = annotations_of(one).get(names.IMAGE_ID) if one.get("metadata") else None
        name = nested(one, "spec", "storageClassName", default="")
        if not image_id or not name:
            continue
        raw = listers.images.get(_key(image_id))
        if raw is None:
            continue  # then the controller skips the claim silently
        classes = {
            nested(other, "status", "storageClassName"): "/".join(key)
            for key, other in listers.images.items()
        }
        if name in classes and nested(raw, "status", "storageClassName", default="") != name:
            text = (
                f'imageId "{image_id}" in volume template does not match backing image of storage class "{name}" '
                f'(expected "{classes[name]}")'
            )
            raise invalid(text, f"{ANNOTATIONS}[{names.CLAIM_TEMPLATES}]")


def _classes_stay(vm: Raw, old: Raw | None, listers: Listers) -> None:
    before = {nested(one, "metadata", "name"): one for one in _templates(old)}
    for one in _templates(vm):
        name = nested(one, "metadata", "name")
        earlier = before.get(name)
        if earlier is None:
            continue
        if nested(earlier, "spec", "storageClassName") != nested(one, "spec", "storageClassName"):
            text = (
                f"storage class names for the volumes in the {names.CLAIM_TEMPLATES} annotation cannot be changed; "
                f"volume {name}"
            )
            raise internal(text)
        if _storage(one) < _storage(earlier):
            raise invalid(f"{name} PVC requests storage can't be less than previous value", ANNOTATIONS)


def _storage(claim: Raw) -> Fraction:
    return quantity_or_zero(nested(claim, "spec", "resources", "requests", "storage"))


def _macs_are_unique(vm: Raw, old: Raw | None, listers: Listers) -> None:
    for mac, cluster_network in _mac_addresses(vm, listers):
        for other in listers.vms_by_mac.get(("", mac), frozenset()) - {key_of(vm)}:
            if other in listers.vms and (mac, cluster_network) in _mac_addresses(listers.vms[other], listers):
                text = f"duplicate mac address present for vm {other[0]}/{other[1]} for cluster network {cluster_network}"
                raise internal(text)


def _mac_addresses(vm: Raw, listers: Listers) -> list[tuple[str, str]]:
    """MAC address and cluster network of each interface that has both."""
    networks = networks_of(_spec(vm), namespace_of(vm))
    found = [
        (
            (one.get("macAddress") or "").lower(),
            listers.cluster_network(networks.get(one.get("name", ""), "")),
        )
        for one in _devices(vm, "interfaces")
    ]
    return [pair for pair in found if all(pair)]


HARVESTER_RULES: tuple[Rule, ...] = (
    _templates_are_readable,
    _claims_are_free,
    _grace_is_not_negative,
    _memory_is_set,
    _reserved_memory_fits,
    _classes_exist,
    _images_match_classes,
    _macs_are_unique,
    _maintain_mode_is_known,
    _cd_roms_use_sata,
    _classes_stay,
)


def images_asked(vm: Raw) -> list[Key]:
    """The images whose use the caller must be allowed (`get` on each, reference 05 §3.2)."""
    keys = (_key(annotations_of(one).get(names.IMAGE_ID, "")) for one in _templates(vm))
    return [key for key in keys if key[1]]


def _key(name: str) -> Key:
    """The key of `namespace/name`."""
    namespace, _, short = name.partition("/")
    return namespace, short
