"""Downloads and packages of a simulated machine: RKE2's install script, packages, files from the simulated network.

The install script is a stand-in with the real one's interface (reference/04 §7.8): it reads INSTALL_RKE2_* and leaves
a binary and unit files, and starts nothing.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from urllib.parse import urlsplit

from windrow.core.formats.version import NotVersion, Version
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.shell.commands import parse_options
from windrow.emulator.guest_os.shell.run import Command, Invocation
from windrow.emulator.guest_os.systemd import render_binary
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.requests import Request

_INSTALL_COMMAND = "install-rke2-simulated"
INSTALL_SCRIPT = (
    f"#!/bin/sh\n# Simulated: in place of the script at https://get.rke2.io\nset -e\n{_INSTALL_COMMAND}\n"
)
_STABLE_VERSION = "v1.34.3+rke2r1"  # the version of the stable channel, used where none is given
_SCRIPT_HOSTS = ("get.rke2.io", "rancher-mirror.rancher.cn")

_UNIT = """\
[Unit]
Description=Rancher Kubernetes Engine v2 ({role})
Wants=network-online.target
After=network-online.target

[Install]
WantedBy=multi-user.target

[Service]
Type=notify
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-/usr/local/lib/systemd/system/%N.env
KillMode=process
Restart=always
RestartSec={restart}s
ExecStart=/usr/local/bin/rke2 {role}
"""


def installation_commands(restart_s: float) -> dict[str, Command]:
    """curl, wget, the install step, package managers."""

    async def install(call: Invocation) -> int:
        return await _install(call, restart_s)

    return {
        _INSTALL_COMMAND: install,
        "curl": _curl,
        "wget": _wget,
        **dict.fromkeys(("apt-get", "apt", "zypper", "dnf", "yum", "transactional-update"), _package_manager),
        "cloud-init-per": _run_per,
        "systemd-machine-id-setup": _machine_id,
    }


async def _install(call: Invocation, restart_s: float) -> int:
    guest, env = call.guest, call.env
    text = env.get("INSTALL_RKE2_VERSION") or _STABLE_VERSION
    try:
        version = Version.parse(text)
    except NotVersion:
        version = Version(0, 0, 0)
    if version.distribution != "rke2":
        call.print_error(
            f"[ERROR] download failed: no RKE2 release is called {text!r} (The requested URL returned error: 404)"
        )
        return 1
    role = env.get("INSTALL_RKE2_TYPE") or "server"
    if role not in ("server", "agent"):
        call.print_error(f"[ERROR] INSTALL_RKE2_TYPE is {role!r}, not server or agent")
        return 1
    artifacts = env.get("INSTALL_RKE2_ARTIFACT_PATH", "")
    if artifacts and not guest.is_directory(artifacts):
        call.print_error(f"[ERROR] artifact path {artifacts} does not exist")
        return 1
    if not artifacts and not guest.address:
        call.print_error("[ERROR] download failed: no network")
        return 1
    call.print(f"[INFO]  {'staging' if artifacts else 'downloading'} rke2 {version}")
    await guest.sleep(guest.delays.install)
    guest.write("/usr/local/bin/rke2", render_binary("rke2", str(version)), 0o755)
    for one in ("server", "agent"):
        unit = f"/usr/local/lib/systemd/system/rke2-{one}.service"
        guest.write(unit, _UNIT.format(role=one, restart=restart_s).encode())
    call.print(f"[INFO]  installed rke2 {version} as {role}")
    return 0


# -- downloads


_CURL_OPTIONS = (
    "output retry retry-delay retry-max-time connect-timeout max-time header user cacert cert key proxy write-out "
    "request data proto noproxy o m H u x w X d A"
)


async def _curl(call: Invocation) -> int:
    options, urls = parse_options(call.argv[1:], _CURL_OPTIONS.split())
    url = urls[-1] if urls else ""
    remote_name = posixpath.basename(urlsplit(url).path) if "O" in options else ""
    return await _fetch(call, url, options.get("o") or options.get("output") or remote_name)


async def _wget(call: Invocation) -> int:
    options, urls = parse_options(call.argv[1:], ("O", "output-document"))
    url = urls[-1] if urls else ""
    target = options.get("O") or options.get("output-document") or posixpath.basename(urlsplit(url).path)
    return await _fetch(call, url, "" if target == "-" else target)


async def _fetch(call: Invocation, url: str, target: str) -> int:
    guest = call.guest
    parts = urlsplit(url if "://" in url else f"http://{url}")
    host = parts.hostname or ""
    if not guest.address:
        call.print_error(f"(6) Could not resolve host: {host} (the machine has no network)")
        return 6
    if host in _SCRIPT_HOSTS:
        content: bytes | None = INSTALL_SCRIPT.encode()
    else:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        content = await _fetch_from_network(call, host, port, parts.path)
    if content is None:
        return 7
    if target and not target.startswith("/dev/"):
        guest.write(target, content)
    elif not target:
        call.write(content)
    return 0


async def _fetch_from_network(call: Invocation, host: str, port: int, path: str) -> bytes | None:
    handler = call.guest.host.network.find(host, port)
    if handler is None:
        if host.replace(".", "").isdigit():
            call.print_error(f"(7) Failed to connect to {host} port {port}: No route to host")
            return None
        call.guest.console(f"not simulated: download from {host}{path}; nothing was fetched")
        return None
    reply = await handler.send(Request("GET", path or "/"), Peer(address=call.guest.address))
    if reply.status >= 400:
        call.print_error(f"(22) The requested URL returned error: {reply.status}")
        return None
    return reply.body


# -- packages

QEMU_GUEST_AGENT = "qemu-guest-agent"
AGENT_UNIT = "/usr/lib/systemd/system/qemu-guest-agent.service"
_AGENT_UNIT_TEXT = b"""\
[Unit]
Description=QEMU Guest Agent

[Service]
ExecStart=/usr/sbin/qemu-ga
Restart=always
RestartSec=1s
"""


def add_package(guest: GuestOS, name: str) -> None:
    """Put a package on the disk. Only those that matter leave files."""
    installed: set[str] = guest.hardware.root.state.setdefault("packages", set())
    installed.add(name)
    if name == QEMU_GUEST_AGENT:
        guest.write("/usr/sbin/qemu-ga", render_binary("qemu-ga"), 0o755)
        guest.write(AGENT_UNIT, _AGENT_UNIT_TEXT)


async def install_packages(guest: GuestOS, names: list[str], log: Callable[[str], None]) -> bool:
    """Download and install; False without network."""
    if not guest.address:
        log(f"failed to install {', '.join(names)}: the machine has no network")
        return False
    for name in names:
        await guest.sleep(guest.delays.package)
        add_package(guest, name)
    return True


async def _package_manager(call: Invocation) -> int:
    _, words = parse_options(call.argv[1:], "o")
    if words[:1] == ["pkg"]:
        words = words[1:]
    if not words:
        return 0
    if words[0] in ("update", "refresh", "makecache", "upgrade", "dist-upgrade"):
        await call.guest.sleep(call.guest.delays.package_update)
        return 0 if call.guest.address else 100
    if words[0] in ("install", "in"):
        return 0 if await install_packages(call.guest, words[1:], call.print_error) else 100
    return 0


# -- small programs of the image


async def _run_per(call: Invocation) -> int:
    """`cloud-init-per <how often> <name> command…`."""
    words = call.argv[1:]
    if len(words) < 3:
        return 1
    often, name, *command = words
    guest = call.guest
    key = {"once": "once", "instance": guest.hardware.vm_uid}.get(often)
    if key is not None:
        stamp = f"/var/lib/cloud/{key}/sem/bootper.{name}"
        if guest.exists(stamp):
            return 0
        guest.write(stamp, b"")
    return await call.shell.child().run(command, call.streams)


def ensure_machine_id(guest: GuestOS) -> None:
    """On a KVM guest, systemd makes the machine id of the VM's own uuid."""
    if not guest.exists("/etc/machine-id"):
        guest.write("/etc/machine-id", guest.hardware.vm_uid.replace("-", "").encode() + b"\n")


async def _machine_id(call: Invocation) -> int:
    ensure_machine_id(call.guest)
    return 0
