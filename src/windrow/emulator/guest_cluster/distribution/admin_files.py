"""What a server leaves for its administrator: the tokens that join machines, and a kubeconfig."""

from __future__ import annotations

from datetime import timedelta

from windrow.core import pki
from windrow.emulator.guest_cluster.distribution.distribution import Settings
from windrow.emulator.guest_cluster.distribution.pki import CertificateAuthorities
from windrow.emulator.guest_cluster.distribution.tokens import hash_authorities
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig

_YEAR = timedelta(days=365)


def write_tokens(
    guest: GuestOS, settings: Settings, authorities: CertificateAuthorities, server: str, agent: str
) -> None:
    """The tokens in their secure form. May be repeated."""
    directory, prefix = f"{settings.data_directory}/server", f"K10{hash_authorities(authorities.server_ca)}::"
    token = f"{prefix}server:{server}\n".encode()
    for name in ("token", "node-token"):
        guest.write(f"{directory}/{name}", token, 0o600)
    guest.write(
        f"{directory}/agent-token", token if agent == server else f"{prefix}node:{agent}\n".encode(), 0o600
    )


def write_admin_kubeconfig(guest: GuestOS, settings: Settings, authorities: CertificateAuthorities) -> str:
    """A kubeconfig of `system:admin` for the API on this machine; returns its path. May be repeated."""
    certificate, key = pki.issue_certificate(
        authorities.client_ca,
        authorities.client_key,
        common_name="system:admin",
        organizations=("system:masters",),
        client=True,
        now=guest.now(),
        lifetime=_YEAR,
    )
    url = f"https://127.0.0.1:{settings.api_port}"
    text = render_kubeconfig(
        ClientConfig(url, ca=authorities.server_ca, certificate=certificate, key=key), "default"
    )
    mode = settings.text("write-kubeconfig-mode", "600")
    bits = int(mode, 8) if mode and set(mode) <= set("01234567") else 0o600
    path = settings.text("write-kubeconfig") or settings.distribution.kubeconfig
    guest.write(path, text.encode(), bits & 0o777)
    if path != settings.distribution.kubeconfig:
        guest.write(settings.distribution.kubeconfig, text.encode(), bits & 0o777)
    return path
