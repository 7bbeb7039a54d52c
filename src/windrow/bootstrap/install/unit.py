"""The systemd unit that installs the release named in an environment file, at boot and on restart.

The environment file (`/etc/windrow/rke2.env`) names version and role; `UNIT` runs the script at every boot and whenever
it is restarted, and tries again until it succeeds. So an upgrade is: write another version into the file, restart the
unit. A site adds its own settings (a proxy, `INSTALL_RKE2_ARTIFACT_PATH` for a place without internet, `RKE2_SHA256` of
the binary that must come out) in `SITE_ENVIRONMENT`, which we never write. What the Cluster sets for all its machines
(`agentEnvVars`) is in `AGENT_ENVIRONMENT` for the unit, and where the service reads its own for that. Before the service the
kernel is probed (`kernel_probe`). The scripts keep to few constructs of POSIX sh, one command a line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from windrow.bootstrap.cloud_config import File
from windrow.bootstrap.install.kernel_probe import list_probe_files, probe_script
from windrow.bootstrap.layout import Layout

DIRECTORY = "/etc/windrow"
SITE_ENVIRONMENT = f"{DIRECTORY}/site.env"
AGENT_ENVIRONMENT = f"{DIRECTORY}/agent.env"
SERVICE = "windrow-install.service"
UNIT = f"/etc/systemd/system/{SERVICE}"
# What was installed last; only the script writes it.
STATE = "/var/lib/windrow/installed"
PROBE_TIMEOUT_S = 30  # before systemd gives the unit up, after 90 s


@dataclass(frozen=True, slots=True)
class Installer:
    """How a distribution is installed: the lines of the script that fetch and install it, the name of the variable that
    names its service, and the services that it has. The lines leave the service stopped."""

    layout: Layout
    service: str
    services: tuple[str, ...]
    install: str

    @property
    def environment_file(self) -> str:
        return f"{DIRECTORY}/{self.layout.name}.env"

    @property
    def script(self) -> str:
        return f"{DIRECTORY}/install-{self.layout.name}.sh"


# Type=simple, not oneshot: systemd before 244 refuses to restart a oneshot, and a boot need not wait for downloads. So
# Before= holds the service back for the probe alone, which is cut off in time and may fail.
def _render_unit(installer: Installer, has_agent_environment: bool) -> str:
    # First, so that it changes nothing of what we and the site set.
    given = f"EnvironmentFile={AGENT_ENVIRONMENT}\n" if has_agent_environment else ""
    return f"""\
[Unit]
Description=Install and start {installer.layout.title} as {installer.environment_file} says
Wants=network-online.target
After=network-online.target
Before={" ".join(installer.services)}

[Service]
Type=simple
{given}EnvironmentFile={installer.environment_file}
EnvironmentFile=-{SITE_ENVIRONMENT}
ExecStartPre=-/usr/bin/timeout {PROBE_TIMEOUT_S} /bin/sh {probe_script(DIRECTORY)}
ExecStart=/bin/sh {installer.script}
Restart=on-failure
RestartSec=10

[Install]
WantedBy=multi-user.target
"""


# The service is started without waiting, because a joining server may take long and retries by itself.
# The version is recorded last: a script that was cut off begins again.
def _render_script(installer: Installer) -> str:
    name, service = installer.layout.name, f"${installer.service}"
    upper = name.upper()
    return f"""\
#!/bin/sh
# Installs the {installer.layout.title} release that {installer.environment_file} names and starts its service.
# May be run again at any time: systemctl restart {SERVICE}
set -eu
installed=none
if [ -f {STATE} ]; then
  installed=$(cat {STATE})
fi
if [ "$installed" = "$INSTALL_{upper}_VERSION" ]; then
  systemctl enable "{service}"
  systemctl start --no-block "{service}"
  exit 0
fi
{installer.install}\
if [ -n "${{{upper}_SHA256:-}}" ]; then
  binary=$(command -v {name})
  echo "${upper}_SHA256  $binary" | sha256sum -c -
fi
systemctl daemon-reload
systemctl enable "{service}"
systemctl restart --no-block "{service}"
mkdir -p /var/lib/windrow
echo "$INSTALL_{upper}_VERSION" > {STATE}
"""


# A machine cloned from another keeps its machine-id, and with it the DHCP identity: both would get one address. Made
# anew, the id comes from the VM's own uuid, so on an image without one nothing changes and the network stays up.
# bootcmd, because the address must be right before it is used.
RENEW_IDENTITY = """\
before=$(cat /etc/machine-id)
rm -f /etc/machine-id /var/lib/dbus/machine-id
systemd-machine-id-setup
if [ "$before" != "$(cat /etc/machine-id)" ]; then
  systemctl try-restart systemd-networkd.service || true
fi
"""

BOOT_COMMANDS = (("cloud-init-per", "instance", "windrow-identity", "sh", "-c", RENEW_IDENTITY),)

# The copies that cloud-init keeps of its input hold every secret; the files it made of them stay.
RUN_COMMANDS = (
    ("systemctl", "daemon-reload"),
    ("systemctl", "enable", SERVICE),
    ("systemctl", "start", "--no-block", SERVICE),
    ("rm", "-f", "/var/lib/cloud/instance/user-data.txt", "/var/lib/cloud/instance/user-data.txt.i"),
)


def list_install_files(
    installer: Installer, environment: Mapping[str, str], agent_environment: Mapping[str, str] | None = None
) -> list[File]:
    """The environment file, the unit and the scripts; with `agent_environment` that of the unit and of the service."""
    lines = "".join(f"{name}={value}\n" for name, value in environment.items())
    files = [
        File(installer.environment_file, lines, "0644"),
        File(installer.script, _render_script(installer), "0755"),
        *list_probe_files(installer.layout, DIRECTORY),
        File(UNIT, _render_unit(installer, bool(agent_environment)), "0644"),
    ]
    if agent_environment:
        # A proxy's URL may have a password.
        given = "".join(f"{name}={_quoted(value)}\n" for name, value in agent_environment.items())
        service = environment[installer.service].removesuffix(".service")
        files += [File(AGENT_ENVIRONMENT, given), File(f"/etc/default/{service}", given)]
    return files


def _quoted(value: str) -> str:
    """A value as systemd reads it back, in double quotes; without line breaks."""
    return '"' + "".join(f"\\{letter}" if letter in '"\\$`' else letter for letter in value) + '"'
