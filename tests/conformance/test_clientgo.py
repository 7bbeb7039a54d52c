"""Programs written with client-go, against the API server: informers, leases, protobuf bodies, apply."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from windrow.apiserver.http import Listener
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.app.clock import SystemClock
from windrow.core import pki
from windrow.core.formats import yaml
from windrow.core.rng import Rng
from windrow.kubernetes.handler import TlsIdentity

pytestmark = pytest.mark.go

WIDGETS = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.io"},
    "spec": {
        "group": "example.io",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {
                                    "size": {"type": "integer"},
                                    "color": {"type": "string", "default": "red"},
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("watch_list", ["true", "false"])
async def test_a_client_go_program_finds_nothing_amiss(
    reference_program: Callable[[str], str], tmp_path: Path, watch_list: str
) -> None:
    program = reference_program("clientgo")
    clock = SystemClock()
    ca, ca_key = pki.new_ca("it", clock.now(), 2)
    chain, key = pki.issue_certificate(
        ca,
        ca_key,
        common_name="api",
        ips=["127.0.0.1"],
        server=True,
        client=False,
        now=clock.now(),
        lifetime=timedelta(days=1),
    )
    server = ApiServer(MemoryStore(), clock, Rng(1), authorize="rbac", tls=TlsIdentity(chain, key, ca))
    server.tokens["t"] = ("admin", ("system:masters",), None)
    server.install_crd(WIDGETS)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(server.run())
        async with Listener(server) as listener:
            config = tmp_path / "config"
            cluster = {"server": f"https://127.0.0.1:{listener.port}", "certificate-authority-data": b64(ca)}
            raw = {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "it",
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
                "clusters": [{"name": "it", "cluster": cluster}],
                "users": [{"name": "it", "user": {"token": "t"}}],
            }
            config.write_text(yaml.dump(raw))
            process = await asyncio.create_subprocess_exec(
                program,
                str(config),
                env={"PATH": os.environ["PATH"], "KUBE_FEATURE_WatchListClient": watch_list},
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            out, _ = await asyncio.wait_for(process.communicate(), 90)
        running.cancel()

    assert process.returncode == 0, out.decode()
    assert "ok: leader election" in out.decode()
