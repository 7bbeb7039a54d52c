"""The process `harvester-cloud-provider` between an emulated Harvester and a guest's API, over sockets."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.blank_machine import BlankMachine

from windrow.apiserver.http import Listener
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.app.clock import SystemClock
from windrow.core import pki
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.harvester import Harvester
from windrow.emulator.proxy import serve
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.handler import TlsIdentity
from windrow.kubernetes.kubeconfig import ClientConfig, ExecConfig, parse_kubeconfig, render_kubeconfig
from windrow.kubernetes.objects import nested, new_object
from windrow.kubernetes.resources import LEASE, NODE, SERVICE, ApiResource

PROGRAM = str(Path(sys.executable).with_name("harvester-cloud-provider"))
LEASE_REF = LEASE.ref("cloud-controller-manager", "kube-system")
UNINITIALISED = "node.cloudprovider.kubernetes.io/uninitialized"
CLUSTER_ROLE = ApiResource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDING = ApiResource(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False
)
MASTERS = ("system:masters",)


@dataclass
class Running:
    """One process of the program; `port` is where its probes are."""

    process: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        (said,) = self.said("serving probes and metrics at")
        return int(said.rpartition(":")[2])

    def said(self, words: str) -> list[str]:
        return [line for line in self.lines if words in line]

    def told(self) -> str:
        return "\n".join(self.lines)

    async def listen(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.lines.append(line.decode().rstrip())

    async def until_said(self, words: str, within: float = 60) -> None:
        await until(lambda: bool(self.said(words)), self.told, within)

    def hang_up(self) -> None:
        """Close the pipe that the process logs to."""
        pipe = self.process._transport.get_pipe_transport(2)  # type: ignore[attr-defined]
        pipe.close()

    async def end(self, *signals: signal.Signals) -> int:
        """The exit code after the signals."""
        for one in signals:
            self.process.send_signal(one)
        return await asyncio.wait_for(self.process.wait(), 60)

    async def get(self, path: str, token: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"https://127.0.0.1:{self.port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False, headers=headers) as answer:
            return answer.status, await answer.text()


async def until(is_so: Callable[[], Any], told: Callable[[], str], within: float = 60) -> None:
    deadline = time.monotonic() + within
    while True:
        found = is_so()
        if await found if isinstance(found, Awaitable) else found:
            return
        assert time.monotonic() < deadline, told()
        await asyncio.sleep(0.02)


class Place:
    """A Harvester and a guest cluster that answer, and a directory for the program's files."""

    def __init__(self, folder: Path, tasks: AsyncExitStack, harvester: Harvester, guest: ApiServer) -> None:
        self.folder = folder
        self.harvester = harvester
        self.guest = guest
        self.cluster = guest.local()
        self.host_access = self.guest_access = ClientConfig("")
        self._tasks = tasks
        self._listeners: list[asyncio.Task[None]] = []

    def write_cloud_config(self, token: str, namespace: str = "default") -> None:
        """As kubelet does it: a new file takes the old one's name."""
        self.harvester.api.tokens[token] = ("guest", MASTERS, None)
        access = replace(self.host_access, token=token, namespace=namespace)
        fresh = self.folder / "fresh"
        fresh.write_text(render_kubeconfig(access, "harvester"))
        fresh.replace(self.folder / "cloud-config")

    async def start(self, *more: str) -> Running:
        process = await asyncio.create_subprocess_exec(
            PROGRAM,
            f"--cloud-config={self.folder}/cloud-config",
            f"--kubeconfig={self.folder}/guest",
            "--cluster-name=demo",
            "--bind-address=127.0.0.1",
            *more,
            env={"PATH": os.environ["PATH"], "HOSTNAME": "node-1"},
            stderr=asyncio.subprocess.PIPE,
        )
        running = Running(process)
        listening = asyncio.create_task(running.listen())

        async def stop() -> None:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await listening

        self._tasks.push_async_callback(stop)
        return running

    async def holder(self) -> str:
        try:
            return str(nested(await self.cluster.get(LEASE_REF), "spec", "holderIdentity", default=""))
        except NotFound:
            return ""

    async def leads(self, *more: str) -> Running:
        """Start one and wait until it leads."""
        running = await self.start("--secure-port=0" if not more else more[0], *more[1:])
        await running.until_said("running the controllers")
        return running

    async def make_vm(self, name: str) -> None:
        vm = {
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {
                "name": name,
                "namespace": "default",
                "labels": {"guestcluster.harvesterhci.io/name": "demo"},
            },
            "spec": {
                "runStrategy": "Always",
                "template": {
                    "spec": {
                        "domain": {
                            "cpu": {"cores": 1},
                            "devices": {},
                            "resources": {"limits": {"memory": "1Gi", "cpu": "1"}},
                        }
                    }
                },
            },
        }
        await self.harvester.api.local().create(kinds.VM, vm)

    async def join(self, name: str) -> None:
        taint = {"key": UNINITIALISED, "value": "true", "effect": "NoSchedule"}
        await self.cluster.create(NODE, new_object(NODE, name, spec={"taints": [taint]}))

    async def is_initialised(self, name: str) -> bool:
        raw = await self.cluster.get(NODE.ref(name))
        return bool(nested(raw, "spec", "providerID")) and not nested(raw, "spec", "taints")


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with a_place(tmp_path) as made:
        yield made


@asynccontextmanager
async def a_place(folder: Path) -> AsyncIterator[Place]:
    clock = SystemClock()
    now = datetime.now(UTC)
    authority = pki.new_ca("guest", now, 1)
    chain, key = pki.issue_certificate(
        *authority, common_name="guest", ips=["127.0.0.1"], server=True, now=now, lifetime=timedelta(days=1)
    )
    guest = ApiServer(
        MemoryStore(),
        clock,
        Rng(1),
        name="guest",
        tls=TlsIdentity(chain, key),
        authorize="rbac",
        anonymous=True,
    )
    guest.tokens["program"] = ("program", MASTERS, None)
    harvester = Harvester(
        clock,
        Rng(2),
        machine_factory=lambda hardware, wires: BlankMachine(hardware, wires, agent=True),
        time_scale=100.0,
    )
    async with AsyncExitStack() as stack:
        for work in (guest.run(), harvester.run()):
            task = asyncio.create_task(work)
            stack.push_async_callback(asyncio.wait, {task})
            stack.callback(task.cancel)
        served = await stack.enter_async_context(serve(harvester))
        listener = await stack.enter_async_context(Listener(guest))
        made = Place(folder, stack, harvester, guest)
        administrator = parse_kubeconfig(served.kubeconfig)
        made.host_access = replace(administrator, proxy_url="", certificate="", key="", token="")
        made.guest_access = ClientConfig(
            f"https://127.0.0.1:{listener.port}", ca=authority[0], token="program"
        )
        (folder / "guest").write_text(render_kubeconfig(made.guest_access, "guest"))
        made.write_cloud_config("first")
        yield made


async def test_a_life_from_start_to_sigterm(place: Place) -> None:
    running = await place.leads("--secure-port=0")
    holder = await place.holder()

    code = await running.end(signal.SIGTERM)

    assert holder.startswith("node-1_")
    assert (code, await place.holder()) == (0, "")


@pytest.mark.parametrize(
    "signals", [(signal.SIGINT,), (signal.SIGTERM, signal.SIGTERM), (signal.SIGINT, signal.SIGINT)]
)
async def test_every_signal_ends_it_and_a_second_one_does_not_hang(place: Place, signals: Any) -> None:
    running = await place.leads()

    code = await running.end(*signals)

    assert code == 0


async def test_the_next_one_takes_over_within_seconds_of_a_sigterm(place: Place) -> None:
    first = await place.leads()
    second = await place.start("--secure-port=0")
    await second.until_said("attempting to acquire")
    await asyncio.sleep(0.5)
    waits = second.said("running the controllers")

    await first.end(signal.SIGTERM)
    await second.until_said("running the controllers")

    assert waits == []


async def test_a_standby_ends_at_once_and_leaves_the_lease_alone(place: Place) -> None:
    await place.leads()
    second = await place.start("--secure-port=0")
    await second.until_said("attempting to acquire")
    holder = await place.holder()

    code = await second.end(signal.SIGTERM)

    assert (code, await place.holder()) == (0, holder)


async def test_a_credential_may_come_from_a_program(place: Place) -> None:
    place.harvester.api.tokens["printed"] = ("guest", MASTERS, None)
    plugin = place.folder / "login"
    said = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"printed"}}'
    plugin.write_text(f"#!/bin/sh\necho '{said}'\n")
    plugin.chmod(0o755)
    access = replace(place.host_access, exec=ExecConfig(str(plugin)), namespace="default")
    (place.folder / "cloud-config").write_text(render_kubeconfig(access, "harvester"))
    running = await place.leads()
    await place.make_vm("w1")
    await place.join("w1")

    await until(lambda: place.is_initialised("w1"), running.told)


async def test_a_node_is_initialised_and_a_rotated_credential_goes_on_with_it(place: Place) -> None:
    running = await place.leads()
    await place.make_vm("w1")
    await place.join("w1")
    await until(lambda: place.is_initialised("w1"), running.told)

    place.write_cloud_config("second")
    del place.harvester.api.tokens["first"]
    await running.until_said("reloaded the credential")
    await place.make_vm("w2")
    await place.join("w2")
    await until(lambda: place.is_initialised("w2"), running.told)

    assert running.process.returncode is None
    assert running.said("cannot watch") == running.said("restarting the controllers") == []


async def test_a_file_that_was_replaced_under_its_mount_ends_it_once_the_credential_is_refused(
    place: Place,
) -> None:
    # What a bind mount shows, seen through an open descriptor: a file that no directory holds any more.
    with (place.folder / "cloud-config").open() as mounted:
        running = await place.leads(
            "--secure-port=0", f"--cloud-config=/proc/{os.getpid()}/fd/{mounted.fileno()}"
        )
        place.write_cloud_config("second")
        await running.until_said("the mount shows the old file")
        del place.harvester.api.tokens["first"]
        ports = [{"port": 80, "protocol": "TCP"}]
        service = new_object(SERVICE, "web", "default", spec={"type": "LoadBalancer", "ports": ports})
        await place.cluster.create(SERVICE, service)  # Harvester is asked for an address
        code = await asyncio.wait_for(running.process.wait(), 20)

    assert code == 1
    assert await place.holder() == ""


async def test_the_probes_tell_how_it_is(place: Place) -> None:
    running = await place.leads(f"--secure-port={free_port()}")

    pages = {
        path: await running.get(path)
        for path in ("/healthz", "/livez", "/readyz", "/healthz/ping", "/nowhere")
    }
    status, verbose = await running.get("/healthz?verbose")

    assert [pages[path] for path in ("/healthz", "/livez", "/readyz")] == [(200, "ok")] * 3
    assert [pages[path][0] for path in ("/healthz/ping", "/nowhere")] == [
        403,
        403,
    ]  # as Kubernetes: not on the list
    assert (status, verbose.splitlines()) == (
        200,
        [
            "[+]ping ok",
            "[+]leaderElection ok",
            "[+]cloud-node-controller ok",
            "[+]cloud-node-lifecycle-controller ok",
            "[+]service-lb-controller ok",
            "healthz check passed",
        ],
    )


async def test_metrics_are_for_those_whom_the_guest_lets_see_them(place: Place) -> None:
    place.guest.tokens["scraper"] = ("scraper", (), None)
    place.guest.tokens["foreign"] = ("foreign", (), None)
    role = {"rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]}
    await place.cluster.create(CLUSTER_ROLE, new_object(CLUSTER_ROLE, "scrapers", **role))
    binding = {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scrapers"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "scraper"}],
    }
    await place.cluster.create(CLUSTER_ROLE_BINDING, new_object(CLUSTER_ROLE_BINDING, "scrapers", **binding))
    running = await place.leads(f"--secure-port={free_port()}")

    status, text = await running.get("/metrics", "scraper")

    assert status == 200
    assert 'leader_election_master_status{name="cloud-controller-manager"} 1.0\n' in text
    assert "service_controller_loadbalancer_sync_total 0.0\n" in text
    assert (await running.get("/metrics/slis", "scraper"))[0] == 403
    assert (await running.get("/metrics", "foreign"))[0] == 403
    assert (await running.get("/metrics", "unknown"))[0] == 401
    assert 'User \\"system:anonymous\\" cannot get path \\"/metrics\\"' in (await running.get("/metrics"))[1]


async def test_metrics_may_be_for_everybody(place: Place) -> None:
    running = await place.leads(
        f"--secure-port={free_port()}", "--authorization-always-allow-paths=/healthz,/metrics*"
    )

    assert [(await running.get(path))[0] for path in ("/metrics", "/metrics/slis", "/nowhere")] == [
        200,
        200,
        403,
    ]


async def test_a_taken_port_is_told_with_the_cure(place: Place) -> None:
    running = await place.leads(f"--secure-port={free_port()}")

    second = await place.start(f"--secure-port={running.port}")
    code = await asyncio.wait_for(second.process.wait(), 15)
    await second.until_said("Error detail")

    assert code == 1
    assert f"listen tcp 127.0.0.1:{running.port}: bind: address already in use" in second.lines[-1]
    assert "--secure-port" in second.lines[-1]


async def test_the_certificate_on_the_port_is_renewed_without_a_restart(place: Place) -> None:
    def write(name: str) -> str:
        now = datetime.now(UTC)
        authority = pki.new_ca(name, now, 1)
        chain, key = pki.issue_certificate(
            *authority, common_name=name, ips=["127.0.0.1"], server=True, now=now, lifetime=timedelta(days=1)
        )
        (place.folder / "tls.crt").write_text(chain)
        (place.folder / "tls.key").write_text(key)
        return authority[0]

    async def is_shown(authority: str, port: int) -> bool:
        context = ssl.create_default_context(cadata=authority)
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        except ssl.SSLCertVerificationError:
            return False
        writer.close()
        return True

    first = write("first")
    files = (f"--tls-cert-file={place.folder}/tls.crt", f"--tls-private-key-file={place.folder}/tls.key")
    running = await place.leads(f"--secure-port={free_port()}", *files)
    before = await is_shown(first, running.port)
    second = write("second")
    (place.folder / "tls.crt").write_text((place.folder / "tls.crt").read_text())

    assert before
    assert await is_shown(second, running.port)
    assert not await is_shown(first, running.port)


async def test_a_lost_lead_ends_it_with_one(place: Place) -> None:
    running = await place.leads()
    spec = {"holderIdentity": "another-manager", "leaseDurationSeconds": 3600}

    await place.cluster.patch(LEASE_REF, {"spec": spec})
    code = await asyncio.wait_for(running.process.wait(), 20)
    await running.until_said("leaderelection lost")

    assert code == 1
    assert await place.holder() == "another-manager"


async def test_an_unexpected_error_ends_it_with_one_and_releases_the_lease(place: Place) -> None:
    running = await place.leads()
    held = await place.holder()

    running.hang_up()  # what it says next cannot be said
    place.write_cloud_config("second")
    code = await asyncio.wait_for(running.process.wait(), 20)

    assert held.startswith("node-1_")
    assert (code, await place.holder()) == (1, "")


@pytest.mark.parametrize("command", ["--help", "--nonsense --show-full-help-on-error 2>&1"])
async def test_a_reader_of_the_first_line_only_sees_no_traceback(command: str) -> None:
    shell = await asyncio.create_subprocess_shell(
        f"{PROGRAM} {command} | head -1", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, errors = await asyncio.wait_for(shell.communicate(), 20)

    assert len(out.splitlines()) == 1
    assert errors == b""


async def test_another_first_word_than_its_name_is_refused() -> None:
    process = await asyncio.create_subprocess_exec(
        PROGRAM, "harvester-cloud-provider", "--cloud-config=/c", stderr=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), 20)

    assert process.returncode == 1
    assert b"does not take any arguments, got [harvester-cloud-provider]" in errors


async def test_a_name_that_does_not_resolve_does_not_delay_the_end(place: Place) -> None:
    place.host_access = replace(place.host_access, server="https://harvester.invalid:6443")
    place.write_cloud_config("first")
    running = await place.leads()

    code = await running.end(signal.SIGTERM)

    assert (code, await place.holder()) == (0, "")


def free_port() -> int:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
