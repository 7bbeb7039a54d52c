"""The user data of every machine that the manifests of demo and documentation describe.

A documented fragment of a Cluster is read over the manifest of the tutorial, a documented cloud-config is its user's. Each
Cluster is read with both distributions and gives a first server, one that joins and an agent, for each kind of pool.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from windrow.bootstrap.spec import ClusterSecrets, GuestCredential
from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.api.manifest.reading import read_cluster
from windrow.clusters.bootstrap_data import find_distribution, find_layout, sample_bootstrap_spec, sample_name
from windrow.core.formats.yaml import load_all
from windrow.kubernetes.objects import Raw, name_of
from windrow.nodedriver.config import read_fields
from windrow.nodedriver.user_data import render_user_data

TOP = Path(__file__).parents[3]
TUTORIAL = TOP / "docs" / "tutorial" / "first-cluster.md"
VERSIONS = {"rke2": "v1.34.7+rke2r1", "k3s": "v1.34.7+k3s1"}
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGQw7+mTNoVY2dZFkT0u4hvnPMxs2h0kmqP8yH3n0l6V me@example"
CREDENTIAL = GuestCredential("apiVersion: v1\nkind: Config\ntoken: hunter2hunter2\n")

# What is in the Secret that the documentation of machineSelectorFiles names.
NAMED_FILES = {("secret", "site-audit", "policy"): b"apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: []\n"}

# What a user may have in userData beside ours: accounts, files of each encoding, commands of both forms.
USERS_DATA = f"""\
#cloud-config
users:
- default
- name: me
  groups: [sudo]
  shell: /bin/bash
  sudo: ALL=(ALL) NOPASSWD:ALL
  ssh_authorized_keys: ["{KEY}"]
packages: [qemu-guest-agent]
write_files:
- {{path: /etc/motd, content: "grüezi\\n", permissions: '0644'}}
- {{path: /etc/mine/encoded, encoding: b64, content: aGVsbG8K, owner: 'me:root', permissions: '0440', defer: true}}
- {{path: /etc/motd, content: "again\\n", append: true}}
runcmd:
- [systemctl, enable, --now, qemu-guest-agent.service]
- echo "it's $(hostname)" > /etc/mine/said
"""
# A site without a way out: a private registry, and what the installation needs on the machine already.
WITHOUT_INTERNET: Raw = {
    "agentEnvVars": [
        {"name": "INSTALL_RKE2_ARTIFACT_PATH", "value": "/opt/rke2"},
        {"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"},
    ],
    "rkeConfig": {
        "machineGlobalConfig": {"system-default-registry": "registry.example:5000"},
        "registries": {
            "mirrors": {"*": {"endpoint": ["https://registry.example:5000"]}},
            "configs": {"registry.example:5000": {"insecureSkipVerify": True}},
        },
        "additionalManifest": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: site, namespace: default}\n",
    },
}


@dataclass(frozen=True)
class Example:
    name: str
    hostname: str
    user_data: str

    def __str__(self) -> str:
        return self.name


def list_examples(secrets: ClusterSecrets) -> list[Example]:
    """All of them, each text once."""
    found: dict[str, Example] = {}
    for name, documents in _manifests():
        for distribution, version in VERSIONS.items():
            for example in _machines(f"{name} as {distribution}", documents, version, secrets):
                found.setdefault(example.user_data, example)
    return list(found.values())


def sample(secrets: ClusterSecrets, distribution: str, role: str) -> Example:
    """A machine of the tutorial's cluster with all of a user's own."""
    examples = _machines("the user's own", _with_user_data(USERS_DATA), VERSIONS[distribution], secrets)
    return next(example for example in examples if role in example.name)


def _manifests() -> Iterator[tuple[str, list[Raw]]]:
    for path in sorted((TOP / "src/windrow/demo/manifests").glob("*.yaml")):
        yield path.name, load_all(path.read_text())
    for path in sorted([TOP / "README.md", *(TOP / "docs").rglob("*.md")]):
        for place, block in enumerate(read_blocks(path), 1):
            if documents := _read_block(block):
                yield f"{path.name} {place}", documents
    yield "the user's own", _with_user_data(USERS_DATA)
    yield "without internet", _with_spec(WITHOUT_INTERNET)


def read_blocks(path: Path) -> list[str]:
    """The YAML that a page shows, without the indentation of its list."""
    found = re.findall(r"^( *)```ya?ml\n(.*?)^ *```", path.read_text(), re.MULTILINE | re.DOTALL)
    return [re.sub(f"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


def _read_block(block: str) -> list[Raw]:
    """The manifest that a block is, or belongs to; [] for other YAML."""
    if block.startswith("#cloud-config"):
        return _with_user_data(block)
    documents = [raw for raw in load_all(block) if isinstance(raw, dict)]
    if any(raw.get("kind") == "Cluster" for raw in documents):
        return documents
    spec = documents[0].get("spec") if len(documents) == 1 and "kind" not in documents[0] else None
    is_of_cluster = isinstance(spec, dict) and spec.keys() & {
        "rkeConfig",
        "agentEnvVars",
        "localClusterAuthEndpoint",
    }
    return _with_spec(spec) if is_of_cluster else []


def _tutorial() -> list[Raw]:
    return next(load_all(block) for block in read_blocks(TUTORIAL) if "kind: Cluster" in block)


def _with_user_data(text: str) -> list[Raw]:
    documents = _tutorial()
    for raw in documents:
        if raw["kind"] == "HarvesterConfig":
            raw |= {"userData": text, "sshPassword": "correct horse"}
    return documents


def _with_spec(spec: Raw) -> list[Raw]:
    documents = _tutorial()
    for raw in documents:
        if raw["kind"] == "Cluster":
            raw["spec"] = _merge(raw["spec"], spec)
    return documents


def _merge(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        return below | {key: _merge(below.get(key), value) for key, value in above.items()}
    return above


def _machines(name: str, documents: list[Raw], version: str, secrets: ClusterSecrets) -> Iterator[Example]:
    documents = copy.deepcopy(documents)
    configs = [raw for raw in documents if raw["kind"] == "HarvesterConfig"]
    for raw in documents:
        if raw["kind"] != "Cluster":
            continue
        raw["spec"]["kubernetesVersion"] = version
        reading = read_cluster(raw, configs)
        assert [one for one in reading.problems if one.severity == "error"] == [], name
        cluster = replace(reading.cluster, file_contents=NAMED_FILES, etcd=_etcd_with_keys(reading.cluster))
        for pool in cluster.pools:
            for role, changes in _roles(pool, version):
                yield _machine(
                    f"{name}: {name_of(raw)}/{pool.name} {role}", cluster, pool, version, secrets, changes
                )


def _etcd_with_keys(cluster: Cluster) -> Mapping[str, Any]:
    """The etcd settings as they are once the Secret of S3's credential has been read."""
    etcd = cluster.etcd
    if not isinstance(s3 := etcd.get("s3"), Mapping) or not s3.get("cloudCredentialName"):
        return etcd
    return {**etcd, "s3": {**s3, "accessKey": "AKIAEXAMPLE", "secretKey": "not-a-secret"}}


def _roles(pool: Pool, version: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    joining = {"init_server": False, "join_server": find_layout(version).join_url("10.0.0.5")}
    if pool.is_etcd:
        yield "first server", {"init_server": True, "join_server": ""}
    yield ("server" if pool.is_server else "agent"), joining


def _machine(
    name: str, cluster: Cluster, pool: Pool, version: str, secrets: ClusterSecrets, changes: Mapping[str, Any]
) -> Example:
    hostname = sample_name(cluster, pool)
    spec = replace(
        sample_bootstrap_spec(cluster, pool, version),
        hostname=hostname,
        machine_uid="5d0c1a6e-machine",
        secrets=secrets,
        labels=pool.labels,
        taints=pool.taints,
        guest_credential=CREDENTIAL,
        **changes,
    )
    configuration, problems = read_fields(pool.options or {})
    assert [one for one in problems if one.severity == "error"] == [], name
    bootstrap = find_distribution(version).render(spec)
    return Example(name, hostname, render_user_data(configuration, bootstrap, public_key=KEY, agent=True))
