"""Cloud-init sources, fingerprints, preloaded objects, the proxy's request line, Controller."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from datetime import timedelta
from ipaddress import ip_address, ip_network
from itertools import pairwise

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.core.errors import UserError
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.host.keypairs import InvalidPublicKey, fingerprint
from windrow.emulator.kit.controller import Controller
from windrow.emulator.kit.vm_readings import networks_of
from windrow.emulator.preload import (
    MAX_IP_POOLS,
    PLACEHOLDER_KEY,
    Image,
    LanAllocator,
    VmNetwork,
    render_ip_pool,
    render_preload,
)
from windrow.emulator.proxy import BadConnect, read_head
from windrow.emulator.vms.instances.devices import boot_claims_of, list_targets
from windrow.emulator.vms.instances.hardware import list_secrets, read_cloud_init
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import nested

# --- cloud-init -------------------------------------------------------------------------------------------------


def an_instance(**source):
    return {"spec": {"volumes": [{"name": "root"}, {"name": "ci", "cloudInitNoCloud": source}]}}


def coded(text):
    return b64encode(text.encode()).decode()


def test_inline_cloud_init_is_read_plain_or_coded():
    assert read_cloud_init(an_instance(userData="a", networkData="b"), {}, "ns").network_data == "b"
    assert read_cloud_init(an_instance(userDataBase64=coded("ä")), {}, "ns").user_data == "ä"


@pytest.mark.parametrize("key", ["userdata", "userData"])
def test_a_secret_is_read_under_both_spellings(key):
    vmi = an_instance(secretRef={"name": "s"}, networkDataSecretRef={"name": "s"})
    secrets = {("ns", "s"): {"data": {key: coded("#cloud-config"), "networkdata": coded("version: 1")}}}

    found = read_cloud_init(vmi, secrets, "ns")

    assert (found.user_data, found.network_data) == ("#cloud-config", "version: 1")
    assert list_secrets(vmi) == ["s"]


def test_no_cloud_init_is_empty():
    assert read_cloud_init({"spec": {}}, {}, "ns").user_data == ""


# --- readings ---------------------------------------------------------------------------------------------------


def disks_of(*disks):
    """A spec whose disks have claims of their names."""
    volumes = [
        {"name": disk["name"], "persistentVolumeClaim": {"claimName": f"claim-{disk['name']}"}}
        for disk in disks
    ]
    return {"domain": {"devices": {"disks": list(disks)}}, "volumes": volumes}


@pytest.mark.parametrize(
    ("disks", "claims"),
    [
        ([{"name": "a"}, {"name": "b"}], ["claim-a", "claim-b"]),
        ([{"name": "a"}, {"name": "b", "bootOrder": 1}], ["claim-b"]),  # a is not tried
        ([{"name": "a", "bootOrder": 2}, {"name": "b", "bootOrder": 1}], ["claim-b", "claim-a"]),
    ],
)
def test_disks_are_tried_to_boot_in_their_order(disks, claims):
    assert boot_claims_of(disks_of(*disks)) == claims


def test_disks_are_named_by_bus_and_order():
    disks = [
        {"name": "init", "disk": {"bus": "virtio"}},
        {"name": "root", "disk": {"bus": "sata"}},
        {"name": "data", "disk": {"bus": "virtio"}},
        {"name": "more", "disk": {"bus": "scsi"}},
        {"name": "iso", "cdrom": {"bus": "sata"}},
    ]

    assert list_targets(disks_of(*disks)) == {
        "init": "vda",
        "root": "sda",
        "data": "vdb",
        "more": "sdb",
        "iso": "sr0",
    }


def test_a_network_without_namespace_is_in_the_machines_own():
    spec = {"networks": [{"name": "n", "multus": {"networkName": "net"}}, {"name": "p", "pod": {}}]}

    assert networks_of(spec, "ns") == {"n": "ns/net", "p": ""}


# --- key pairs --------------------------------------------------------------------------------------------------


def test_the_fingerprint_is_md5_with_colons():
    found = fingerprint(PLACEHOLDER_KEY)

    assert len(found.split(":")) == 16
    assert found == fingerprint(PLACEHOLDER_KEY.rsplit(" ", 1)[0])


@pytest.mark.parametrize(
    "text",
    ["", "ssh-rsa", "ssh-rsa !!!", "ssh-rsa " + coded("short")],
)
def test_what_is_no_key_has_no_fingerprint(text):
    with pytest.raises(InvalidPublicKey):
        fingerprint(text)


# --- stock ------------------------------------------------------------------------------------------------------


def test_preloaded_objects_are_given_by_name_alone():
    made = render_preload(
        images=["a/jammy"], networks=["b/lan"], key_pairs=["c/me"], namespaces=["d"], lans=LanAllocator()
    )

    assert [raw["metadata"]["name"] for kind, raw in made if kind.kind == "Namespace"] == ["a", "b", "c", "d"]
    image = next(raw for kind, raw in made if kind.kind == "VirtualMachineImage")
    assert image["spec"]["url"].endswith("jammy.qcow2")
    assert nested(image, "metadata", "labels", "harvesterhci.io/image-type") == "raw_qcow2"


def test_an_iso_is_labelled_as_one():
    raw = Image("a/installer", url="https://x/y.iso").render()

    assert raw["metadata"]["labels"]["harvesterhci.io/image-type"] == "iso"


def test_each_vlan_has_a_range_of_its_own_and_keeps_it():
    lans = LanAllocator()
    ranges = [lans.cidr(VmNetwork(name, vlan)) for name, vlan in (("a", 0), ("b", 1), ("c", 0))]

    assert ranges == ["192.168.50.0/24", "192.168.51.0/24", "192.168.50.0/24"]
    assert lans.cidr(VmNetwork("d", 9, cidr="10.1.0.0/16")) == "10.1.0.0/16"


# --- proxy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "place"),
    [
        (b"CONNECT 192.168.50.20:6443 HTTP/1.1\r\nHost: x\r\n\r\n", ("192.168.50.20", 6443)),
        (b"CONNECT [::1]:80 HTTP/1.0\r\n\r\n", ("::1", 80)),
        (b"CONNECT host:65535 HTTP/1.1\r\n\r\n", ("host", 65535)),
    ],
)
def test_connect_names_a_place(head, place):
    assert read_head(head) == (place, b"")


@pytest.mark.parametrize(
    ("target", "place", "path"),
    [
        (b"http://192.168.50.20/", ("192.168.50.20", 80), b"/"),
        (b"http://192.168.50.20:8080/a/b?c=d", ("192.168.50.20", 8080), b"/a/b?c=d"),
        (b"http://[fd00::1]", ("fd00::1", 80), b"/"),
        (b"http://[fd00::1]:81/", ("fd00::1", 81), b"/"),
    ],
)
def test_a_plain_request_is_passed_on_for_one_answer(target, place, path):
    head = b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nProxy-Connection: keep-alive\r\n\r\n"

    assert read_head(head) == (
        place,
        b"GET " + path + b" HTTP/1.1\r\nConnection: close\r\nHost: x\r\n\r\n",
    )


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 405),
        (b"CONNECT x HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT x:0 HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT x:65536 HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT x:80\r\n\r\n", 400),
        (b"\x16\x03\x01 garbage\r\n\r\n", 400),
        (b"", 400),
    ],
)
def test_anything_else_is_refused(head, status):
    with pytest.raises(BadConnect) as refusal:
        read_head(head)
    assert refusal.value.status == status


# --- time and controllers ---------------------------------------------------------------------------------------


def test_every_delay_states_its_reason():
    reasons = Delays().reasons()

    assert reasons
    assert all(seconds >= 0 and len(why) > 10 for seconds, why in reasons.values())


def test_the_time_scale_divides():
    async def story():
        clock = LoopClock()
        return ScaledClock(clock, 10).after(30) - clock.monotonic()

    assert run_driven(story()) == timedelta(seconds=3)


def run_controller(reconcile, seconds=100.0, keys=(("", "a"),)):
    """Run a controller over `keys` for a while; what it noted."""
    notes = []

    async def story():
        clock = LoopClock()
        controller = Controller("c", lambda key: reconcile(key, clock), clock, notes.append)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(controller.run())
            for key in keys:
                controller.add(key)
            await asyncio.sleep(seconds)
            running.cancel()

    run_driven(story())
    return notes


def test_a_key_given_twice_before_its_turn_is_served_once():
    served = []

    async def reconcile(key, clock):
        served.append(key)

    run_controller(reconcile, keys=[("", "a"), ("", "b"), ("", "a")])

    assert served == [("", "a"), ("", "b")]


def test_a_key_is_reconciled_again_at_the_returned_instant():
    served = []

    async def reconcile(key, clock):
        served.append(clock.monotonic())
        return clock.monotonic() + timedelta(seconds=30) if len(served) < 3 else None

    run_controller(reconcile)

    assert [b - a for a, b in pairwise(served)] == [timedelta(seconds=30)] * 2


def test_a_refusal_is_noted_and_tried_again_with_growing_patience():
    served = []

    async def reconcile(key, clock):
        served.append(clock.now())
        raise KubeError("no")

    notes = run_controller(reconcile, seconds=20)

    assert [(b - a).total_seconds() for a, b in pairwise(served)] == [1, 2, 4, 8]
    assert notes[0] == "c a: no"


def test_a_bug_ends_the_loop():
    async def reconcile(key, clock):
        raise ZeroDivisionError

    with pytest.raises(ExceptionGroup):
        run_controller(reconcile)


# --- pools of addresses -----------------------------------------------------------------------------------------


def test_each_preloaded_pool_has_addresses_of_the_management_network_and_the_one_beyond_is_refused():
    pools = [render_ip_pool(f"pool-{place}", place)["spec"]["ranges"][0] for place in range(MAX_IP_POOLS)]
    subnet = ip_network(pools[0]["subnet"])
    ends = [ip_address(pool[key]) for pool in pools for key in ("rangeStart", "rangeEnd")]

    assert ends == sorted(set(ends))
    assert all(end in subnet and end != subnet.broadcast_address for end in ends)
    with pytest.raises(
        UserError, match=r"IPPool more is number 16, and .* addresses for 15 pools; Let the manifests name 15"
    ):
        render_ip_pool("more", MAX_IP_POOLS)
