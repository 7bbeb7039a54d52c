from __future__ import annotations

import asyncio
import io
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from windrow.apiserver.http import Listener
from windrow.apiserver.loopback import LoopbackClient
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.clock import SystemClock
from windrow.app.state.pki import new_ca
from windrow.cli import main
from windrow.cli.context import CliContext
from windrow.clusters.api.kinds import crds
from windrow.core.rng import Rng
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.nodedriver.schema import harvester_config_crd

KUBECONFIG = Path(".windrow") / "manager.yaml"


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str  # a line for each sentence
    err_lines: tuple[str, ...]  # as they are printed


Windrow = Callable[..., Answer]


@pytest.fixture
def windrow(tmp_path: Path) -> Windrow:
    """Runs one command line in an empty directory, with nothing of this process's surroundings."""

    def run(*argv: str, stdin: str = "", env: dict[str, str] | None = None) -> Answer:
        out, err = io.StringIO(), io.StringIO()
        context = CliContext(env or {}, tmp_path, io.StringIO(stdin), out, err, lambda: datetime.now(UTC))
        code, printed = main.run(argv, context), err.getvalue()
        return Answer(code, out.getvalue(), re.sub(r"\n +", " ", printed), tuple(printed.splitlines()))

    return run


class Manager:
    """A management API without a manager, in a thread of its own: tests play the manager's part."""

    def __init__(self, authorize: str | None = None) -> None:
        self.authorize = authorize
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),))
        self.access = ClientConfig("")

    async def _serve(self) -> None:
        clock = SystemClock()
        authority = new_ca("windrow", clock)
        self._api = ApiServer(
            MemoryStore(),
            clock,
            Rng(1),
            tls=authority.server_identity(clock, ("localhost",), ("127.0.0.1",)),
            root_ca=authority.certificate,
            authorize=self.authorize,
        )
        for crd in (*crds(), harvester_config_crd()):
            self._api.install_crd(crd)
        self._end = asyncio.Event()
        async with Listener(self._api) as listener, asyncio.TaskGroup() as group:
            running = group.create_task(self._api.run())
            self.access = authority.admin_config(clock, f"https://127.0.0.1:{listener.port}")
            self._up.set()
            await self._end.wait()
            running.cancel()

    def __enter__(self) -> Manager:
        self._thread.start()
        assert self._up.wait(60)
        return self

    def __exit__(self, *rest: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(60)

    def do(self, work: Callable[[LoopbackClient], Coroutine[Any, Any, Any]]) -> Any:
        """Do something to the objects, as the manager would."""
        return asyncio.run_coroutine_threadsafe(work(self._api.local()), self._loop).result(60)

    def serve(self, prefix: str, handler: Any) -> None:
        """Answer requests below a path, as the emulator does for consoles."""
        self._api.routes[prefix] = handler


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    """The management API that the command line finds in its directory, with Rancher's namespace."""
    with Manager() as made:
        (tmp_path / KUBECONFIG).parent.mkdir()
        (tmp_path / KUBECONFIG).write_text(render_kubeconfig(made.access, "windrow"))
        (tmp_path / "cluster.yaml").write_text(MANIFEST)
        yield made


MANIFEST = """
apiVersion: v1
kind: Namespace
metadata: {name: fleet-default}
---
apiVersion: provisioning.cattle.io/v1
kind: Cluster
metadata: {name: orchard, namespace: fleet-default}
spec:
  kubernetesVersion: v1.34.7+rke2r1
  cloudCredentialSecretName: cattle-global-data:cc-harvester
  rkeConfig:
    machineGlobalConfig: {cloud-provider-name: harvester}
    machinePools:
      - name: servers
        quantity: 3
        etcdRole: true
        controlPlaneRole: true
        machineConfigRef: {kind: HarvesterConfig, name: nc-orchard}
      - name: workers
        quantity: 2
        workerRole: true
        machineConfigRef: {kind: HarvesterConfig, name: nc-orchard}
---
apiVersion: rke-machine-config.cattle.io/v1
kind: HarvesterConfig
metadata: {name: nc-orchard, namespace: fleet-default}
cpuCount: "4"
diskInfo: '{"disks":[{"imageName":"default/leap","size":40}]}'
networkInfo: '{"interfaces":[{"networkName":"default/vlan"}]}'
sshUser: opensuse
"""
