"""`windrow get`, and the formats of kubectl's `-o` on every list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Manager, Windrow
from tests.unit.cli.test_commands import enlist, with_credential

from windrow.apiserver.loopback import LoopbackClient
from windrow.cli import exit_codes
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import STORAGE_CLASS

HARVESTER = ("--harvester", ".windrow/manager.yaml")


@pytest.fixture
def classes(manager: Manager) -> Manager:
    """A server with two storage classes, which stands in for a Harvester."""

    async def create(api: LoopbackClient) -> None:
        default = {"storageclass.kubernetes.io/is-default-class": "true"}
        await api.create(
            STORAGE_CLASS,
            new_object(STORAGE_CLASS, "longhorn", annotations=default, provisioner="driver.longhorn.io"),
        )
        await api.create(STORAGE_CLASS, new_object(STORAGE_CLASS, "lvm", provisioner="lvm.example"))

    manager.do(create)
    return manager


def test_what_a_harvester_has_is_a_table(windrow: Windrow, classes: Any):
    answer = windrow("get", "classes", *HARVESTER)

    assert answer.code == exit_codes.OK
    assert answer.out.splitlines() == [
        "NAME      PROVISIONER         DEFAULT  RECLAIM",
        "longhorn  driver.longhorn.io  default  Delete",
        "lvm       lvm.example         -        Delete",
    ]


def test_it_is_asked_with_a_credential_of_the_management_api_too(
    windrow: Windrow, classes: Any, tmp_path: Path
):
    assert windrow("apply", "-f", "cluster.yaml").code == exit_codes.OK
    with_credential(classes, tmp_path)

    answer = windrow("get", "classes", "--credential", "fleet-default:cc", "-o", "name")

    assert answer.out.split() == [
        "storageclass.storage.k8s.io/longhorn",
        "storageclass.storage.k8s.io/lvm",
    ]


def test_wide_has_more_columns_and_a_name_lists_one(windrow: Windrow, classes: Any):
    answer = windrow("get", "class", "lvm", *HARVESTER, "-o", "wide")

    head, row = answer.out.splitlines()
    assert head.split() == ["NAME", "PROVISIONER", "DEFAULT", "RECLAIM", "BINDING", "EXPANSION"]
    assert row.split()[-2:] == ["Immediate", "False"]


@pytest.mark.parametrize(
    ("template", "printed"),
    [("{.items[*].metadata.name}", "longhorn lvm\n"), ("{range .items[*]}{.provisioner},{end}", "driver.longhorn.io,lvm.example,\n")],
)  # fmt: skip
def test_a_jsonpath_is_printed_of_the_list(windrow: Windrow, classes: Any, template: str, printed: str):
    assert windrow("get", "classes", *HARVESTER, "-o", f"jsonpath={template}").out == printed


def test_of_one_that_is_named_the_object_itself_is_printed(windrow: Windrow, classes: Any):
    named = windrow("get", "class", "lvm", *HARVESTER, "-o", "jsonpath={.provisioner}")
    listed = windrow("get", "classes", *HARVESTER, "-o", "json")

    assert named.out == "lvm.example\n"
    assert len(json.loads(listed.out)["items"]) == 2


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("get", "classes", "nowhere"), exit_codes.NOT_FOUND, "windrow get classes"),
        (("get", "classes", "-o", "jsonpath={.a"), exit_codes.USAGE, "cannot be read"),
        (("get", "classes", "-o", "xml"), exit_codes.USAGE, "xml"),
        (("get", "nothing"), exit_codes.USAGE, "nothing"),
        (("get", "classes", "--credential", "a:b"), exit_codes.USAGE, "exclude each other"),
        (("get", "images"), exit_codes.NOT_FOUND, ""),
    ],
)
def test_what_cannot_be_listed_is_told(
    windrow: Windrow, classes: Any, words: tuple[str, ...], code: int, said: str
):
    answer = windrow(*words, *HARVESTER)

    assert answer.code == code
    assert said in answer.err


def test_nothing_is_an_answer(windrow: Windrow, manager: Manager):
    assert windrow("get", "hosts", *HARVESTER).out == "No hosts on this Harvester.\n"


def test_lists_of_clusters_and_machines_have_the_same_formats(windrow: Windrow, manager: Manager):
    assert windrow("apply", "-f", "cluster.yaml").code == exit_codes.OK
    manager.do(enlist("orchard-workers-a-b", "workers", phase="Joining", host="node-1"))

    assert windrow("status", "-o", "name").out == "cluster.provisioning.cattle.io/orchard\n"
    assert windrow("status", "orchard", "-o", "jsonpath={.metadata.name}").out == "orchard\n"
    assert windrow("machine", "list", "-o", "name").out == "machine.windrow.io/orchard-workers-a-b\n"
    head, row = windrow("machine", "list", "-o", "wide").out.splitlines()
    assert head.split()[:4] == ["CLUSTER", "MACHINE", "POOL", "ROLES"]
    assert row.split()[:5] == ["fleet-default/orchard", "orchard-workers-a-b", "workers", "worker", "Joining"]
    assert "node-1" in row
