"""What differs between RKE2 and K3s, as data, and the flags of one process of either. Both are one code base: the
supervisor, joining, tokens, etcd and the kubelet are the same (reference/10-day2 §4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from windrow.emulator.guest_os.operating_system import GuestOS

Role = Literal["server", "agent"]
API_PORT = 6443


class BadSettings(Exception):
    """The program refuses to start with these settings; the message is its own."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """One distribution. `name` is in its paths, annotations, Secrets, URLs and certificates."""

    name: str
    flags: Mapping[Role, frozenset[str]]
    strict_roles: frozenset[Role]  # whose configuration file may hold nothing but flags
    environment: Mapping[str, str]  # flag -> variable without the program's prefix
    supervisor_port: int  # the API's own for K3s, which serves both on one
    has_sqlite: bool  # whether a first server without `cluster-init` keeps its data in SQLite
    runs_cloud_controller: bool  # whether its own cloud controller initialises Nodes
    has_snapshot_controller: bool  # whether the snapshot API is served, with its controller
    encrypts_secrets: bool  # unless `secrets-encryption` says otherwise
    has_packaged_components: bool  # whether servers stage manifests of CoreDNS, Traefik and others
    read_critical: Callable[[Settings], dict[str, str]]  # the values that all servers must share
    check: Callable[[GuestOS, Settings], None]  # raises BadSettings for what it alone refuses
    choose_network_plugin: Callable[[Settings], str]

    @property
    def config(self) -> str:
        return f"/etc/rancher/{self.name}/config.yaml"

    @property
    def registries(self) -> str:
        return f"/etc/rancher/{self.name}/registries.yaml"

    @property
    def data_directory(self) -> str:
        return f"/var/lib/rancher/{self.name}"

    @property
    def kubeconfig(self) -> str:
        return f"/etc/rancher/{self.name}/{self.name}.yaml"

    @property
    def shares_port(self) -> bool:
        """Whether the supervisor and the API answer on one port."""
        return self.supervisor_port == API_PORT

    def variable(self, name: str) -> str:
        return f"{self.name.upper()}_{name}"

    def etcd_annotation(self, name: str) -> str:
        return f"etcd.{self.name}.cattle.io/{name}"

    def node_annotation(self, name: str) -> str:
        return f"{self.name}.io/{name}"

    def node_password_secret(self, node: str) -> str:
        return f"{node.lower()}.node-password.{self.name}"

    def supervisor_path(self, name: str) -> str:
        return f"/v1-{self.name}/{name}"

    def node_header(self, name: str) -> str:
        """The header in which a joining machine says who it is: "Name" or "Password"."""
        return f"{self.name.capitalize()}-Node-{name}"


@dataclass(frozen=True, slots=True)
class Settings:
    """The flags of one process. Every flag holds a tuple; a plain value is a tuple of one."""

    distribution: Distribution
    role: Role
    flags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def text(self, flag: str, default: str = "") -> str:
        values = self.flags.get(flag, ())
        return values[-1] if values else default

    def list(self, flag: str) -> tuple[str, ...]:
        """All values of a flag, comma-separated ones split."""
        return tuple(
            part.strip() for value in self.flags.get(flag, ()) for part in value.split(",") if part.strip()
        )

    def is_true(self, flag: str) -> bool:
        return self.text(flag).lower() in ("true", "1", "yes")

    def kubelet_argument(self, name: str) -> str:
        """The value of one `kubelet-arg`, "" where it is not given."""
        pairs = (value.lstrip("-").partition("=") for value in self.flags.get("kubelet-arg", ()))
        return next((value for key, _, value in pairs if key == name), "")

    @property
    def data_directory(self) -> str:
        return self.text("data-dir", self.distribution.data_directory).rstrip("/")

    @property
    def runs_etcd(self) -> bool:
        return self.role == "server" and not self.is_true("disable-etcd")

    @property
    def starts_etcd(self) -> bool:
        """Whether a first server with these settings has embedded etcd, not SQLite."""
        return not self.distribution.has_sqlite or self.is_true("cluster-init")

    @property
    def runs_api(self) -> bool:
        return self.role == "server" and not self.is_true("disable-apiserver")

    @property
    def api_port(self) -> int:
        port = self.text("https-listen-port")
        return int(port) if port.isdigit() else API_PORT

    @property
    def supervisor_port(self) -> int:
        return self.api_port if self.distribution.shares_port else self.distribution.supervisor_port

    @property
    def cloud_provider(self) -> str:
        return self.text("cloud-provider-name")

    @property
    def has_external_cloud_provider(self) -> bool:
        """Whether kubelets wait for a cloud provider that is not part of the distribution."""
        return bool(self.cloud_provider) or self.kubelet_argument("cloud-provider") == "external"

    @property
    def network_plugin(self) -> str:
        return self.distribution.choose_network_plugin(self)

    def critical(self) -> dict[str, str]:
        """The values that all servers must share. The agent token is one of them, compared by itself."""
        return self.distribution.read_critical(self)
