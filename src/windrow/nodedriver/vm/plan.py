"""From a configuration to the VmSpec of its VM. Pure; what was read from Harvester is passed in."""

from __future__ import annotations

from collections.abc import Mapping

from windrow.harvester.cloud_init_secret import INLINE_LIMIT
from windrow.harvester.identity import owner_annotations, ssh_key_digest
from windrow.harvester.references import VgpuField
from windrow.harvester.vms import CloudInit, CpuPlacement, HostDevice, Nic, VmSpec
from windrow.harvester.volumes import LONGHORN, ClaimModes, Disk, claim_name
from windrow.nodedriver.affinity import read_affinity
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.devices import NicSpec


def planned_claims(configuration: Configuration) -> tuple[str, ...]:
    """The claims that this machine's disks will have, whether they exist or not."""
    return tuple(
        claim_name(configuration.machine_name, disk, configuration.machine_uid)
        for disk in configuration.disk_names
    )


def plan_vm(
    configuration: Configuration,
    image_classes: Mapping[str, str],
    class_modes: Mapping[str, ClaimModes] | None = None,
    vgpus_in: VgpuField = "hostDevices",
) -> VmSpec:
    """The VM. `image_classes` gives the storage class that clones each image named by a disk, `class_modes` how
    disks are claimed from the classes that need not be as Longhorn's, `vgpus_in` where this Harvester has vGPUs.

    User data is never inline, whatever its length: it carries tokens, and more users may read VMs than Secrets.
    """
    return VmSpec(
        name=configuration.machine_name,
        namespace=configuration.vm_namespace,
        guest_cluster=configuration.cluster_name,
        owner_annotations=owner_annotations(configuration.cluster_uid, configuration.machine_uid),
        disks=_disks(configuration, image_classes, class_modes or {}),
        nics=tuple(_nic(configuration, place, nic) for place, nic in enumerate(configuration.nics)),
        cloud_init=_cloud_init(configuration.network_data),
        cores=configuration.cpu,
        memory=configuration.memory_size,
        cpu_model=configuration.cpu_model,
        reserved_memory=configuration.reserved_memory_size,
        cpus=_cpu_placement(configuration),
        efi=configuration.enable_efi,
        secure_boot=configuration.enable_secure_boot,
        tpm=configuration.enable_tpm,
        devices=tuple(
            # Two devices without a name would collide, so one is generated.
            HostDevice(spec.name or f"vgpu-{place}", spec.device_name)
            for place, spec in enumerate(configuration.vgpu_info or ())
        ),
        devices_in=vgpus_in,
        affinity=read_affinity(configuration),
        ssh_names=(configuration.key_pair_name,) if configuration.key_pair_name else (),
        ssh_key_digest=ssh_key_digest(configuration.ssh_public_key),
    )


def _disks(
    configuration: Configuration, image_classes: Mapping[str, str], class_modes: Mapping[str, ClaimModes]
) -> tuple[Disk, ...]:
    specs = configuration.disks
    # Without any boot order the VM would boot from the cloud-init disk, which comes first.
    nothing_boots = not any(spec.boot_order for spec in specs)
    disks = []
    for place, (name, claim, spec) in enumerate(
        zip(configuration.disk_names, planned_claims(configuration), specs, strict=True)
    ):
        storage_class = image_classes[spec.image] if spec.image else spec.storage_class
        disk = Disk(
            name=name,
            claim=claim,
            size_gib=spec.size_gib,
            storage_class=storage_class,
            modes=class_modes.get(storage_class, LONGHORN),
            image="/".join(configuration.qualified(spec.image)) if spec.image else "",
            bus=spec.bus or ("sata" if spec.is_cdrom else "virtio"),
            is_cdrom=spec.is_cdrom,
            boot_order=1 if nothing_boots and place == 0 else spec.boot_order,
            hotpluggable=spec.hotpluggable,
        )
        disks.append(disk)
    return tuple(disks)


def _cpu_placement(configuration: Configuration) -> CpuPlacement:
    """An isolated emulator thread without pinning is refused by the rules of validation."""
    if not configuration.cpu_pinning:
        return "shared"
    return "dedicated and isolated" if configuration.isolate_emulator_thread else "dedicated"


def _nic(configuration: Configuration, index: int, nic: NicSpec) -> Nic:
    # With its namespace: Harvester's check of MAC addresses takes a bare name for one of the namespace "default",
    # and refuses a VM elsewhere with 500.
    network = "/".join(configuration.qualified(nic.network))
    return Nic(f"nic-{index}", network, nic.mac, nic.model or "virtio")


def _cloud_init(network_data: str) -> CloudInit:
    if len(network_data.encode()) > INLINE_LIMIT:
        return CloudInit(user_data_in_secret=True, network_data_in_secret=True)
    return CloudInit(network_data=network_data, user_data_in_secret=True)
