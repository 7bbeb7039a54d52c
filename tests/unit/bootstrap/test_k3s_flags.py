import pytest

from windrow.bootstrap.k3s.flags import KEYS, check_config, dropped_keys
from windrow.bootstrap.rke2.flags import KEYS as RKE2_KEYS
from windrow.core.formats.version import Version

NOW = Version.parse("v1.35.1+k3s1")


def test_what_ranchers_form_writes_raises_no_doubt() -> None:
    config = {
        "disable": ["servicelb"],
        "disable-apiserver": False,
        "disable-cloud-controller": True,
        "disable-kube-proxy": False,
        "disable-network-policy": False,
        "etcd-expose-metrics": False,
        "kubelet-arg": ["cloud-provider=external"],
        "protect-kernel-defaults": False,
        "secrets-encryption": False,
        "cluster-init": True,
    }

    assert check_config(config, NOW) == []


def test_the_two_distributions_say_the_same_of_each_others_keys() -> None:
    """A key is of both, of K3s alone, or of RKE2 alone; aliases that K3s has long dropped are in no table of RKE2."""
    dropped_aliases = {"cluster-secret", "disable-selinux", "no-deploy", "no-flannel"}

    assert KEYS.sibling_only() == RKE2_KEYS.find() - KEYS.find()
    assert RKE2_KEYS.sibling_only() == KEYS.find() - RKE2_KEYS.find() - dropped_aliases


def test_no_key_that_windrow_leaves_out_is_one_that_k3s_needs() -> None:
    assert not dropped_keys() & {"disable", "kubelet-arg", "tls-san", "flannel-backend", "cluster-domain"}
    assert {"cni", "cloud-provider-name", "profile", "etcd-image"} <= dropped_keys()


@pytest.mark.parametrize(
    ("key", "version", "words"),
    [
        (
            "cnii",
            "v1.35.1+k3s1",
            "no key of K3s, which skips it on servers and would not start with it on agents, which do not get it",
        ),
        ("helm-controller-arg", "v1.30.4+k3s1", "a key of K3s since v1.33"),
        ("brand-new", "v1.39.0+k3s1", "so agents do not get it; check that v1.39.0+k3s1 supports it"),
    ],
)
def test_a_key_that_the_release_has_not_is_one_warning(key: str, version: str, words: str) -> None:
    (warning,) = check_config({key: 1}, Version.parse(version))

    assert words in warning


@pytest.mark.parametrize(
    ("key", "cure"),
    [
        ("disable-local-storage", "write disable: [local-storage]"),
        ("disable-traefik", "write disable: [traefik]"),
        ("no-deploy", "write its values as disable: […]"),
        ("no-flannel", "write flannel-backend: none"),
    ],
)
def test_what_tutorials_write_is_told_with_what_it_is_called(key: str, cure: str) -> None:
    (warning,) = check_config({key: 1}, NOW)

    assert warning.endswith(f"; {cure}")


def test_a_key_is_either_for_servers_only_or_for_all() -> None:
    assert {"disable", "cluster-init", "disable-cloud-controller", "flannel-backend"} <= KEYS.server_only()
    assert not {"kubelet-arg", "node-label", "flannel-iface", "vpn-auth"} & KEYS.server_only()
