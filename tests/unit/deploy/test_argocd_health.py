"""Argo CD's health check of a Cluster, run by a real Lua."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHECK = Path(__file__).resolve().parents[3] / "deploy" / "gitops" / "argocd-health.lua"
LUA = next((found for name in ("lua5.4", "lua5.1", "lua") if (found := shutil.which(name))), None)
pytestmark = pytest.mark.skipif(LUA is None, reason="lua is not installed")


def to_lua(value: Any) -> str:
    """The value as a Lua expression."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'[{to_lua(key)}] = {to_lua(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"{{{', '.join(map(to_lua, value))}}}"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    return str(value).lower() if isinstance(value, bool) else "nil" if value is None else str(value)


def health_of(obj: dict[str, Any]) -> tuple[str, str]:
    """What the check says of the object, as Argo CD would run it."""
    program = (
        f"obj = {to_lua(obj)}\nlocal health = (function()\n{CHECK.read_text()}\nend)()\n"
        "print(health.status) print(health.message or '')"
    )
    done = subprocess.run([str(LUA), "-"], input=program, capture_output=True, text=True, check=True)
    status, message = done.stdout.splitlines()
    return status, message


def a_cluster(status: str = "", reason: str = "", message: str = "", **rest: Any) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": status, "reason": reason, "message": message}] if status else []
    conditions += rest.pop("conditions", [])
    spec = rest.pop("spec", {})
    return {
        "metadata": {"name": "prod", "generation": 2},
        "spec": spec,
        "status": {"observedGeneration": 2, "conditions": conditions, **rest},
    }


WAITING = {"waiting": {"for": "an address"}}


@pytest.mark.parametrize(
    ("cluster", "status", "message"),
    [
        ({"metadata": {}}, "Progressing", "not observed"),
        (a_cluster(), "Progressing", "not observed"),
        (a_cluster("True", "MachinesReady", "every machine is Ready"), "Healthy", "every machine is Ready"),
        (a_cluster("True", "MachinesReady", observedGeneration=1), "Progressing", "this change"),
        (
            a_cluster("True", "MachinesReady", phase="Updating", **WAITING),
            "Progressing",
            "waits for an address",
        ),
        (a_cluster("True", "MachinesReady", spec={"paused": True}), "Suspended", "paused"),
        (a_cluster("False", "InProgress", **WAITING), "Progressing", "waits for an address"),
        (a_cluster("False", "Degraded", **WAITING), "Degraded", "waits for an address"),
        (a_cluster("Unknown", "APIServerUnreachable", 'it "refused"'), "Degraded", 'it "refused"'),
        (a_cluster("False", "Refused", "no etcd; add one"), "Degraded", "no etcd; add one"),
        (
            a_cluster(
                "True", "MachinesReady", conditions=[{"type": "Accepted", "status": "False", "message": "no"}]
            ),
            "Degraded",
            "no",
        ),
        (a_cluster("False", "Deleting", "x"), "Progressing", "x"),
    ],
)
def test_the_health_of_a_cluster_is_its_ready_condition(cluster: dict[str, Any], status: str, message: str):
    found, told = health_of(cluster)

    assert found == status
    assert message in told
