"""Stand-in for RKE2's install script (reference/04 §7.8): reads INSTALL_RKE2_*, leaves a binary and unit files, and
starts nothing.
"""

from __future__ import annotations

from windrow.emulator.guest_os.binaries import render_binary
from windrow.emulator.guest_os.installers.releases import find_download_obstacle, find_release
from windrow.emulator.guest_os.shell.run import Invocation

COMMAND = "install-rke2-simulated"
SCRIPT = f"#!/bin/sh\n# Simulated: in place of the script at https://get.rke2.io\nset -e\n{COMMAND}\n"
_DATA = "/var/lib/rancher/rke2"
_STABLE_VERSION = "v1.34.3+rke2r1"  # the version of the stable channel, used where none is given

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


async def install(call: Invocation, restart_s: float) -> int:
    guest, env = call.guest, call.env
    text = env.get("INSTALL_RKE2_VERSION") or _STABLE_VERSION
    version = find_release(text, "rke2")
    if version is None:
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
    if not artifacts and (obstacle := find_download_obstacle(guest, "github.com")):
        call.print_error(f"[ERROR] download failed: curl: {obstacle}")
        return 1
    call.print(f"[INFO]  {'staging' if artifacts else 'downloading'} rke2 {version}")
    await guest.sleep(guest.delays.install)
    guest.write("/usr/local/bin/rke2", render_binary("rke2", str(version)), 0o755)
    if artifacts:
        archive = f"{_DATA}/agent/images/rke2-images.linux-amd64.tar"
        guest.write(archive, f"images of {version} (simulated)\n".encode())
    for one in ("server", "agent"):
        unit = f"/usr/local/lib/systemd/system/rke2-{one}.service"
        guest.write(unit, _UNIT.format(role=one, restart=restart_s).encode())
    call.print(f"[INFO]  installed rke2 {version} as {role}")
    return 0
