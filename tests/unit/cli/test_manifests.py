from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from windrow.cli import exit_codes
from windrow.cli.paths import MAX_TEXT_FILE, limit_text
from windrow.core.formats.yaml import load_all

Windrow = Callable[..., Any]

CLUSTER = """
apiVersion: provisioning.cattle.io/v1
kind: Cluster
metadata:
  name: orchard
  namespace: fleet-default
  uid: f528e3d3-e723-4214-bc3d-70527584249a
  resourceVersion: "12"
  finalizers: [wrangler.cattle.io/provisioning-cluster-remove]
spec: {kubernetesVersion: v1.34.7+rke2r1}
status: {ready: true}
"""


def test_import_prints_what_can_be_piped_on_and_says_what_it_left_out(windrow: Windrow, tmp_path: Path):
    (tmp_path / "c.yaml").write_text(CLUSTER)

    answer = windrow("import", "-f", "c.yaml")

    (kept,) = load_all(answer.out)
    assert kept["metadata"] == {"name": "orchard", "namespace": "fleet-default"}
    assert kept["spec"] == {"kubernetesVersion": "v1.34.7+rke2r1"}
    assert "status" not in kept
    assert "finalizer" in answer.err


def test_import_reads_standard_input_and_takes_lists_apart(windrow: Windrow):
    body = "\n".join(f"  {line}" for line in CLUSTER.strip().splitlines()).replace(
        "  apiVersion", "- apiVersion", 1
    )
    listed = f"apiVersion: v1\nkind: List\nitems:\n{body}\n"

    assert [raw["kind"] for raw in load_all(windrow("import", "-f", "-", stdin=listed).out)] == ["Cluster"]


@pytest.mark.parametrize("text", ["", "just a word", "a: [", "kind: Cluster\nmetadata: {name: x}", "[1, 2]"])
def test_what_is_no_object_is_refused_with_its_place(windrow: Windrow, text: str):
    answer = windrow("import", "-f", "-", stdin=text)

    assert answer.code == exit_codes.REFUSED
    assert "tandard input" in answer.err
    assert len(answer.err.splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("just a word", "it is 'just a word', and a mapping is wanted."),
        ("kind: Pod", "apiVersion and metadata.name are missing."),
        ("apiVersion: v1\nkind: Pod\nmetadata: []", "metadata.name is missing."),
        ("apiVersion: v1\nmetadata: {name: x}", "kind is missing."),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: 7}",
            "metadata.name is 7, and a text is wanted: quote it.",
        ),
    ],
)
def test_what_an_object_lacks_is_named(windrow: Windrow, text: str, told: str):
    answer = windrow("check", "-f", "-", stdin=text)

    first, hint = " ".join(answer.err.split()).split(" → ")
    assert first.endswith(f"is not a Kubernetes object: {told}")
    assert hint == "Correct that, or remove the document."


def test_a_kind_that_the_manager_does_not_know_is_refused_before_anything_is_sent(windrow: Windrow):
    answer = windrow("apply", "-f", "-", stdin="apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}")

    assert answer.code == exit_codes.REFUSED
    assert "'x' is of kind Deployment (apps/v1)" in answer.err


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("annotations", "5", "a mapping"),
        ("annotations", "[a]", "a mapping"),
        ("labels", "text", "a mapping"),
        ("finalizers", "[5]", "a list of text"),
        ("ownerReferences", "[text]", "a list of mappings"),
        ("namespace", "5", "text"),
    ],
)
def test_metadata_of_another_type_is_refused_by_name(
    windrow: Windrow, tmp_path: Path, key: str, value: str, words: str
):
    text = f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n  {key}: {value}\n"

    answer = windrow("check", "-f", "-", stdin=text)

    assert answer.code == exit_codes.REFUSED
    assert f"metadata.{key} of Secret a in standard input is not {words}." in " ".join(answer.err.split())


@pytest.mark.parametrize(
    "command",
    [("import", "-f"), ("check", "-f"), ("emulate", "--inventory"), ("status", "--kubeconfig")],
)
def test_a_file_without_end_is_refused(windrow: Windrow, command: tuple[str, ...]):
    answer = windrow(*command, "/dev/zero")

    assert answer.code == exit_codes.REFUSED
    assert answer.err.splitlines()[0].endswith("/dev/zero has more than 16 MiB.")


def test_standard_input_without_end_is_refused(windrow: Windrow):
    answer = windrow("import", "-f", "-", stdin="#" * (MAX_TEXT_FILE + 1))
    assert answer.code == exit_codes.REFUSED
    assert "tandard input has more than 16 MiB." in answer.err


def test_a_file_of_just_that_size_is_read():
    assert len(limit_text(" " * MAX_TEXT_FILE, "a file")) == MAX_TEXT_FILE
