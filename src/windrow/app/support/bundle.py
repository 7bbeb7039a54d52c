"""Support bundles: what a user may read of a manager and its Clusters, without secrets, as one private file of bounded size.

Everything is read with the user's own rights, so a tenant's bundle has what the tenant may see. What may not be read, or is not there,
is named in `problems.txt` and ends nothing. All Secrets that may be read are read first, so that their values are taken out of all that
follows (`redaction`).
"""

from __future__ import annotations

import io
import logging
import tarfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from windrow.app.describe.events import list_events, read_event, select_events
from windrow.app.support.debug_pages import LOGS_PATH, STATE_PATH
from windrow.app.support.redaction import Redactor, secret_values
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER, ETCD_SNAPSHOT, HARVESTER_CONFIG, IP_ADDRESS, MACHINE
from windrow.clusters.api.names import kubeconfig_name, secrets_name
from windrow.core.crash import handle_crash
from windrow.core.errors import UserError
from windrow.core.files import write_private
from windrow.core.formats.json import pretty
from windrow.core.formats.yaml import dump
from windrow.drivers.api import NODE_DRIVER
from windrow.harvester.names import CLUSTER_UID
from windrow.kubernetes.errors import KubeError, error_for
from windrow.kubernetes.objects import Raw, annotations_of, name_of, namespace_of, nested, uid_of
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import EVENT, LEASE, SECRET, ApiResource

_log = logging.getLogger(__name__)

MAX_FILE_BYTES = 4 << 20
MAX_BYTES = 64 << 20
MAX_OBJECTS = 20_000
MAX_CONSOLES = 50
MAX_PLANS = 100
CONSOLE_LINES = 300
_KINDS = (CLUSTER, MACHINE, HARVESTER_CONFIG, ETCD_SNAPSHOT, IP_ADDRESS, NODE_DRIVER, LEASE)

# The last lines of the console of a Machine. Raises UserError or KubeError.
ReadConsole = Callable[[Raw, int], Awaitable[Sequence[str]]]
# What is planned for a Cluster, to be written as it is. Raises KubeError.
DescribePlan = Callable[[Raw], Awaitable[Any]]


@dataclass(slots=True)
class Bundle:
    """Files by their names, until there are too many bytes; and what is not among them."""

    files: dict[str, bytes] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    size: int = 0

    def add(self, name: str, text: str) -> None:
        content = text.encode(errors="replace")
        if len(content) > MAX_FILE_BYTES:
            self.problems.append(f"{name}: only its end; it is larger than {MAX_FILE_BYTES >> 20} MiB")
            content = content[-MAX_FILE_BYTES:]
        if self.size + len(content) > MAX_BYTES:
            self.problems.append(f"{name}: left out; the bundle would be larger than {MAX_BYTES >> 20} MiB")
            return
        self.size += len(content)
        self.files[name] = content


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the bundle is of: one Cluster, or where `cluster` is None all of `namespace` ("" for all namespaces)."""

    cluster: Raw | None = None
    namespace: str = ""

    @property
    def scope(self) -> str:
        return namespace_of(self.cluster) if self.cluster is not None else self.namespace

    def is_of(self, kind: ApiResource, raw: Raw) -> bool:
        """Whether the object belongs into the bundle."""
        if self.cluster is None:
            return True
        name = name_of(self.cluster)
        match kind:
            case _ if kind == CLUSTER:
                return name_of(raw) == name
            case _ if kind in (MACHINE, ETCD_SNAPSHOT):
                return str(nested(raw, "spec", "clusterName", default="")) == name
            case _ if kind == HARVESTER_CONFIG:
                return name_of(raw) in _list_configs(self.cluster)
            case _ if kind == SECRET:
                return is_secret_of(raw, self.cluster)
            case _:
                return str(nested(raw, "spec", "clusterName", default=name)) == name


def _list_configs(cluster: Raw) -> set[str]:
    pools = nested(cluster, "spec", "rkeConfig", "machinePools", default=()) or ()
    return {str(nested(pool, "machineConfigRef", "name", default="")) for pool in pools}


def is_secret_of(raw: Raw, cluster: Raw) -> bool:
    """Whether the Secret is the credential of the Cluster, or is made for it: not what begins with its name alone."""
    credential = str(nested(cluster, "spec", "cloudCredentialSecretName", default="")).rpartition(":")[2]
    name, uid = name_of(cluster), uid_of(cluster)
    if name_of(raw) in (credential, secrets_name(name), kubeconfig_name(name)):
        return True
    return bool(uid) and annotations_of(raw).get(CLUSTER_UID) == uid


async def collect(
    client: Client,
    wanted: Wanted,
    versions: Mapping[str, Any],
    read_console: ReadConsole | None,
    describe_plan: DescribePlan,
    now: datetime,
) -> Bundle:
    """The bundle. Raises KubeError only where the API cannot be reached at all."""
    bundle = Bundle()
    secrets = await _list(client, SECRET, wanted.scope, bundle)
    if wanted.cluster is not None:
        secrets += await _read_credential(client, wanted.cluster, bundle)
    redactor = Redactor(secret_values(secrets))
    bundle.add(
        "versions.json",
        pretty({**versions, "written": now.isoformat(), "server": await _version(client, bundle)}),
    )
    machines: list[Raw] = []
    clusters: list[Raw] = []
    listed: dict[ApiResource, list[Raw]] = {}
    for kind in (*_KINDS, SECRET):
        objects = (
            secrets
            if kind == SECRET
            else await _list(client, kind, wanted.scope if kind.namespaced else "", bundle)
        )
        listed[kind] = objects
        chosen = [raw for raw in objects if wanted.is_of(kind, raw)]
        machines += chosen if kind == MACHINE else []
        clusters += chosen if kind == CLUSTER else []
        for raw in chosen[:MAX_OBJECTS]:
            bundle.add(_path_of(kind, raw), dump(redactor.object(raw)))
    events = await _list(client, EVENT, wanted.scope, bundle)
    if wanted.cluster is not None:
        events = _select_events(events, wanted.cluster, listed[CLUSTER], listed[MACHINE])
    bundle.add("events.txt", redactor.text(_render_events(events)))
    for name, path in (
        ("metrics.txt", "/metrics"),
        ("debug/state.json", STATE_PATH),
        ("debug/logs.ndjson", LOGS_PATH),
    ):
        if (text := await _read_page(client, path, bundle)) is not None:
            bundle.add(name, redactor.text(text))
    await _add_plans(bundle, clusters, describe_plan, redactor)
    for raw in machines[:MAX_CONSOLES] if read_console is not None else ():
        assert read_console is not None
        try:
            lines = await read_console(raw, CONSOLE_LINES)
        except (UserError, KubeError) as error:
            bundle.problems.append(
                redactor.text(f"console of Machine {namespace_of(raw)}/{name_of(raw)}: {error}")
            )
            continue
        name = f"consoles/{namespace_of(raw)}/{name_of(raw)}.txt"
        bundle.add(name, redactor.text("\n".join(lines)))
    if read_console is not None and len(machines) > MAX_CONSOLES:
        bundle.problems.append(f"consoles: those of the first {MAX_CONSOLES} of {len(machines)} Machines")
    bundle.add("problems.txt", redactor.text("".join(f"{one}\n" for one in bundle.problems) or "none\n"))
    return bundle


async def _add_plans(
    bundle: Bundle, clusters: Sequence[Raw], describe_plan: DescribePlan, redactor: Redactor
) -> None:
    if len(clusters) > MAX_PLANS:
        bundle.problems.append(f"plans: those of the first {MAX_PLANS} of {len(clusters)} Clusters")
    for raw in clusters[:MAX_PLANS]:
        name = f"{namespace_of(raw)}/{name_of(raw)}"
        with handle_crash(_log, "the plan cannot be made", cluster=name) as crash:
            plan = await describe_plan(raw)
            bundle.add(f"plans/{name}.yaml", dump(redactor.object({"kind": "Plan", "plan": plan})))
        if crash.error is not None:
            bundle.problems.append(f"plan of Cluster {name}: {crash.error}")


async def _list(client: Client, kind: ApiResource, namespace: str, bundle: Bundle) -> list[Raw]:
    try:
        found = await client.list(kind, namespace)
    except KubeError as error:
        if not error.status:
            raise
        bundle.problems.append(f"{kind.group_resource} in {namespace or 'all namespaces'}: {error.message}")
        return []
    return [{"apiVersion": kind.api_version, "kind": kind.kind, **raw} for raw in found]


async def _read_credential(client: Client, cluster: Raw, bundle: Bundle) -> list[Raw]:
    """The credential Secret of the Cluster, where it is in another namespace."""
    namespace, colon, name = str(nested(cluster, "spec", "cloudCredentialSecretName", default="")).partition(
        ":"
    )
    if not colon or namespace == namespace_of(cluster):
        return []
    try:
        raw = await client.get(SECRET.ref(name, namespace))
    except KubeError as error:
        bundle.problems.append(f"Secret {namespace}/{name}: {error.message}")
        return []
    return [{"apiVersion": "v1", "kind": "Secret", **raw}]


async def _version(client: Client, bundle: Bundle) -> str:
    text = await _read_page(client, "/version", bundle)
    return (text or "").strip()


async def _read_page(client: Client, path: str, bundle: Bundle) -> str | None:
    reply = await client.transport.send(Request("GET", path, accept="*/*"))
    if error := error_for(reply):
        bundle.problems.append(f"{path}: HTTP {reply.status}: {error.message}")
        return None
    if reply.status != 200:
        bundle.problems.append(f"{path}: HTTP {reply.status}")
        return None
    return reply.body.decode("utf-8", "replace")


def _path_of(kind: ApiResource, raw: Raw) -> str:
    """A path that stays in its folder, whatever the names are."""
    parts = ["objects", kind.plural, namespace_of(raw), name_of(raw)]
    safe = [part.replace("/", "_").lstrip(".") or "_" for part in parts if part]
    return f"{'/'.join(safe)}.yaml"


def _select_events(
    events: Sequence[Raw], cluster: Raw, clusters: Sequence[Raw], machines: Sequence[Raw]
) -> list[Raw]:
    """Those that `windrow events CLUSTER` shows."""
    kept = {one.uid for one in select_events(list_events(events), cluster, clusters, machines)}
    return [raw for raw in events if read_event(raw).uid in kept]


def _render_events(events: Sequence[Raw]) -> str:
    lines = []
    for raw in events:
        about = raw.get("involvedObject") or raw.get("regarding") or {}
        when = raw.get("lastTimestamp") or raw.get("eventTime") or raw["metadata"].get("creationTimestamp")
        said = " ".join(str(raw.get("message") or raw.get("note") or "").split())
        place = f"{about.get('kind')} {about.get('namespace', '')}/{about.get('name')}"
        lines.append(f"{when} {raw.get('type')} {raw.get('reason')} {place}: {said}\n")
    return "".join(sorted(lines))


def write_bundle(path: Path, bundle: Bundle, now: datetime) -> None:
    """Write the files as a compressed archive with mode 0600, whole or not at all. Raises OSError."""
    buffer = io.BytesIO()
    stem = path.name.removesuffix(".gz").removesuffix(".tar").removesuffix(".tgz")
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in bundle.files.items():
            entry = tarfile.TarInfo(f"{stem}/{name}")
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(now.timestamp())
            archive.addfile(entry, io.BytesIO(content))
    write_private(path, buffer.getvalue())
