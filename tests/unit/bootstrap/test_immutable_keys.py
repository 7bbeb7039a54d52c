from __future__ import annotations

from typing import Any

import pytest

from windrow.bootstrap.immutable_config import IMMUTABLE_KEYS, list_immutable_keys

KEYS = {key.name: key for key in IMMUTABLE_KEYS}


@pytest.mark.parametrize(
    ("name", "given", "compared", "shown"),
    [
        ("cluster-cidr", None, "10.42.0.0-10.42.255.255", "10.42.0.0/16"),
        ("cluster-cidr", "10.1.2.3/16", "10.1.0.0-10.1.255.255", "10.1.2.3/16"),
        ("cluster-cidr", ["10.1.0.0/30", "fd00::/126"], "10.1.0.0-10.1.0.3,fd00::-fd00::3", "10.1.0.0/30,fd00::/126"),
        ("cluster-cidr", "ten, , twenty", "ten,twenty", "ten,twenty"),
        ("service-cidr", None, "10.43.0.0-10.43.255.255", "10.43.0.0/16"),
        ("cluster-dns", None, "10.43.0.10", "10.43.0.10"),
        ("cluster-dns", " 10.43.0.53 ", "10.43.0.53", "10.43.0.53"),
        ("cluster-domain", None, "cluster.local", "cluster.local"),
        ("cluster-domain", "fruit.local", "fruit.local", "fruit.local"),
        ("cni", None, "canal", "canal"),
        ("cni", ["multus", "calico"], "multus,calico", "multus,calico"),
        ("disable-kube-proxy", None, "false", "false"),
        ("disable-kube-proxy", "", "false", "false"),
        ("disable-kube-proxy", True, "true", "true"),
        ("disable-kube-proxy", "TRUE", "true", "TRUE"),
        ("disable-kube-proxy", 1, "true", "1"),
        ("disable-kube-proxy", False, "false", "false"),
        ("secrets-encryption", None, "true", "true"),
        ("secrets-encryption", False, "false", "false"),
        ("disable-cloud-controller", None, "false", "false"),
        ("disable-cloud-controller", "t", "true", "t"),
        ("datastore-endpoint", None, "", ""),
        ("datastore-endpoint", "mysql://u:p@h", "set", "set"),
        ("cloud-provider-name", "aws", "", ""),
    ],
)  # fmt: skip
def test_a_value_is_compared_in_one_form_and_shown_as_it_is_written(name, given, compared, shown):
    config: dict[str, Any] = {} if given is None else {name: given}

    assert KEYS[name].find_value(config, "rke2", "") == compared
    assert KEYS[name].describe(config, "rke2", "") == shown


@pytest.mark.parametrize(
    ("name", "distribution", "provider", "compared"),
    [
        ("cloud-provider-name", "rke2", "harvester", "harvester"),
        ("disable-cloud-controller", "rke2", "harvester", "true"),
        ("disable-cloud-controller", "k3s", "external", "true"),
        ("disable", "k3s", "harvester", "true"),
        ("disable", "k3s", "external", "false"),
        ("secrets-encryption", "k3s", "", "false"),
        ("flannel-backend", "k3s", "", "vxlan"),
    ],
)
def test_what_is_not_written_follows_from_distribution_and_cloud_provider(
    name, distribution, provider, compared
):
    assert KEYS[name].find_value({}, distribution, provider) == compared


def test_the_dns_service_has_the_tenth_address_of_each_network_of_services_that_has_so_many():
    services = {"service-cidr": "10.1.0.0/16,fd00::/112,10.2.0.0/29,nonsense"}

    assert KEYS["cluster-dns"].find_value(services, "k3s", "") == "10.1.0.10,fd00::a"
    assert KEYS["cluster-dns"].describe(services, "k3s", "") == "10.1.0.10,fd00::a"


def test_servers_agree_on_servicelb_whatever_else_is_disabled():
    def found(*components: str) -> str:
        return KEYS["disable"].find_value({"disable": list(components)}, "k3s", "")

    assert [found(), found("traefik"), found("traefik,servicelb")] == ["false", "false", "true"]


def test_of_a_long_list_sixteen_values_are_looked_at():
    networks = [f"10.{n}.0.0/32" for n in range(100)]

    assert KEYS["cluster-cidr"].find_value({"cluster-cidr": networks}, "k3s", "").count(",") == 15
    assert KEYS["cluster-cidr"].find_value({"cluster-cidr": ",".join(networks)}, "k3s", "").count(",") == 15


def test_each_distribution_has_its_keys_and_another_none():
    rke2, k3s = ({key.name for key in list_immutable_keys(name)} for name in ("rke2", "k3s"))

    assert rke2 - k3s == {"cni", "enable-servicelb"}
    assert k3s - rke2 == {
        "disable",
        "disable-helm-controller",
        "disable-network-policy",
        "flannel-backend",
        "flannel-external-ip",
        "flannel-ipv6-masq",
    }
    assert len(rke2 | k3s) == len(IMMUTABLE_KEYS) == 20
    assert list_immutable_keys("rke1") == []


def test_values_of_any_length_are_those_that_are_no_networks_and_no_credential():
    assert {key.name for key in IMMUTABLE_KEYS if not key.is_free_text} == {
        "cluster-cidr",
        "service-cidr",
        "cluster-dns",
        "datastore-endpoint",
    }
    assert [key.name for key in IMMUTABLE_KEYS if key.is_secret] == ["datastore-endpoint"]
