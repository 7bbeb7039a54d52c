from typing import Any

import pytest

from windrow.bootstrap.config.keys import MANAGED
from windrow.bootstrap.rke2.flags import KEYS, check_config
from windrow.core.formats.version import Version

NOW = Version.parse("v1.35.1+rke2r1")


def test_what_ranchers_form_writes_raises_no_doubt() -> None:
    config = {
        "cni": "calico",
        "disable-kube-proxy": False,
        "etcd-expose-metrics": False,
        "ingress-controller": "ingress-nginx",
        "cloud-provider-name": "harvester",
        "cloud-provider-config": "secret://fleet-default:harvesterconfigndk26",
        "protect-kernel-defaults": False,
    }

    assert check_config(config, NOW) == []


@pytest.mark.parametrize(
    ("config", "version", "words"),
    [
        (
            {"cnii": "calico"},
            "v1.35.1+rke2r1",
            "'cnii' is no key of RKE2, which skips it; did you mean 'cni'?",
        ),
        ({"cluster-init": True}, "v1.35.1+rke2r1", "is a key of K3s"),
        ({"etcd-s3-retention": 3}, "v1.30.4+rke2r1", "a key of RKE2 since v1.31, v1.30.4+rke2r1 skips it"),
        ({"multi-cluster-cidr": True}, "v1.30.4+rke2r1", "was a key of RKE2 up to v1.28"),
        ({"brand-new": True}, "v1.39.0+rke2r1", "check that v1.39.0+rke2r1 supports it"),
        ({"token": "x"}, "v1.35.1+rke2r1", "is set by Windrow"),
        ({"cloud-provider-config": "x"}, "v1.35.1+rke2r1", "means nothing without"),
        ({"cloud-provider-name": "harvester", "node-external-ip": "1.2.3.4"}, "v1.35.1+rke2r1", "refuses"),
        ({"profile": "cis"}, "v1.35.1+rke2r1", "needs a user 'etcd'"),
    ],
)
def test_each_doubt_is_one_warning_with_a_cure(config: dict[str, Any], version: str, words: str) -> None:
    (warning,) = check_config(config, Version.parse(version))

    assert words in warning
    assert "; " in warning


def test_no_warning_repeats_the_secret_it_is_about() -> None:
    assert "hunter2" not in "".join(check_config({"token": "hunter2", "agent-token": "hunter2"}, NOW))


def test_a_key_is_either_for_servers_only_or_for_all() -> None:
    assert KEYS.find() >= MANAGED
    assert {"cluster-cidr", "tls-san", "etcd-s3"} <= KEYS.server_only() < KEYS.find()
    assert not {"kubelet-arg", "node-label", "cloud-provider-name"} & KEYS.server_only()


@pytest.mark.parametrize(
    ("key", "first"),
    [("etcd-s3-retention", 31), ("ingress-controller", 31), ("prime", 32), ("embedded-registry", 26)],
)
def test_a_key_is_known_from_the_line_on_that_brought_it(key: str, first: int) -> None:
    """A line beyond the list has what the newest has."""
    known = {minor for minor in range(25, 45) if key in KEYS.find((1, minor))}

    assert known == set(range(first, 45))
