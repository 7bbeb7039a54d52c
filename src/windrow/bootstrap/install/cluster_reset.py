"""`--cluster-reset` on a server that exists, done once before its service starts: with a snapshot on its disk, or with its own data.

cloud-init does it: `bootcmd` of the user data runs at every boot, also of a machine that was made long ago, and before
the services. It writes the files of `restore`: a drop-in has the service run a script before itself, and the script does
nothing where the id of this reset is recorded on the disk.

Where a snapshot is restored, what is there is renamed first, beside where it was, and back where the reset fails: a file that
was cut off, or that the token does not open, leaves the data of before. The service does not start then, since the others are
stopped. What was renamed is whole, since a rename is done or not done: on another file system it would be a copy, of which a
full disk leaves a part. The name has the id of the reset, which is recorded before the first rename. So a machine that dies
at any command finds at its next start what is of a reset that had not ended, which is put back, and what is of one that had,
which is removed and never put back.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from shlex import quote
from textwrap import indent

from windrow.bootstrap.cloud_config import HEADER, File
from windrow.bootstrap.layout import Layout
from windrow.bootstrap.restore import SCRIPT, STATE
from windrow.core.formats import yaml

# In `server` of the data directory: the id of the reset that has renamed what was there.
BEGUN = "windrow-reset"
# What was renamed is beside where it was, as `tls.windrow-ID`, and as `tls.windrow-removed` once it is being removed.
BESIDE = "windrow"
# What Rancher removes of the first server before it restores: etcd's data, and what is in the snapshot, too.
MOVED = ("db/etcd", "tls", "cred")


@dataclass(frozen=True, slots=True)
class ClusterReset:
    """A reset of etcd to the one member that it runs on. `id` is of this one and no other; `path` is that of a snapshot on its
    disk, "" where it goes on with its own data."""

    id: str
    path: str
    data_directory: str


def add_reset(document: str, reset: ClusterReset, layout: Layout, service: str) -> str:
    """The user data `document` with the boot command that has the `service` reset etcd before it starts."""
    config = yaml.load(document)
    before = config.get("bootcmd") if isinstance(config, Mapping) else None
    kept = dict(config) if isinstance(config, Mapping) else {}
    commands = list(before) if isinstance(before, list) else []
    return HEADER + yaml.dump(
        {**kept, "bootcmd": [*commands, ["sh", "-c", _render_command(reset, layout, service)]]}
    )


def _render_command(reset: ClusterReset, layout: Layout, service: str) -> str:
    unit = f"/etc/systemd/system/{service}.d/90-windrow-restore.conf"
    files = (
        File(SCRIPT, _render_script(reset, layout.name), "0700"),
        File(unit, f"[Service]\nExecStartPre=/bin/sh {SCRIPT}\n", "0644"),
    )
    return "set -e\n" + "".join(map(_write, files)) + "systemctl daemon-reload\n"


def _write(file: File) -> str:
    encoded, path = b64encode(file.content.encode()).decode(), quote(file.path)
    return (
        f"mkdir -p {quote(file.path.rpartition('/')[0])}\n"
        f"echo {encoded} | base64 -d > {path}.windrow\n"
        f"chmod {file.mode} {path}.windrow\n"
        f"mv -f {path}.windrow {path}\n"
    )


# One command a line, without functions: as the other scripts, so that what runs it may be simple.
_HEAD = """\
#!/bin/sh
# Makes this server the only member of etcd, once, before the service starts.
set -eu
restored=none
if [ -f {state} ]; then
  restored=$(cat {state})
fi
begun=none
if [ -f {begun} ]; then
  begun=$(cat {begun})
fi
if [ "$begun" = "$restored" ]; then
{remove}else
{put_back}  sync
fi
rm -f {begun} {begun}.new
if [ "$restored" = {id} ]; then
  exit 0
fi
PATH="$PATH:/usr/local/bin:/opt/{name}/bin"
export PATH
rm -f {data}/db/reset-flag
"""

# Each rename is on the disk after the id.
_RECORD_BEGUN = """\
echo {id} > {begun}.new
chmod 0600 {begun}.new
mv -f {begun}.new {begun}
sync
begun={id}
"""

_MOVE_ASIDE = """\
if [ -e {data}/{one} ]; then
  mv {data}/{one} {aside}
fi
"""

_PUT_BACK = """\
if [ -e {aside} ]; then
  rm -rf {data}/{one}
  mv {aside} {data}/{one}
fi
"""

# Renamed before, so that a part of it is never taken for the whole.
_REMOVE = """\
rm -rf {data}/{one}.{beside}-removed
if [ -e {aside} ]; then
  mv {aside} {data}/{one}.{beside}-removed
  rm -rf {data}/{one}.{beside}-removed
fi
"""

# Without `server`, which the machine may have joined through: a reset joins none.
_RESET = """\
if ! {name} server --cluster-reset --server={flags}; then
{undo}  echo "etcd was not reset: {left}" >&2
  exit 1
fi
mkdir -p /var/lib/windrow
echo {id} > {state}.new
chmod 0600 {state}.new
mv -f {state}.new {state}
sync
"""


def _render_script(reset: ClusterReset, name: str) -> str:
    data = quote(f"{reset.data_directory}/server")
    names = {
        "name": name,
        "id": quote(reset.id),
        "state": STATE,
        "data": data,
        "begun": f"{data}/{BEGUN}",
    }
    put_back, remove = (indent(_render_each(block, data), "  ") for block in (_PUT_BACK, _REMOVE))
    head = _HEAD.format(**names, put_back=put_back, remove=remove)
    if not reset.path:
        return head + _RESET.format(**names, flags="", undo="", left="its data are as they were")
    flags = f" --cluster-reset-restore-path={quote(reset.path)} --etcd-s3=false"
    moves = _RECORD_BEGUN.format(**names) + _render_each(_MOVE_ASIDE, data)
    done = _render_each(_REMOVE, data) + "rm -f {begun}\n".format(**names)
    left = "the data of before are in their place"
    undo = put_back + "  sync\n  rm -f {begun}\n".format(**names)
    return head + moves + _RESET.format(**names, flags=flags, undo=undo, left=left) + done


def _render_each(block: str, data: str) -> str:
    """The commands for each of what is moved, of the reset that `$begun` names."""
    return "".join(
        block.format(data=data, one=one, beside=BESIDE, aside=f'{data}/{one}.{BESIDE}-"$begun"')
        for one in MOVED
    )
