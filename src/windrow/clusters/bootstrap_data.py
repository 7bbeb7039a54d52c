"""From a Machine to the specs that the bootstrap and the node driver take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from windrow.bootstrap import DISTRIBUTIONS, Distribution
from windrow.bootstrap.layout import Layout
from windrow.bootstrap.spec import (
    BootstrapSpec,
    CertKeyPair,
    ClusterSecrets,
    GuestCredential,
    InvalidBootstrapSpec,
    Restore,
    Role,
)
from windrow.clusters.api.cluster import Cluster, Pool, machine_labels
from windrow.clusters.api.machine import Machine, shorten_name
from windrow.clusters.api.manifest.distribution import without_refused_keys
from windrow.core.formats.version import NotVersion, Version
from windrow.core.formats.yaml import NotYaml, load_all
from windrow.kubernetes.objects import flatten_list, nested
from windrow.kubernetes.selectors import read_label_selector
from windrow.machines.port import HARVESTER, MachineSpec, Problem, StaticAddress

_EMPTY_PAIR = CertKeyPair("", "")
# For questions about the configuration, which secrets have no part in.
EMPTY_SECRETS = ClusterSecrets(_EMPTY_PAIR, _EMPTY_PAIR, _EMPTY_PAIR, _EMPTY_PAIR, _EMPTY_PAIR, "", "", "")


def find_distribution(version: str) -> Distribution:
    """The module that knows the distribution of `version`. Raises InvalidBootstrapSpec."""
    try:
        return DISTRIBUTIONS[Version.parse(version).distribution]
    except (KeyError, NotVersion) as error:
        raise InvalidBootstrapSpec(
            f"{version} is no release that can be built here", "use a version of RKE2 or K3s"
        ) from error


def find_layout(version: str) -> Layout:
    """Names and paths of the distribution of `version`; RKE2's where it is none, so that what exists can be deleted."""
    try:
        return find_distribution(version).LAYOUT
    except InvalidBootstrapSpec:
        return DISTRIBUTIONS["rke2"].LAYOUT


def build_bootstrap_spec(
    cluster: Cluster,
    pool: Pool,
    machine: Machine,
    secrets: ClusterSecrets,
    credential: GuestCredential | None,
    node_ips: tuple[str, ...] = (),
    version: str = "",
) -> BootstrapSpec:
    """The bootstrap spec of this machine, at another `version` than its own where one is given."""
    return replace(
        sample_bootstrap_spec(cluster, pool, version or machine.version),
        hostname=machine.name,
        machine_uid=machine.uid,
        roles=machine.roles,
        secrets=secrets,
        init_server=machine.is_init_server,
        join_server=machine.join_server,
        labels=pool.labels,
        taints=pool.taints,
        guest_credential=credential,
        node_ip=",".join(node_ips),
    )


def find_restore(machine: Machine, cluster: Cluster) -> Restore | None:
    """What the machine restores before it starts: a first server of a cluster that is being restored, whose S3 keys were read."""
    recorded = cluster.recorded.operations.restore
    if recorded.phase != "Restore" or recorded.member or not machine.is_init_server:
        return None
    return Restore(recorded.id, recorded.file, {**(cluster.etcd.get("s3") or {}), **recorded.s3})


def build_machine_spec(
    cluster: Cluster,
    machine: Machine,
    cloud_config: str,
    harvester_uid: str,
    addresses: tuple[StaticAddress, ...] = (),
) -> MachineSpec:
    return MachineSpec(
        name=machine.name,
        machine_uid=machine.uid,
        cluster_name=cluster.name,
        cluster_uid=cluster.uid,
        credential=machine.credential,
        options=machine.options,
        cloud_config=cloud_config,
        driver=machine.driver,
        harvester_uid=harvester_uid if machine.driver == HARVESTER else "",
        addresses=addresses,
    )


def sample_bootstrap_spec(cluster: Cluster, pool: Pool, version: str) -> BootstrapSpec:
    """A machine of the pool as it might be, for questions that concern all of them."""
    return BootstrapSpec(
        cluster=cluster.name,
        hostname=sample_name(cluster, pool),
        machine_uid="",
        version=version,
        roles=pool.roles,
        secrets=EMPTY_SECRETS,
        init_server=pool.is_etcd,
        join_server="" if pool.is_etcd else find_layout(version).join_url("192.0.2.1"),
        machine_labels=machine_labels(cluster.name, pool),
        global_config=cluster.global_config,
        selector_config=cluster.selector_config,
        chart_values=cluster.chart_values,
        additional_manifest=cluster.additional_manifest,
        registries=cluster.registries,
        etcd=cluster.etcd,
        data_directory=cluster.data_directory,
        tls_san=cluster.endpoint_hosts,
        environment=cluster.environment,
        selector_files=cluster.selector_files,
        file_contents=cluster.file_contents,
        pod_security=cluster.pod_security,
        on_harvester=cluster.uses_harvester_driver,
    )


def sample_name(cluster: Cluster, pool: Pool, number: int = 0) -> str:
    """A name as long as those that the pool's machines get."""
    return shorten_name(f"{cluster.name}-{pool.name}-xxxxx-{number:05d}", pool.hostname_limit)


def sample_machine_spec(cluster: Cluster, pool: Pool, number: int = 0) -> MachineSpec:
    """A machine of the pool as it might be requested, for questions to Harvester."""
    return MachineSpec(
        name=sample_name(cluster, pool, number),
        machine_uid="",
        cluster_name=cluster.name,
        cluster_uid=cluster.uid,
        credential=pool.credential,
        options=pool.options or {},
        cloud_config="",
        driver=pool.driver,
    )


def find_config_hash(cluster: Cluster, pool: Pool, version: str) -> str:
    """A digest of the configuration that the pool's machines would be created with now; "" where there is none."""
    return find_config_hashes(replace(cluster, pools=(pool,)), version)[pool.name]


def find_config_hashes(cluster: Cluster, version: str) -> dict[str, str]:
    """`find_config_hash` of every pool, computed once for all pools with one configuration."""
    samples: dict[_Configuration, BootstrapSpec] = {}
    configuration_of = {}
    for pool, configuration, sample in _configurations(cluster, version):
        samples.setdefault(configuration, sample)
        configuration_of[pool.name] = configuration
    try:
        hashes = find_distribution(version).config_hashes(samples.values())
    except InvalidBootstrapSpec:
        return dict.fromkeys(configuration_of, "")
    by_configuration = dict(zip(samples, hashes, strict=True))
    return {name: by_configuration[configuration] for name, configuration in configuration_of.items()}


def list_left_versions(cluster: Cluster, machines: Iterable[Machine]) -> list[str]:
    """Versions that its machines record, though the cluster does not run them yet, and is not asked to any more."""
    running = cluster.recorded.version
    left = {one.version for one in machines} - {"", running, cluster.version}
    return sorted(left) if running else []


# What makes the configuration of a pool another than that of other pools: its roles, and which entries of
# `machineSelectorConfig` and `machineSelectorFiles` fit its machines.
_Configuration = tuple[frozenset[Role], tuple[bool, ...]]


def _configurations(cluster: Cluster, version: str) -> Iterator[tuple[Pool, _Configuration, BootstrapSpec]]:
    """Every pool with its configuration, and a machine of it, in whose spec the entries that fit are left alone."""
    entries = [*cluster.selector_config, *cluster.selector_files]
    selectors = [read_label_selector(entry.get("machineLabelSelector")) for entry in entries]
    configs = len(cluster.selector_config)
    for pool in cluster.pools:
        labels = machine_labels(cluster.name, pool)
        fits = tuple(selector.matches(labels) for selector in selectors)
        fitting = [entry for entry, fit in zip(entries, fits, strict=True) if fit]
        sample = replace(
            sample_bootstrap_spec(cluster, pool, version),
            selector_config=[{"config": one.get("config")} for one in fitting[: sum(fits[:configs])]],
            selector_files=[
                {"fileSources": one.get("fileSources")} for one in fitting[sum(fits[:configs]) :]
            ],
        )
        yield pool, (pool.roles, fits), sample


_MANIFEST = "spec.rkeConfig.additionalManifest"


def _check_manifest(text: str) -> list[Problem]:
    """What the servers could not apply. One that is too large to be read here is theirs to judge."""
    try:
        documents = load_all(text)
    except NotYaml as error:
        message = f"{_MANIFEST} cannot be read: {error}"
        return [Problem(message, "correct it; the servers apply nothing of it else", _MANIFEST, "warning")]
    hint = "write Kubernetes objects, with --- between them; the servers apply nothing of it else"
    return [Problem(fault, hint, _MANIFEST) for fault in islice(_list_manifest_faults(documents), MAX_FAULTS)]


def _list_manifest_faults(documents: Sequence[Any]) -> Iterator[str]:
    """A List, which may be empty, has no name of its own; each of its items has one."""
    for place, raw in enumerate(documents, 1):
        where, objects = f"document {place} of {_MANIFEST}", flatten_list(raw)
        if objects == [raw]:
            yield from _list_missing(raw, where, "apiVersion", "kind", "metadata.name")
            continue
        yield from _list_missing(raw, where, "apiVersion")
        for number, one in enumerate(objects, 1):
            yield from _list_missing(one, f"item {number} of {where}", "apiVersion", "kind", "metadata.name")


def _list_missing(raw: Any, where: str, *keys: str) -> Iterator[str]:
    return (f"{where} has no {key}" for key in keys if not nested(raw, *key.split(".")))


def _check_cloud_provider(cluster: Cluster) -> list[Problem]:
    """A warning for machines on Harvester without any cloud provider."""
    if not cluster.uses_harvester_driver or cluster.cloud_provider:
        return []
    if find_layout(cluster.version).name != "rke2":
        return []  # K3s has its own unless one is named
    return [
        Problem(
            "the machines are on Harvester, and no cloud-provider-name is set: services get no load balancer there, claims no "
            "volume of Harvester",
            "write cloud-provider-name: harvester in machineGlobalConfig",
            "spec.rkeConfig.machineGlobalConfig",
            "warning",
        )
    ]


MAX_FAULTS = 20


def check_bootstrap(cluster: Cluster, existing: Sequence[Problem]) -> list[Problem]:
    """What is wrong with the distribution's configuration, beside the `existing` problems of the Cluster. A key of it that
    is not known is a warning: a release may have more."""
    found = _check_manifest(cluster.additional_manifest)
    cluster = without_refused_keys(cluster, existing)
    if any(problem.field == "spec.kubernetesVersion" for problem in existing):
        return found  # without a version there is no distribution to ask
    found += _check_cloud_provider(cluster)
    checked = set()
    for _, configuration, spec in _configurations(cluster, cluster.version):
        if configuration in checked:
            continue
        checked.add(configuration)
        try:
            distribution = find_distribution(cluster.version)
            for refused in distribution.list_contradictions(spec):
                found.append(Problem(refused.message, refused.hint, "spec.rkeConfig"))
            for text in distribution.check(spec):
                message, _, hint = text.rpartition("; ")
                found.append(Problem(message or hint, hint if message else "", "spec.rkeConfig", "warning"))
        except InvalidBootstrapSpec as error:
            found.append(Problem(error.message, error.hint, "spec.rkeConfig"))
    return list(dict.fromkeys(found))
