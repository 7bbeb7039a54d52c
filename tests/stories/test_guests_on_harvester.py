"""Machines of the emulated Harvester that boot with what `bootstrap` renders: product and emulator agree."""

from __future__ import annotations

from datetime import timedelta

from tests.support.clock import NOON, run_driven

from windrow.bootstrap import DISTRIBUTIONS
from windrow.bootstrap.pki import new_cluster_secrets
from windrow.bootstrap.spec import BootstrapSpec, ClusterSecrets, GuestCredential, Role
from windrow.core import pki
from windrow.core.formats.json import loads
from windrow.emulator.guest_os.hardware import ProgramContext
from windrow.emulator.guest_os.machine import machine_factory
from windrow.emulator.harvester import Harvester
from windrow.kubernetes import requests
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import name_of, nested
from windrow.kubernetes.resources import NODE, SECRET

from .harvester_rig import a_harvester, boot, eventually, order, shows, vm_ref

ALL = frozenset(Role)
VERSION = "v1.35.1+rke2r1"


def an_intent(
    secrets: ClusterSecrets, name: str, roles: frozenset[Role] = ALL, server: str = ""
) -> BootstrapSpec:
    return BootstrapSpec(
        "mine",
        name,
        f"uid-of-{name}",
        VERSION,
        roles,
        secrets,
        init_server=not server,
        join_server=server,
        global_config={"cni": "calico", "disable-kube-proxy": False, "etcd-expose-metrics": False},
        selector_config=[{"config": {"cloud-provider-name": "harvester", "protect-kernel-defaults": False}}],
        guest_credential=GuestCredential("apiVersion: v1\nkind: Config\n"),
    )


async def stand_up(harvester: Harvester, intent: BootstrapSpec) -> str:
    """Boot a machine with the rendered document; its address."""
    document = DISTRIBUTIONS["rke2"].render(intent) + "packages: [qemu-guest-agent]\n"
    # The driver starts the agent; here it is written out.
    document = document.replace("runcmd:\n", "runcmd:\n- systemctl start qemu-guest-agent\n", 1)
    secret = {"metadata": {"name": f"{intent.hostname}-init"}, "stringData": {"userdata": document}}
    await harvester.api.local().create(SECRET, secret, "default")
    vmi = await boot(harvester, name=intent.hostname, secret=f"{intent.hostname}-init")
    return str(nested(vmi, "status", "interfaces", 0, "ipAddress"))


async def ready_nodes(harvester: Harvester, secrets: ClusterSecrets, address: str) -> set[str]:
    door = harvester.network.find(address, 6443)
    if door is None:
        return set()
    certificate, _ = pki.issue_certificate(
        secrets.client_ca.certificate,
        secrets.client_ca.key,
        common_name="admin",
        organizations=("system:masters",),
        client=True,
        now=NOON,
        lifetime=timedelta(days=1),
    )
    reply = await door.send(requests.list_(NODE), Peer(certificate))
    nodes = loads(reply.body)["items"]
    return {name_of(raw) for raw in nodes if is_true(raw["status"]["conditions"], "Ready")}


async def until_ready(harvester: Harvester, secrets: ClusterSecrets, address: str, names: set[str]) -> None:
    clock = harvester.clock.base
    end = clock.now() + timedelta(minutes=10)
    while not await ready_nodes(harvester, secrets, address) >= names:
        assert clock.now() < end, "\n".join(harvester.console("default", next(iter(names))))
        await clock.sleep_until(clock.now() + timedelta(seconds=1))


async def let_pass(harvester: Harvester, seconds: float) -> None:
    clock = harvester.clock.base
    await clock.sleep_until(clock.now() + timedelta(seconds=seconds))


def test_a_rendered_server_and_worker_become_a_cluster_that_survives_a_restart():
    async def story() -> None:
        started: list[tuple[str, ...]] = []

        async def provider(around: ProgramContext) -> int:
            started.append(around.argv)
            await around.clock.sleep_until(around.clock.now() + timedelta(days=1))
            return 0

        programs = {"harvester-cloud-provider": provider}
        async with a_harvester(machine=machine_factory(programs)) as harvester:
            secrets = new_cluster_secrets(NOON)
            address = await stand_up(harvester, an_intent(secrets, "one"))
            join = f"https://{address}:9345"
            await stand_up(harvester, an_intent(secrets, "two", frozenset({Role.WORKER}), join))
            await until_ready(harvester, secrets, address, {"one", "two"})
            assert started == [
                (
                    "harvester-cloud-provider",
                    "--cloud-config=/etc/kubernetes/cloud-config",
                    "--cluster-name=mine",
                )
            ]

            await order(harvester, "stop", "one")
            await eventually(harvester, vm_ref("one"), shows("Stopped"))
            assert harvester.network.find(address, 6443) is None
            await let_pass(harvester, 5)
            assert await order(harvester, "start", "one") == 202
            await until_ready(harvester, secrets, address, {"one", "two"})
            await let_pass(harvester, 30)
            assert len(started) == 2

    run_driven(story())
