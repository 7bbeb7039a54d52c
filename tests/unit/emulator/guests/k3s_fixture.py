"""User data of a K3s cluster as an administrator writes it: configuration, CA files, the install script."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from windrow.core.formats.yaml import dump

from .testbed import ClusterFixture

K3S_VERSION = "v1.35.1+k3s1"
FIRST = "https://10.0.0.11:6443"
TLS = "/var/lib/rancher/k3s/server/tls"


class K3sFixture(ClusterFixture):
    """The secrets of a K3s cluster, and the documents of its machines."""

    def __init__(self) -> None:
        super().__init__("k3s")

    def first(self, hostname: str = "one", **more: Any) -> str:
        files = self.authorities(TLS) | more.pop("files", {})
        config = {"token": self.server_token(), "agent-token": self.agent_password, "cluster-init": True}
        return render_k3s(hostname, {**config, **more}, files)

    def server(self, hostname: str, server: str = FIRST, **more: Any) -> str:
        files = more.pop("files", {})
        config = {"token": self.server_token(), "agent-token": self.agent_password, "server": server}
        return render_k3s(hostname, {**config, **more}, files)

    def worker(self, hostname: str, server: str = FIRST, **more: Any) -> str:
        config = {"token": self.agent_token(), "server": server}
        return render_k3s(hostname, {**config, **more}, command="agent")


def render_k3s(
    hostname: str, config: Mapping[str, Any], files: Mapping[str, str] | None = None, command: str = "server"
) -> str:
    """A cloud-config by K3s' documentation: the configuration file, then the install script."""
    path = "/etc/rancher/k3s/config.yaml"
    written = {path: dump({key.replace("_", "-"): value for key, value in config.items()})}
    script = f"curl -sfL https://get.k3s.io | INSTALL_K3S_VERSION={K3S_VERSION} sh -s - {command}"
    return render_script(hostname, [script], written | dict(files or {}))


def render_script(hostname: str, commands: list[str], files: Mapping[str, str] | None = None) -> str:
    """A cloud-config of files and commands."""
    entries = [{"path": p, "content": c, "permissions": "0600"} for p, c in (files or {}).items()]
    return "#cloud-config\n" + dump({"hostname": hostname, "write_files": entries, "runcmd": commands})


@cache
def the_cluster() -> K3sFixture:
    """One set of secrets for all tests: keys take long to make."""
    return K3sFixture()
