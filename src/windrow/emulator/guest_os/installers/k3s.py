"""Stand-in for K3s' install script (reference/04 §7.8, reference/10-day2 §4).

It reads INSTALL_K3S_*, K3S_* and its arguments, leaves a binary, its links, a unit and an environment file, and starts
the service unless it is told not to. As with the real one, INSTALL_K3S_TYPE is the unit's Type=, and every K3S_*
variable, a token as well, ends in the environment file.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from windrow.emulator.guest_os.binaries import render_binary
from windrow.emulator.guest_os.installers.releases import find_download_obstacle, find_release
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.shell.run import Invocation

COMMAND = "install-k3s-simulated"
SCRIPT = f'#!/bin/sh\n# Simulated: in place of the script at https://get.k3s.io\nset -e\n{COMMAND} "$@"\n'
# Release channels, as of the facts that this emulator is written from.
_CHANNELS = {
    "stable": "v1.34.3+k3s1",
    "latest": "v1.35.1+k3s1",
    "v1.33": "v1.33.7+k3s1",
    "v1.34": "v1.34.3+k3s1",
    "v1.35": "v1.35.1+k3s1",
}
_LINKS = ("kubectl", "crictl", "ctr")
_BAD_NAME = re.compile(r"[\]\[!#$%&()*;<=>?\\_`{|}/\s]")
_RELEASE = re.compile(r"/k3s-io/k3s/releases/download/(?P<version>[^/]+)/(?P<file>[^/]+)")
_UNIT = """\
[Unit]
Description=K3s (simulated)
Wants=network-online.target
After=network-online.target

[Install]
WantedBy=multi-user.target

[Service]
Type={type}
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-{environment}
KillMode=process
Restart=always
RestartSec={restart}s
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=-/sbin/modprobe overlay
ExecStart={binary} {command}
"""


_KILL_ALL = """\
#!/bin/sh
# Simulated
systemctl stop {service}
"""
_UNINSTALL = """\
#!/bin/sh
# Simulated
systemctl stop {service}
systemctl disable {service}
rm -f {units}/{service}.service {units}/{service}.service.env
rm -rf /etc/rancher/k3s "${{K3S_DATA_DIR:-/var/lib/rancher/k3s}}"
rm -f {binaries}/k3s {binaries}/kubectl {binaries}/crictl {binaries}/ctr {binaries}/k3s-killall.sh
rm -f {binaries}/{service}-uninstall.sh
"""


class _Failed(Exception):
    """The script ends; the message is its own."""


@dataclass(frozen=True, slots=True)
class Installation:
    """What one run of the script makes."""

    command: tuple[str, ...]  # of the service, "server" or "agent" first
    service: str  # the unit's name without `.service`
    type: str
    binaries: str
    units: str

    @property
    def binary(self) -> str:
        return f"{self.binaries}/k3s"

    @property
    def unit(self) -> str:
        return f"{self.units}/{self.service}.service"

    @property
    def environment(self) -> str:
        return f"{self.unit}.env"


def plan_installation(arguments: list[str], env: Mapping[str, str]) -> Installation:
    """What the script makes of its arguments and environment. Raises _Failed."""
    words = [*_split(env.get("INSTALL_K3S_EXEC", "")), *arguments]
    url = env.get("K3S_URL", "")
    if words and not words[0].startswith("-"):
        command, words = words[0], words[1:]
    elif not url:
        command = "server"
    else:
        if not env.get("K3S_TOKEN") and not env.get("K3S_TOKEN_FILE"):
            raise _Failed(
                "Defaulted k3s exec command to 'agent' because K3S_URL is defined, but K3S_TOKEN or K3S_TOKEN_FILE "
                "is not defined."
            )
        command = "agent"
    if url and not url.startswith("https://"):
        raise _Failed(f"Only https:// URLs are supported for K3S_URL (have {url})")
    name = env.get("INSTALL_K3S_NAME", "")
    service = f"k3s-{name}" if name else "k3s" if command == "server" else f"k3s-{command}"
    if _BAD_NAME.search(service):
        raise _Failed(f"Invalid characters for system name: {service}")
    return Installation(
        (command, *words),
        service,
        env.get("INSTALL_K3S_TYPE") or "notify",
        env.get("INSTALL_K3S_BIN_DIR") or "/usr/local/bin",
        env.get("INSTALL_K3S_SYSTEMD_DIR") or "/etc/systemd/system",
    )


async def install(call: Invocation, restart_s: float) -> int:
    try:
        return await _install(call, restart_s)
    except _Failed as error:
        call.print_error(f"[ERROR]  {error}")
        return 1


async def _install(call: Invocation, restart_s: float) -> int:
    guest, env = call.guest, call.env
    plan = plan_installation(call.argv[1:], env)
    before = _hash_installed(guest, plan)
    await _place_binary(call, plan)
    is_read_only = env.get("INSTALL_K3S_BIN_DIR_READ_ONLY") == "true"
    if not is_read_only:
        _link(call, plan)
        scripts = {"k3s-killall.sh": _KILL_ALL, f"{plan.service}-uninstall.sh": _UNINSTALL}
        for name, text in scripts.items():
            content = text.format(service=plan.service, units=plan.units, binaries=plan.binaries)
            guest.write(f"{plan.binaries}/{name}", content.encode(), 0o755)
    variables = {key: env[key] for key in sorted(env) if key.startswith(("K3S_", "CONTAINERD_"))}
    variables |= {key: env[key] for key in sorted(env) if key.lower().endswith("_proxy")}
    call.print(f"[INFO]  env: Creating environment file {plan.environment}")
    text = "".join(f"{key}='{value}'\n" for key, value in variables.items())
    guest.write(plan.environment, text.encode(), 0o600)
    call.print(f"[INFO]  systemd: Creating service file {plan.unit}")
    unit = _UNIT.format(
        type=plan.type,
        environment=plan.environment,
        restart=restart_s,
        binary=plan.binary,
        command=" ".join(shlex.quote(word) for word in plan.command),
    )
    guest.write(plan.unit, unit.encode())
    return await _start(call, plan, before)


async def _start(call: Invocation, plan: Installation, before: str) -> int:
    env = call.env
    if env.get("INSTALL_K3S_SKIP_ENABLE") == "true":
        return 0
    call.print(f"[INFO]  systemd: Enabling {plan.service} unit")
    if code := await call.shell.child().run(["systemctl", "enable", plan.service], call.streams):
        return code
    if env.get("INSTALL_K3S_SKIP_START") == "true":
        return 0
    unchanged = before == _hash_installed(call.guest, plan)
    if unchanged and env.get("INSTALL_K3S_FORCE_RESTART") != "true":
        call.print("[INFO]  No change detected so skipping service start")
        return 0
    call.print(f"[INFO]  systemd: Starting {plan.service}")
    return await call.shell.child().run(["systemctl", "restart", plan.service], call.streams)


async def _place_binary(call: Invocation, plan: Installation) -> None:
    guest, env = call.guest, call.env
    is_read_only = env.get("INSTALL_K3S_BIN_DIR_READ_ONLY") == "true"
    if is_read_only or env.get("INSTALL_K3S_SKIP_DOWNLOAD") in ("true", "binary"):
        call.print("[INFO]  Skipping k3s download and verify")
        found = guest.find(plan.binary)
        if found is None or not found.mode & 0o111:
            raise _Failed(f"Executable k3s binary not found at {plan.binary}")
        return
    if find_download_obstacle(guest, "github.com"):
        raise _Failed("Download failed")
    version = env.get("INSTALL_K3S_VERSION") or _find_channel(env.get("INSTALL_K3S_CHANNEL") or "stable")
    call.print(f"[INFO]  Using {version} as release")
    if not _is_release(version):
        raise _Failed(
            f"Download failed (no K3s release is called {version!r}: the requested URL returned error: 404)"
        )
    binary = render_binary("k3s", version)
    if guest.read(plan.binary) == binary:
        call.print("[INFO]  Skipping binary downloaded, installed k3s matches hash")
        return
    await guest.sleep(guest.delays.install)
    call.print(f"[INFO]  Installing k3s to {plan.binary}")
    guest.write(plan.binary, binary, 0o755)


def _link(call: Invocation, plan: Installation) -> None:
    mode = call.env.get("INSTALL_K3S_SYMLINK", "")
    if mode == "skip":
        return
    binary = call.guest.read(plan.binary) or b""
    for name in _LINKS:
        path = f"{plan.binaries}/{name}"
        if not call.guest.is_file(path) or mode == "force" or call.guest.read(path) != binary:
            call.print(f"[INFO]  Creating {path} symlink to k3s")
            call.guest.write(path, binary, 0o755)


def _hash_installed(guest: GuestOS, plan: Installation) -> str:
    paths = (plan.binary, plan.unit, plan.environment)
    return hashlib.sha256(b"\0".join(guest.read(path) or b"" for path in paths)).hexdigest()


def _find_channel(name: str) -> str:
    if name not in _CHANNELS:
        raise _Failed(f"Download failed (no release channel is called {name!r})")
    return _CHANNELS[name]


def _is_release(text: str) -> bool:
    return find_release(text, "k3s") is not None


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise _Failed(f"INSTALL_K3S_EXEC: {error}") from error


def find_release_file(path: str) -> bytes:
    """The stand-in for a file of a release: the binary, its checksums, an image archive. b"" for another path."""
    found = _RELEASE.fullmatch(path)
    if found is None or not _is_release(found["version"]):
        return b""
    binary = render_binary("k3s", found["version"])
    match found["file"]:
        case "k3s":
            return binary
        case "sha256sum-amd64.txt":
            return f"{hashlib.sha256(binary).hexdigest()}  k3s\n".encode()
        case name if name.startswith("k3s-airgap-images-amd64.tar"):
            return f"images of {found['version']} (simulated)\n".encode()
    return b""
