import base64
from typing import Any

import pytest

from windrow.bootstrap.guest_account import GuestAccount, find_kubeconfig, find_vip_server
from windrow.kubernetes.kubeconfig import parse_kubeconfig

ACCOUNT = GuestAccount("51", "vms", "uid-1")
CA = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"


def a_token_secret(**data: str) -> dict[str, object]:
    encoded = {key.replace("_", "."): base64.b64encode(text.encode()).decode() for key, text in data.items()}
    return {"metadata": {"name": "51-token", "namespace": "vms"}, "data": encoded}


@pytest.mark.parametrize(
    ("vip", "server"),
    [
        ({"data": {"ip": "10.0.0.2"}}, "https://10.0.0.2:6443"),
        ({"data": {"ip": "fd00::2"}}, "https://[fd00::2]:6443"),
        ({"data": {"ip": "evil.example/?"}}, ""),
        ({"data": "text"}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_the_server_of_guests_is_harvesters_vip(vip: dict[str, Any] | None, server: str):
    assert find_vip_server(vip) == server


def test_the_objects_bear_the_names_that_harvester_gives_them() -> None:
    assert [str(ref) for ref in ACCOUNT.refs] == [
        "ServiceAccount vms/51",
        "Secret vms/51-token",
        "RoleBinding vms/vms-51",
        "ClusterRoleBinding vms-51",
    ]


def test_every_object_says_whose_it_is() -> None:
    for ref, (kind, raw) in zip(ACCOUNT.refs, ACCOUNT.render_objects(), strict=True):
        assert (kind, raw["metadata"]["name"]) == (ref.kind, ref.name)
        assert ACCOUNT.is_owned(raw)


def test_an_object_of_another_cluster_with_the_same_name_is_not_mine() -> None:
    (_, theirs), *_ = GuestAccount("51", "vms", "uid-2").render_objects()

    assert not ACCOUNT.is_owned(theirs)
    assert not ACCOUNT.is_owned({"metadata": {"name": "51"}})


def test_the_token_is_one_that_kubernetes_fills_and_that_does_not_expire() -> None:
    _, (_, secret), *_ = ACCOUNT.render_objects()

    assert secret["type"] == "kubernetes.io/service-account-token"
    assert secret["metadata"]["annotations"]["kubernetes.io/service-account.name"] == "51"


@pytest.mark.parametrize(
    ("place", "role"), [(2, "harvesterhci.io:cloudprovider"), (3, "harvesterhci.io:csi-driver")]
)
def test_the_account_is_bound_to_harvesters_own_roles(place: int, role: str) -> None:
    _, binding = ACCOUNT.render_objects()[place]

    assert binding["roleRef"] == {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": role,
    }
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "51", "namespace": "vms"}]


def test_a_filled_token_becomes_a_kubeconfig_for_the_machines_namespace() -> None:
    text = find_kubeconfig(a_token_secret(token="abc", ca_crt=CA), "https://10.0.0.2:6443", "vms")

    access = parse_kubeconfig(text or "")

    assert (access.server, access.token, access.namespace) == ("https://10.0.0.2:6443", "abc", "vms")
    assert access.ca == CA


@pytest.mark.parametrize("data", [{}, {"token": "abc"}, {"ca_crt": CA}])
def test_a_token_that_is_not_filled_yet_gives_nothing(data: dict[str, str]) -> None:
    assert find_kubeconfig(a_token_secret(**data), "https://10.0.0.2:6443", "vms") is None


def test_a_broken_token_is_named_with_a_cure() -> None:
    secret = {"metadata": {"name": "51-token"}, "data": {"token": "%%%"}}

    with pytest.raises(ValueError, match="token of Secret 51-token is not base64 text; delete the Secret"):
        find_kubeconfig(secret, "https://10.0.0.2:6443", "vms")
