"""The programs of one run, and what is between them: an emulated Harvester, one or two managers, relays, a user's objects.

manager ── relay ── the emulator's proxy ── Harvester's API, guest APIs
run ─────────────── Harvester's API and the management API, directly: it sees what is there whatever is cut
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import yaml
from tests.chaos.api import MERGE_PATCH, Api, Unanswered, read_kubeconfig
from tests.chaos.credentials import UserAccount, render_kubeconfig
from tests.chaos.disk import Disk
from tests.chaos.faults import (
    SERVERS,
    STARTUP_TIMEOUT_S,
    WORKERS,
    Create,
    Delete,
    DeleteMachine,
    Operation,
    Rest,
    Scale,
    Setup,
)
from tests.chaos.history import READ, History, follow
from tests.chaos.inventory import PATHS, Inventory, Item
from tests.chaos.programs import BIN, Program
from tests.chaos.relay import Relay
from tests.chaos.writes import Writer

NAMESPACE, CLUSTER = "fleet-default", "orchard"
CREDENTIAL = ("cattle-global-data", "cc-harvester")
VM_NAMESPACE = "default"
CLUSTERS = f"/apis/provisioning.cattle.io/v1/namespaces/{NAMESPACE}/clusters"
CONFIGS = f"/apis/rke-machine-config.cattle.io/v1/namespaces/{NAMESPACE}/harvesterconfigs"
MACHINES = f"/apis/windrow.io/v1alpha1/namespaces/{NAMESPACE}/machines"
VMS = f"/apis/kubevirt.io/v1/namespaces/{VM_NAMESPACE}/virtualmachines"
CLAIMS = f"/api/v1/namespaces/{VM_NAMESPACE}/persistentvolumeclaims"
ACTIONS = f"/apis/subresources.kubevirt.io/v1/namespaces/{VM_NAMESPACE}/virtualmachines"
CREDENTIALS = f"/api/v1/namespaces/{CREDENTIAL[0]}/secrets"
CREDENTIAL_KEY = "harvestercredentialConfig-kubeconfigContent"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/windrow-manager"

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"), None)
WINDROW = str(BIN / "windrow")
DRIVER = str(BIN / "docker-machine-driver-harvester")
CLOUD_PROVIDER = str(BIN / "harvester-cloud-provider")


def render_cluster(servers: int, workers: int) -> dict[str, Any]:
    """The Cluster as a user writes it."""
    pools = [
        {"name": SERVERS, "quantity": servers, "etcdRole": True, "controlPlaneRole": True},
        {"name": WORKERS, "quantity": workers, "workerRole": True},
    ]
    for pool in pools:
        pool["machineConfigRef"] = {"kind": "HarvesterConfig", "name": f"nc-{pool['name']}"}
        # The manager's own times are not scaled. A machine that was stopped in its first boot is replaced only then.
        pool["nodeStartupTimeout"] = f"{STARTUP_TIMEOUT_S}s"
    return {
        "apiVersion": "provisioning.cattle.io/v1",
        "kind": "Cluster",
        "metadata": {"name": CLUSTER, "namespace": NAMESPACE},
        "spec": {
            "cloudCredentialSecretName": ":".join(CREDENTIAL),
            "kubernetesVersion": "v1.34.7+rke2r1",
            "rkeConfig": {
                "machineGlobalConfig": {"cni": "calico", "cloud-provider-name": "harvester"},
                "machinePools": pools,
            },
        },
    }


def render_config(pool: str) -> dict[str, Any]:
    return {
        "apiVersion": "rke-machine-config.cattle.io/v1",
        "kind": "HarvesterConfig",
        "metadata": {"name": f"nc-{pool}", "namespace": NAMESPACE},
        "vmNamespace": VM_NAMESPACE,
        "cpuCount": "2",
        "memorySize": "4",
        "diskInfo": '{"disks":[{"imageName":"default/leap-micro","size":40,"bootOrder":1}]}',
        "networkInfo": '{"interfaces":[{"networkName":"default/vlan-50"}]}',
        "sshUser": "opensuse",
    }


CONFIG_DOCUMENTS = [render_config(SERVERS), render_config(WORKERS)]


def render_property() -> list[tuple[str, dict[str, Any]]]:
    """What another user has in the same namespace: a VM that is named as one of the pool, and a volume."""
    vm = {
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": f"{CLUSTER}-{WORKERS}-kxz4d-mine1", "namespace": VM_NAMESPACE},
        "spec": {
            "runStrategy": "Halted",
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
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": f"{CLUSTER}-{WORKERS}-kxz4d-mine1-data", "namespace": VM_NAMESPACE},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    return [(VMS, vm), (CLAIMS, claim)]


@dataclass
class Site:
    """Everything of one run, in `folder`, while entered."""

    setup: Setup
    folder: Path
    time_scale: float
    harvester: Api = field(init=False)
    management: Api = field(init=False)
    relay: Relay = field(init=False)
    emulator: Program = field(init=False)
    another: Api | None = None  # another user's Harvester, where nothing may be made
    account: UserAccount = field(init=False)
    writer: Writer = field(init=False)
    disk: Disk = field(init=False)
    managers: list[Program] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    history: History = field(default_factory=lambda: History(CLUSTER))
    before: frozenset[Item] = frozenset()  # what others have
    uids: dict[Item, str] = field(default_factory=dict)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def __aenter__(self) -> Self:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self.folder, 0o700)
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        self.emulator = await self._emulate("harvester", CONFIG_DOCUMENTS)
        self.harvester = self._api(self.folder / "harvester" / "harvester.yaml")
        self.relay = await self._stack.enter_async_context(Relay(self._proxy_port("harvester")))
        match self.setup:
            case "embedded":
                await self._start_embedded(env=self._clock_env())
            case "plugins":
                await self._start_embedded("--machine-backend", "plugin", "--driver", DRIVER)
            case "replicas":
                await self._start_replicas()
        await self._create_property()
        for kind in READ:
            task = asyncio.create_task(follow(self.history, self.harvester, kind))
            self._stack.callback(task.cancel)
        await self._post_credentials()
        for pool in (SERVERS, WORKERS):
            await self.management.demand("POST", CONFIGS, render_config(pool))

    async def _emulate(self, name: str, documents: list[dict[str, Any]]) -> Program:
        manifest = self.folder / f"{name}.preload.yaml"
        manifest.write_text(yaml.safe_dump_all([*documents, render_cluster(1, 0)]))
        argv = [WINDROW, "emulate", "--state-dir", name, "--time-scale", f"{self.time_scale:g}"]
        if self.setup == "plugins":
            argv += ["--cloud-provider", CLOUD_PROVIDER]
        return await self._run(
            Program(
                name,
                [*argv, "--preload", str(manifest)],
                self.folder,
                (self.folder / name / "harvester.yaml", self.folder / name / "credentials.yaml"),
            )
        )

    async def _start_embedded(self, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        folder = self.folder / "manager"
        self.disk = Disk(folder)
        self.disk.mount()
        self._stack.callback(self.disk.unmount)
        argv = [WINDROW, "serve", "--state-dir", "manager", *arguments]
        kubeconfig = folder / "manager.yaml"
        self.managers.append(await self._run(Program("manager", argv, self.folder, (kubeconfig,), env or {})))
        self.management = self._api(kubeconfig)
        self.writer = Writer(self.management)
        await self.writer.create()
        writing = asyncio.create_task(self.writer.run())
        self._stack.callback(writing.cancel)

    async def _start_replicas(self) -> None:
        await self._emulate("store", CONFIG_DOCUMENTS)
        original = self.folder / "store" / "harvester.yaml"
        self.management = self.another = self._api(original)
        for name in ("manager-a", "manager-b"):
            argv = [WINDROW, "serve", "--state-dir", name, "--kubeconfig", str(original)]
            self.managers.append(await self._run(Program(name, argv, self.folder)))
        # The managers install the kinds.
        while not (await self.management.call("GET", CONFIGS)).ok:  # noqa: ASYNC110 - no event of this process
            await asyncio.sleep(0.1)

    def _clock_env(self) -> dict[str, str]:
        """The environment of a program whose wall clock `set_clock` sets; none where libfaketime is not installed."""
        if FAKETIME is None:
            return {}
        self.set_clock(0)
        return {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self.folder / "clock"),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
        }

    def set_clock(self, by_s: int) -> bool:
        """Whether programs of this site read a clock that is wrong by `by_s` from now on."""
        fresh = self.folder / "clock.new"
        fresh.write_text(f"{by_s:+d}s\n")
        fresh.replace(self.folder / "clock")
        return FAKETIME is not None and self.setup == "embedded"

    async def _run(self, program: Program) -> Program:
        self.programs.append(program)
        self._stack.push_async_callback(program.end)
        await program.start()
        return program

    def _api(self, kubeconfig: Path) -> Api:
        api = Api(kubeconfig)
        self._stack.push_async_callback(api.aclose)
        return api

    def _proxy_port(self, name: str) -> int:
        access = read_kubeconfig(self.folder / name / "harvester.yaml")
        return int(urlsplit(access["proxy-url"]).port or 0)

    async def _create_property(self) -> None:
        for path, raw in render_property():
            made = await self.harvester.demand("POST", path, raw)
            key = (raw["kind"], VM_NAMESPACE, raw["metadata"]["name"])
            self.uids[key] = made["metadata"]["uid"]
        self.before = (await self.harvester.inventory()).items

    def credential(self, token: str) -> str:
        """The kubeconfig of Harvester with this token, by way of the relay."""
        original = (self.folder / "harvester" / "harvester.yaml").read_text()
        return render_kubeconfig(original, token, self.relay.port)

    async def _post_credentials(self) -> None:
        self.account = UserAccount(self.harvester)
        await self.account.create()
        kubeconfig = self.credential(await self.account.new_token())
        text = (self.folder / "harvester" / "credentials.yaml").read_text()
        for raw in yaml.safe_load_all(text):
            raw["stringData"][CREDENTIAL_KEY] = kubeconfig
            await self.management.demand("POST", CREDENTIALS, raw)

    async def renew_credential(self) -> None:
        await self.replace_credential(self.credential(await self.account.new_token()))

    async def replace_credential(self, kubeconfig: str) -> None:
        """What a user does after a rotation."""
        patch = {"stringData": {CREDENTIAL_KEY: kubeconfig}}
        await self.management.demand("PATCH", f"{CREDENTIALS}/{CREDENTIAL[1]}", patch, MERGE_PATCH)

    # -- what a user does ----------------------------------------------------------------------------------------------

    async def do(self, operation: Operation) -> None:
        """Ask the management API for it, until it has answered."""
        match operation:
            case Create(servers, workers):
                await self.management.demand("POST", CLUSTERS, render_cluster(servers, workers))
            case Scale(pool, quantity):
                raw = await self.management.demand("GET", f"{CLUSTERS}/{CLUSTER}")
                pools = raw["spec"]["rkeConfig"]["machinePools"]
                for one in pools:
                    if one["name"] == pool:
                        one["quantity"] = quantity
                patch = {"spec": {"rkeConfig": {"machinePools": pools}}}
                await self.management.demand("PATCH", f"{CLUSTERS}/{CLUSTER}", patch, MERGE_PATCH)
            case DeleteMachine(pick):
                machines = await self.management.list(MACHINES)
                names = sorted(one["metadata"]["name"] for one in machines if one["spec"]["pool"] == WORKERS)
                if names:
                    await self.management.demand("DELETE", f"{MACHINES}/{names[pick % len(names)]}")
            case Delete():
                await self.management.demand("DELETE", f"{CLUSTERS}/{CLUSTER}")
            case Rest():
                pass

    # -- what there is ---------------------------------------------------------------------------------------------------

    async def leader(self) -> Program:
        """The manager that works: of two, the one that holds the Lease."""
        if len(self.managers) == 1:
            return self.managers[0]
        lease = await self.management.find(LEASE)
        holder = str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")
        for manager in self.managers:
            if holder and manager.alive and holder in manager.log.read_text(errors="replace"):
                return manager
        return self.managers[0]

    async def statuses(self) -> list[tuple[str, bool, Mapping[str, Any]]]:
        """Cluster and Machines: name, is it Ready, status."""
        found = []
        for path, kind in ((CLUSTERS, "Cluster"), (MACHINES, "Machine")):
            for raw in await self.management.list(path):
                status = raw.get("status") or {}
                found.append((f"{kind} {raw['metadata']['name']}", is_ready(raw), status))
        return found

    async def inventory(self) -> Inventory:
        return await self.harvester.inventory()

    async def save_objects(self) -> None:
        """Write what there is into the folder, for who looks at a violation: objects, and the consoles of machines."""
        for path, api, name in (
            (CLUSTERS, self.management, "clusters"),
            (MACHINES, self.management, "machines"),
            (PATHS["VirtualMachine"], self.harvester, "vms"),
            (PATHS["VirtualMachineInstance"], self.harvester, "vmis"),
        ):
            with suppress(Unanswered):
                (self.folder / f"{name}.json").write_text(json.dumps(await api.list(path), indent=1))
        for vm in self.history.inventory.vms:
            with suppress(Unanswered):
                text = await self.harvester.text(f"/windrow/console/{vm.namespace}/{vm.name}")
                (self.folder / f"{vm.name}.console").write_text(text)

    def state_folders(self) -> list[Path]:
        """Where the programs keep their state."""
        names = ("manager", "manager-a", "manager-b", "harvester", "store")
        return [self.folder / name for name in names if (self.folder / name).exists()]


def is_ready(raw: Mapping[str, Any]) -> bool:
    conditions = (raw.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def condition_message(raw: Mapping[str, Any], type: str) -> str:
    conditions = (raw.get("status") or {}).get("conditions") or ()
    return next((str(one.get("message", "")) for one in conditions if one["type"] == type), "")


def render_waits(statuses: list[tuple[str, bool, Mapping[str, Any]]]) -> str:
    """What those that are not Ready say they wait for."""
    lines = [f"{name}: {json.dumps(status.get('waiting'))}" for name, ready, status in statuses if not ready]
    return "; ".join(lines) or "all is Ready"
