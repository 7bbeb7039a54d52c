"""The systemd unit that installs the release named in an environment file, at boot and on restart.

`ENVIRONMENT` names version and role; `UNIT` runs `SCRIPT` at every boot and whenever it is restarted, and tries again
until it succeeds. So an upgrade is: write another version into the file, restart the unit. A site adds its own
settings (a proxy, `INSTALL_RKE2_ARTIFACT_PATH` for a place without internet, `RKE2_SHA256` of the binary that must come
out) in `SITE`, which we never write. The script keeps to few constructs of POSIX sh, one command a line.
"""

from __future__ import annotations

from collections.abc import Mapping

from windrow.bootstrap.cloud_config import File

DIRECTORY = "/etc/windrow"
ENVIRONMENT = f"{DIRECTORY}/rke2.env"
SITE_ENVIRONMENT = f"{DIRECTORY}/site.env"
SCRIPT = f"{DIRECTORY}/install-rke2.sh"
SERVICE = "windrow-install.service"
UNIT = f"/etc/systemd/system/{SERVICE}"
# What was installed last; only the script writes it.
STATE = "/var/lib/windrow/installed"

# Type=simple, not oneshot: systemd before 244 refuses to restart a oneshot, and a boot need not wait for downloads.
_UNIT = f"""\
[Unit]
Description=Install and start RKE2 as {ENVIRONMENT} says
Wants=network-online.target
After=network-online.target

[Service]
Type=simple
EnvironmentFile={ENVIRONMENT}
EnvironmentFile=-{SITE_ENVIRONMENT}
ExecStart=/bin/sh {SCRIPT}
Restart=on-failure
RestartSec=10

[Install]
WantedBy=multi-user.target
"""

# The service is started without waiting, because a joining server may take long and retries by itself.
# The version is recorded last: a script that was cut off begins again.
_SCRIPT = f"""\
#!/bin/sh
# Installs the RKE2 release that {ENVIRONMENT} names and starts its service.
# May be run again at any time: systemctl restart {SERVICE}
set -eu
installed=none
if [ -f {STATE} ]; then
  installed=$(cat {STATE})
fi
if [ "$installed" = "$INSTALL_RKE2_VERSION" ]; then
  systemctl enable "$RKE2_SERVICE"
  systemctl start --no-block "$RKE2_SERVICE"
  exit 0
fi
if [ -n "${{INSTALL_RKE2_ARTIFACT_PATH:-}}" ]; then
  sh "$INSTALL_RKE2_ARTIFACT_PATH/install.sh"
else
  curl -fsSL --retry 5 --connect-timeout 10 -o /run/windrow-install-rke2.sh https://get.rke2.io
  sh /run/windrow-install-rke2.sh
fi
if [ -n "${{RKE2_SHA256:-}}" ]; then
  binary=$(command -v rke2)
  echo "$RKE2_SHA256  $binary" | sha256sum -c -
fi
systemctl daemon-reload
systemctl enable "$RKE2_SERVICE"
systemctl restart --no-block "$RKE2_SERVICE"
mkdir -p /var/lib/windrow
echo "$INSTALL_RKE2_VERSION" > {STATE}
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


def list_install_files(environment: Mapping[str, str]) -> list[File]:
    """The environment file, the unit and the script."""
    lines = "".join(f"{name}={value}\n" for name, value in environment.items())
    return [File(ENVIRONMENT, lines, "0644"), File(SCRIPT, _SCRIPT, "0755"), File(UNIT, _UNIT, "0644")]
