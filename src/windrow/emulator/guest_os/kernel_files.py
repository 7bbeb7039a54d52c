"""Files of /proc and /sys by which a guest sees its hardware: processors, memory, network cards, disks, firmware, TPM. Pure.

They are the kernel's: on no disk, and made anew at each power-on.
"""

from __future__ import annotations

from collections.abc import Iterator

from windrow.emulator.guest_os.hardware import Hardware

SECTOR_BYTES = 512
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
    for disk in hardware.disks:
        yield f"/sys/block/{disk.name}/size", f"{disk.size_bytes // SECTOR_BYTES}\n"
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
