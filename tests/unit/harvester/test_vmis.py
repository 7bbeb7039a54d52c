from __future__ import annotations

from tests.unit.harvester.objects import a_raw_vmi

from windrow.harvester.vmis import MAX_ADDRESSES, read_vmi


def test_an_instance_without_interfaces_has_no_address_yet() -> None:
    assert read_vmi(a_raw_vmi()).addresses == ()
    assert read_vmi({"metadata": {"name": "vm"}}).addresses == ()


def test_addresses_follow_the_cards_of_the_vm_and_not_the_report() -> None:
    vmi = read_vmi(
        a_raw_vmi(
            {"name": "nic-1", "ipAddress": "10.1.0.9", "ipAddresses": ["10.1.0.9", "fe80::1"]},
            {"name": "nic-0", "ipAddress": "10.0.0.5/24", "ipAddresses": ["10.0.0.5", "2001:db8::5"]},
        )
    )
    assert vmi.addresses == ("10.0.0.5", "10.1.0.9", "2001:db8::5")


def test_interfaces_of_the_guest_alone_do_not_count() -> None:
    vmi = read_vmi(
        a_raw_vmi({"interfaceName": "cni0", "ipAddress": "10.42.0.1"}, {"name": "nic-0", "mac": "02:00"})
    )
    assert vmi.addresses == ()


def test_a_virtual_address_comes_after_the_cards_own() -> None:
    nic = {"name": "nic-0", "ipAddress": "10.0.0.5", "ipAddresses": ["10.0.0.5", "10.0.0.200"]}
    assert read_vmi(a_raw_vmi(nic)).addresses == ("10.0.0.5", "10.0.0.200")


def test_of_a_report_without_end_only_the_beginning_is_read() -> None:
    every = [
        f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}" for number in range(MAX_ADDRESSES + 1000)
    ]
    nic = {"name": "nic-0", "ipAddress": every[0], "ipAddresses": every}

    assert read_vmi(a_raw_vmi(nic)).addresses == tuple(every[: MAX_ADDRESSES - 1])


def test_host_and_topology_are_read() -> None:
    vmi = read_vmi(a_raw_vmi())
    assert (vmi.host, vmi.zone, vmi.region, vmi.vm_uid) == ("host-1", "z1", "r1", "vm-1")


def test_a_migration_counts_until_it_is_completed() -> None:
    assert read_vmi(a_raw_vmi(migrationState={"migrationUid": "x"})).is_migrating
    assert not read_vmi(a_raw_vmi(migrationState={"completed": True})).is_migrating


def test_kubevirts_words_about_the_wait_are_kept() -> None:
    conditions = [
        {"type": "Ready", "status": "False", "lastTransitionTime": None},
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient memory.",
        },
    ]
    assert (
        read_vmi(a_raw_vmi(conditions=conditions)).pending_reason
        == "0/3 nodes are available: 3 Insufficient memory."
    )
