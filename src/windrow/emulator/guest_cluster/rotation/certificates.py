"""`<rke2|k3s> certificate rotate` on a server or an agent: the certificates are made anew at the next start.

Of the leaf certificates only that with which a server serves is on its disk here, so what is left to do is what a user sees:
the backup of the tls directory, the file that asks for a new serving certificate, the log.
"""

from __future__ import annotations

from windrow.emulator.guest_cluster.distribution.distribution import Distribution
from windrow.emulator.guest_os.operating_system import GuestOS

_COMMON = "admin api-server auth-proxy cloud-controller controller-manager etcd kube-proxy kubelet scheduler supervisor"
_AGENT = ("kubelet", "kube-proxy")


class UnknownService(Exception):
    """A service that has no certificates; the message is the program's."""


def regenerate_file(data_directory: str) -> str:
    """The file that asks the next start for a new serving certificate."""
    return f"{data_directory}/server/tls/dynamic-cert-regenerate"


def rotate_certificates(
    guest: GuestOS, distribution: Distribution, data_directory: str, services: list[str]
) -> list[str]:
    """Rotate those of the services, by default of all on this machine; the log. Raises UnknownService."""
    program = distribution.name
    known = [*_COMMON.split(), f"{program}-controller", f"{program}-server"]
    for service in services:
        if service not in known:
            raise UnknownService(f"service {service} is not recognized")
    is_server = bool(guest.list_under(f"{data_directory}/server/tls"))
    lines = []
    if not services:
        kind = "Server detected, rotating agent and server" if is_server else "Agent detected, rotating agent"
        lines.append(f"{kind} certificates")
        services = known if is_server else [*_AGENT, f"{program}-controller"]
    backup = _back_up(guest, data_directory, is_server=is_server)
    if f"{program}-server" in services and is_server:
        guest.write(regenerate_file(data_directory), b"", 0o600)
        lines.append("Rotating dynamic listener certificate")
    lines += [f"Rotating certificates for {service}" for service in services]
    return [
        *lines,
        f"Successfully backed up certificates to {backup}, please restart {program} server or agent to rotate certificates",
    ]


def _back_up(guest: GuestOS, data_directory: str, *, is_server: bool) -> str:
    part = "server" if is_server else "agent"
    source = f"{data_directory}/{part}/tls"
    target = f"{data_directory}/{part}/tls-{int(guest.now().timestamp())}"
    for path in guest.list_under(source):
        found = guest.find(path)
        if found is not None:
            guest.write(target + path.removeprefix(source), found.content, found.mode)
    return target
