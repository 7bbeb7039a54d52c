"""`windrow check`: every problem of a manifest, before anything is created.

The manifest is read as the cluster manager reads it, and its HarvesterConfigs as the node driver reads them; then the
machines are checked on Harvester as before they are created, where there is a credential. Nothing is written.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from windrow.app.clock import SystemClock
from windrow.app.machines import driver_for_kind as judge_by
from windrow.app.manifest_checks.changes import assume_state
from windrow.app.manifest_checks.unknown_fields import (
    find_mistyped_fields,
    find_unknown_fields,
    place_fields,
)
from windrow.app.network import HttpConnector
from windrow.bootstrap.support_matrix.comparison import Comparison as Comparison
from windrow.bootstrap.support_matrix.matrix import SupportMatrix, read_matrix, shipped_matrix
from windrow.client.client import Client
from windrow.clusters.api.cluster import Cluster, Pool
from windrow.clusters.api.fields import ProblemCollector
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG, MACHINE, machine_config
from windrow.clusters.api.machine import Machine, read_machine
from windrow.clusters.api.manifest.annotations import check_annotations
from windrow.clusters.api.manifest.machine_config import ResolveDriver, kind_of, read_options
from windrow.clusters.api.manifest.reading import ClusterReading, read_cluster
from windrow.clusters.api.manifest.supported_fields import HARVESTER_CONFIG_FIELDS
from windrow.clusters.api.references import (
    ALL_NAMESPACES,
    allow_command,
    list_grants,
    read_allowed_namespaces,
)
from windrow.clusters.bootstrap_data import check_bootstrap, sample_machine_spec
from windrow.clusters.bootstrap_secrets import FindSecret, check_secrets
from windrow.clusters.change.describe import list_sentences
from windrow.clusters.change.fields import NOT_YET_HINT
from windrow.clusters.change.pending import pending_changes
from windrow.clusters.versions import compare_versions, list_problems
from windrow.core.text import encode_base64
from windrow.drivers.api import NODE_DRIVER, read_driver, read_machine_config_kinds
from windrow.harvester.connection import describe_credential
from windrow.harvester.problems import Severity
from windrow.harvester.supported_charts import HarvesterVersions
from windrow.kubernetes.errors import Forbidden, KubeError, NotFound, Unreachable
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import Raw, is_deleting, name_of, namespace_of, nested, objects_at, uid_of
from windrow.kubernetes.resources import NAMESPACE, SECRET, ObjectRef
from windrow.machines.port import (
    HARVESTER,
    InfrastructureUnknown,
    MachineRefused,
    Machines,
    MachineSpec,
    Problem,
)
from windrow.machines.static_addresses import find_pool_problems
from windrow.nodedriver.config import find_unknown_keys, read_fields
from windrow.nodedriver.validate.network_data import find_shared_addresses
from windrow.nodedriver.validate.rules import find_problems

if TYPE_CHECKING:
    from windrow.app.manifest_checks.harvester import CheckedHarvester

_ROLE_FIELDS = ("].etcdRole", "].controlPlaneRole", "].workerRole")
# How long an apply waits for Harvester.
PATIENCE_S = 10
SEE_PLAN = "all of it, machine by machine: windrow plan"
CREDENTIAL_FIELD = "cloudCredentialSecretName"
# What a kubeconfig is called that the user names, in place of a credential.
NAMED_KUBECONFIG = "kubeconfig of --harvester"

# From a credential to what its Harvester says about versions.
ReadVersions = Callable[[str], Awaitable[HarvesterVersions]]
# From a cluster to the problems of the load balancer that it asks for.
CheckEndpoint = Callable[[Cluster], Awaitable[list[Problem]]]
# From a driver and the `namespace:name` of a credential to its fields, read from the management API.
ReadFields = Callable[[str, str], Awaitable[Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The problems of one Cluster, of a HarvesterConfig that no Cluster of the manifest names, or of another object.

    `harvester_asked`: whether all of it was checked on Harvester; `not_asked` says why not, where no problem does.
    `unchecked_kinds` are the kinds of other drivers, with the pools that name them. `compared` are the versions that were
    compared with the support matrix, `compared_with` its date; what of them does not fit is among the problems, too.
    """

    namespace: str
    name: str
    problems: tuple[Problem, ...]
    not_asked: str = ""
    harvester_asked: bool = False
    kind: str = "Cluster"
    unchecked_kinds: tuple[str, ...] = ()
    compared: tuple[Comparison, ...] = ()
    compared_with: str = ""

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "error")


async def run(
    documents: Sequence[Raw], manager: ClientConfig | None, harvester: str = "", matrix_text: str = ""
) -> list[CheckResult]:
    """A result for each Cluster in `documents`.

    `manager` is the management API, with credentials and further configs; `harvester` is the text of a kubeconfig to use
    instead of any credential. Without both, only the manifest is checked. `matrix_text` replaces parts of the support
    matrix. Raises InvalidMatrix.
    """
    matrix = read_matrix(matrix_text) if matrix_text else shipped_matrix()
    if manager is None and not harvester:
        return await check(documents, matrix=matrix)
    from windrow.app.manifest_checks.harvester import CheckedHarvester

    clock = SystemClock()
    async with HttpConnector(clock) as sockets:
        api = Client(sockets.connect(manager)) if manager is not None else None
        known = KnownObjects()
        try:
            if api is not None:
                known = await read_known(api, documents)
        except Unreachable:
            if not harvester:
                assert manager is not None
                return await check(
                    documents,
                    not_asked=f"--harvester is not given, and {manager.server} does not answer",
                    matrix=matrix,
                )
            api = None
        asked = CheckedHarvester(documents, api, sockets, clock, harvester)
        return await _check_on(asked, documents, api, known, matrix, single_credential=bool(harvester))


async def check_change(documents: Sequence[Raw], api: Client) -> list[CheckResult]:
    """A result for each Cluster in `documents`, which are about to be applied to the management API `api`.

    What is absent from it or from Harvester is a warning, since the Cluster waits for it. Where Harvester has not answered
    within PATIENCE_S, `not_asked` says so.
    """
    from windrow.app.manifest_checks.harvester import CheckedHarvester

    clock, matrix = SystemClock(), shipped_matrix()
    known = await read_known(api, documents)
    async with HttpConnector(clock) as sockets:
        asked = CheckedHarvester(documents, api, sockets, clock)
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await _check_on(asked, documents, api, known, matrix, absence="warning")
        except TimeoutError:
            return await check(
                documents,
                known.configs,
                not_asked=f"it has not answered within {PATIENCE_S} s",
                running=known.running,
                existing=known.machines,
                driver_for_kind=known.driver_for_kind,
                find_namespace=api.find,
            )


async def _check_on(
    asked: CheckedHarvester,
    documents: Sequence[Raw],
    api: Client | None,
    known: KnownObjects,
    matrix: SupportMatrix,
    *,
    single_credential: bool = False,
    absence: Severity = "error",
) -> list[CheckResult]:
    """With all that Harvester and the management API, where there is one, say."""
    from windrow.app.machines import read_credential_fields

    return await check(
        documents,
        known.configs,
        asked.machines,
        running=known.running,
        existing=known.machines,
        single_credential=single_credential,
        driver_for_kind=known.driver_for_kind,
        fields_of=partial(read_credential_fields, api) if api is not None else None,
        find_secret=api.find if api is not None else None,
        find_namespace=api.find if api is not None else None,
        read_versions=asked.read_versions,
        ask_endpoint=asked.check_endpoint,
        matrix=matrix,
        absence=absence,
    )


async def read_known(api: Client, documents: Sequence[Raw]) -> KnownObjects:
    """What the management API has of the objects that the documents name."""
    configs, driver_for_kind = await read_existing(api, documents)
    running = await read_running(api, documents)
    return KnownObjects(configs, running, await read_machines(api, running), driver_for_kind)


async def read_existing(api: Client, documents: Sequence[Raw]) -> tuple[list[Raw], ResolveDriver]:
    """The existing machine configs of every kind that the Clusters name, and a function from kind to driver."""
    kinds = {HARVESTER_CONFIG.kind}.union(*map(read_machine_config_kinds, _clusters(documents)))
    configs: list[Raw] = []
    for kind in sorted(kinds):
        try:
            configs += await api.list(machine_config(kind))
        except NotFound:  # the kind is not defined; its driver is looked up below
            continue
    try:
        drivers = [read_driver(raw) for raw in await api.list(NODE_DRIVER)]
    except NotFound:
        drivers = []
    return configs, lambda kind: judge_by(kind, drivers)


async def read_running(api: Client, documents: Sequence[Raw]) -> list[Raw]:
    """The existing Clusters of the names in the documents, as far as this account may read them; without those that are being
    deleted, after which the next one of the name is new."""
    found = []
    for raw in _clusters(documents):
        try:
            existing = await api.find(CLUSTER.ref(name_of(raw), namespace_of(raw) or "default"))
        except Forbidden:
            continue
        if existing is not None and not is_deleting(existing):
            found.append(existing)
    return found


async def read_machines(api: Client, running: Sequence[Raw]) -> list[Machine]:
    """The Machines of the existing Clusters that are not being deleted, as far as this account may read them."""
    uids = {uid_of(raw) for raw in running}
    found: list[Machine] = []
    for namespace in sorted({namespace_of(raw) for raw in running}):
        try:
            every = await api.list(MACHINE, namespace)
        except Forbidden:
            continue
        # Only those are read that count: a namespace may hold the Machines of a thousand Clusters.
        mine = (raw for raw in every if nested(raw, "spec", "clusterUID") in uids)
        found += [read_machine(raw) for raw in mine if not is_deleting(raw)]
    return found


def assume_driver(kind: str) -> str | Problem:
    """The driver that the kind is named after: for checks without a management API."""
    if kind != HARVESTER_CONFIG.kind and kind.lower() == HARVESTER_CONFIG.kind.lower():
        return Problem("upper and lower case count", f"write {HARVESTER_CONFIG.kind}")
    return kind.removesuffix("Config").lower()


@dataclass(frozen=True, slots=True)
class KnownObjects:
    """What exists in the management API: the machine configs, the Clusters of the documents, their Machines; and the driver of
    each kind of machine config."""

    configs: Sequence[Raw] = ()
    running: Sequence[Raw] = ()
    machines: Sequence[Machine] = ()
    driver_for_kind: ResolveDriver = assume_driver


def _clusters(documents: Sequence[Raw]) -> list[Raw]:
    return [raw for raw in documents if raw.get("kind") == "Cluster"]


def _is_config(raw: Raw) -> bool:
    return str(raw.get("apiVersion")).startswith(f"{HARVESTER_CONFIG.group}/")


async def check(
    documents: Sequence[Raw],
    configs: Sequence[Raw] = (),
    machines: Machines | None = None,
    not_asked: str = "neither --harvester nor a management API is given",
    *,
    running: Sequence[Raw] = (),
    existing: Sequence[Machine] = (),
    single_credential: bool = False,
    driver_for_kind: ResolveDriver = assume_driver,
    fields_of: ReadFields | None = None,
    find_secret: FindSecret | None = None,
    find_namespace: FindSecret | None = None,
    read_versions: ReadVersions | None = None,
    ask_endpoint: CheckEndpoint | None = None,
    matrix: SupportMatrix | None = None,
    absence: Severity = "error",
) -> list[CheckResult]:
    """A result for each Cluster in `documents`. `configs` are existing machine configs; those in the documents come first.
    `running` are existing Clusters: what they have begun with, a document of their name cannot change. `existing` are their
    Machines: which of them a document deletes, and which are not as it asks, is a warning.
    Without `machines`, nothing is checked on Harvester; `single_credential`: it is used for every pool. Configs of other
    kinds than HarvesterConfig are not checked; of these the credential is read with `fields_of`, unless it is a document.
    Secrets that the Cluster names are documents, or are read with `find_secret`: those of other namespaces must allow the
    Cluster's, and those for registries and S3 must hold what they are named for. Namespaces are documents, or are read with
    `find_namespace`. `read_versions` asks the Harvester of a
    credential, `ask_endpoint` that of a Cluster with a load balancer; once for each Cluster, where its machines could be
    checked. What Harvester, the Secrets and the credentials lack is of severity `absence`."""
    matrix = matrix or shipped_matrix()
    own = {_key(raw): raw for raw in reversed(documents) if _is_config(raw)}
    known = {_key(raw): raw for raw in reversed(configs)} | own
    placed = [place_fields(raw) for raw in known.values()]
    secrets = {_credential_of(raw) for raw in documents if raw.get("kind") == SECRET.kind}
    statuses = {_credential_of(raw): raw.get("status") for raw in running}
    missing_namespaces = await _find_missing_namespaces(documents, find_namespace)
    results, named = [], set()
    for raw in _clusters(documents):
        recorded = statuses.get(f"{namespace_of(raw) or 'default'}:{name_of(raw)}") or raw.get("status")
        reading = read_cluster({**raw, "status": recorded}, placed, driver_for_kind)
        cluster = reading.cluster
        named |= {(pool.kind, cluster.namespace, pool.config_name) for pool in cluster.pools}
        missing = missing_namespaces.get(cluster.namespace, [])
        unknown = find_unknown_fields(raw)
        meant = {one.meant for one in unknown if one.meant}
        problems = [
            *missing,
            *unknown,
            *(one for one in reading.problems if not _is_misspelt(one, meant)),
            *check_bootstrap(cluster, reading.problems),
        ]
        refused = {one.field for one in problems if one.severity == "error"}
        problems += [one for one in find_mistyped_fields(raw) if one.field not in refused]
        place = f"{cluster.namespace}:{cluster.name}"
        before = next((one for one in running if _credential_of(one) == place), None)
        if before is not None and not any(one.severity == "error" for one in problems):
            problems += list_effects(before, reading, existing)
        has_credential = single_credential or not any(
            one.field.endswith(CREDENTIAL_FIELD) for one in reading.problems if one.severity == "error"
        )
        asked = machines if has_credential else None
        as_checked = _with_single_credential(cluster) if single_credential else cluster
        refused_fields = frozenset(one.field for one in reading.problems if one.severity == "error")
        found, on_harvester, was_asked = await _check_machines(as_checked, known, asked, refused_fields)
        of_credentials, unchecked = await _check_credentials(cluster, secrets, fields_of)
        if not missing:
            of_credentials += await _check_consent(raw, documents, find_secret)
        of_credentials += await _check_named_secrets(cluster, documents, find_secret)
        versions = await _read_versions(as_checked, read_versions if was_asked else None)
        compared = compare_versions(cluster, reading.problems, matrix, versions)
        found += list_problems(compared)
        on_harvester += await _check_endpoint(as_checked, ask_endpoint if was_asked else None)
        found += [_of_severity(absence, one) for one in (*on_harvester, *of_credentials)]
        only_others = all(pool.kind != HARVESTER_CONFIG.kind for pool in cluster.pools) and bool(unchecked)
        results.append(
            CheckResult(
                cluster.namespace,
                cluster.name,
                tuple(dict.fromkeys([*problems, *found])),
                # A problem already says why Harvester was not asked.
                not_asked=not_asked if machines is None and not only_others else "",
                harvester_asked=was_asked and not unchecked,
                unchecked_kinds=tuple(unchecked),
                compared=tuple(compared),
                compared_with=matrix.describe() if compared else "",
            )
        )
    for key, raw in reversed(own.items()):
        if kind_of(raw) == HARVESTER_CONFIG.kind and key not in named:
            ignored = ProblemCollector()
            HARVESTER_CONFIG_FIELDS.check(place_fields(raw), ignored)
            check_annotations(HARVESTER_CONFIG.kind, raw, ignored)
            problems = [
                *missing_namespaces.get(namespace_of(raw), []),
                *find_unknown_fields(raw),
                *ignored.found,
                *_check_options(read_options(place_fields(raw)), "machine"),
            ]
            labelled = _labelled(problems, f"HarvesterConfig {name_of(raw)} (no pool names it)")
            results.append(
                CheckResult(namespace_of(raw), name_of(raw), tuple(labelled), kind="HarvesterConfig")
            )
    for raw in documents:
        if raw.get("kind") in ("Cluster", HARVESTER_CONFIG.kind):
            continue
        ignored = ProblemCollector()
        check_annotations(kind_of(raw), raw, ignored)
        found = [
            *missing_namespaces.get(namespace_of(raw), []),
            *find_unknown_fields(raw),
            *ignored.found,
        ]
        fault = driver_for_kind(kind_of(raw)) if _is_config(raw) and _key(raw) not in named else ""
        if isinstance(fault, Problem):
            found.append(Problem(f"kind is {kind_of(raw)}, and {fault.message}", fault.hint, "kind"))
        if found:
            results.append(CheckResult(namespace_of(raw), name_of(raw), tuple(found), kind=str(raw["kind"])))
    return results


def list_effects(before: Raw, reading: ClusterReading, existing: Sequence[Machine]) -> list[Problem]:
    """What the cluster asks for now deletes of the Machines of the Cluster as it is, and what it changes of them."""
    cluster = replace(reading.cluster, uid=uid_of(before))
    machines = [one for one in existing if one.cluster_uid == uid_of(before)]
    where = "spec.rkeConfig.machinePools"
    names = {str(pool.get("name")) for pool in objects_at(cluster.raw, "spec", "rkeConfig", "machinePools")}
    lost = Counter(machine.pool for machine in machines if machine.pool not in names)
    found = [
        Problem(
            f"{count} machine{'s' * (count != 1)} of pool {name} will be deleted: the manifest has no pool of this name",
            "keep the pool, with its name, to keep its machines: a pool that is renamed is a new one",
            where,
            "warning",
        )
        for name, count in sorted(lost.items())
    ]
    pending = pending_changes(assume_state(cluster, reading.problems, machines, SystemClock().now()))
    for sentence in list_sentences(pending):
        hint = NOT_YET_HINT if sentence.startswith("not yet") else SEE_PLAN
        found.append(Problem(sentence, hint, where, "warning"))
    found += [replace(one, severity="warning") for one in pending.refused]
    return found + _list_node_changes(before, cluster, machines)


def _list_node_changes(before: Raw, cluster: Cluster, machines: Sequence[Machine]) -> list[Problem]:
    """The pools with machines whose labels or taints of Nodes are others now."""
    were = {str(pool.get("name")): pool for pool in objects_at(before, "spec", "rkeConfig", "machinePools")}
    found = []
    for pool in objects_at(cluster.raw, "spec", "rkeConfig", "machinePools"):
        name = str(pool.get("name"))
        was, own = were.get(name), sum(machine.pool == name for machine in machines)
        if was is None or not own:
            continue
        if changed := [
            key for key in ("labels", "taints") if (pool.get(key) or None) != (was.get(key) or None)
        ]:
            count = f"{own} machine{'s' * (own != 1)}"
            message = f"{' and '.join(changed)} of pool {name} changed: the Nodes of its {count} keep theirs"
            hint = "machines that are made from now on get them; change existing Nodes with kubectl"
            found.append(Problem(message, hint, "spec.rkeConfig.machinePools", "warning"))
    return found


def _is_misspelt(problem: Problem, meant: Set[str]) -> bool:
    """Whether the problem is that a field is not there, which the user has misspelt: that is told."""
    if any(problem.field == field or problem.field.startswith(f"{field}.") for field in meant):
        return True
    # A pool without a role, or a cluster without one that a misspelt field was to give.
    return problem.severity == "error" and any(
        problem.field in (field.rpartition(".")[0], field.partition("[")[0])
        for field in meant
        if field.endswith(_ROLE_FIELDS)
    )


async def _find_missing_namespaces(
    documents: Sequence[Raw], find: FindSecret | None
) -> dict[str, list[Problem]]:
    """The problem of each namespace of the documents that neither exists nor is one of them."""
    if find is None:
        return {}
    given = {name_of(raw) for raw in documents if raw.get("kind") == NAMESPACE.kind}
    problems = {}
    for name in sorted({namespace_of(raw) for raw in documents} - given - {""}):
        try:
            found = await find(NAMESPACE.ref(name))
        except Forbidden:
            continue
        if found is None:
            message = f"Namespace {name} does not exist in the management API"
            hint = f"correct metadata.namespace, or -n, or create it: kubectl create namespace {name}"
            problems[name] = [Problem(message, hint, "metadata.namespace")]
    return problems


async def _read_versions(cluster: Cluster, read: ReadVersions | None) -> HarvesterVersions | None:
    """What the cluster's Harvester says; None where it is not asked or does not answer."""
    credential = next((pool.credential for pool in cluster.pools if pool.is_on_harvester), None)
    if read is None or credential is None:
        return None
    try:
        return await read(credential)
    except (KubeError, InfrastructureUnknown) as error:
        return HarvesterVersions(unread=str(error))


async def _check_endpoint(cluster: Cluster, ask: CheckEndpoint | None) -> list[Problem]:
    """What the cluster manager would find of the addresses that the cluster asks for, for a load balancer or for machines."""
    on_harvester = any(pool.is_on_harvester for pool in cluster.pools)
    wants = cluster.control_plane_endpoint.mode == "loadBalancer" or any(
        pool.address_pools for pool in cluster.pools
    )
    if ask is None or not on_harvester or not wants:
        return []
    try:
        return await ask(cluster)
    except InfrastructureUnknown as error:  # it answered until now
        return [Problem(error.message, error.hint, CREDENTIAL_FIELD)]
    except KubeError as error:
        hint = "make Harvester reachable, with a credential that may read there"
        return [Problem(str(error), hint, CREDENTIAL_FIELD)]


async def _check_named_secrets(
    cluster: Cluster, documents: Sequence[Raw], find_secret: FindSecret | None
) -> list[Problem]:
    """Problems of the Secrets for registries and S3, and of the objects that files come from, as far as this account may read
    them."""
    given = {(one.get("kind"), _credential_of(one)): one for one in documents}

    async def find(ref: ObjectRef) -> Raw | None:
        document = given.get((ref.kind.kind, f"{ref.namespace}:{ref.name}"))
        if document is None:
            return await find_secret(ref) if find_secret is not None else None
        plain = {key: encode_base64(str(text)) for key, text in (document.get("stringData") or {}).items()}
        return {**document, "data": {**(document.get("data") or {}), **plain}}

    if find_secret is None:
        return []
    try:
        return await check_secrets(find, cluster, lambda reference, namespace: None)
    except Forbidden:
        return []


async def _check_consent(raw: Raw, documents: Sequence[Raw], find_secret: FindSecret | None) -> list[Problem]:
    """Problems of the Secrets of other namespaces that the Cluster names."""
    problems: list[Problem] = []
    namespace = namespace_of(raw) or "default"
    given = {_credential_of(one): one for one in documents if one.get("kind") == SECRET.kind}
    for ref in list_grants([raw]):
        secret = given.get(f"{ref.namespace}:{ref.name}")
        if secret is None and find_secret is not None:
            try:
                secret = await find_secret(ref)
            except Forbidden:
                continue
        if secret is not None and not {namespace, ALL_NAMESPACES} & read_allowed_namespaces(secret):
            message = f"Secret {ref.namespace}/{ref.name} does not allow its use from namespace {namespace}"
            problems.append(Problem(message, allow_command(ref, namespace), CREDENTIAL_FIELD))
    return problems


def _key(config: Raw) -> tuple[str, str, str]:
    return kind_of(config), namespace_of(config), name_of(config)


def _credential_of(secret: Raw) -> str:
    return f"{namespace_of(secret)}:{name_of(secret)}"


async def _check_machines(
    cluster: Cluster,
    configs: Mapping[tuple[str, str, str], Raw],
    machines: Machines | None,
    refused_fields: Set[str],
) -> tuple[list[Problem], list[Problem], bool]:
    """The problems of the cluster's HarvesterConfigs in themselves, those on Harvester, and whether it was asked for all. The types
    of fields in `refused_fields` were refused before."""
    unknown: list[Problem] = []
    # Of each config's problem the pools that have it.
    own: dict[tuple[str, Problem], list[Pool]] = {}
    there: dict[tuple[str, Problem], list[Pool]] = {}
    asked = machines is not None
    for spec, pools in plan_specs(cluster):
        raw = configs[HARVESTER_CONFIG.kind, cluster.namespace, pools[0].config_name]
        found = [*find_unknown_fields(raw), *_check_options(spec.options, spec.name)]
        refused = {one.field for one in found if one.severity == "error"} | refused_fields
        found += [one for one in find_mistyped_fields(place_fields(raw)) if one.field not in refused]
        found += find_pool_problems(spec.options)
        found += _check_addresses(spec.options, sum(pool.quantity for pool in pools))
        on_harvester: Sequence[Problem] = ()
        try:
            on_harvester = await machines.check([spec]) if machines is not None else ()
        except InfrastructureUnknown as error:
            asked = False
            unknown.append(Problem(error.message, error.hint))
        except MachineRefused as error:
            on_harvester = error.problems
        for problem in dict.fromkeys(found):
            own.setdefault((pools[0].config_name, problem), []).extend(pools)
        # Names come from the Cluster and its pools, and were checked there.
        for problem in dict.fromkeys(on_harvester):
            if problem.field != "name" and problem not in found:
                there.setdefault((pools[0].config_name, problem), []).extend(pools)
    return _labelled_all(own), unknown + _labelled_all(there), asked


def _labelled_all(users: Mapping[tuple[str, Problem], Sequence[Pool]]) -> list[Problem]:
    return [part for (_, one), pools in users.items() for part in _labelled([one], _label(pools))]


def _of_severity(severity: Severity, problem: Problem) -> Problem:
    """An error as one of this severity; a warning as it is."""
    return replace(problem, severity=severity) if problem.severity == "error" else problem


def _with_single_credential(cluster: Cluster) -> Cluster:
    """The cluster as it is checked with a kubeconfig that the user names, whatever its credentials are."""
    pools = tuple(replace(pool, credential=NAMED_KUBECONFIG) for pool in cluster.pools)
    return replace(cluster, credential=NAMED_KUBECONFIG, pools=pools)


async def _check_credentials(
    cluster: Cluster, secrets: Set[str], fields_of: ReadFields | None
) -> tuple[list[Problem], list[str]]:
    """Problems of the credentials of other drivers' pools, and the kinds of these pools."""
    groups: dict[tuple[str, str, str], list[Pool]] = {}
    for pool in cluster.pools:
        if pool.kind != HARVESTER_CONFIG.kind:
            groups.setdefault((pool.kind, pool.driver, pool.credential), []).append(pool)
    problems, unchecked = [], []
    for (kind, driver, credential), pools in groups.items():
        label = f"{kind} ({_pools_text(pools)})"
        unchecked.append(label)
        if kind.lower().startswith(HARVESTER):
            message = (
                f"{label} is the machine config of another driver; Harvester's is {HARVESTER_CONFIG.kind}"
            )
            hint = f"write {HARVESTER_CONFIG.kind}, unless a NodeDriver has that kind"
            problems.append(Problem(message, hint, severity="warning"))
        if fields_of is None or not driver or credential in secrets or ":" not in credential:
            continue
        try:
            await fields_of(driver, credential)
        except KubeError as error:
            message = f"{label}: {describe_credential(credential)} cannot be read: {error}"
            hint = f"create this Secret, with a key {driver}credentialConfig-FIELD for each field"
            problems.append(Problem(message, hint, CREDENTIAL_FIELD))
    return problems, unchecked


def _label(pools: Sequence[Pool]) -> str:
    return f"HarvesterConfig {pools[0].config_name} ({_pools_text(pools)})"


def _pools_text(pools: Sequence[Pool]) -> str:
    return f"pool{'s' * (len(pools) > 1)} {', '.join(pool.name for pool in pools)}"


def _labelled(problems: Iterable[Problem], label: str) -> list[Problem]:
    return [replace(problem, message=f"{label}: {problem.message}") for problem in problems]


def _check_options(options: Mapping[str, Any], name: str) -> list[Problem]:
    """The problems of a HarvesterConfig's fields in themselves."""
    configuration, unread = read_fields(options)
    fields = {problem.field for problem in unread}
    configuration = replace(configuration, machine_name=name, kubeconfig_content="", cloud_config="")
    return [
        Problem(one.message, one.hint, one.field, one.severity)
        for one in [
            *unread,
            *find_unknown_keys(options),
            *find_problems(configuration, must_boot=True, unreadable=fields),
        ]
        if one.field != "name"
    ]


def _check_addresses(options: Mapping[str, Any], machines: int) -> list[Problem]:
    """An error where several machines would have one static address."""
    configuration, _ = read_fields(options)
    return find_shared_addresses([(configuration.network_data, ())] * machines)


def plan_specs(cluster: Cluster) -> list[tuple[MachineSpec, list[Pool]]]:
    """One machine for each config and credential, with the pools that share them: their machines are alike.
    Pools whose config is not known, or not a HarvesterConfig, are left out."""
    groups: dict[tuple[str, str], list[Pool]] = {}
    for pool in cluster.pools:
        if pool.options is not None and pool.kind == HARVESTER_CONFIG.kind:
            groups.setdefault((pool.config_name, pool.credential), []).append(pool)
    return [(sample_machine_spec(cluster, pools[0]), pools) for pools in groups.values()]
