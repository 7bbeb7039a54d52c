"""Files of /proc and /sys in a simulated machine."""

from __future__ import annotations

from windrow.emulator.guest_os.hardware import BlockDevice, Disk, Hardware, Nic
from windrow.emulator.guest_os.kernel_files import SECURE_BOOT, list_boot_messages, list_kernel_files

from .test_shell import run


def hardware(**rest):
    return Hardware("default", "m", "uid", "uid", "", "", rest.pop("nics", ()), Disk(), **rest)


def test_a_plain_machine_has_processors_and_memory_and_no_firmware_to_speak_of():
    files = list_kernel_files(hardware(cores=2))

    assert files["/proc/cpuinfo"].count(b"processor") == 2
    assert files["/proc/meminfo"] == b"MemTotal:       4194304 kB\n"
    assert not any(path.startswith(("/sys/firmware", "/sys/class/tpm")) for path in files)
    assert list_boot_messages(hardware()) == []


def test_they_are_read_as_files_and_cannot_be_removed():
    script = "for file in /proc/*info; do echo $file; done; rm -rf /proc; chmod 600 /proc/meminfo; cat /proc/meminfo"

    code, lines, guest = run(script)

    assert code == 0
    assert lines == ["/proc/cpuinfo", "/proc/meminfo", "MemTotal:       4194304 kB"]
    assert not guest.hardware.root.files  # nothing of them is on the disk


def test_cards_and_disks_are_there_by_the_names_of_linux():
    nics = (
        Nic("nic-0", "02:00:00:00:00:01", "ns/net"),
        Nic("nic-1", "02:00:00:00:00:02", "ns/net", "rtl8139"),
    )
    files = list_kernel_files(hardware(nics=nics, disks=(BlockDevice("vdb", 40 << 30),)))

    assert files["/sys/class/net/enp2s0/address"] == b"02:00:00:00:00:02\n"
    assert files["/sys/class/net/enp1s0/device/uevent"] == b"DRIVER=virtio_net\n"
    assert files["/sys/class/net/enp2s0/device/uevent"] == b"DRIVER=8139cp\n"
    assert int(files["/sys/block/vdb/size"]) * 512 == 40 << 30


def test_secure_boot_is_a_variable_of_the_firmware():
    on, off = (list_kernel_files(hardware(firmware=one)) for one in ("efi with secure boot", "efi"))

    assert (on[SECURE_BOOT][-1], off[SECURE_BOOT][-1]) == (1, 0)
    assert "secureboot: Secure boot disabled" in list_boot_messages(hardware(firmware="efi"))
