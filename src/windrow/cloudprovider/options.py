"""The options of the cloud provider, as the command line gives them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any, Literal

from windrow.cloudprovider.names import CONTROLLERS, DEFAULT_CLUSTER_NAME, LEASE_NAME, LEASE_NAMESPACE

Network = IPv4Network | IPv6Network
OrphanSweep = Literal["off", "report", "delete"]
ORPHAN_SWEEPS: tuple[OrphanSweep, ...] = ("off", "report", "delete")
TLS_VERSIONS = ("VersionTLS12", "VersionTLS13")
# One service or node that waits for an answer must not hold up the others, also where the flags' default of 1 stands.
MIN_SERVICE_WORKERS = 8
MIN_NODE_WORKERS = 4


@dataclass(frozen=True, slots=True)
class Options:
    """The command line, understood."""

    cloud_config: str = ""
    kubeconfig: str = ""
    master: str = ""
    cluster_name: str = DEFAULT_CLUSTER_NAME
    management_network: str = ""
    node_ip_cidr: tuple[Network, ...] = ()
    node_exclude_ip_ranges: tuple[Network, ...] = ()
    disable_vmi_controller: bool = False
    ignore_provided_ip: bool = False
    disable_hostname_lookup: bool = False
    # Whether kube-vip runs with svc_election. Ours.
    kube_vip_svc_election: bool = False
    controllers: frozenset[str] = frozenset(CONTROLLERS)
    leader_elect: bool = True
    lease_name: str = LEASE_NAME
    lease_namespace: str = LEASE_NAMESPACE
    lease_duration: timedelta = timedelta(seconds=15)
    renew_deadline: timedelta = timedelta(seconds=10)
    retry_period: timedelta = timedelta(seconds=2)
    node_workers: int = MIN_NODE_WORKERS
    # Workers of the services' queue. The Go program's 1 makes a hundred services wait for one another.
    service_workers: int = MIN_SERVICE_WORKERS
    # What is done with load balancers on the host whose service is gone. Ours; `delete` tells first.
    orphan_sweep: OrphanSweep = "report"
    # How fast and how many requests at once; the servers' own fairness does the rest.
    qps: float = 100.0
    burst: int = 200
    host_qps: float = 50.0
    host_burst: int = 100
    # Where probes and metrics are served; port 0 is nowhere.
    secure_port: int = 10258
    bind_address: str = "0.0.0.0"
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_min_version: str = TLS_VERSIONS[0]
    share_port: bool = False
    always_allow_paths: tuple[str, ...] = ("/healthz", "/readyz", "/livez")
    verbosity: int = 0
    log_format: str = "text"
    help: bool = False
    version: bool = False
    # Flags that were given and have no effect, and what is wrong without being an error.
    ignored: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def has_cluster_name(self) -> bool:
        """Whether labels can tell this cluster from others in the namespace."""
        return self.cluster_name not in ("", DEFAULT_CLUSTER_NAME)


def is_node_address(address: Any) -> bool:
    """Whether a node can be reached at `address`: no loopback, link-local, multicast, unspecified or broadcast."""
    return not (
        address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address == ip_address("255.255.255.255")
    )
