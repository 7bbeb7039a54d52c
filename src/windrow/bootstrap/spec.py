"""BootstrapSpec: one machine's part in its cluster, the input of every distribution module.

`rke2`, `k3s` are sibling modules of one shape; `bootstrap.DISTRIBUTIONS` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from windrow.core.errors import UserError
from windrow.core.formats.version import NotVersion, Version


class Role(Enum):
    ETCD = "etcd"
    CONTROL_PLANE = "control-plane"
    WORKER = "worker"


class HasRoles:
    """What the roles of a machine, or of the machines of a pool, mean."""

    __slots__ = ()
    roles: frozenset[Role]

    @property
    def is_etcd(self) -> bool:
        return Role.ETCD in self.roles

    @property
    def is_control_plane(self) -> bool:
        return Role.CONTROL_PLANE in self.roles

    @property
    def is_worker(self) -> bool:
        return Role.WORKER in self.roles

    @property
    def is_server(self) -> bool:
        return self.is_etcd or self.is_control_plane


class InvalidBootstrapSpec(UserError):
    """The machine could never join as specified."""


@dataclass(frozen=True, slots=True)
class CertKeyPair:
    """A certificate authority: PEM certificate (may be a chain) and PEM private key."""

    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClusterSecrets:
    """All secrets of a new cluster. Created once, kept in one Secret."""

    server_ca: CertKeyPair
    client_ca: CertKeyPair
    request_header_ca: CertKeyPair
    etcd_peer_ca: CertKeyPair
    etcd_server_ca: CertKeyPair
    service_key: str = field(repr=False)
    server_password: str = field(repr=False)
    agent_password: str = field(repr=False)
    # Of the server token: the one that the servers are about to be given, and those of before, the last first.
    next_server_password: str = field(default="", repr=False)
    former_server_passwords: tuple[str, ...] = field(default=(), repr=False)
    rotation: str = ""  # the id of the rotation that has made the present server token

    @property
    def server_passwords(self) -> tuple[str, ...]:
        """All that are known of the server token, the present one first."""
        upcoming = (self.next_server_password,) if self.next_server_password else ()
        return (self.server_password, *upcoming, *self.former_server_passwords)


@dataclass(frozen=True, slots=True)
class Restore:
    """A restore of etcd from a snapshot in S3. `id` is of this one and no other; `s3` has Rancher's fields, with the keys."""

    id: str
    snapshot: str
    s3: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class GuestCredential:
    """A kubeconfig for Harvester that the guest's cloud provider and CSI driver use."""

    kubeconfig: str = field(repr=False)
    namespace: str = "default"


@dataclass(frozen=True, slots=True)
class BootstrapSpec(HasRoles):
    """One machine's part in its cluster.

    `init_server` is true for the one server that starts the cluster; it has no `join_server`. `machine_labels` are what
    `machineSelectorConfig` and `machineSelectorFiles` select on. `labels`/`taints` come from the pool. `file_contents` is
    by source (`secret`, `configMap`), its name and its key.
    """

    cluster: str
    hostname: str
    machine_uid: str
    version: str  # "v1.35.1+rke2r1"
    roles: frozenset[Role]
    secrets: ClusterSecrets
    init_server: bool
    join_server: str = ""  # "https://10.0.0.5:9345"; empty for the first server
    tls_san: tuple[str, ...] = ()
    node_ip: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()  # "key=value:Effect"
    machine_labels: Mapping[str, str] = field(default_factory=dict)
    global_config: Mapping[str, Any] = field(default_factory=dict)
    selector_config: Sequence[Mapping[str, Any]] = ()
    chart_values: Mapping[str, Any] = field(default_factory=dict)
    additional_manifest: str = ""
    registries: Mapping[str, Any] = field(default_factory=dict)
    etcd: Mapping[str, Any] = field(default_factory=dict)
    data_directory: str = ""  # empty: /var/lib/rancher/<distribution>
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)  # agentEnvVars
    selector_files: Sequence[Mapping[str, Any]] = ()
    file_contents: Mapping[tuple[str, str, str], bytes] = field(default_factory=dict, repr=False)
    pod_security: str = ""  # the name of a template of `pod_security`
    guest_credential: GuestCredential | None = None
    restore: Restore | None = None  # of etcd, by the first server before its service starts
    on_harvester: bool = False  # whether machines of the cluster are VMs of Harvester
    inherits_charts: bool = (
        False  # whether it brings the charts, which no machine does any more that is given objects once
    )

    @property
    def brings_objects(self) -> bool:
        """Whether it brings what the cluster is given once: the first server does, or where that has no API server,
        those that have it. A server that joins later would bring an older object back: its file is as old as the server."""
        return self.init_server or not self.is_etcd

    @property
    def brings_charts(self) -> bool:
        """Whether it brings the charts of Windrow."""
        return self.brings_objects or self.inherits_charts


def require_joinable(spec: BootstrapSpec, name: str, title: str, example: str) -> None:
    """Raises InvalidBootstrapSpec unless `spec` is of the distribution `name`, whose versions end in `example`, and of a
    machine that could join."""
    try:
        version = Version.parse(spec.version)
    except NotVersion as error:
        raise InvalidBootstrapSpec(str(error), "correct kubernetesVersion") from error
    if version.distribution != name:
        raise InvalidBootstrapSpec(
            f"{spec.version} is no release of {title}", f"choose a version that ends in +{example}"
        )
    if not spec.roles:
        raise InvalidBootstrapSpec(f"machine {spec.hostname} has no role", "give its pool a role")
    if spec.init_server and not spec.is_etcd:
        raise InvalidBootstrapSpec(
            f"machine {spec.hostname} is first but has no etcd", "let a machine with etcd be the first"
        )
    if spec.init_server and spec.join_server:
        raise InvalidBootstrapSpec(
            f"machine {spec.hostname} is first and is to join {spec.join_server}", "choose one of the two"
        )
    if not spec.init_server and not spec.join_server:
        raise InvalidBootstrapSpec(
            f"machine {spec.hostname} has no server to join and would start a cluster of its own",
            "wait until a server answers",
        )
