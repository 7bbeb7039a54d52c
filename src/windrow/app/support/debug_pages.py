"""`/debug/state` and `/debug/logs` on the management API, for users who may `get` these paths by its RBAC: cluster-admin.

They name the objects of all tenants. No Secret is in them: what a manager is configured with is its command line, and its log has no
value of a Secret.
"""

from __future__ import annotations

import asyncio
import platform
from collections import Counter
from collections.abc import Mapping
from typing import Any

import windrow
from windrow.apiserver.apierrors import error_reply, method_not_allowed, path_not_found
from windrow.apiserver.request.info import UserInfo
from windrow.apiserver.server import ApiServer
from windrow.app.support.log_buffer import LogBuffer
from windrow.clusters.metrics.manager import ManagerMetrics
from windrow.core.formats.fastjson import dumps
from windrow.kubernetes.requests import JSON, Reply, Request

PREFIX = "/debug"
STATE_PATH, LOGS_PATH = f"{PREFIX}/state", f"{PREFIX}/logs"
MAX_TASKS = 500
TEXT = "application/x-ndjson"


def serve_debug(
    api: ApiServer, metrics: ManagerMetrics, logs: LogBuffer, config: Mapping[str, object]
) -> None:
    """Answer both paths. `config` is how the manager was started."""

    async def answer(request: Request, caller: UserInfo) -> Reply:
        if request.path not in (STATE_PATH, LOGS_PATH):
            return error_reply(path_not_found())
        if request.method not in ("GET", "HEAD"):
            return error_reply(method_not_allowed())
        if request.path == LOGS_PATH:
            return Reply(200, logs.text().encode(), TEXT)
        return Reply(200, dumps(describe_process(metrics, config)), JSON)

    api.routes[PREFIX] = answer


def describe_process(metrics: ManagerMetrics, config: Mapping[str, object]) -> dict[str, Any]:
    """What the process is, does and waits for: as Go's goroutine dump, tasks by where they wait."""
    tasks = Counter(_describe_task(task) for task in asyncio.all_tasks())
    return {
        "version": windrow.__version__,
        "commit": windrow.__commit__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "config": dict(config),
        "watching": dict(metrics.sources.watching()),
        "workQueue": metrics.registry.value("workqueue_depth", name="clusters"),
        "tasks": [
            {"task": name, "waitsAt": where, "count": count}
            for (name, where), count in tasks.most_common(MAX_TASKS)
        ],
        "taskCount": sum(tasks.values()),
    }


def _describe_task(task: asyncio.Task[Any]) -> tuple[str, str]:
    name = task.get_name()
    frames = task.get_stack(limit=1)
    where = "" if not frames else f"{frames[0].f_globals.get('__name__', '')}:{frames[0].f_lineno}"
    return ("" if name.startswith("Task-") else name[:120]), where
