"""Debian's cloud-init: its schema, and a first boot of it in a root directory and namespaces of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
PROGRAM = Path("/usr/bin/cloud-init")
PYTHON = "/usr/bin/python3"  # Debian's, whose packages cloud-init is
NAMESPACES = ["unshare", "--mount", "--uts", "--ipc", "--net", "--pid", "--fork", "--kill-child", "--"]
STAGES = [["init", "--local"], ["init"], ["modules", "--mode", "config"], ["modules", "--mode", "final"]]
TIMEOUT_S = 400  # seconds on an idle machine

# The modules that a first boot of ours needs, in the order and the stages of Debian's cloud.cfg. Packages would be fetched,
# and host keys cost time.
CONFIG = """\
users: [default]
disable_root: true
datasource_list: [NoCloud]
network: {config: disabled}
ssh_deletekeys: false
ssh_genkeytypes: []
cloud_init_modules: [bootcmd, write-files, set_hostname, update_hostname, users-groups, ssh]
cloud_config_modules: [set-passwords, runcmd]
cloud_final_modules: [write-files-deferred, scripts-user]
system_info:
  distro: debian
  default_user:
    name: debian
    lock_passwd: true
    groups: [adm, sudo]
    sudo: ["ALL=(ALL) NOPASSWD:ALL"]
    shell: /bin/bash
  paths: {cloud_dir: /var/lib/cloud/, templates_dir: /etc/cloud/templates/}
"""
# What a program that is run leaves of itself, in place of doing it.
STUB = '#!/bin/sh\necho "${0##*/} $*" >>/calls\n'
STUBS = ("systemctl", "reboot", "shutdown", "poweroff", "apt-get", "zypper", "dnf", "curl")
FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin\n",
    "etc/group": "root:x:0:\nadm:x:4:\nsudo:x:27:\nusers:x:100:\nnogroup:x:65534:\n",
    "etc/shadow": "root:*:19000:0:99999:7:::\n",
    "etc/gshadow": "root:*::\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files\n",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/cloud/cloud.cfg": CONFIG,
}
DIRECTORIES = [
    "dev",
    "home",
    "local/bin",
    "proc",
    "root",
    "run",
    "sys",
    "tmp",
    "usr",
    "var/log",
    "var/lib/cloud/seed/nocloud",
    "etc/ssh",
]


@cache
def reason_to_skip(namespaces: bool = False) -> str:
    """Why cloud-init cannot be had here, "" where it can; with `namespaces` those of a boot are needed, too."""
    if not PROGRAM.exists():
        return "cloud-init is not installed (Debian: apt install cloud-init)"
    if not namespaces:
        return ""
    if os.geteuid():
        return "a first boot of cloud-init needs root"
    tried = shutil.which("unshare") and subprocess.run(
        [*NAMESPACES, "mount", "--make-rprivate", "/"], capture_output=True, check=False
    )
    return (
        "" if tried and tried.returncode == 0 else "no namespaces of its own for cloud-init can be made here"
    )


def schema_faults(paths: Sequence[Path]) -> list[str]:
    """What `cloud-init schema` says of each document that it does not find valid."""
    commands = [["schema", "--config-file", str(path)] for path in paths]
    done = _run([PYTHON, str(HERE / "commands.py"), json.dumps(commands)])
    return [
        f"{path.name}: {text}"
        for path, (code, text) in zip(paths, json.loads(done), strict=True)
        if code or "alid" not in text or "deprecat" in text.lower()
    ]


@dataclass(frozen=True)
class Booted:
    """A root directory after cloud-init's first boot in it."""

    root: Path
    outputs: tuple[tuple[int, str], ...]  # exit code and output of each stage

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def read(self, path: str) -> str:
        return self.path(path).read_text()

    def _account(self, name: str) -> list[str]:
        return next(
            one for line in self.read("/etc/passwd").splitlines() if (one := line.split(":"))[0] == name
        )

    def uid(self, name: str) -> int:
        return int(self._account(name)[2])

    def home(self, name: str) -> str:
        return self._account(name)[5]

    @property
    def warnings(self) -> list[str]:
        log = self.read("/var/log/cloud-init.log").splitlines()
        return [
            line for line in log if any(f"[{level}]" in line for level in ("WARNING", "ERROR", "CRITICAL"))
        ]

    @property
    def calls(self) -> list[str]:
        """The commands that were run of those that have a stub, in order."""
        return self.read("/calls").splitlines() if self.path("/calls").exists() else []


def boot(root: Path, user_data: str) -> Booted:
    """Run a machine's first boot with `user_data` below `root`, which is made."""
    for name in DIRECTORIES:
        (root / name).mkdir(parents=True, exist_ok=True)
    seed = {
        "var/lib/cloud/seed/nocloud/meta-data": "instance-id: i-1\nlocal-hostname: seed\n",
        "var/lib/cloud/seed/nocloud/user-data": user_data,
    }
    for name, text in (FILES | seed).items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name in STUBS:
        (root / "local/bin" / name).write_text(STUB)
        (root / "local/bin" / name).chmod(0o755)
    shutil.copytree("/etc/pam.d", root / "etc/pam.d")  # passwords are set through it
    shutil.copy(HERE / "commands.py", root / "commands.py")
    enter = ["sh", str(HERE / "enter.sh"), str(root), PYTHON, "/commands.py", json.dumps(STAGES)]
    return Booted(root, tuple((code, text) for code, text in json.loads(_run([*NAMESPACES, *enter]))))


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
