"""Where a distribution keeps its files, listens, and marks its Nodes: the same in RKE2 and K3s but for the name."""

from __future__ import annotations

from dataclasses import dataclass

from windrow.bootstrap.spec import BootstrapSpec
from windrow.core.formats.cidr import is_address

API_PORT = 6443


@dataclass(frozen=True, slots=True)
class Layout:
    """`name` is in every path and at the end of a version (`rke2`); `title` is for sentences (`RKE2`).

    The supervisor answers joining machines on `supervisor_port`.
    """

    name: str
    title: str
    supervisor_port: int

    @property
    def config_directory(self) -> str:
        return f"/etc/rancher/{self.name}"

    @property
    def config_file(self) -> str:
        """The file of our own, read after the user's `config.yaml`; Rancher's name for it."""
        return f"{self.config_directory}/config.yaml.d/50-rancher.yaml"

    @property
    def probe_file(self) -> str:
        """What the machine found about its kernel, read after ours; the machine writes it."""
        return f"{self.config_directory}/config.yaml.d/60-windrow-kernel.yaml"

    @property
    def s3_ca_file(self) -> str:
        return f"{self.config_directory}/etcd-s3-endpoint-ca.pem"

    @property
    def pod_security_file(self) -> str:
        """Rancher's name for the AdmissionConfiguration."""
        return f"{self.config_directory}/config/rancher-psact.yaml"

    def data_directory(self, spec: BootstrapSpec) -> str:
        return spec.data_directory or f"/var/lib/rancher/{self.name}"

    def tls_directory(self, spec: BootstrapSpec) -> str:
        return f"{self.data_directory(spec)}/server/tls"

    def manifests_directory(self, spec: BootstrapSpec) -> str:
        """What a server applies to its cluster by itself lies here, under the names that Rancher gives these files."""
        return f"{self.data_directory(spec)}/server/manifests/rancher"

    def images_directory(self, spec: BootstrapSpec) -> str:
        """Image archives that are imported before anything is pulled."""
        return f"{self.data_directory(spec)}/agent/images"

    def credential_file(self, spec: BootstrapSpec) -> str:
        """The path of the guest credential on every node."""
        return f"{self.data_directory(spec)}/etc/config-files/cloud-provider-config"

    def join_url(self, address: str) -> str:
        """The `server` of joining machines, for a server's address or name."""
        return f"https://{_bracketed(address)}:{self.supervisor_port}"

    def api_url(self, address: str) -> str:
        """The URL of the cluster's API, on a server or a load balancer before them."""
        return f"https://{_bracketed(address)}:{API_PORT}"

    @property
    def etcd_remove(self) -> str:
        """Annotation of a Node: setting it to "true" makes its servers drop the etcd member."""
        return f"etcd.{self.name}.cattle.io/remove"

    @property
    def etcd_removed(self) -> str:
        """Annotation of a Node: the answer, once the member is gone."""
        return f"etcd.{self.name}.cattle.io/removed-node-name"

    def node_password_secret(self, node: str) -> str:
        """The Secret in kube-system that keeps another machine from joining under the name of `node`."""
        return f"{node}.node-password.{self.name}"


def _bracketed(address: str) -> str:
    return f"[{address}]" if is_address(address) and ":" in address else address
