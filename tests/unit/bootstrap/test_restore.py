"""The files by which a first server restores etcd before its service starts: run by a shell, with a distribution that records."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from windrow.bootstrap import DISTRIBUTIONS
from windrow.bootstrap import restore as source
from windrow.bootstrap.restore import list_restore_files
from windrow.bootstrap.spec import BootstrapSpec, Restore
from windrow.core.formats.yaml import load

Make = Callable[..., BootstrapSpec]
S3 = {
    "bucket": "back ups",
    "endpoint": "s3.site:9000",
    "folder": "prod",
    "region": "eu",
    "skipSSLVerify": True,
    "endpointCA": "-----BEGIN CERTIFICATE-----",
    "accessKey": "a'b",
    "secretKey": "s",
}
RESTORE = Restore("1-7", "on-demand-1", S3)


def files(restore: Restore = RESTORE, name: str = "rke2") -> dict[str, tuple[str, str]]:
    layout = DISTRIBUTIONS[name].LAYOUT
    found = list_restore_files(restore, layout, f"{name}-server.service")
    return {file.path: (file.content, file.mode) for file in found}


def test_the_service_runs_the_script_before_itself_and_keys_are_roots_alone() -> None:
    found = files()

    unit, mode = found["/etc/systemd/system/rke2-server.service.d/90-windrow-restore.conf"]
    assert (unit, mode) == ("[Service]\nExecStartPre=/bin/sh /etc/windrow/restore.sh\n", "0644")
    assert [found[path][1] for path in (source.SCRIPT, source.KEYS, source.S3_CA)] == ["0700", "0600", "0600"]
    assert not any(key in found[source.SCRIPT][0] for key in ("a'b", "secret"))


def run(folder: Path, restore: Restore = RESTORE, code: int = 0) -> list[str]:
    """What the distribution is called with, each word a line, then its keys."""
    record, binary = folder / "record", folder / "bin" / "rke2"
    binary.parent.mkdir(exist_ok=True)
    binary.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" "$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" >> {record}\nexit {code}\n'
    )
    binary.chmod(0o755)
    script = files(restore)[source.SCRIPT][0]
    for path in (source.KEYS, source.STATE, "/var/lib/windrow"):
        script = script.replace(path, str(folder / path.strip("/").replace("/", "-")))
    keys = folder / source.KEYS.strip("/").replace("/", "-")
    if not keys.exists():
        keys.write_text(files(restore)[source.KEYS][0])
    environment = {"PATH": f"{binary.parent}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", script], env=environment, check=code == 0, capture_output=True)
    lines = record.read_text().splitlines() if record.exists() else []
    record.unlink(missing_ok=True)
    return lines


def test_the_reset_has_the_snapshot_and_where_it_is_and_runs_once(tmp_path: Path) -> None:
    assert run(tmp_path) == [
        "server",
        "--cluster-reset",
        "--cluster-reset-restore-path=on-demand-1",
        "--etcd-s3",
        "--etcd-s3-bucket=back ups",
        "--etcd-s3-endpoint=s3.site:9000",
        "--etcd-s3-folder=prod",
        "--etcd-s3-region=eu",
        "--etcd-s3-skip-ssl-verify",
        "--etcd-s3-endpoint-ca=/etc/windrow/restore-s3-ca.pem",
        "a'b",
        "s",
    ]
    assert not (tmp_path / "etc-windrow-restore.env").exists()
    assert run(tmp_path) == []
    assert run(tmp_path, Restore("2-8", "on-demand-2", {"bucket": "b"}))[2] == (
        "--cluster-reset-restore-path=on-demand-2"
    )


def test_one_that_failed_is_run_again(tmp_path: Path) -> None:
    assert len(run(tmp_path, code=1)) == 12
    assert (tmp_path / "etc-windrow-restore.env").exists()
    assert len(run(tmp_path)) == 12


@pytest.mark.parametrize("name", ["rke2", "k3s"])
def test_only_a_machine_that_restores_has_the_files(a_spec: Make, name: str) -> None:
    distribution = DISTRIBUTIONS[name]
    version = {"rke2": "v1.35.1+rke2r1", "k3s": "v1.35.1+k3s1"}[name]
    unit = {"rke2": "rke2-server", "k3s": "k3s"}[name]
    plain = load(distribution.render(a_spec(version=version)))["write_files"]
    restoring = load(distribution.render(a_spec(version=version, restore=RESTORE)))["write_files"]

    more = {file["path"] for file in restoring} - {file["path"] for file in plain}
    assert more == {
        source.SCRIPT,
        source.KEYS,
        source.S3_CA,
        f"/etc/systemd/system/{unit}.service.d/90-windrow-restore.conf",
    }
