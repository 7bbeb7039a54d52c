"""`windrow addon` against an API server over sockets, with its token controller and its RBAC."""

from __future__ import annotations

import asyncio
import base64
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from windrow.app.clock import SystemClock
from windrow.cli import exit_codes
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.core.formats import yaml
from windrow.core.formats.json import loads
from windrow.kubernetes.errors import Forbidden, KubeError, Unauthorized
from windrow.kubernetes.kubeconfig import parse_kubeconfig, render_kubeconfig
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    NAMESPACE,
    POD,
    PVC,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    STORAGE_CLASS,
    ApiResource,
    ObjectRef,
)

from .conftest import Answer, Manager, Windrow

KINDS = (SERVICE_ACCOUNT, SECRET, ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
FIRST, SECOND = "########## cloud config ############\n", "\n########## cloud-init user data ############\n"
RULES = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]


@pytest.fixture
def harvester(tmp_path: Path) -> Iterator[Manager]:
    """What of Harvester the command needs, and its administrator's kubeconfig."""
    with Manager(authorize="rbac") as made:
        (tmp_path / "harvester.yaml").write_text(render_kubeconfig(made.access, "admin", cluster="local"))
        make(made, NAMESPACE, new_object(NAMESPACE, "harvester-system"))
        make(made, NAMESPACE, new_object(NAMESPACE, "other"))
        make(made, CONFIG_MAP, new_object(CONFIG_MAP, "vip", "harvester-system", data={"ip": "fd00::10"}))
        make(made, CLUSTER_ROLE, new_object(CLUSTER_ROLE, "harvesterhci.io:cloudprovider", rules=RULES))
        make(made, CLUSTER_ROLE, new_object(CLUSTER_ROLE, "harvesterhci.io:csi-driver", rules=[]))
        yield made


def make(harvester: Manager, kind: ApiResource, raw: dict[str, Any]) -> None:
    harvester.do(lambda client: client.create(kind, raw))


def names(harvester: Manager) -> set[str]:
    """The objects of all addon accounts, and what a script of Harvester has made."""
    found = []
    for kind in KINDS:
        found += [(kind, raw) for raw in harvester.do(lambda client, kind=kind: client.list(kind))]
    return {
        f"{kind.kind}/{raw['metadata']['name']}" for kind, raw in found if "demo" in raw["metadata"]["name"]
    }


OBJECTS = {
    "ServiceAccount/demo",
    "RoleBinding/default-demo",
    "RoleBinding/default-demo-csi",
    "ClusterRole/default-demo",
    "ClusterRoleBinding/default-demo",
}


def addon(windrow: Windrow, *argv: str, code: int = exit_codes.OK) -> Answer:
    answer = windrow("addon", *argv, "--harvester", "harvester.yaml")
    assert answer.code == code, answer.err
    return answer


def kubeconfig_of(answer: Answer, heading: str = FIRST) -> str:
    assert answer.out.startswith(heading)
    return answer.out.removeprefix(heading).partition(SECOND)[0]


def try_credential(kubeconfig: str, *what: tuple[ApiResource, str]) -> list[type[KubeError] | None]:
    """Lists each kind in its namespace, with the credential: the errors."""
    access = parse_kubeconfig(kubeconfig)

    async def asked() -> list[type[KubeError] | None]:
        answers: list[type[KubeError] | None] = []
        async with HttpTransport(access, SystemClock(), env={}) as transport:
            for kind, namespace in what:
                try:
                    await Client(transport).list(kind, namespace)
                    answers.append(None)
                except KubeError as error:
                    answers.append(type(error))
        return answers

    return asyncio.run(asked())


@pytest.mark.parametrize("argv", [("demo", "default"), ("--list",), ("demo", "default", "--delete", "--yes")])
def test_a_kubeconfig_of_another_kubernetes_is_refused(
    windrow: Windrow, harvester: Manager, argv: tuple[str, ...]
):
    harvester.do(lambda client: client.delete(CONFIG_MAP.ref("vip", "harvester-system")))
    harvester.do(lambda client: client.delete(NAMESPACE.ref("harvester-system")))

    answer = addon(windrow, *argv, code=exit_codes.REFUSED)

    assert f"{harvester.access.server} is no Harvester: it has no Namespace harvester-system" in answer.err
    assert "Name a kubeconfig of Harvester" in answer.err
    assert (answer.out, names(harvester)) == ("", set())


def test_what_harvesters_script_prints_is_printed(windrow: Windrow, harvester: Manager):
    answer = addon(windrow, "demo", "default")

    kubeconfig = yaml.load(kubeconfig_of(answer))
    context = {"cluster": "local", "user": "demo-default-local", "namespace": "default"}
    assert kubeconfig["contexts"] == [{"name": "demo-default-local", "context": context}]
    assert kubeconfig["current-context"] == "demo-default-local"
    assert kubeconfig["clusters"][0]["cluster"]["server"] == "https://[fd00::10]:6443"
    files = yaml.load(answer.out.partition(SECOND)[2])["write_files"]
    assert {file["path"]: base64.b64decode(file["content"]).decode() for file in files} == dict.fromkeys(
        (
            "/etc/kubernetes/cloud-config",
            "/var/lib/rancher/rke2/etc/config-files/cloud-provider-config",
        ),
        kubeconfig_of(answer),
    )
    assert {(file["permissions"], file["owner"], file["encoding"]) for file in files} == {
        ("0600", "root:root", "b64")
    }
    assert "ServiceAccount default/demo created" in answer.err
    assert parse_kubeconfig(kubeconfig_of(answer)).token not in answer.err


def test_it_may_be_repeated_and_goes_on_where_an_earlier_run_ended(windrow: Windrow, harvester: Manager):
    first = addon(windrow, "demo", "default")
    harvester.do(lambda client: client.delete(ROLE_BINDING.ref("default-demo", "default")))

    again = addon(windrow, "demo", "default", "--k3s", "--mode", "644")
    third = addon(windrow, "demo", "default", "K3S")

    assert [line for line in again.err.splitlines() if line] == [
        "RoleBinding default/default-demo created: it does not exist"
    ]
    assert third.err == ""
    heading = "########## cloud-config ############\n"
    assert kubeconfig_of(again, heading) == kubeconfig_of(third, heading) == kubeconfig_of(first)
    assert again.out.count("    permissions: '0644'") == 2, "indented as the script for the CSI driver does"
    assert names(harvester) == OBJECTS | {"Secret/demo-token"}


def test_the_credential_has_rights_in_its_namespace_only(windrow: Windrow, harvester: Manager):
    answer = addon(windrow, "demo", "default", "--server", harvester.access.server)

    tried = try_credential(
        kubeconfig_of(answer), (POD, "default"), (POD, "other"), (STORAGE_CLASS, ""), (SECRET, "default")
    )

    assert tried == [None, Forbidden, None, Forbidden]


def test_a_token_is_rotated_without_a_gap(windrow: Windrow, harvester: Manager):
    where = ("--server", harvester.access.server)
    old = kubeconfig_of(addon(windrow, "demo", "default", *where))

    rotated = addon(windrow, "demo", "default", "--rotate", *where)
    again = addon(windrow, "demo", "default", "--rotate", *where)
    new = kubeconfig_of(rotated)

    assert kubeconfig_of(again) == new != old, "a rotation that was not finished prints the same"
    assert "Earlier tokens are valid, too: Secret default/demo-token." in rotated.err
    assert "windrow addon demo default --revoke-earlier" in rotated.err
    assert try_credential(old, (POD, "default")) == try_credential(new, (POD, "default")) == [None]

    addon(windrow, "demo", "default", "--revoke-earlier")
    addon(windrow, "demo", "default", "--revoke-earlier")

    assert try_credential(old, (POD, "default")) == [Unauthorized]
    assert try_credential(new, (POD, "default")) == [None]
    assert kubeconfig_of(addon(windrow, "demo", "default", *where)) == new


def test_an_account_for_the_csi_driver_only_has_a_role_of_its_own_and_becomes_another(
    windrow: Windrow, harvester: Manager
):
    where = ("--server", harvester.access.server)
    narrow = kubeconfig_of(addon(windrow, "demo", "default", "--csi-driver-only", *where))

    assert try_credential(narrow, (PVC, "default"), (SECRET, "default")) == [
        None,
        Forbidden,
    ]
    assert names(harvester) == {*OBJECTS, "Role/default-demo-csi"} - {"RoleBinding/default-demo"} | {
        "Secret/demo-token"
    }
    assert "its namespace, no others" in addon(windrow, "--list").out
    (listed,) = loads(addon(windrow, "--list", "-o", "json").out)["items"]
    assert (listed["csiDriverOnly"], listed["clusterWide"]) == (True, False)

    whole = kubeconfig_of(addon(windrow, "demo", "default", *where))

    assert whole == narrow, "the token stays"
    assert try_credential(whole, (POD, "default")) == [None]
    assert names(harvester) == {*OBJECTS, "Secret/demo-token"}
    addon(windrow, "demo", "default", "--csi-driver-only", "--cluster-wide", code=exit_codes.USAGE)


def test_accounts_are_listed_and_deleted_whole(windrow: Windrow, harvester: Manager):
    assert addon(windrow, "--list").out == "No addon accounts.\n"
    addon(windrow, "demo", "default")
    addon(windrow, "demo", "other", "--cluster-wide")

    _, *rows = addon(windrow, "--list").out.splitlines()
    (first, second) = loads(addon(windrow, "--list", "-o", "json").out)["items"]
    refused = addon(windrow, "demo", "default", "--delete", code=exit_codes.USAGE)

    assert [row.split()[:2] for row in rows] == [["default", "demo"], ["other", "demo"]]
    assert "its namespace" in rows[0]
    assert "every namespace" in rows[1]
    assert (first["metadata"]["namespace"], first["tokens"], first["clusterWide"]) == (
        "default",
        ["demo-token"],
        False,
    )
    assert second["clusterWide"] is True
    assert "--delete --yes" in refused.err

    addon(windrow, "demo", "default", "--delete", "--yes")
    addon(windrow, "demo", "other", "--delete", "--yes")

    assert names(harvester) == set()
    gone = addon(windrow, "demo", "default", "--delete", "--yes", code=exit_codes.NOT_FOUND)
    assert "windrow addon --list" in gone.err


def test_a_file_of_the_answer_is_its_owners_only(windrow: Windrow, harvester: Manager, tmp_path: Path):
    answer = addon(windrow, "demo", "default", "--rke1", "--file", "addon.txt")

    file = tmp_path / "addon.txt"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert answer.out == ""
    heading, _, block = file.read_text().partition("\n")
    assert heading == "========RKE-ADDON-CONFIGURATION-FOR-HARVESTER_CSI_DRIVER=========="
    (secret,) = yaml.load_all(yaml.load(block)["addons"])
    assert (secret["metadata"]["name"], secret["metadata"]["namespace"]) == (
        "harvester-csi-config",
        "kube-system",
    )
    assert parse_kubeconfig(secret["stringData"]["cloud-provider-config"]).namespace == "default"


def test_what_a_script_of_harvester_made_is_taken_over_only_when_asked(windrow: Windrow, harvester: Manager):
    """generate_addon.sh binds in every namespace, generate_addon_csi.sh under the names that are ours."""

    def binding(ref: ObjectRef, role: str) -> None:
        subject = {"kind": "ServiceAccount", "name": "demo", "namespace": "default"}
        role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
        make(
            harvester,
            ref.kind,
            new_object(ref.kind, ref.name, ref.namespace, roleRef=role_ref, subjects=[subject]),
        )

    make(harvester, SERVICE_ACCOUNT, new_object(SERVICE_ACCOUNT, "demo", "default"))
    binding(ROLE_BINDING.ref("default-demo", "default"), "harvesterhci.io:cloudprovider")
    binding(CLUSTER_ROLE_BINDING.ref("default-demo"), "harvesterhci.io:csi-driver")
    binding(CLUSTER_ROLE_BINDING.ref("demo"), "harvesterhci.io:cloudprovider")

    refused = addon(windrow, "demo", "default", code=exit_codes.REFUSED)
    taken = addon(windrow, "demo", "default", "--adopt")

    told = "ServiceAccount default/demo, RoleBinding default/default-demo, ClusterRoleBinding default-demo exist already"
    assert told in refused.err
    assert "--adopt" in refused.err
    assert "ServiceAccount default/demo taken over" in taken.err
    assert "kubectl delete clusterrolebinding demo" in taken.err
    raw = harvester.do(lambda client: client.get(CLUSTER_ROLE_BINDING.ref("default-demo")))
    assert raw["roleRef"]["name"] == "default-demo"


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (("default", "default"), exit_codes.REFUSED, "that of every pod"),
        (("demo", "nowhere"), exit_codes.REFUSED, "kubectl create namespace nowhere"),
        (("demo",), exit_codes.USAGE, "windrow addon SERVICEACCOUNT NAMESPACE"),
        (("Demo", "default"), exit_codes.USAGE, "'Demo' cannot be the name of a ServiceAccount"),
        (("demo", "default", "talos"), exit_codes.USAGE, "'talos' is none of rke1, rke2, k3s"),
        (("demo", "default", "rke2", "--k3s"), exit_codes.USAGE, "Both rke2 and --k3s are given"),
        (("demo", "default", "--server", "http://h"), exit_codes.USAGE, "write https://HOST:PORT"),
        (("demo", "default", "--mode", "0999"), exit_codes.USAGE, "no mode of a file"),
        (("demo", "default", "--rotate", "--delete"), exit_codes.USAGE, "not allowed with"),
    ],
)
def test_what_cannot_be_done_is_told_before_anything_is(
    windrow: Windrow, harvester: Manager, argv: tuple[str, ...], code: int, words: str
):
    answer = addon(windrow, *argv, code=code)

    assert words in answer.err
    assert answer.out == ""
    assert names(harvester) == set()


def test_without_a_vip_the_address_is_asked_for(windrow: Windrow, harvester: Manager):
    harvester.do(lambda client: client.delete(CONFIG_MAP.ref("vip", "harvester-system")))

    assert "--server https://VIP:6443" in addon(windrow, "demo", "default", code=exit_codes.REFUSED).err
    assert names(harvester) == set()


def test_harvesters_kubeconfig_is_found_where_kubectl_finds_it(
    windrow: Windrow, harvester: Manager, tmp_path: Path
):
    (tmp_path / ".kube").mkdir()
    (tmp_path / "harvester.yaml").rename(tmp_path / ".kube" / "config")

    none = windrow("addon", "--list")
    several = windrow("addon", "--list", env={"KUBECONFIG": "a:b"})
    usual = windrow("addon", "--list", env={"HOME": str(tmp_path)})
    named = windrow("addon", "--list", env={"KUBECONFIG": ".kube/config"})

    assert [one.code for one in (none, several, usual, named)] == [
        exit_codes.UNREACHABLE,
        exit_codes.UNREACHABLE,
        exit_codes.OK,
        exit_codes.OK,
    ]
    assert "--harvester FILE" in none.err
    assert "KUBECONFIG names 2 files" in several.err
