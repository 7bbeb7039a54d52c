"""`--cluster-reset` on a server that exists, done once before its service starts: with a snapshot on its disk, or with its own data.

cloud-init does it: `bootcmd` of the user data runs at every boot, also of a machine that was made long ago, and before
the services. It writes the files of `restore`: a drop-in has the service run a script before itself, and the script does
nothing where the id of this reset is recorded on the disk.

Where a snapshot is restored, what is there is moved aside first, and put back where the reset fails: a file that was cut off,
or that the token does not open, leaves the data of before. The service does not start then, since the others are stopped.
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

ASIDE = "/var/lib/windrow/before-restore"
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
if [ "$restored" = {id} ]; then
  exit 0
fi
PATH="$PATH:/usr/local/bin:/opt/{name}/bin"
export PATH
rm -f {data}/db/reset-flag
"""

_MOVE_ASIDE = """\
mkdir -p {aside}/db
if [ -e {aside}/{one} ]; then
  rm -rf {data}/{one}
elif [ -e {data}/{one} ]; then
  mv {data}/{one} {aside}/{one}
fi
"""

_PUT_BACK = """\
if [ -e {aside}/{one} ]; then
  rm -rf {data}/{one}
  mv {aside}/{one} {data}/{one}
fi
"""

# Without `server`, which the machine may have joined through: a reset joins none.
_RESET = """\
if ! {name} server --cluster-reset --server={flags}; then
{undo}  echo "etcd was not reset: {left}" >&2
  exit 1
fi
mkdir -p /var/lib/windrow
echo {id} > {state}
rm -rf {aside}
"""


def _render_script(reset: ClusterReset, name: str) -> str:
    names = {
        "name": name,
        "id": quote(reset.id),
        "state": STATE,
        "aside": ASIDE,
        "data": quote(f"{reset.data_directory}/server"),
    }
    head = _HEAD.format(**names)
    put_back = "".join(_PUT_BACK.format(**names, one=one) for one in MOVED)
    if not reset.path:
        # Of a restore that was cut off.
        return head + put_back + _RESET.format(**names, flags="", undo="", left="its data are as they were")
    flags = f" --cluster-reset-restore-path={quote(reset.path)} --etcd-s3=false"
    moves = "".join(_MOVE_ASIDE.format(**names, one=one) for one in MOVED)
    left = "the data of before are in their place"
    return head + moves + _RESET.format(**names, flags=flags, undo=indent(put_back, "  "), left=left)
