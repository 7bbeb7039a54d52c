"""`/windrow/logs` on the management API: the latest lines of the manager's log, for `windrow logs`.

The whole log names the Clusters of all tenants, so that no role which tenants have includes the path. `/windrow/logs/NAMESPACE/NAME` has
the lines about one Cluster, for who may `get` that Cluster. Every authenticated user may ask there: ClusterRole `windrow-logs`.

A line is about a Cluster where one of its fields names the Cluster, or one of its Machines; a line that names none is for
administrators alone. Without `after` the answer comes at once; with it, once there are lines after that position, or WAIT is over.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from windrow.apiserver.apierrors import bad_request, error_reply, method_not_allowed, path_not_found
from windrow.apiserver.rbac import forbidden_error
from windrow.apiserver.request.info import RequestInfo, UserInfo
from windrow.apiserver.server import ApiServer
from windrow.app.support.log_buffer import LogBuffer
from windrow.app.support.redaction import Redactor
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.core.formats.fastjson import dumps, loads
from windrow.kubernetes.objects import Raw, name_of, nested, new_object
from windrow.kubernetes.requests import JSON, Reply, Request
from windrow.kubernetes.resources import CLUSTER_ROLE, CLUSTER_ROLE_BINDING

LOGS_PATH = "/windrow/logs"
ROLE_NAME = "windrow-logs"
WAIT_S = 30.0
_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_NUMBER = re.compile(r"[0-9]{1,15}")


def serve_logs(api: ApiServer, buffer: LogBuffer, wait_s: float = WAIT_S) -> None:
    """Answer LOGS_PATH, and the paths below it, with `{"position": …, "lines": […]}` from the buffer."""

    async def answer(request: Request, caller: UserInfo) -> Reply:
        if request.method != "GET":
            return error_reply(method_not_allowed())
        _, *names = request.path.removeprefix(LOGS_PATH).split("/")
        if names and (len(names) != 2 or not all(map(_NAME.fullmatch, names))):
            return error_reply(path_not_found())
        after = request.query_parameter("after")
        if after is not None and not _NUMBER.fullmatch(after):
            return error_reply(bad_request(f"after is {after[:20]!r}, and a position is wanted"))
        await _require_right(api, caller, names)
        lines, position = await _read(api, buffer, names, after, wait_s)
        await _require_right(api, caller, names)  # it may have been withdrawn meanwhile
        return Reply(200, dumps({"position": position, "lines": lines}), JSON, {"Cache-Control": "no-store"})

    api.routes[LOGS_PATH] = answer


async def _require_right(api: ApiServer, caller: UserInfo, names: list[str]) -> None:
    """Raises Forbidden where lines about the Cluster are asked for by who may not get it."""
    if not names:
        return
    info = RequestInfo.of(CLUSTER, *names)
    if not await api.allows(caller, "get", info):
        raise forbidden_error(caller, "get", info)


async def _read(
    api: ApiServer, buffer: LogBuffer, names: list[str], after: str | None, wait_s: float
) -> tuple[list[Raw], int]:
    position = int(after or 0)
    if position > buffer.position:  # of a process before this one
        position = 0
    deadline = asyncio.get_running_loop().time() + wait_s
    while True:
        texts, position = buffer.lines_after(position)
        lines = await _select(api, texts, *names) if names else list(map(loads, texts))
        if lines or after is None:
            return lines, position
        try:
            async with asyncio.timeout_at(deadline):
                await buffer.wait_beyond(position)
        except TimeoutError:
            return [], position


async def _select(api: ApiServer, texts: list[str], namespace: str, name: str) -> list[Raw]:
    """The lines about the Cluster, without tracebacks and what looks secret."""
    lines = [loads(text) for text in texts if f"{namespace}/" in text]
    machines: frozenset[str] = frozenset()
    if any(_machine_of(line).startswith(f"{namespace}/") for line in lines):
        found = await api.local().list(MACHINE, namespace)
        owned = [raw for raw in found if nested(raw, "spec", "clusterName") == name]
        machines = frozenset(f"{namespace}/{name_of(raw)}" for raw in owned)
    redact = Redactor().text
    return [_shown(line, redact) for line in lines if is_about(line, f"{namespace}/{name}", machines)]


def is_about(line: Raw, cluster: str, machines: frozenset[str]) -> bool:
    """Whether the line is about the Cluster `namespace/name`, whose Machines are called so. A Cluster that it names decides."""
    if named := _cluster_of(line):
        return named == cluster
    return _machine_of(line) in machines


def _cluster_of(line: Raw) -> str:
    if isinstance(cluster := line.get("cluster"), str):
        return cluster
    return _named(line, CLUSTER.kind)


def _machine_of(line: Raw) -> str:
    if isinstance(machine := line.get("machine"), str):
        return machine
    return _named(line, MACHINE.kind)


def _named(line: Raw, kind: str) -> str:
    """The name of the object of that kind in the fields that have the kind before the name."""
    for key in ("object", "key"):
        found, _, name = str(line.get(key, "")).partition(" ")
        if found == kind and name:
            return name
    return ""


def _shown(line: Raw, redact: Callable[[str], str]) -> Raw:
    shown: dict[str, Any] = {key: value for key, value in line.items() if key != "stack"}
    return {key: redact(value) if isinstance(value, str) else value for key, value in shown.items()}


async def install_log_role(api: Client) -> None:
    """Every authenticated user may ask for the lines about a Cluster. May be repeated."""
    rules = [{"nonResourceURLs": [f"{LOGS_PATH}/*"], "verbs": ["get"]}]
    role = {**new_object(CLUSTER_ROLE, ROLE_NAME), "rules": rules}
    binding = {
        **new_object(CLUSTER_ROLE_BINDING, ROLE_NAME),
        "roleRef": {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": ROLE_NAME},
        "subjects": [{"apiGroup": CLUSTER_ROLE.group, "kind": "Group", "name": "system:authenticated"}],
    }
    await api.apply(CLUSTER_ROLE.ref(ROLE_NAME), role, "windrow", force=True)
    await api.apply(CLUSTER_ROLE_BINDING.ref(ROLE_NAME), binding, "windrow", force=True)
