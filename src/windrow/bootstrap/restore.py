"""A restore of etcd from a snapshot in S3, done once by the first server, before its service starts.

A drop-in has the service run a script before itself: `<rt> server --cluster-reset` with the name of the snapshot, which ends
by itself and leaves a datastore of one member (reference/10-day2 §2.5). What was restored last is recorded on the disk, so
that a service that starts again restores nothing. The keys of S3 are in a file of their own, which is deleted afterwards; the
Secret with the keys that a running server reads cannot be read before there is an API.
"""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from windrow.bootstrap.cloud_config import File
from windrow.bootstrap.install.unit import DIRECTORY
from windrow.bootstrap.layout import Layout
from windrow.bootstrap.spec import Restore

SCRIPT = f"{DIRECTORY}/restore.sh"
KEYS = f"{DIRECTORY}/restore.env"
S3_CA = f"{DIRECTORY}/restore-s3-ca.pem"
# What was restored last; only the script writes it.
STATE = "/var/lib/windrow/restored"


_FLAGS = {
    "bucket": "etcd-s3-bucket",
    "endpoint": "etcd-s3-endpoint",
    "folder": "etcd-s3-folder",
    "region": "etcd-s3-region",
}


def list_restore_files(restore: Restore, layout: Layout, service: str) -> Iterator[File]:
    """The script, its keys, and the drop-in of the `service` that runs it."""
    s3 = restore.s3
    flags = [f"--{flag}={quote(str(s3[key]))}" for key, flag in _FLAGS.items() if s3.get(key)]
    flags += ["--etcd-s3-skip-ssl-verify"] if s3.get("skipSSLVerify") else []
    if s3.get("endpointCA"):
        yield File(S3_CA, str(s3["endpointCA"]))
        flags.append(f"--etcd-s3-endpoint-ca={S3_CA}")
    yield File(SCRIPT, _render_script(restore, layout.name, flags), "0700")
    # The names by which the distributions read them from their environment.
    pairs = (("AWS_ACCESS_KEY_ID", "accessKey"), ("AWS_SECRET_ACCESS_KEY", "secretKey"))
    keys = "".join(f"export {name}={quote(str(s3[key]))}\n" for name, key in pairs if s3.get(key))
    yield File(KEYS, keys)
    unit = f"[Service]\nExecStartPre=/bin/sh {SCRIPT}\n"
    yield File(f"/etc/systemd/system/{service}.d/90-windrow-restore.conf", unit, "0644")


def _render_script(restore: Restore, name: str, flags: list[str]) -> str:
    given = " ".join(flags)
    return f"""\
#!/bin/sh
# Restores etcd from a snapshot in S3, once, before the service starts.
set -eu
restored=none
if [ -f {STATE} ]; then
  restored=$(cat {STATE})
fi
if [ "$restored" = "{restore.id}" ]; then
  exit 0
fi
. {KEYS}
PATH="$PATH:/usr/local/bin:/opt/{name}/bin"
export PATH
{name} server --cluster-reset --cluster-reset-restore-path={quote(restore.snapshot)} --etcd-s3 {given}
mkdir -p /var/lib/windrow
echo "{restore.id}" > {STATE}
rm -f {KEYS}
"""
