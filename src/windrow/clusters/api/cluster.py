"""What the user asks for: a Cluster and its HarvesterConfigs as frozen views, with all faults at once.

A reading always succeeds: what cannot be understood is named in `problems` and read as unset, because a faulty
Cluster must still be shown, and must still be deletable. What is beyond a bound is not looked into: the reading of one
Cluster holds up those of all others.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from windrow.bootstrap import DISTRIBUTIONS
from windrow.bootstrap.charts import CLOUD_PROVIDER_CHART, CSI_DRIVER_CHART, list_helm_charts
from windrow.bootstrap.machine_files import POD_SECURITY
from windrow.bootstrap.node_config import list_of
from windrow.bootstrap.spec import HasRoles, Role
from windrow.clusters.api import names
from windrow.clusters.api.addresses import AddressPool, read_address_pools, subtract
from windrow.clusters.api.endpoint import ControlPlaneEndpoint, choose_endpoint, field_of
from windrow.clusters.api.fields import Fields, ProblemCollector
from windrow.clusters.api.immutable_config import (
    ServerConfig,
    check_servers,
    keep_data_directory,
    keep_recorded,
)
from windrow.clusters.api.kinds import HARVESTER_CONFIG
from windrow.clusters.api.machine_inputs import (
    read_environment,
    read_etcd,
    read_registries,
    read_selector_files,
)
from windrow.clusters.api.manifest_fields import CLUSTER_FIELDS, HARVESTER_CONFIG_FIELDS, check_annotations
from windrow.clusters.api.references import parse_secret_reference, qualify_credential
from windrow.clusters.api.status import RecordedStatus, read_recorded_status
from windrow.core.formats.bounds import abbreviate, is_too_long
from windrow.core.formats.cidr import Address, NotAddress, Range, parse_address
from windrow.core.formats.duration import human_duration
from windrow.core.formats.version import NotVersion, Version
from windrow.drivers.api import no_driver_fault
from windrow.harvester.names import is_label_value
from windrow.harvester.problems import Severity
from windrow.kubernetes.kubeconfig import BadKubeconfig, parse_kubeconfig
from windrow.kubernetes.objects import (
    annotations_of,
    finalizers_of,
    is_dns_label,
    is_dns_subdomain,
    is_label_key,
    mappings_at,
    name_of,
    namespace_of,
    nested,
    time_of,
    uid_of,
)
from windrow.machines.port import HARVESTER, NOT_OPTIONS, Problem

DEFAULT_VM_NAMESPACE = "default"
UNHEALTHY_TIMEOUT = timedelta(minutes=5)
STARTUP_TIMEOUT = timedelta(minutes=10)
# A watch of the guest API may be silent for 100 s until it counts as broken, and then is opened anew.
LEAST_STARTUP_TIMEOUT = timedelta(seconds=150)
DRAIN_TIMEOUT = timedelta(minutes=5)
# `<cluster>-<pool>-<5>-<5>` is a VM name, a host name and a label value: 63 at most (reference/04 §7.12).
MAX_NAMES_LENGTH = 50
# Rancher's bounds of hostnameLengthLimit.
LEAST_HOSTNAME, LONGEST_HOSTNAME = 10, 63
# A guest cluster of Harvester has tens of machines, Kubernetes itself is made for 5,000 nodes; every machine costs a VM,
# a Machine and a place in each plan. 1,000 in one pool is beyond what is run and below what a reconcile cannot bear.
MAX_QUANTITY = 1000
MAX_POOLS = 100
MAX_MACHINES = 1000  # of all pools together
MAX_NETWORKS = 16  # of cluster-cidr, service-cidr and cluster-dns each; a dual-stack cluster has two
# Of machineGlobalConfig and all of machineSelectorConfig; RKE2 has about 200, K3s about 130.
MAX_CONFIG_KEYS = 1000
MAX_SELECTORS = 100
MAX_ANNOTATIONS = 100_000  # characters of a pool's annotations; an API server takes 262,144 of one object


@dataclass(frozen=True, slots=True)
class IntOrPercent:
    """How many of a pool: a number, or a percentage of it; `minimum` is that of a range."""

    percent: int | None = 40
    count: int = 0
    minimum: int = 0

    def resolve(self, total: int) -> int:
        """The number it means for `total` machines, rounded down, but at least one for a percentage."""
        if self.percent is None:
            return self.count
        return max(1, total * self.percent // 100)

    def __str__(self) -> str:
        return f"{self.percent} %" if self.percent is not None else str(self.count)


@dataclass(frozen=True, slots=True)
class Pool(HasRoles):
    """One machine pool as asked for. `options` is None while its machine config is absent."""

    name: str
    quantity: int = 1
    roles: frozenset[Role] = frozenset({Role.WORKER})
    config_name: str = ""
    options: Mapping[str, Any] | None = None
    credential: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[str, ...] = ()
    machine_labels: Mapping[str, str] = field(default_factory=dict)
    machine_annotations: Mapping[str, str] = field(default_factory=dict)
    hostname_limit: int = LONGEST_HOSTNAME
    drain: bool = False
    drain_timeout: timedelta | None = DRAIN_TIMEOUT  # None: for as long as it takes
    unhealthy_timeout: timedelta = UNHEALTHY_TIMEOUT
    startup_timeout: timedelta | None = STARTUP_TIMEOUT
    max_unhealthy: IntOrPercent = field(default_factory=IntOrPercent)
    paused: bool = False
    kind: str = HARVESTER_CONFIG.kind  # of its machine config
    driver: str = HARVESTER  # that makes its machines
    address_pools: tuple[AddressPool, ...] = ()  # of which each machine has an address

    @property
    def is_on_harvester(self) -> bool:
        """Whether its machines are known to be VMs on Harvester."""
        return self.options is not None and self.driver == HARVESTER

    @property
    def vm_namespace(self) -> str:
        return str((self.options or {}).get("vmNamespace") or DEFAULT_VM_NAMESPACE)


_ROLE_LABELS = (
    (Role.ETCD, names.ETCD_ROLE),
    (Role.CONTROL_PLANE, names.CONTROL_PLANE_ROLE),
    (Role.WORKER, names.WORKER_ROLE),
)


def machine_labels(cluster: str, pool: Pool) -> dict[str, str]:
    """What selectors of machines (`machineSelectorConfig`) select on, as Rancher labels its machines: with those of the pool's
    Nodes too. A pool cannot take the labels of the cluster, of its own name and of its roles away."""
    labels = {**pool.machine_labels, **pool.labels}
    labels |= {names.CLUSTER_NAME: cluster, names.RKE_CLUSTER_NAME: cluster, names.POOL_NAME: pool.name}
    labels |= {label: "true" for role, label in _ROLE_LABELS if role in pool.roles}
    labels[names.NODE_OS] = "linux"
    return labels


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Cluster as asked for, and what its status has recorded."""

    namespace: str
    name: str
    uid: str = ""
    generation: int = 0
    created: datetime | None = None
    deletion_timestamp: datetime | None = None
    has_finalizer: bool = False  # Windrow's
    version: str = ""
    credential: str = ""
    pools: tuple[Pool, ...] = ()
    remediation_disabled: bool = False
    global_config: Mapping[str, Any] = field(default_factory=dict)
    selector_config: tuple[Mapping[str, Any], ...] = ()
    chart_values: Mapping[str, Any] = field(default_factory=dict)
    additional_manifest: str = ""
    registries: Mapping[str, Any] = field(default_factory=dict)
    etcd: Mapping[str, Any] = field(default_factory=dict)
    data_directory: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    selector_files: tuple[Mapping[str, Any], ...] = ()
    pod_security: str = ""
    # By which people reach the API server beside its addresses, with a port where it is not 443.
    endpoint_name: str = ""
    endpoint_ca: str = ""
    # By which machines join it, and people reach it.
    control_plane_endpoint: ControlPlaneEndpoint = field(default_factory=ControlPlaneEndpoint)
    # Of `selector_files`, read by the one who renders them: by source, name and key.
    file_contents: Mapping[tuple[str, str, str], bytes] = field(default_factory=dict, repr=False)
    stack: str = ""  # networking.stackPreference; "" where it is not set
    # The IP families of its pods, 4 and 6, the preferred one first.
    families: tuple[int, ...] = (4,)
    cloud_provider: str = ""
    cloud_config_secret: str = ""  # "namespace:name" of a secret:// reference
    recorded: RecordedStatus = field(default_factory=RecordedStatus)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __str__(self) -> str:
        return f"Cluster {self.namespace}/{self.name}"

    @property
    def uses_harvester_driver(self) -> bool:
        """Whether machines of it are VMs of Harvester, also while their machine config cannot be read."""
        return any(pool.driver == HARVESTER for pool in self.pools)

    def find_pool(self, name: str) -> Pool | None:
        return next((pool for pool in self.pools if pool.name == name), None)

    @property
    def endpoint_hosts(self) -> tuple[str, ...]:
        """The names and addresses of its endpoints, for certificates: `endpoint_name` without its port, too."""
        found = (*self.control_plane_endpoint.hosts, self.endpoint_name.partition(":")[0])
        return tuple(dict.fromkeys(filter(None, found)))

    @property
    def vm_namespace(self) -> str:
        """All machines of a cluster share one, because CCM and CSI look in one only."""
        return next((pool.vm_namespace for pool in self.pools if pool.is_on_harvester), DEFAULT_VM_NAMESPACE)


@dataclass(frozen=True, slots=True)
class ClusterReading:
    cluster: Cluster
    problems: tuple[Problem, ...] = ()


# -- HarvesterConfig ---------------------------------------------------------------------------------------------

# Set by the node driver's caller, never by the user (reference/04 §1.6).
_NOT_USER_FIELDS = (
    frozenset({"cloudConfig", "clusterId", "clusterName", "clusterType", "kubeconfigContent"}) | NOT_OPTIONS
)


def read_options(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The user's own fields of a machine config. Rancher writes every field it knows, so empty ones are unset."""
    left_out = _NOT_USER_FIELDS if kind_of(raw) == HARVESTER_CONFIG.kind else NOT_OPTIONS
    return {
        key: value
        for key, value in sorted(raw.items())
        if key not in left_out and value is not None and value != ""
    }


def kind_of(config: Mapping[str, Any]) -> str:
    """The kind of a machine config; objects out of a list may lack it, and then are HarvesterConfigs."""
    return str(config.get("kind") or HARVESTER_CONFIG.kind)


# The name of the node driver that gives a machine config kind, or why no machine can be made by it.
ResolveDriver = Callable[[str], str | Problem]


def harvester_only(kind: str) -> str | Problem:
    """For where no catalogue of node drivers is at hand."""
    if kind == HARVESTER_CONFIG.kind:
        return HARVESTER
    unknown = no_driver_fault(kind)
    return Problem(unknown.message, unknown.hint)


# -- Cluster -----------------------------------------------------------------------------------------------------


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
    default_limit = _read_hostname_limit(rke.child("machinePoolDefaults"), LONGEST_HOSTNAME)
    pools = [
        _read_pool(fields, namespace_of(raw), credential, options, resolve_driver, default_limit)
        for fields in rke.items("machinePools", MAX_POOLS)
    ]
    if (machines := sum(pool.quantity for pool in pools)) > MAX_MACHINES:
        fault = f"have {machines} machines together"
        rke.refuse("machinePools", fault, f"ask for {MAX_MACHINES} at most, or for several Clusters")
        pools = []
    version = spec.short_text("kubernetesVersion")
    recorded = read_recorded_status(raw.get("status") or {})
    # What runs keeps its distribution, whatever version is asked for.
    running = recorded.version or version
    global_config, selectors = _keep_immutable(
        name_of(raw), running, pools, _read_config(rke), recorded, problems
    )
    directory = _read_directory(rke.child("dataDirectories"), "k8sDistro")
    if recorded.immutable_config is not None:
        directory = keep_data_directory(directory, recorded.immutable_config, problems)
    merged = _merge_cluster_wide(global_config, selectors)
    stack = _read_stack(rke.child("networking"))
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
        remediation_disabled=_is_remediation_disabled(annotations_of(raw)),
        global_config=global_config,
        selector_config=selectors,
        chart_values=rke.mapping("chartValues"),
        additional_manifest=rke.text("additionalManifest"),
        registries=read_registries(rke),
        etcd=read_etcd(rke),
        data_directory=directory,
        environment=read_environment(spec),
        selector_files=read_selector_files(rke),
        pod_security=_read_pod_security(spec),
        endpoint_name=endpoint_name,
        endpoint_ca=endpoint_ca,
        stack=stack,
        families=_find_families(merged),
        control_plane_endpoint=choose_endpoint(annotations_of(raw), recorded.endpoint, problems),
        cloud_provider=_find_cloud_provider(running, merged, pools),
        cloud_config_secret=_secret_reference(merged.get("cloud-provider-config"), problems),
        recorded=recorded,
        raw=raw,
    )
    for check in (
        _check_names,
        _check_credentials,
        _check_guest_credentials,
        _check_version,
        _check_charts,
        _check_config_namespaces,
        _check_roles,
        _check_namespaces,
        _check_networks,
        _check_annotations,
        _check_endpoint,
    ):
        check(cluster, problems)
    CLUSTER_FIELDS.check(raw, problems)
    for key in dict.fromkeys((pool.kind, pool.config_name) for pool in pools):
        if key in own and key[0] == HARVESTER_CONFIG.kind:
            label = f"{' '.join(key)}: "
            HARVESTER_CONFIG_FIELDS.check(own[key], problems, label)
            check_annotations(HARVESTER_CONFIG.kind, own[key], problems, label)
    return cluster


_STACKS: Mapping[str, frozenset[int]] = {
    "ipv4": frozenset({4}),
    "ipv6": frozenset({6}),
    "dual": frozenset({4, 6}),
}


def _read_stack(fields: Fields) -> str:
    key = "stackPreference"
    stack = fields.short_text(key)
    if stack and stack not in _STACKS:
        fields.refuse(key, f"is {stack}", f"write one of {', '.join(_STACKS)}")
        return ""
    return stack


def _find_families(config: Mapping[str, Any]) -> tuple[int, ...]:
    """The IP families of the networks of pods, in their order: the first is the family of the cluster's own traffic."""
    texts = _texts(config.get("cluster-cidr") or _NETWORKS["cluster-cidr"])[:MAX_NETWORKS]
    found = dict.fromkeys(6 if ":" in text else 4 for text in texts)
    return tuple(found) or (4,)


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
    if name and not (found and is_dns_subdomain(found[1]) and 0 < int(found[2] or 443) < 65536):
        fields.refuse("fqdn", f"is {abbreviate(name)}", "write a DNS name, with :port where that is not 443")
        return "", ""
    if authority and not authority.lstrip().startswith("-----BEGIN CERTIFICATE-----"):
        fields.refuse("caCerts", "holds no certificate", "write certificates in PEM")
        return "", ""
    return (name, authority) if fields.flag("enabled") else ("", "")


# That machineGlobalConfig may have by mistake; `etcd` and the like are no keys of a distribution.
_RKE_FIELDS = {path.split(".")[2].removesuffix("[]") for path in CLUSTER_FIELDS.list_below("spec.rkeConfig.")}


def _read_config(rke: Fields) -> tuple[dict[str, Any], tuple[Mapping[str, Any], ...]]:
    """`machineGlobalConfig` and `machineSelectorConfig`; none of either where they have too many keys together."""
    global_config = rke.mapping("machineGlobalConfig")
    for key in global_config.keys() & _RKE_FIELDS:
        place = f"spec.rkeConfig.{key}"
        rke.warn(
            "machineGlobalConfig",
            f"has {key}, which is a field of its own",
            f"write it as {place}, one level higher",
        )
    selectors = tuple(
        entry.raw
        for entry in rke.items("machineSelectorConfig", MAX_SELECTORS)
        if (entry.mapping("config") or not entry.raw.get("config")) and entry.selector("machineLabelSelector")
    )
    keys = len(global_config) + sum(len(entry.get("config") or {}) for entry in selectors)
    if keys > MAX_CONFIG_KEYS:
        rke.refuse(
            "machineGlobalConfig",
            f"and machineSelectorConfig have {keys} keys together",
            f"write {MAX_CONFIG_KEYS} at most",
        )
        return {}, ()
    return global_config, selectors


def _keep_immutable(
    name: str,
    version: str,
    pools: Sequence[Pool],
    config: tuple[dict[str, Any], tuple[Mapping[str, Any], ...]],
    recorded: RecordedStatus,
    problems: ProblemCollector,
) -> tuple[dict[str, Any], tuple[Mapping[str, Any], ...]]:
    """The configuration for new machines: what servers must share is as it was when the cluster began."""
    servers = sorted((pool for pool in pools if pool.is_server), key=lambda pool: not pool.is_etcd)
    asked = ServerConfig(
        _distribution_of(version),
        *config,
        [machine_labels(name, pool) for pool in servers],
        lambda keys: _find_cloud_provider(version, keys, pools),
    )
    if recorded.immutable_config is not None:
        return keep_recorded(asked, recorded.immutable_config, problems)
    check_servers(asked, problems)
    return config


def _is_remediation_disabled(annotations: Mapping[str, str]) -> bool:
    return str(annotations.get(names.REMEDIATION)).strip().lower() in _OFF


_OFF, _ON = ("off", "false"), ("", "on", "true")


def _check_remediation(annotations: Mapping[str, str], problems: ProblemCollector) -> None:
    """A value by which a user may have meant to turn it off."""
    given = str(annotations.get(names.REMEDIATION) or "")
    if given.strip().lower() not in (*_OFF, *_ON):
        where = field_of(names.REMEDIATION)
        fault = (
            f"{where} is {abbreviate(given)}, which turns nothing off: machines are replaced by themselves"
        )
        problems.add(where, fault, "write off, or remove it", "warning")


def _merge_cluster_wide(
    global_config: Mapping[str, Any], selectors: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """The keys that hold for every machine, in Rancher's merge order."""
    merged = dict(global_config)
    for entry in selectors:
        if not entry.get("machineLabelSelector"):
            merged.update(entry.get("config") or {})
    return merged


def _find_cloud_provider(version: str, config: Mapping[str, Any], pools: Iterable[Pool]) -> str:
    """The cloud provider of the cluster, as its distribution understands the keys that hold for every machine."""
    distribution = DISTRIBUTIONS.get(_distribution_of(version))
    if distribution is None:
        return str(config.get("cloud-provider-name") or "")  # the version is refused
    return distribution.find_cloud_provider(config, any(pool.driver == HARVESTER for pool in pools))


def _secret_reference(value: Any, problems: ProblemCollector) -> str:
    """The `namespace:name` of `secret://namespace:name`, "" for configuration text."""
    if not isinstance(value, str) or not value.startswith("secret://"):
        return ""
    reference = value.removeprefix("secret://")
    if parse_secret_reference(reference) is None:
        problems.add(
            "spec.rkeConfig.machineSelectorConfig",
            f"cloud-provider-config is {value!r}, which names no Secret",
            "write secret://namespace:name",
        )
        return ""
    return reference


_ROLES = (("etcdRole", Role.ETCD), ("controlPlaneRole", Role.CONTROL_PLANE), ("workerRole", Role.WORKER))


def _check_reference(
    fields: Fields, kind: str, config: str, driver: str | Problem, configs: Iterable[tuple[str, str]]
) -> None:
    """`configs` are the kinds and names of the machine configs that there are."""
    reference = fields.child("machineConfigRef")
    exists = (kind, config) in configs
    others = [other for other, name in configs if name == config]
    if isinstance(driver, Problem):
        reference.refuse("kind", f"is {kind}, and {driver.message}", driver.hint)
    elif not config:
        fields.problems.add(
            reference.at("name"), f"{fields.path} names no machine config", f"write the name of a {kind}"
        )
    elif not exists:
        fields.problems.add(
            reference.path,
            f"{fields.path} names {kind} {config!r}, which does not exist in the cluster's namespace",
            f"write kind {others[0]}, of which there is one with that name"
            if others
            else "create it, or correct the name",
        )


def _read_pool(
    fields: Fields,
    namespace: str,
    credential: str,
    configs: Mapping[tuple[str, str], Mapping[str, Any]],
    resolve_driver: ResolveDriver,
    default_limit: int,
) -> Pool:
    _check_autoscaling(fields)
    config = fields.child("machineConfigRef").text("name")
    kind = fields.child("machineConfigRef").text("kind") or HARVESTER_CONFIG.kind
    driver = resolve_driver(kind)
    options = configs.get((kind, config)) if isinstance(driver, str) else None
    _check_reference(fields, kind, config, driver, list(configs))
    if (system := fields.text("machineOS") or "linux") != "linux":
        fields.refuse("machineOS", f"is {system}", "only linux machines are made here")
    quantity = fields.count("quantity", 1, MAX_QUANTITY)
    return Pool(
        name=fields.text("name"),
        quantity=quantity,
        roles=frozenset(role for key, role in _ROLES if fields.flag(key)),
        config_name=config,
        options=options,
        kind=kind,
        driver=driver if isinstance(driver, str) else "",
        credential=qualify_credential(fields.text("cloudCredentialSecretName"), namespace) or credential,
        labels=_read_labels(fields),
        taints=tuple(_taint(taint) for taint in fields.items("taints")),
        machine_labels=fields.strings("machineDeploymentLabels"),
        machine_annotations=_read_annotations(fields),
        hostname_limit=_read_hostname_limit(fields, default_limit),
        drain=fields.flag("drainBeforeDelete"),
        drain_timeout=fields.duration(
            "drainBeforeDeleteTimeout", None if fields.raw.get("drainBeforeDeleteTimeout") else DRAIN_TIMEOUT
        ),
        unhealthy_timeout=fields.duration("unhealthyNodeTimeout", UNHEALTHY_TIMEOUT) or UNHEALTHY_TIMEOUT,
        startup_timeout=_read_startup_timeout(fields),
        max_unhealthy=_read_max_unhealthy(fields),
        paused=fields.flag("paused"),
        address_pools=_read_addresses(fields, f"{kind} {config}", options)
        if kind == HARVESTER_CONFIG.kind
        else (),
    )


def _read_addresses(
    fields: Fields, config: str, options: Mapping[str, Any] | None
) -> tuple[AddressPool, ...]:
    """The address pools of the pool's machines; what is wrong with them is named with their HarvesterConfig."""
    found = ProblemCollector()
    namespace = str((options or {}).get("vmNamespace") or DEFAULT_VM_NAMESPACE)
    pools = read_address_pools(options or {}, namespace, found)
    for problem in found.found:
        fields.problems.add(problem.field, f"{config}: {problem.message}", problem.hint)
    return pools


def _read_hostname_limit(fields: Fields, default: int) -> int:
    key = "hostnameLengthLimit"
    limit = fields.count(key, default, LONGEST_HOSTNAME)
    if limit < LEAST_HOSTNAME and fields.raw.get(key):
        fields.refuse(key, f"is {limit}", f"write {LEAST_HOSTNAME} to {LONGEST_HOSTNAME}")
    return limit if limit >= LEAST_HOSTNAME else default


def _check_autoscaling(fields: Fields) -> None:
    least, most = (fields.count(f"autoscaling{end}Size", 0, MAX_QUANTITY) for end in ("Min", "Max"))
    if most and least > most:
        fault = f"is {least}, above autoscalingMaxSize {most}"
        fields.refuse("autoscalingMinSize", fault, "write a smaller number there")


def _read_annotations(fields: Fields) -> dict[str, str]:
    """Annotations of the pool's Machines. Those by which a Machine is ordered to go, or known as ours, cannot be given to a
    whole pool for ever."""
    key = "machineDeploymentAnnotations"
    annotations = fields.strings(key)
    kept = {}
    for name, value in annotations.items():
        domain = name.rpartition("/")[0]
        if not is_label_key(name):
            hint = "write [prefix/]name of letters, digits and inner - _ ."
            fields.refuse(key, f"has the key {name!r}, which no object may have", hint)
        elif name in names.MACHINE_ORDERS or domain == names.OWN_DOMAIN:
            fault = f"has {name}, which is not given to Machines: it is for one of them at a time"
            fields.warn(key, fault, "annotate that Machine")
        else:
            kept[name] = value
    if sum(len(name) + len(value) for name, value in kept.items()) > MAX_ANNOTATIONS:
        fields.refuse(key, f"has more than {MAX_ANNOTATIONS} characters", "write fewer")
        return {}
    return kept


def _read_startup_timeout(fields: Fields) -> timedelta | None:
    key = "nodeStartupTimeout"
    found = fields.duration(key, None if fields.raw.get(key) else STARTUP_TIMEOUT)
    if found is not None and found < LEAST_STARTUP_TIMEOUT:
        fields.warn(
            key,
            f"is {human_duration(found)}: a Node that joins while the connection to the guest API is broken without notice is "
            "seen up to 100 s later, and its machine may have been replaced by then",
            f"write {human_duration(LEAST_STARTUP_TIMEOUT)} or more",
        )
    return found


def _read_labels(fields: Fields) -> dict[str, str]:
    """The labels of the pool's Nodes. One that no API server takes is a problem, and left out: it would hold back all
    others of the Node, and kubelet would not start with it."""
    labels = fields.strings("labels")
    for key, value in labels.items():
        if not is_label_key(key):
            hint = (
                "write [prefix/]name of letters, digits and inner - _ . (name and value up to 63 characters)"
            )
            fields.refuse("labels", f"has the key {key!r}, which no Node may have", hint)
        elif not is_label_value(value):
            hint = "write up to 63 letters, digits and inner - _ ."
            fields.refuse("labels", f"has {key}={value!r}, a value that no Node may have", hint)
    return {key: value for key, value in labels.items() if is_label_key(key) and is_label_value(value)}


_TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _taint(fields: Fields) -> str:
    key, value, effect = fields.text("key"), fields.text("value"), fields.text("effect") or "NoSchedule"
    if not key:
        fields.problems.add(fields.path, f"{fields.path} has no key", "write the taint's key")
    elif not is_label_key(key):
        fields.refuse(
            "key",
            f"is {key!r}, which no taint may have",
            "write [prefix/]name of letters, digits and inner - _ .",
        )
    if not is_label_value(value):
        fields.refuse(
            "value",
            f"is {value!r}, which no taint may have",
            "write up to 63 letters, digits and inner - _ .",
        )
    if effect not in _TAINT_EFFECTS:
        fields.refuse("effect", f"is {effect!r}, which is no effect", f"write {', '.join(_TAINT_EFFECTS)}")
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


_INT_OR_PERCENT = re.compile(r"(\d{1,3})\s*%|(\d+)")
_RANGE = re.compile(r"\[(\d+)-(\d+)\]")


def _read_max_unhealthy(fields: Fields) -> IntOrPercent:
    if text := fields.short_text("unhealthyRange"):
        found = _RANGE.fullmatch(text)
        if found and int(found[1]) <= int(found[2]):
            return IntOrPercent(None, int(found[2]), int(found[1]))
        fields.refuse("unhealthyRange", f"is {text!r}", "write it as [1-3], the smaller number first")
    text = fields.short_text("maxUnhealthy")
    if not text:
        return IntOrPercent()
    found = _INT_OR_PERCENT.fullmatch(text)
    if found is None:
        fields.refuse("maxUnhealthy", f"is {text!r}", "write a number or a percentage, such as 40%")
        return IntOrPercent()
    return IntOrPercent(int(found[1])) if found[1] else IntOrPercent(None, int(found[2]))


# -- What is wrong with the whole --------------------------------------------------------------------------------


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


def _check_guest_credentials(cluster: Cluster, problems: ProblemCollector) -> None:
    """Text in place of a path or of `secret://` becomes the file from which Harvester's cloud provider in the guest reads its
    kubeconfig; with other text there no Node is ever initialized."""
    if cluster.cloud_provider != HARVESTER:
        return
    for where, config in _list_configs(cluster):
        given = str(config.get("cloud-provider-config") or "")
        if not given or given.startswith(("/", "secret://")):
            continue
        try:
            parse_kubeconfig(given)
        except BadKubeconfig as error:
            problems.add(
                where,
                f"cloud-provider-config in {where} is the text of a file that Harvester's cloud provider cannot use: "
                f"{error.message}",
                "paste a kubeconfig, write secret://namespace:name, or remove the key to have the credential made",
            )


def _list_configs(cluster: Cluster) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each configuration of the distribution, with its place."""
    yield "spec.rkeConfig.machineGlobalConfig", cluster.global_config
    for place, entry in enumerate(cluster.selector_config):
        yield f"spec.rkeConfig.machineSelectorConfig[{place}].config", entry.get("config") or {}


def _meant_version(text: str) -> str:
    """What the user may have meant by what is no version in Rancher's form."""
    release = f"v{text.removeprefix('v')}"
    match release.partition("+"):
        case number, "", "" if _RELEASE.fullmatch(number):
            return f"for example {number}+rke2r1 or {number}+k3s1"
        case number, _, build if _RELEASE.fullmatch(number) and _BUILD.fullmatch(build):
            return release
    return "for example v1.35.1+rke2r1 or v1.35.1+k3s1"


_RELEASE = re.compile(r"v[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}")
_BUILD = re.compile(r"(rke2r|k3s)[0-9]{1,3}")


def _check_version(cluster: Cluster, problems: ProblemCollector) -> None:
    where = "spec.kubernetesVersion"
    if problems.has(where):
        return
    try:
        wanted = Version.parse(cluster.version)
    except NotVersion:
        wanted = None
    if wanted is None or not cluster.version.startswith("v") or not wanted.distribution:
        problems.add(
            where,
            f"{where} is {cluster.version!r}, which is not a version in Rancher's form",
            f"write {_meant_version(cluster.version)}",
        )
    elif cluster.recorded.version and wanted.distribution != _distribution_of(cluster.recorded.version):
        problems.add(
            where,
            f"{where} asks for {wanted.distribution}, and the cluster runs {cluster.recorded.version}",
            "a cluster keeps its distribution; make a new Cluster for the other",
        )
    elif cluster.recorded.version and wanted < Version.parse(cluster.recorded.version):
        problems.add(
            where,
            f"{where} is {cluster.version}, lower than {cluster.recorded.version}, which the cluster runs",
            "Kubernetes cannot go back; set it to what the cluster runs, or to a later version",
        )


def _distribution_of(version: str) -> str:
    """The distribution of a version; "" where it is none."""
    try:
        return Version.parse(version).distribution
    except NotVersion:
        return ""


# Values of charts that are taken for charts when they stand one level too high.
_CHART_VALUES = frozenset(
    {"global", "cloudConfig", "cloudConfigPath", "image", "resources", "tolerations", "nodeSelector"}
)
# Values of the Harvester charts that stand one level too high, and where they belong.
_HARVESTER_VALUES = {
    "cattle": "global.cattle",
    "clusterName": "global.cattle.clusterName",
    "secretName": "cloudConfig.secretName",
    "secretKey": "cloudConfig.secretKey",
    "hostPath": "cloudConfig.hostPath",
}


# How the names of the charts begin that a distribution brings.
_CHARTS = {
    "rke2": ("rke2-", "harvester-", "rancher-vsphere-"),
    "k3s": ("traefik", "harvester-"),
}


def _is_rke2(cluster: Cluster) -> bool:
    return _distribution_of(cluster.version) == "rke2"


def _is_chart(name: str, cluster: Cluster) -> bool:
    """Whether the distribution may bring the chart, or the user's own manifest has a HelmChart of this name."""
    begins = _CHARTS.get(_distribution_of(cluster.version))
    if begins is None or name.startswith(begins):
        return True
    return any(name == given for given, _ in list_helm_charts(cluster.additional_manifest))


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


def _check_charts(cluster: Cluster, problems: ProblemCollector) -> None:
    """Each chart's values become a HelmChartConfig of its name."""
    for name, values in cluster.chart_values.items():
        where = f"spec.rkeConfig.chartValues[{name}]"
        if not is_dns_subdomain(name):
            problems.add(
                where,
                f"{name!r} cannot be the name of a chart",
                "write it as the distribution names the chart, such as rke2-calico or traefik: small letters, digits, inner "
                "dashes and dots",
            )
        elif name not in _CHART_VALUES and not _is_chart(name, cluster):
            problems.add(
                where,
                f"{where}: {cluster.version} brings no chart {name}, so its values have no effect",
                (f"write rke2-{name} if RKE2's own is meant, or " if _is_rke2(cluster) else "")
                + "install a HelmChart of this name with additionalManifest",
                "warning",
            )
        if name in _CHART_VALUES:
            problems.add(
                where,
                f"{where}: {name!r} is a value of a chart, and no chart",
                "write it one level deeper, below the name of the chart, such as harvester-cloud-provider",
            )
        if not isinstance(values, Mapping | None):
            problems.add(
                where, f"the values of {name} are no map", "write keys and values below the chart's name"
            )
        elif values and set(values) <= {"valuesContent", "spec", "values"}:
            problems.add(
                where,
                f"{where} has {', '.join(values)} in place of values",
                "write the values of the chart there themselves; Windrow makes the HelmChartConfig",
            )
        elif values and name in (CLOUD_PROVIDER_CHART, CSI_DRIVER_CHART):
            for key in values.keys() & _HARVESTER_VALUES.keys():
                problems.add(
                    f"{where}.{key}",
                    f"{where}.{key} is no value of the chart",
                    f"write it as {_HARVESTER_VALUES[key]}, where the chart reads it",
                    "warning",
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
        and _distribution_of(cluster.version) == "k3s"
    ):
        where = field_of(names.ENDPOINT_JOIN_ADDRESS)
        problems.add(
            where,
            f"{where} is not set, and some servers have etcd or the control plane alone: K3s has one port for joining and "
            "for the API, and no one address leads to servers for both",
            "write an address that leads to the machines with etcdRole there",
        )


# The keys of the distribution that are networks, with the networks that they have unless set.
_NETWORKS = {"cluster-cidr": "10.42.0.0/16", "service-cidr": "10.43.0.0/16"}


def _check_networks(cluster: Cluster, problems: ProblemCollector) -> None:
    """Networks that the distribution refuses at its start, or with which no service would be reached."""
    where = "spec.rkeConfig.machineGlobalConfig"
    merged = _merge_cluster_wide(cluster.global_config, cluster.selector_config)
    networks: dict[str, list[Range]] = {}
    for key, default in _NETWORKS.items():
        networks[key] = []
        for text in _addresses(merged.get(key) or default, key, problems):
            try:
                if "/" not in text:
                    raise NotAddress("it has no prefix length")
                networks[key].append(Range.parse(text))
            except NotAddress:
                problems.add(
                    f"{where}.{key}",
                    f"{key} is {abbreviate(text)}, which is not a network",
                    f"write it as {default}",
                )
    _check_families(networks, problems)
    _check_service_size(cluster, networks["service-cidr"], problems)
    _check_pod_network_size(cluster, merged, networks["cluster-cidr"], problems)
    _check_endpoint_address(cluster, networks, problems)
    _check_range_sizes(cluster, problems)
    _check_stack(cluster, networks, problems)
    _check_pool_addresses(cluster, networks, problems)
    pods, services = networks.values()
    if any(one.overlaps(other) for one in pods for other in services):
        problems.add(
            f"{where}.service-cidr",
            "cluster-cidr and service-cidr have addresses in common",
            "give pods and services networks of their own",
        )
    for text in _addresses(merged.get("cluster-dns") or [], "cluster-dns", problems):
        try:
            server = parse_address(text)
        except NotAddress:
            problems.add(
                f"{where}.cluster-dns",
                f"cluster-dns is {abbreviate(text)}, which is not an IP address",
                "write one of service-cidr",
            )
            continue
        if services and not any(server in one for one in services):
            problems.add(
                f"{where}.cluster-dns",
                f"cluster-dns {text} is not in service-cidr",
                "write an address of service-cidr",
            )


def _check_families(networks: Mapping[str, Sequence[Range]], problems: ProblemCollector) -> None:
    """Networks of pods and services without a family in common, and those that machines cannot serve yet."""
    where = "spec.rkeConfig.machineGlobalConfig"
    pods, services = ({one.first.version for one in ranges} for ranges in networks.values())
    if pods and services and not pods & services:
        problems.add(
            f"{where}.service-cidr",
            f"cluster-cidr is {_family_text(pods)} and service-cidr {_family_text(services)}, so that no service reaches a pod",
            "give both a network of the same family",
        )
    elif pods and services and len({ranges[0].first.version for ranges in networks.values()}) > 1:
        first = [f"{key} is IPv{ranges[0].first.version}" for key, ranges in networks.items()]
        problems.add(
            f"{where}.service-cidr",
            f"the first network of {first[0]} and of {first[1]}, and kube-apiserver starts only where both are of one family",
            "write the families of both in the same order",
        )
    for key, ranges in networks.items():
        counts = Counter(one.first.version for one in ranges)
        for version, count in counts.items():
            if count > 1:
                problems.add(
                    f"{where}.{key}",
                    f"{key} has {count} IPv{version} networks",
                    "write one network of each family: Kubernetes takes no more",
                )


# kube-apiserver takes service networks of any size from this version on; before, with at most so many bits for hosts.
_ANY_SERVICE_NETWORK = Version.parse("v1.34.0")
_SERVICE_BITS = 20


def _check_service_size(cluster: Cluster, services: Sequence[Range], problems: ProblemCollector) -> None:
    """Service networks with which kube-apiserver does not start."""
    try:
        if Version.parse(cluster.version) >= _ANY_SERVICE_NETWORK:
            return
    except NotVersion:
        return  # which is refused
    for one in services:
        if one.size > 2**_SERVICE_BITS:
            least = one.first.max_prefixlen - _SERVICE_BITS
            problems.add(
                "spec.rkeConfig.machineGlobalConfig.service-cidr",
                f"service-cidr has {one}, and kube-apiserver of {cluster.version} takes no IPv{one.first.version} network larger than "
                f"/{least}",
                f"write {one.first}/{least + 4}, or Kubernetes 1.34 or later",
            )


# How long the prefix of a Node's part of cluster-cidr is, by family, unless an argument of kube-controller-manager says so.
_NODE_PREFIXES = {4: 24, 6: 64}
_NODE_PREFIX_ARGUMENT = "node-cidr-mask-size"
_CONTROLLER_MANAGER_KEYS = ("kube-controller-arg", "kube-controller-manager-arg")
# The network plugins whose pods have addresses of their Node's part; others divide cluster-cidr by themselves.
_PLUGINS_BY_NODE = frozenset({"canal", "flannel"})


def _check_pod_network_size(
    cluster: Cluster, config: Mapping[str, Any], pods: Sequence[Range], problems: ProblemCollector
) -> None:
    """Networks of pods with parts for fewer Nodes than there are to be: the others would have no pod that starts."""
    machines = sum(pool.quantity for pool in cluster.pools)
    for one in pods:
        family = one.first.version
        prefix, bits = _find_node_prefix(config, family), one.first.max_prefixlen
        own_prefix = bits - (one.size - 1).bit_length()
        parts = 2 ** (prefix - own_prefix) if own_prefix <= prefix <= bits else 0
        if machines <= parts:
            continue
        least = max(0, prefix - (machines - 1).bit_length())
        hint = (
            f"write a network with a prefix of /{least} or shorter in cluster-cidr, or ask for fewer machines"
        )
        if cluster.recorded.version:
            hint = f"ask for {_count_text(parts)} at most: a cluster keeps its cluster-cidr"
        problems.add(
            "spec.rkeConfig.machinePools",
            f"cluster-cidr {one.first}/{own_prefix} has room for {parts} Node{'s' * (parts != 1)}, each of which is given a "
            f"/{prefix}, and the machine pools ask for {_count_text(machines)}",
            hint,
            "error" if parts == 0 or _gives_pods_addresses_by_node(cluster, config) else "warning",
        )


def _count_text(machines: int) -> str:
    return f"{machines} machine{'s' * (machines != 1)}"


def _find_node_prefix(config: Mapping[str, Any], family: int) -> int:
    given = [
        str(one) for key in _CONTROLLER_MANAGER_KEYS for one in list_of(config.get(key))[:MAX_CONFIG_KEYS]
    ]
    values = dict(text.lstrip("-").split("=", 1) for text in given if "=" in text)
    text = values.get(f"{_NODE_PREFIX_ARGUMENT}-ipv{family}") or values.get(_NODE_PREFIX_ARGUMENT) or ""
    is_number = text.isdecimal() and not is_too_long(text)
    return int(text) if is_number else _NODE_PREFIXES[family]


def _gives_pods_addresses_by_node(cluster: Cluster, config: Mapping[str, Any]) -> bool:
    if _distribution_of(cluster.recorded.version or cluster.version) == "k3s":
        return config.get("flannel-backend") != "none"
    plugins = ",".join(map(str, list_of(config.get("cni"))[:MAX_NETWORKS])) or "canal"
    return any(plugin.strip() in _PLUGINS_BY_NODE for plugin in plugins.split(","))


def _check_endpoint_address(
    cluster: Cluster, networks: Mapping[str, Sequence[Range]], problems: ProblemCollector
) -> None:
    """Virtual addresses that are a pod's, a service's or a machine's too. Those of a cluster that exists stay what they are."""
    endpoint = cluster.control_plane_endpoint
    severity: Severity = "warning" if cluster.recorded.endpoint is not None else "error"
    given = ((names.ENDPOINT_ADDRESS, endpoint.host), (names.ENDPOINT_JOIN_ADDRESS, endpoint.join_host))
    for annotation, text in given if endpoint.mode == "address" else ():
        try:
            address, where = parse_address(text), field_of(annotation)
        except NotAddress:
            continue  # a name
        for key, ranges in networks.items():
            if own := next((one for one in ranges if address in one), None):
                problems.add(
                    where,
                    f"{where} is {text}, and {key} is {own}, which has it",
                    "write an address outside of it, that no pod or service is given",
                    severity,
                )
        for pool in cluster.pools:
            for one in pool.address_pools:
                if address in one:
                    problems.add(
                        where,
                        f"{where} is {text}, and HarvesterConfig {pool.config_name}: {one.place} has it in {one.written}, so that a "
                        "machine may be given it",
                        "add it to excludedAddresses there, or write another",
                        severity,
                    )


def _check_range_sizes(cluster: Cluster, problems: ProblemCollector) -> None:
    """Those of the manifest; those of IPPools are counted once they are read."""
    for group in _group_overlapping(cluster.pools):
        problems.found += _find_small(group, cluster.pools, frozenset())


def find_small_ranges(pools: Sequence[Pool], taken: Mapping[str, Set[Address]]) -> list[Problem]:
    """What reading the Cluster could not tell: ranges of IPPools that are too small, which are resolved in `pools`, and ranges
    that are too small because others have addresses of them. `taken` are those, by network."""
    found: list[Problem] = []
    for group in _group_overlapping(pools):
        of_network = taken.get(group[0][1].network, frozenset())
        others = frozenset(one for one in of_network if any(one in own for _, own in group))
        if any(own.ip_pool for _, own in group) or not _find_small(group, pools, frozenset()):
            found += _find_small(group, pools, others)
    return found


def _find_small(
    group: Sequence[tuple[Pool, AddressPool]], every: Sequence[Pool], taken: Set[Address]
) -> list[Problem]:
    """A warning where the group has fewer addresses than its pools of machines ask for together, or just as many; a machine
    that is replaced keeps its own until its VM is gone."""
    pools = list(dict.fromkeys(pool.name for pool, _ in group))
    wanted = sum(pool.quantity for pool in every if pool.name in pools)
    size = sum(one.size for one in subtract((r for _, own in group for r in own.ranges), ()))
    free = size - len(taken)
    if not wanted or free > wanted:
        return []
    pool, own = group[0]
    place = f"{pool.kind} {pool.config_name}: {own.place}"
    where = f"{place} (IPPool {own.ip_pool})" if own.ip_pool else place
    others = f", of which others have {len(taken)}," if taken else ","
    whose = f"pool {pools[0]} asks" if len(pools) == 1 else f"pools {', '.join(pools)} together ask"
    message = (
        f"{where} has {_count(size, 'address', 'es')}{others} and {whose} for {_count(wanted, 'machine')}"
    )
    what = f"IPPool {own.ip_pool} on Harvester" if own.ip_pool else "it"
    hint = (
        f"widen {what}, or ask for fewer; those without an address wait"
        if free < wanted
        else f"widen {what} by one or more: what replaces a machine waits until the VM of that one is gone"
    )
    return [Problem(message, hint, own.place, "warning")]


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{'' if number == 1 else plural}"


def _group_overlapping(pools: Iterable[Pool]) -> list[list[tuple[Pool, AddressPool]]]:
    """The address pools, those together that have addresses of a network in common, in the order of the pools."""
    every = [(pool, own) for pool in pools for own in pool.address_pools if own.ranges]
    ranges = sorted(
        (own.network, one.first.version, int(one.first), int(one.last), place)
        for place, (_, own) in enumerate(every)
        for one in own.ranges
    )
    group_of = {place: {place} for place in range(len(every))}
    where, end, owner = ("", 0), -1, -1
    for network, version, first, last, place in ranges:
        if where == (network, version) and first <= end:
            joined = group_of[owner] | group_of[place]
            group_of |= dict.fromkeys(joined, joined)
            last = max(last, end)
        where, end, owner = (network, version), last, place
    groups = {min(group): sorted(group) for group in group_of.values()}
    return [[every[place] for place in groups[least]] for least in sorted(groups)]


def _check_stack(
    cluster: Cluster, networks: Mapping[str, Sequence[Range]], problems: ProblemCollector
) -> None:
    """A stackPreference that the networks of pods and services do not keep: the distribution has the last word."""
    where = "spec.rkeConfig.networking.stackPreference"
    wanted = _STACKS.get(cluster.stack)
    for key, ranges in networks.items():
        found = {one.first.version for one in ranges}
        if wanted and found and found != wanted:
            problems.add(
                where,
                f"{where} is {cluster.stack}, and {key} is {_family_text(found)}",
                f"write {_family_text(wanted)} networks in {key} of machineGlobalConfig, or another stackPreference",
            )


def _check_pool_addresses(
    cluster: Cluster, networks: Mapping[str, Sequence[Range]], problems: ProblemCollector
) -> None:
    """Addresses of machines that are pods' or services' too, and families that the cluster has and its machines have not."""
    for pool in cluster.pools:
        where = f"HarvesterConfig {pool.config_name}"
        for one in pool.address_pools:
            for key, ranges in networks.items():
                if shared := next((r for r in ranges for own in one.ranges if own.overlaps(r)), None):
                    problems.add(
                        f"{one.place}.addresses",
                        f"{where}: {one.place} has {one.written}, and {key} is {shared}, with addresses in common",
                        "give machines addresses of another network, or change it in machineGlobalConfig",
                    )
        node = [one for one in pool.address_pools if one.is_of_node]
        static = {one.version for one in node if one.ranges}
        if static and all(one.ranges for one in node) and (missing := set(cluster.families) - static):
            problems.add(
                "addressPools",
                f"{where}: its addressPools give the node {_family_text(static)} addresses, and cluster-cidr is "
                f"{_family_text(set(cluster.families))}",
                f"add an entry with {_family_text(missing)} addresses of network {node[0].network}, or leave "
                f"{_family_text(missing)} out of cluster-cidr",
            )
        if static and (extra := static - set(cluster.families)):
            problems.add(
                "addressPools",
                f"{where}: its addressPools give the node {_family_text(extra)} addresses, and cluster-cidr has no "
                f"{_family_text(extra)} network",
                "write cluster-cidr and service-cidr of both families in machineGlobalConfig, or remove the entry",
            )


def _family_text(versions: Set[int]) -> str:
    return " and ".join(f"IPv{version}" for version in sorted(versions))


def _addresses(value: Any, key: str, problems: ProblemCollector) -> list[str]:
    """The texts of `value`; none where they are too many to be compared with each other."""
    texts = _texts(value)
    if len(texts) > MAX_NETWORKS:
        field = f"spec.rkeConfig.machineGlobalConfig.{key}"
        problems.add(field, f"{key} has {len(texts)} entries", f"write {MAX_NETWORKS} at most")
        return []
    return texts


def _texts(value: Any) -> list[str]:
    """The items of a list, or of a text with commas, as the distribution takes both."""
    items = value if isinstance(value, list) else str(value).split(",")
    return [str(item).strip() for item in items]
