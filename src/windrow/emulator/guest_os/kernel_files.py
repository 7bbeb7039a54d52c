"""Files of /proc, /sys and /dev by which a guest sees its hardware: processors, memory, cards, disks, firmware, TPM. Pure.

They are the kernel's: on no disk, and made anew at each power-on.
"""

from __future__ import annotations

from collections.abc import Iterator

from windrow.emulator.guest_os.hardware import BlockDevice, Hardware

SECTOR_BYTES = 512
BY_ID = "/dev/disk/by-id"
VIRTIO_SERIAL = 20  # characters, in virtio-blk
# A firmware variable has four bytes of attributes before its value.
SECURE_BOOT = "/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
_ATTRIBUTES = b"\x06\x00\x00\x00"
_DRIVERS = {
    "virtio": "virtio_net",
    "e1000": "e1000",
    "e1000e": "e1000e",
    "rtl8139": "8139cp",
    "ne2k_pci": "ne2k-pci",
    "pcnet": "pcnet32",
}
_HOST_MODELS = ("", "host-model", "host-passthrough")


def interface_name(place: int) -> str:
    """Linux's name of the n-th NIC of a q35 machine."""
    return f"enp{place + 1}s0"


def list_disk_files(disks: tuple[BlockDevice, ...]) -> dict[str, bytes]:
    """Size and serial of each disk; and udev's links to it, whose content here is where they lead."""
    made = {}
    for disk in disks:
        made[f"/sys/block/{disk.name}/size"] = f"{disk.size_bytes // SECTOR_BYTES}\n".encode()
        if disk.is_virtio:
            made[f"/sys/block/{disk.name}/serial"] = disk.serial[:VIRTIO_SERIAL].encode()
        for name in list_udev_names(disk):
            made[f"{BY_ID}/{name}"] = f"../../{disk.name}".encode()
    return made


def list_udev_names(disk: BlockDevice) -> list[str]:
    """The names in /dev/disk/by-id. Without a serial QEMU identifies a SCSI disk by its alias, which has the volume's name,
    and a virtio disk by nothing. Disks of CD-ROM drives are left out."""
    if disk.name.startswith("sr"):
        return []
    if disk.is_virtio:
        return [f"virtio-{disk.serial[:VIRTIO_SERIAL]}"] if disk.serial else []
    identity = disk.serial or (f"drive-ua-{disk.volume}" if disk.volume else "")
    names = [f"scsi-0QEMU_QEMU_HARDDISK_{identity}"] if identity else []
    return [*names, f"scsi-SQEMU_QEMU_HARDDISK_{disk.serial}"] if disk.serial else names


def list_kernel_files(hardware: Hardware) -> dict[str, bytes]:
    """Content by path."""
    return {path: text.encode() if isinstance(text, str) else text for path, text in _files(hardware)}


def _files(hardware: Hardware) -> Iterator[tuple[str, str | bytes]]:
    model = "the host's" if hardware.cpu_model in _HOST_MODELS else hardware.cpu_model
    processors = [f"processor\t: {place}\nmodel name\t: {model}\n\n" for place in range(hardware.cores)]
    yield "/proc/cpuinfo", "".join(processors)
    yield "/proc/meminfo", f"MemTotal:       {hardware.memory_bytes // 1024} kB\n"
    for place, nic in enumerate(hardware.nics):
        card = f"/sys/class/net/{interface_name(place)}"
        yield f"{card}/address", f"{nic.mac}\n"
        yield f"{card}/device/uevent", f"DRIVER={_DRIVERS.get(nic.model, nic.model)}\n"
    yield from list_disk_files(hardware.disks).items()
    if hardware.firmware != "bios":
        yield "/sys/firmware/efi/fw_platform_size", "64\n"
        yield SECURE_BOOT, _ATTRIBUTES + bytes([hardware.firmware == "efi with secure boot"])
    if hardware.has_tpm:
        yield "/sys/class/tpm/tpm0/tpm_version_major", "2\n"


def list_boot_messages(hardware: Hardware) -> list[str]:
    """What the kernel says of devices that not every machine has."""
    messages = []
    if hardware.firmware != "bios":
        state = "enabled" if hardware.firmware == "efi with secure boot" else "disabled"
        messages += ["efi: EFI v2.7 by EDK II", f"secureboot: Secure boot {state}"]
    if hardware.has_tpm:
        messages.append("tpm_crb MSFT0101:00: 2.0 TPM")
    return [*messages, *(f"pci: device {name} of the host" for name in hardware.host_devices)]
