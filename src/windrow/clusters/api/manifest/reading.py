"""Reading of manifests: a Cluster and its HarvesterConfigs as frozen views, with all faults at once.

A reading always succeeds: what cannot be understood is named in `problems` and read as unset, because a faulty
Cluster must still be shown, and must still be deletable. What is beyond a bound is not looked into: the reading of one
Cluster holds up those of all others.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windrow.bootstrap.machine_files import POD_SECURITY
from windrow.bootstrap.spec import Role
from windrow.clusters.api import names
from windrow.clusters.api.cluster import LONGEST_HOSTNAME, Cluster, Pool, machine_labels
from windrow.clusters.api.endpoint import choose_endpoint, field_of
from windrow.clusters.api.fields import Fields, ProblemCollector
from windrow.clusters.api.guest_volumes import describe_deletion
from windrow.clusters.api.immutable_config import (
    ServerConfig,
    check_servers,
    find_changes,
    keep_data_directory,
    keep_recorded,
)
from windrow.clusters.api.kinds import HARVESTER_CONFIG
from windrow.clusters.api.manifest.annotations import check_annotations, check_pool_metadata
from windrow.clusters.api.manifest.charts import check_charts
from windrow.clusters.api.manifest.distribution import (
    check_config_values,
    check_guest_credentials,
    check_version,
    find_cloud_provider,
    find_distribution_name,
    merge_cluster_wide,
    read_config,
    read_secret_reference,
    without_refused_keys,
)
from windrow.clusters.api.manifest.machine_config import ResolveDriver, harvester_only, kind_of, read_options
from windrow.clusters.api.manifest.machine_inputs import (
    read_environment,
    read_etcd,
    read_registries,
    read_selector_files,
)
from windrow.clusters.api.manifest.networking import check_networks, find_families, read_stack
from windrow.clusters.api.manifest.pools import read_hostname_limit, read_pool
from windrow.clusters.api.manifest.supported_fields import CLUSTER_FIELDS, HARVESTER_CONFIG_FIELDS
from windrow.clusters.api.operations.recorded import read_operations
from windrow.clusters.api.operations.source import without_foreign_place, without_s3_keys
from windrow.clusters.api.references import parse_secret_reference, qualify_credential
from windrow.clusters.api.status import read_recorded_status
from windrow.clusters.api.updates.strategy import read_upgrade_strategy
from windrow.core.formats.bounds import abbreviate
from windrow.kubernetes.objects import (
    annotations_of,
    finalizers_of,
    is_dns_label,
    is_dns_subdomain,
    mappings_at,
    name_of,
    namespace_of,
    nested,
    time_of,
    uid_of,
)
from windrow.machines.port import HARVESTER, Problem

# `<cluster>-<pool>-<5>-<5>` is a VM name, a host name and a label value: 63 at most (reference/04 §7.12).
MAX_NAMES_LENGTH = 50
MAX_POOLS = 100
MAX_MACHINES = 1000  # of all pools together


@dataclass(frozen=True, slots=True)
class ClusterReading:
    cluster: Cluster
    problems: tuple[Problem, ...] = ()


def read_cluster(
    raw: Mapping[str, Any],
    configs: Iterable[Mapping[str, Any]],
    resolve_driver: ResolveDriver = harvester_only,
) -> ClusterReading:
    """What `raw` asks for, with `configs` the machine configs of its namespace (others are ignored)."""
    problems = ProblemCollector()
    try:
        cluster = _read_cluster(raw, configs, resolve_driver, problems)
    except (ValueError, ArithmeticError, RecursionError) as error:
        # A value that no reader above expected. The Cluster is refused, and its deletion needs no spec.
        problems.add(
            "spec", f"spec cannot be read: {error}", "correct the value, or report the manifest as a bug"
        )
        cluster = _read_cluster({**raw, "spec": {}}, (), resolve_driver, ProblemCollector())
        cluster = replace(cluster, raw=raw)
    # Pools that share a machine config have the same problems of it.
    return ClusterReading(cluster, tuple(dict.fromkeys(problems.found)))


def _read_cluster(
    raw: Mapping[str, Any],
    configs: Iterable[Mapping[str, Any]],
    resolve_driver: ResolveDriver,
    problems: ProblemCollector,
) -> Cluster:
    own = {
        (kind_of(config), name_of(config)): config
        for config in configs
        if namespace_of(config) == namespace_of(raw)
    }
    options = {key: read_options(config) for key, config in own.items()}
    spec = Fields(raw, "", problems).child("spec")
    rke = spec.child("rkeConfig")
    if not rke.raw:
        spec.refuse("rkeConfig", "is absent, so there is nothing to build", "describe machinePools in it")
    credential = qualify_credential(spec.text("cloudCredentialSecretName"), namespace_of(raw))
    default_limit = read_hostname_limit(rke.child("machinePoolDefaults"), LONGEST_HOSTNAME)
    pools = [
        read_pool(fields, namespace_of(raw), credential, options, resolve_driver, default_limit)
        for fields in rke.items("machinePools", MAX_POOLS)
    ]
    if (machines := sum(pool.quantity for pool in pools)) > MAX_MACHINES:
        fault = f"have {machines} machines together"
        rke.refuse("machinePools", fault, f"ask for {MAX_MACHINES} at most, or for several Clusters")
        pools = []
    version = spec.short_text("kubernetesVersion")
    recorded = read_recorded_status(raw.get("status") or {}, describe_deletion(raw))
    # What runs keeps its distribution, whatever version is asked for.
    running = recorded.version or version
    config = without_s3_keys(read_config(rke), recorded.operations.source, rke)
    asked = _read_server_config(name_of(raw), running, pools, config)
    directory = _read_directory(rke.child("dataDirectories"), "k8sDistro")
    global_config, selectors = dict(asked.global_config), asked.selectors
    kept, servers_agree = recorded.immutable_config, True
    changes: tuple[str, ...] = ()
    if kept is not None and recorded.initialized:
        global_config, selectors = keep_recorded(asked, kept, problems)
        directory = keep_data_directory(directory, kept, problems)
    else:
        # A running cluster of an earlier release is not stopped for it.
        servers_agree = check_servers(asked, problems, "warning" if recorded.has_started else "error")
        changes = find_changes(asked, kept, directory) if kept else ()
    merged = merge_cluster_wide(global_config, selectors)
    stack = read_stack(rke.child("networking"))
    endpoint_name, endpoint_ca = _read_endpoint(spec.child("localClusterAuthEndpoint"))
    cluster = Cluster(
        namespace=namespace_of(raw),
        name=name_of(raw),
        uid=uid_of(raw),
        generation=int(nested(raw, "metadata", "generation", default=0)),
        created=time_of(raw, "metadata", "creationTimestamp"),
        deletion_timestamp=time_of(raw, "metadata", "deletionTimestamp"),
        has_finalizer=names.CLUSTER_FINALIZER in finalizers_of(raw),
        version=version,
        # Terraform's provider names it on the pools alone.
        credential=credential
        or next((pool.credential for pool in pools if pool.driver == HARVESTER and pool.credential), ""),
        pools=tuple(pools),
        config_generations={
            _name_config(key): int(nested(own[key], "metadata", "generation", default=0))
            for key in dict.fromkeys((pool.kind, pool.config_name) for pool in pools)
            if key in own
        },
        remediation_disabled=_is_remediation_disabled(annotations_of(raw)),
        renewal_disabled=_is_off(annotations_of(raw), names.RENEW_CERTIFICATES),
        keeps_volumes=annotations_of(raw).get(names.SKIP_CLEANUP) == "true",
        paused=spec.flag("paused"),
        replaces=_read_strategy(annotations_of(raw), problems) == REPLACE,
        canary=_read_canary(annotations_of(raw), problems),
        upgrade_strategy=read_upgrade_strategy(rke),
        update_image=annotations_of(raw).get(names.UPDATE_IMAGE, ""),
        global_config=global_config,
        selector_config=selectors,
        chart_values=rke.mapping("chartValues"),
        additional_manifest=rke.text("additionalManifest"),
        registries=read_registries(rke),
        etcd=without_foreign_place(read_etcd(rke), recorded.operations.source, rke),
        data_directory=directory,
        environment=read_environment(spec),
        selector_files=read_selector_files(rke),
        pod_security=_read_pod_security(spec),
        endpoint_name=endpoint_name,
        endpoint_ca=endpoint_ca,
        stack=stack,
        families=find_families(merged),
        control_plane_endpoint=choose_endpoint(annotations_of(raw), recorded.endpoint, problems),
        cloud_provider=find_cloud_provider(running, merged, pools),
        cloud_config_secret=read_secret_reference(merged.get("cloud-provider-config"), problems),
        operations=read_operations(rke, recorded.operations),
        recorded=recorded,
        servers_agree=servers_agree,
        init_server_changes=changes,
        raw=raw,
    )
    check_config_values(cluster, problems)
    readable = without_refused_keys(cluster, problems.found)
    for check in (
        _check_names,
        _check_credentials,
        check_guest_credentials,
        check_version,
        check_charts,
        _check_config_namespaces,
        _check_roles,
        _check_namespaces,
        check_networks,
        _check_annotations,
        _check_endpoint,
    ):
        check(readable, problems)
    CLUSTER_FIELDS.check(raw, problems)
    for key in dict.fromkeys((pool.kind, pool.config_name) for pool in pools):
        if key in own and key[0] == HARVESTER_CONFIG.kind:
            label = f"{' '.join(key)}: "
            HARVESTER_CONFIG_FIELDS.check(own[key], problems, label)
            check_annotations(HARVESTER_CONFIG.kind, own[key], problems, label)
    return cluster


def _name_config(key: tuple[str, str]) -> str:
    """How status.observedMachineConfigs names a machine config: a HarvesterConfig by its name, another with its kind."""
    kind, name = key
    return name if kind == HARVESTER_CONFIG.kind else f"{kind}/{name}"


def _read_directory(fields: Fields, key: str) -> str:
    path = fields.text(key)
    if path and not (path.startswith("/") and path == posixpath.normpath(path) != "/" and path.isprintable()):
        fields.refuse(
            key, f"is {abbreviate(path)}", "write the whole path of a directory, without / at its end"
        )
        return ""
    return path


def _read_pod_security(spec: Fields) -> str:
    key = "defaultPodSecurityAdmissionConfigurationTemplateName"
    name = spec.text(key)
    if name and name not in POD_SECURITY:
        spec.refuse(
            key,
            f"is {abbreviate(name)}, and there are {' and '.join(POD_SECURITY)}",
            "name one of them; or bring an AdmissionConfiguration with machineSelectorFiles, and name its path in "
            "pod-security-admission-config-file of machineGlobalConfig",
        )
        return ""
    return name


_ENDPOINT = re.compile(r"([^:\s/]+)(?::(\d{1,5}))?")


def _read_endpoint(fields: Fields) -> tuple[str, str]:
    """Name and authority of `localClusterAuthEndpoint`; "" where it is not enabled."""
    name, authority = fields.text("fqdn"), fields.text("caCerts")
    found = _ENDPOINT.fullmatch(name)
    if name and not (
        found and is_dns_subdomain(found[1]) and (found[2] is None or 0 < int(found[2]) < 65536)
    ):
        fields.refuse("fqdn", f"is {abbreviate(name)}", "write a DNS name, with :port where that is not 443")
        return "", ""
    if authority and not authority.lstrip().startswith("-----BEGIN CERTIFICATE-----"):
        fields.refuse("caCerts", "holds no certificate", "write certificates in PEM")
        return "", ""
    return (name, authority) if fields.flag("enabled") else ("", "")


def _read_server_config(
    name: str,
    version: str,
    pools: Sequence[Pool],
    config: tuple[dict[str, Any], tuple[Mapping[str, Any], ...]],
) -> ServerConfig:
    """What is asked of servers, the pool first that the cluster begins with."""
    servers = sorted((pool for pool in pools if pool.is_server), key=lambda pool: not pool.is_etcd)
    return ServerConfig(
        find_distribution_name(version),
        *config,
        [machine_labels(name, pool) for pool in servers],
        lambda keys: find_cloud_provider(version, keys, pools),
    )


REPLACE = "replace"


def _read_strategy(annotations: Mapping[str, Any], problems: ProblemCollector) -> str:
    """`replace`, or "" for the least disruptive way."""
    value = str(annotations.get(names.STRATEGY) or "").strip().lower()
    if value in ("", "inplace", "in-place"):
        return ""
    if value != REPLACE:
        field = f"metadata.annotations[{names.STRATEGY}]"
        fault = f"{field} is {abbreviate(value)}, which is no strategy, so machines are changed in place where they can be"
        problems.add(field, fault, f"write {REPLACE}, or remove it", "warning")
    return value


def _read_canary(annotations: Mapping[str, Any], problems: ProblemCollector) -> int:
    """0 where there is none. What cannot be read is one machine: fewer than the user meant are changed, never more."""
    value = str(annotations.get(names.CANARY) or "").strip()
    if value in ("", "0"):
        return 0
    if value.isascii() and value.isdigit() and len(value) < 6:
        return int(value)
    field = f"metadata.annotations[{names.CANARY}]"
    fault = f"{field} is {abbreviate(value)}, which is no number of machines, so that one is changed"
    problems.add(field, fault, 'write a number, such as "1"', "warning")
    return 1


def _is_remediation_disabled(annotations: Mapping[str, str]) -> bool:
    return _is_off(annotations, names.REMEDIATION)


def _is_off(annotations: Mapping[str, str], name: str) -> bool:
    return str(annotations.get(name)).strip().lower() in _OFF


_OFF, _ON = ("off", "false"), ("", "on", "true")


def _check_remediation(annotations: Mapping[str, str], problems: ProblemCollector) -> None:
    """A value by which a user may have meant to turn it off."""
    happens = {
        names.REMEDIATION: "machines are replaced by themselves",
        names.RENEW_CERTIFICATES: "certificates are renewed by themselves",
    }
    for name, what in happens.items():
        given = str(annotations.get(name) or "")
        if given.strip().lower() not in (*_OFF, *_ON):
            where = field_of(name)
            fault = f"{where} is {abbreviate(given)}, which turns nothing off: {what}"
            problems.add(where, fault, "write off, or remove it", "warning")


def _check_names(cluster: Cluster, problems: ProblemCollector) -> None:
    if not is_dns_label(cluster.name, max_length=None):
        problems.add(
            "metadata.name",
            f"the name {cluster.name!r} cannot be part of a host name",
            "use small letters, digits and inner dashes",
        )
    elif not cluster.name[0].isalpha():
        problems.add(
            "metadata.name",
            f"the name {cluster.name!r} does not begin with a letter",
            "it works, but names of load balancers will begin with an added letter",
            "warning",
        )
    names: set[str] = set()
    for place, pool in enumerate(cluster.pools):
        where = f"spec.rkeConfig.machinePools[{place}].name"
        if not is_dns_label(pool.name, max_length=None):
            problems.add(
                where,
                f"the pool name {pool.name!r} cannot be part of a host name",
                "use small letters, digits and inner dashes",
            )
        if pool.name in names:
            problems.add(where, f"two pools are called {pool.name!r}", "give every pool its own name")
        names.add(pool.name)
        length = len(cluster.name) + len(pool.name)
        if length > MAX_NAMES_LENGTH:
            problems.add(
                where,
                f"the names {cluster.name!r} and {pool.name!r} have {length} characters together",
                f"shorten them to {MAX_NAMES_LENGTH}, so that machine names fit into 63",
            )


def _check_credentials(cluster: Cluster, problems: ProblemCollector) -> None:
    given = qualify_credential(
        str(nested(cluster.raw, "spec", "cloudCredentialSecretName", default="")), cluster.namespace
    )
    in_own_namespace = f"{cluster.namespace or 'default'}:"
    wanted = {"spec.cloudCredentialSecretName": given}
    for place, pool in enumerate(cluster.pools):
        if pool.credential != given:
            wanted[f"spec.rkeConfig.machinePools[{place}].cloudCredentialSecretName"] = pool.credential
    for where, credential in wanted.items():
        if not credential and any(not pool.credential for pool in cluster.pools):
            problems.add(where, f"{where} is not set", "set it to namespace:name of the credential Secret")
        elif credential and parse_secret_reference(credential) is None:
            text = credential.removeprefix(in_own_namespace)
            namespace, slash, name = text.partition("/")
            meant = f"{namespace}:{name}"
            problems.add(
                where,
                f"{where} is {abbreviate(text)}",
                f"write {meant}"
                if slash and parse_secret_reference(meant) is not None
                else "write namespace:name of the credential Secret",
            )


def _check_config_namespaces(cluster: Cluster, problems: ProblemCollector) -> None:
    for place, pool in enumerate(mappings_at(cluster.raw, "spec", "rkeConfig", "machinePools")[:MAX_POOLS]):
        namespace = nested(pool, "machineConfigRef", "namespace")
        if namespace and namespace != cluster.namespace:
            where = f"spec.rkeConfig.machinePools[{place}].machineConfigRef.namespace"
            problems.add(
                where,
                f"{where} is {abbreviate(namespace)}, and the Cluster is in {cluster.namespace}",
                "create the machine config beside the Cluster, and remove namespace there",
            )


_ROLE_FIELDS = ("etcdRole", "controlPlaneRole", "workerRole")


def _check_roles(cluster: Cluster, problems: ProblemCollector) -> None:
    where = "spec.rkeConfig.machinePools"
    if problems.has(where):
        return
    if not cluster.pools:
        problems.add(where, "there are no machine pools", "describe at least one, with all three roles")
        return
    for place, pool in enumerate(cluster.pools):
        is_told = any(problems.has(f"{where}[{place}].{key}") for key in _ROLE_FIELDS)
        if not pool.roles and not is_told:
            problems.add(
                f"{where}[{place}]",
                f"pool {pool.name!r} has no role",
                "set etcdRole, controlPlaneRole or workerRole to true",
            )
    etcd = _count_machines(cluster, Role.ETCD)
    if etcd == 0 and not problems.has_below(where, "etcdRole"):
        problems.add(where, "no machine has the etcd role", "give it to one pool of 1, 3 or 5 machines")
    elif etcd and etcd % 2 == 0:
        problems.add(
            where,
            f"{etcd} machines have the etcd role: etcd goes on after the loss of {_survived(etcd)}, no more than with {etcd - 1}",
            f"use {etcd - 1} or {etcd + 1}; {etcd + 1} go on after the loss of {_survived(etcd + 1)}",
            "warning",
        )
    if _count_machines(cluster, Role.CONTROL_PLANE) == 0 and not problems.has_below(
        where, "controlPlaneRole"
    ):
        problems.add(
            where, "no machine has the control plane role", "set controlPlaneRole on a pool with machines"
        )


def _survived(members: int) -> str:
    """How many of so many etcd members may be lost: a majority must remain."""
    return str((members - 1) // 2 or "none")


def _count_machines(cluster: Cluster, role: Role) -> int:
    return sum(pool.quantity for pool in cluster.pools if role in pool.roles)


def _check_namespaces(cluster: Cluster, problems: ProblemCollector) -> None:
    spaces = {pool.vm_namespace: pool.name for pool in cluster.pools if pool.is_on_harvester}
    if len(spaces) > 1:
        listed = ", ".join(f"{space!r} (pool {name!r})" for space, name in sorted(spaces.items()))
        problems.add(
            "spec.rkeConfig.machinePools",
            f"the machine configs name different VM namespaces: {listed}",
            "use one vmNamespace for all pools; the cloud provider looks in one only",
        )
    for space, name in spaces.items():
        if not is_dns_label(space):
            problems.add(
                "spec.rkeConfig.machinePools",
                f"the vmNamespace {space!r} of pool {name!r} cannot be a namespace",
                "write the name of a namespace of Harvester: small letters, digits and inner dashes, 63 at most",
            )


def _check_annotations(cluster: Cluster, problems: ProblemCollector) -> None:
    """Annotations of ours that no Cluster has, and a value of one that it has. A warning, because a later release may know
    them."""
    _check_remediation(annotations_of(cluster.raw), problems)
    check_annotations("Cluster", cluster.raw, problems)
    for place, pool in enumerate(mappings_at(cluster.raw, "spec", "rkeConfig", "machinePools")[:MAX_POOLS]):
        check_pool_metadata(f"spec.rkeConfig.machinePools[{place}]", pool, problems)


def _check_endpoint(cluster: Cluster, problems: ProblemCollector) -> None:
    """Endpoints by which the servers that are asked for could not be reached. One that is recorded stays as it is."""
    endpoint, servers = cluster.control_plane_endpoint, [pool for pool in cluster.pools if pool.is_server]
    if cluster.recorded.endpoint is not None:
        return
    where = field_of(names.ENDPOINT_MODE)
    for pool in servers:
        if endpoint.mode == "loadBalancer" and pool.driver not in ("", HARVESTER):
            problems.add(
                where,
                f"{where} is loadBalancer, and machines of pool {pool.name!r} are made by driver {pool.driver}: a LoadBalancer "
                "of Harvester passes on to VMs of its own only",
                "write address, and bring an address of your own",
            )
    is_divided = any(pool.is_etcd != pool.is_control_plane for pool in servers)
    if (
        endpoint.mode == "address"
        and is_divided
        and not endpoint.join_host
        and find_distribution_name(cluster.version) == "k3s"
    ):
        where = field_of(names.ENDPOINT_JOIN_ADDRESS)
        problems.add(
            where,
            f"{where} is not set, and some servers have etcd or the control plane alone: K3s has one port for joining and "
            "for the API, and no one address leads to servers for both",
            "write an address that leads to the machines with etcdRole there",
        )
