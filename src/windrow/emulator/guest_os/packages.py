"""Downloads and packages of a simulated machine: install scripts and releases, packages, files from the simulated
network."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from windrow.emulator.guest_os.binaries import render_binary
from windrow.emulator.guest_os.installers import k3s, rke2
from windrow.emulator.guest_os.installers.releases import find_download_obstacle
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.shell.commands import parse_options
from windrow.emulator.guest_os.shell.run import Command, Invocation
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.requests import Request


def installation_commands(restart_s: float) -> dict[str, Command]:
    """curl, wget, the install steps, package managers."""

    async def install_rke2(call: Invocation) -> int:
        return await rke2.install(call, restart_s)

    async def install_k3s(call: Invocation) -> int:
        return await k3s.install(call, restart_s)

    return {
        rke2.COMMAND: install_rke2,
        k3s.COMMAND: install_k3s,
        "curl": _curl,
        "wget": _wget,
        **dict.fromkeys(("apt-get", "apt", "zypper", "dnf", "yum", "transactional-update"), _package_manager),
        "cloud-init-per": _run_per,
        "systemd-machine-id-setup": _machine_id,
    }


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
    content: bytes | None
    released = _find_release_file(host, unquote(parts.path))
    is_local = guest.host.network.find(host, parts.port or 443) is not None
    is_download = not guest.address or (bool(released) and not is_local)
    if is_download and (obstacle := find_download_obstacle(guest, host)):
        call.print_error(obstacle)
        return 6
    if released:
        content = released
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


def _find_release_file(host: str, path: str) -> bytes:
    """The stand-in for a file that a distribution publishes, b"" for another one."""
    match host:
        case "get.rke2.io":
            return rke2.SCRIPT.encode()
        case "get.k3s.io":
            return k3s.SCRIPT.encode()
        case "rancher-mirror.rancher.cn":
            return (k3s.SCRIPT if path.startswith("/k3s/") else rke2.SCRIPT).encode()
        case "github.com":
            return k3s.find_release_file(path)
    return b""


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
