"""One run of the CSI driver, over an emulated Harvester that is asked through an in-process transport."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest
from tests.stories.harvester_rig import blank
from tests.unit.csi.rig import create_volume, publish_volume

from windrow.app.clock import SystemClock
from windrow.client.in_process import InProcessTransport
from windrow.client.transport import Transport
from windrow.core.rng import Rng
from windrow.csi.cmd.arguments import Options
from windrow.csi.cmd.process import run
from windrow.emulator.delays import Delays
from windrow.emulator.harvester import Harvester
from windrow.kubernetes.kubeconfig import ClientConfig, parse_kubeconfig
from windrow.kubernetes.resources import LEASE, PVC, SERVICE
from windrow.protocols.csi import csi_pb2 as csi
from windrow.protocols.csi.services import CONTROLLER, IDENTITY, ServiceClient

LOG = logging.getLogger("csi-test")


class Running:
    """A driver that runs, its files, and clients of its services."""

    def __init__(self, folder: Path, harvester: Harvester, channel: grpc.aio.Channel, token: str) -> None:
        self.token = token
        self.kubeconfig = folder / "kubeconfig"
        self.harvester = harvester
        self.controller = ServiceClient(channel, CONTROLLER)
        self.identity = ServiceClient(channel, IDENTITY)

    async def create(self, name: str) -> csi.Volume:
        return (
            await self.controller.call(create_volume(name), csi.CreateVolumeResponse, timeout_s=20)
        ).volume


@asynccontextmanager
async def a_driver(folder: Path, *, fences: bool = False) -> AsyncIterator[Running]:
    clock = SystemClock()
    harvester = Harvester(clock, Rng(7), machine_factory=blank, delays=Delays(volume_bind=0))
    token = harvester.new_token()
    endpoint = f"unix://{folder}/csi.sock"
    (folder / "kubeconfig").write_text(harvester.token_kubeconfig(token, ""))

    def connect(access: ClientConfig) -> Transport:
        return InProcessTransport(access, harvester.network.find, clock)

    options = Options(endpoint, kubeconfig=str(folder / "kubeconfig"), fence_nodes=fences)
    is_serving = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(harvester.run())
        service = {
            "metadata": {"name": "kubernetes", "namespace": "default"},
            "spec": {"ports": [{"port": 443}]},
        }
        await harvester.api.local().create(SERVICE, service)
        driver = tasks.create_task(
            run(
                options,
                "v1",
                lambda path: Path(path).read_text(),
                connect,
                clock,
                Rng(1),
                LOG,
                guest=connect(harvester_access(harvester)),
                on_serving=is_serving.set,
            )
        )
        await is_serving.wait()
        async with grpc.aio.insecure_channel(endpoint) as channel:
            yield Running(folder, harvester, channel, token)
        driver.cancel()
        running.cancel()


def harvester_access(harvester: Harvester) -> ClientConfig:
    """The guest cluster's API: any that has its own service."""
    return parse_kubeconfig(harvester.token_kubeconfig(harvester.new_token(), ""))


async def test_a_driver_makes_volumes_on_harvester_and_stops_cleanly(tmp_path: Path):
    async with a_driver(tmp_path) as driver:
        assert (await driver.create("pvc-1")).volume_id == "pvc-1"
        claim = await driver.harvester.api.local().get(PVC.ref("pvc-1", "default"))
        assert claim["metadata"]["annotations"]["windrow.io/guest-uid"]
        assert claim["metadata"]["labels"] == {"windrow.io/csi-driver": "driver.harvesterhci.io"}
        answer = await driver.identity.call(csi.ProbeRequest(), csi.ProbeResponse, timeout_s=20)
        assert answer.ready.value
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await driver.controller.call(
                publish_volume("pvc-1", "no-vm"), csi.ControllerPublishVolumeResponse, timeout_s=20
            )
        assert error.value.code() == grpc.StatusCode.NOT_FOUND

    assert not (tmp_path / "csi.sock").exists()


@pytest.mark.parametrize("fences", [True, False])
async def test_the_lease_of_fencing_is_held_where_that_is_asked_for(tmp_path: Path, fences: bool):
    async with a_driver(tmp_path, fences=fences) as driver:
        await driver.create("pvc-1")
        lease = LEASE.ref("harvester-csi-node-monitor", "kube-system")
        found = await driver.harvester.api.local().find(lease)
        while fences and found is None:
            await asyncio.sleep(0.05)
            found = await driver.harvester.api.local().find(lease)

        assert (found is not None) is fences


async def test_a_renewed_credential_is_used_at_the_first_rejection(tmp_path: Path):
    async with a_driver(tmp_path) as driver:
        await driver.create("pvc-1")
        driver.harvester.credentials.revoke(driver.token)
        driver.kubeconfig.write_text(driver.harvester.token_kubeconfig(driver.harvester.new_token(), ""))

        assert (await driver.create("pvc-2")).volume_id == "pvc-2"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (Options("unix:///x/y", kubeconfig="/nowhere"), "the kubeconfig for Harvester cannot be read"),
        (Options("http://x"), "is neither unix:// nor tcp://"),
        (Options("unix:///nowhere/at/all"), "cannot listen at /nowhere/at/all"),
    ],
)
async def test_a_start_that_cannot_be_is_told(
    options: Options, problem: str, caplog: pytest.LogCaptureFixture
):
    def connect(access: ClientConfig) -> Transport:
        raise AssertionError

    code = await run(options, "v1", lambda path: Path(path).read_text(), connect, SystemClock(), Rng(1), LOG)

    assert code == 1
    assert problem in caplog.text


def test_sigterm_ends_the_process_with_0(tmp_path: Path):
    endpoint = f"unix://{tmp_path}/csi.sock"
    program = subprocess.Popen(
        [sys.executable, "-m", "windrow.app.csi.driver", "--endpoint", endpoint, "--nodeid", "a"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "KUBERNETES_SERVICE_HOST": ""},
    )
    assert program.stderr is not None
    while "serving Identity, Node at" not in (line := program.stderr.readline()):
        assert line, "it ended"
    program.send_signal(signal.SIGTERM)

    assert program.wait(timeout=20) == 0
    assert not (tmp_path / "csi.sock").exists()
