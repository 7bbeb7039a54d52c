"""The command line of the CSI driver."""

from __future__ import annotations

import pytest

from windrow.csi.cmd.arguments import Options, parse_arguments


def parse(*argv: str, **env: str) -> tuple[Options | int, list[str], list[str]]:
    errors: list[str] = []
    lines: list[str] = []
    found = parse_arguments(["x", *argv], env, "v1", errors.append, lines.append)
    return found, errors, lines


def test_the_flags_of_the_go_driver_s_chart_are_understood():
    found, *_ = parse(
        "--nodeid=node-1",
        "--endpoint=unix:///csi/csi.sock",
        "--kubeconfig=/var/lib/harvester/cloud-provider-config",
        "--host-storage-class",
        "fast",
        "--debug",
    )

    assert found == Options(
        "unix:///csi/csi.sock", "node-1", "/var/lib/harvester/cloud-provider-config", "fast", True
    )


def test_without_flags_the_environment_counts():
    assert parse()[0] == Options()
    assert parse(HOST_STORAGE_CLASS="slow", DEBUG="true")[0] == Options(host_storage_class="slow", debug=True)
    assert parse("--host-storage-class=fast", "--debug=false", HOST_STORAGE_CLASS="slow", DEBUG="1")[0] == (
        Options(host_storage_class="fast")
    )


def test_the_log_is_text_or_json():
    assert parse("--logging-format=json")[0] == Options(log_format="json")

    found, errors, _ = parse("--logging-format=xml")

    assert found == 1
    assert "--logging-format" in errors[0]


def test_nodes_are_fenced_where_that_is_asked_for():
    assert parse("--fence-nodes")[0] == Options(fence_nodes=True)


@pytest.mark.parametrize("argv", [["--drivername=x"], ["--node=x"], ["extra"], ["--nodeid"]])
def test_what_is_unknown_is_fatal(argv: list[str]):
    found, errors, _ = parse(*argv)

    assert found == 1
    assert "--help lists the flags" in errors[0]


def test_version_and_help_are_printed():
    assert parse("--version") == (0, [], ["harvester-csi-driver v1"])
    code, _, lines = parse("--help")
    assert code == 0
    assert "--host-storage-class" in lines[0]
