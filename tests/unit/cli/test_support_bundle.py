"""`windrow support-bundle`: a private file, and what could not be read."""

from __future__ import annotations

import stat
import tarfile
from pathlib import Path
from typing import Any

from tests.unit.cli.conftest import Manager, Windrow

from windrow.cli import exit_codes


def test_a_bundle_of_one_cluster_is_a_private_archive(windrow: Windrow, manager: Manager, tmp_path: Path):
    assert windrow("apply", "-f", "cluster.yaml").code == exit_codes.OK

    answer = windrow("support-bundle", "orchard", "-o", str(tmp_path / "b.tar.gz"))

    assert (answer.code, answer.out.startswith("Wrote ")) == (exit_codes.OK, True)
    assert stat.S_IMODE((tmp_path / "b.tar.gz").stat().st_mode) == 0o600
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        names = archive.getnames()
    assert {"b/versions.json", "b/problems.txt", "b/plans/fleet-default/orchard.yaml"} <= set(names)
    assert "b/objects/clusters/fleet-default/orchard.yaml" in names


def test_a_file_that_exists_is_not_replaced(windrow: Windrow, manager: Any, tmp_path: Path):
    path = tmp_path / "b.tar.gz"
    path.write_text("mine")

    answer = windrow("support-bundle", "-o", str(path))

    assert answer.code == exit_codes.USAGE
    assert "exists" in answer.err
    assert path.read_text() == "mine"


def test_a_cluster_that_is_not_there_makes_no_file(windrow: Windrow, manager: Any, tmp_path: Path):
    answer = windrow("support-bundle", "nowhere", "-o", str(tmp_path / "b.tar.gz"))

    assert answer.code == exit_codes.NOT_FOUND
    assert not (tmp_path / "b.tar.gz").exists()
