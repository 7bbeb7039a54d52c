"""Hardware of an instance. Its cloud-init data is in a volume of its spec, inline or in Secrets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from windrow.core.text import decode_base64
from windrow.emulator import names
from windrow.emulator.guest_os.hardware import Firmware, Hardware
from windrow.emulator.host.images import has_agent, missing_modules
from windrow.emulator.kit.listers import Key
from windrow.emulator.kit.macs import new_mac
from windrow.emulator.kit.vm_readings import claims_of, host_devices_of
from windrow.emulator.quantities import quantity_or_zero
from windrow.emulator.vms.instances import interfaces
from windrow.emulator.vms.instances.context import InstanceContext
from windrow.emulator.vms.instances.devices import boot_claims_of, list_targets, read_disks
from windrow.kubernetes.objects import Raw, annotations_of, name_of, namespace_of, nested, uid_of

DEFAULT_MEMORY = 4 << 30
SOURCE_FIELDS = ("cloudInitNoCloud", "cloudInitConfigDrive")


@dataclass(frozen=True, slots=True)
class CloudInitData:
    user_data: str = field(default="", repr=False)
    network_data: str = field(default="", repr=False)


def _source(spec: Mapping[str, Any]) -> Raw:
    for volume in spec.get("volumes") or ():
        for name in SOURCE_FIELDS:
            if name in volume:
                return volume[name] or {}
    return {}


def list_secrets(vmi: Mapping[str, Any]) -> list[str]:
    """The Secrets that the pod mounts."""
    source = _source(vmi["spec"])
    named = [nested(source, "secretRef", "name"), nested(source, "networkDataSecretRef", "name")]
    named += [nested(volume, "secret", "secretName") for volume in vmi["spec"].get("volumes") or ()]
    return list(dict.fromkeys(name for name in named if name))


def read_cloud_init(vmi: Mapping[str, Any], secrets: Mapping[Key, Raw], namespace: str) -> CloudInitData:
    """The content of the cloud-init disk. A missing Secret reads as empty: check `list_secrets` first."""
    source = _source(vmi["spec"])
    user = _from_secret(secrets, namespace, nested(source, "secretRef", "name"), "userData")
    network = _from_secret(secrets, namespace, nested(source, "networkDataSecretRef", "name"), "networkData")
    return CloudInitData(
        user if user is not None else _inline(source, "userData"),
        network if network is not None else _inline(source, "networkData"),
    )


def _inline(source: Mapping[str, Any], key: str) -> str:
    if source.get(f"{key}Base64"):
        return _decoded(source[f"{key}Base64"])
    return str(source.get(key) or "")


def _from_secret(secrets: Mapping[Key, Raw], namespace: str, name: str | None, key: str) -> str | None:
    if not name:
        return None
    data = nested(secrets.get((namespace, name)), "data", default={})
    for spelling in (key.lower(), key):  # KubeVirt reads both
        if data.get(spelling):
            return _decoded(data[spelling])
    return ""


def _decoded(text: str) -> str:
    try:
        return decode_base64(text, "replace")
    except ValueError:
        return ""


def is_blank(claim: Mapping[str, Any], images: Iterable[Raw]) -> bool:
    """Whether nothing was on the disk of a claim when it was made: neither an image, nor a copy of another disk."""
    spec = claim.get("spec") or {}
    if any(nested(image, "status", "storageClassName") == spec.get("storageClassName") for image in images):
        return False
    copied = any(spec.get(key) for key in ("dataSource", "dataSourceRef"))
    return not annotations_of(claim).get(names.IMAGE_ID) and not copied


def _find_root(context: InstanceContext, namespace: str, spec: Raw) -> Raw | None:
    """The claim of the first disk in boot order that has something to boot, else of the first."""
    found = [
        claim for name in boot_claims_of(spec) if (claim := context.listers.claims.get((namespace, name)))
    ]
    return next((claim for claim in found if _boots(context, claim)), next(iter(found), None))


def _boots(context: InstanceContext, claim: Raw) -> bool:
    return not is_blank(claim, context.listers.images.values()) or bool(
        context.power.disk(uid_of(claim)).files
    )


def claims_by_name(context: InstanceContext, vmi: Raw) -> dict[str, Raw]:
    """Those of the instance's claims that exist."""
    claims = (
        (name, context.listers.claims.get((namespace_of(vmi), name))) for name in claims_of(vmi["spec"])
    )
    return {name: raw for name, raw in claims if raw is not None}


def _firmware(spec: Raw) -> Firmware:
    efi = nested(spec, "domain", "firmware", "bootloader", "efi")
    if efi is None:
        return "bios"
    return "efi" if efi.get("secureBoot") is False else "efi with secure boot"  # KubeVirt's default


def read_hardware(context: InstanceContext, vmi: Raw) -> Hardware:
    """The hardware of the machine. Its root disk is the first that boots, the same at every start. A NIC without a MAC
    address, as in Harvester 1.6, gets one of its pod."""
    namespace = namespace_of(vmi)
    spec = vmi["spec"]
    claim = _find_root(context, namespace, spec)
    image_id = annotations_of(claim).get(names.IMAGE_ID, "") if claim else ""
    image_namespace, _, image_name = image_id.partition("/")
    cloud_init = read_cloud_init(vmi, context.listers.secrets, namespace)
    image = context.listers.images.get((image_namespace, image_name))
    root = context.power.disk(uid_of(claim) if claim else uid_of(vmi))
    owner: Raw = next(iter(vmi["metadata"].get("ownerReferences") or ()), {})
    return Hardware(
        namespace=namespace,
        name=name_of(vmi),
        vm_uid=owner.get("uid", ""),
        vmi_uid=uid_of(vmi),
        user_data=cloud_init.user_data,
        network_data=cloud_init.network_data,
        nics=tuple(
            nic if nic.mac else replace(nic, mac=new_mac(context.rng))
            for nic in interfaces.nics_of(vmi, namespace)
        ),
        root=root,
        image=image_id,
        boots=claim is None or _boots(context, claim),
        image_has_agent=has_agent(image),
        missing_modules=missing_modules(image),
        cores=int(nested(spec, "domain", "cpu", "cores", default=1)),
        cpu_model=nested(spec, "domain", "cpu", "model", default=""),
        disks=read_disks(spec, claims_by_name(context, vmi), list_targets(spec), context.power.disk),
        firmware=_firmware(spec),
        has_tpm=nested(spec, "domain", "devices", "tpm") is not None,
        host_devices=tuple(name for _, name in host_devices_of(spec)),
        memory_bytes=int(quantity_or_zero(nested(vmi, "spec", "domain", "memory", "guest")))
        or DEFAULT_MEMORY,
        system_uuid=nested(vmi, "spec", "domain", "firmware", "uuid", default=""),
    )
