"""The inventory of an emulated Harvester: what it may say, and every fault of it at once."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.emulator.host.nodes import HostSpec, default_hosts
from windrow.emulator.preload import VmNetwork
from windrow.emulator.site import BadInventory, Site, parse_inventory


def problems_of(raw: object) -> list[str]:
    with pytest.raises(BadInventory) as refused:
        parse_inventory(raw)
    return refused.value.problems


def test_hosts_and_networks_are_read():
    site = parse_inventory(
        {
            "hosts": [
                {
                    "name": "big",
                    "cpu": 64,
                    "memory": "512Gi",
                    "storage": "4Ti",
                    "region": "eu",
                    "zone": "a",
                    "labels": {"gpu": "yes"},
                    "devices": {"nvidia.com/A2": 2},
                    "cpuModels": ["Haswell-noTSX"],
                },
                {"name": "small", "clusterNetworks": ["mgmt", "storage"], "address": "10.0.0.7"},
            ],
            "networks": [
                {"name": "default/vlan50", "vlan": 50, "cidr": "10.20.0.0/16", "gateway": "10.20.255.254"},
                {"name": "lab/plain", "clusterNetwork": "storage", "ipv6Prefix": "fd00:51::/64"},
            ],
        },
        "v1.7.1",
    )

    assert site == Site(
        "v1.7.1",
        (
            HostSpec(
                *("big", "eu", "a", 64, "512Gi", "192.168.101.1"),
                labels={"gpu": "yes"},
                cpu_models=("Haswell-noTSX",),
                devices={"nvidia.com/A2": 2},
                storage="4Ti",
            ),
            HostSpec("small", address="10.0.0.7", networks=("mgmt", "storage")),
        ),
        (
            VmNetwork("default/vlan50", 50, "10.20.0.0/16", "10.20.255.254"),
            VmNetwork("lab/plain", cluster_network="storage", ipv6_prefix="fd00:51::/64"),
        ),
    )


def test_what_is_left_out_is_as_usual():
    assert parse_inventory({}) == Site(hosts=default_hosts())


def test_a_cluster_network_that_no_host_has_is_told_with_those_that_there_are():
    raw = {
        "hosts": [{"name": "a"}, {"name": "b", "clusterNetworks": ["mgmt", "storage"]}],
        "networks": [{"name": "a/b", "clusterNetwork": "storage"}, {"name": "a/c", "clusterNetwork": "mgnt"}],
    }

    assert problems_of(raw) == [
        "networks[1].clusterNetwork: no host has mgnt; the hosts' clusterNetworks are mgmt, storage"
    ]
    assert problems_of({"networks": raw["networks"][1:]}) == [
        "networks[0].clusterNetwork: no host has mgnt; the hosts' clusterNetworks are mgmt"
    ]


def test_all_faults_are_told_at_once_with_their_paths():
    found = problems_of(
        {
            "host": [],
            "hosts": [
                {
                    "name": "A",
                    "cpu": "many",
                    "memory": "1Mi",
                    "storage": "512Mi",
                    "zone": "a b",
                    "address": "::1",
                    "colour": 1,
                },
                {
                    "cpu": 0,
                    "clusterNetworks": [],
                    "labels": {"a b": "c"},
                    "devices": {"A2": 1},
                    "cpuModels": ["a b"],
                },
                "h",
            ],
            "networks": [
                {"name": "vlan50", "vlan": 4095, "cidr": "10.20.0.0/30", "gateway": "here"},
                {"name": "a/b", "cidr": "10.20.0.1/16", "clusterNetwork": 7},
                {"name": "a/c", "cidr": "10.20.0.0/16", "gateway": "10.21.0.1"},
            ],
        }
    )

    paths = [problem.split(":")[0].removesuffix(" is missing") for problem in found]
    assert sorted(paths) == sorted(
        [
            "host",
            "hosts[2]",
            *(
                f"hosts[0].{field}"
                for field in ("name", "zone", "cpu", "memory", "storage", "address", "colour")
            ),
            *(
                f"hosts[1].{field}"
                for field in ("name", "cpu", "clusterNetworks", "labels", "devices", "cpuModels")
            ),
            *(f"networks[0].{field}" for field in ("name", "vlan", "cidr", "gateway")),
            *(f"networks[1].{field}" for field in ("cidr", "clusterNetwork")),
            "networks[2].gateway",
        ]
    )
    assert "hosts[0].cpu: wanted a whole number from 1 to 1024, found 'many'" in found
    assert (
        "hosts[0].colour: not a field; the fields are address, clusterNetworks, cpu, cpuModels, devices"
        in " ".join(found)
    )


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ([], "wanted a mapping with hosts and networks"),
        ({"hosts": []}, "hosts is empty"),
        *(
            (
                {"networks": [{"name": "a/b", "ipv6Prefix": prefix}]},
                "networks[0].ipv6Prefix: wanted an IPv6 prefix of /64",
            )
            for prefix in ("fd00::/48", "fd00::1/64", "10.0.0.0/24", "here", 64)
        ),
        ({"hosts": {}}, "hosts: wanted a list of 200 at most, found '{}'"),
        ({"hosts": [{"name": f"h-{place}"} for place in range(201)]}, "found 201 of them"),
        ({"hosts": [{"name": "a"}, {"name": "a"}]}, "hosts: the name a is there 2 times"),
        (
            {"networks": [{"name": "a/b", "cidr": "10.0.0.0/24"}, {"name": "a/c", "cidr": "10.1.0.0/24"}]},
            "a/b and a/c are both VLAN 0 of mgmt, with 10.0.0.0/24 and 10.1.0.0/24; write one subnet, or another vlan",
        ),
    ],
)
def test_a_fault_says_what_was_wanted_and_what_was_found(raw, said):
    assert said in " ".join(problems_of(raw))


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(),
    lambda items: (
        st.lists(items, max_size=3)
        | st.dictionaries(
            st.sampled_from(["name", "cpu", "memory", "storage", "cidr", "labels", "vlan", "address"])
            | st.text(max_size=4),
            items,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.fixed_dictionaries({}, optional={"hosts": TREES, "networks": TREES}))
def test_whatever_a_file_holds_is_a_site_or_is_refused(raw):
    with suppress(BadInventory):
        assert parse_inventory(raw).hosts
