"""The direct adapter over an emulated Harvester, in one process, with a credential that can be revoked."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.blank_machine import BlankMachine
from tests.stories.harvester_rig import a_harvester, a_vm, blank, eventually, is_gone

from windrow.client.in_process import InProcessTransport
from windrow.client.transport import Transport
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.emulator.guest_os.hardware import Hardware, HostInterface
from windrow.emulator.harvester import Harvester
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import PVC, SECRET
from windrow.machines.harvester.machines import HarvesterMachines


class Counting:
    """A transport that remembers what went out."""

    def __init__(self, inner: Transport, log: list[Request]) -> None:
        self._inner, self._log = inner, log

    async def send(self, request: Request) -> Reply:
        self._log.append(request)
        return await self._inner.send(request)

    def stream(self, request: Request) -> Any:
        self._log.append(request)
        return self._inner.stream(request)

    async def aclose(self) -> None:
        pass


class HarvesterRig:
    def __init__(self, harvester: Harvester) -> None:
        self.harvester = harvester
        self.line = harvester.api.local()
        self.requests: list[Request] = []
        self.guests: list[BlankMachine] = []
        self.token = harvester.new_token()
        self.server = ""
        self.missing_credential = False
        self.machines = HarvesterMachines(self.credential, self.dial, harvester.clock.base, Rng(3))

    async def credential(self, name: str) -> str:
        if self.missing_credential:
            raise LookupError(f"Secret {name} does not exist")
        return self.harvester.token_kubeconfig(self.token, self.server)

    def dial(self, access: ClientConfig) -> Transport:
        clock = self.harvester.clock.base
        return Counting(InProcessTransport(access, self.harvester.network.find, clock), self.requests)

    def calls(self) -> list[str]:
        """The requests but for watches and the lists that they begin with, as `VERB last/parts`."""
        told = []
        for request in self.requests:
            is_watch = request.query_parameter("watch") is not None
            is_list = request.method == "GET" and request.path.endswith(
                ("virtualmachines", "virtualmachineinstances", "nodes")
            )
            if not is_watch and not is_list:
                told.append(f"{request.method} {'/'.join(request.path.split('/')[-2:])}")
        return told

    async def boot(self, name: str) -> None:
        """Machines boot by themselves here."""

    async def delete_vm(self, name: str) -> None:
        await self.line.delete(kinds.VM.ref(name, "default"))

    async def put_foreign(self, name: str) -> None:
        await self.line.create(kinds.VM, a_vm(name))

    async def put_claim(self, name: str) -> None:
        spec = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
        await self.line.create(PVC, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})

    async def remove_owner_annotations(self, name: str) -> None:
        await self._mark(name, None, None)

    async def restore_owner_annotations(self, name: str) -> None:
        await self._mark(name, "m-1", "cluster-1")

    async def _mark(self, name: str, machine: str | None, cluster: str | None) -> None:
        marks = {"windrow.io/machine-uid": machine, "windrow.io/cluster-uid": cluster}
        await self.line.patch(kinds.VM.ref(name, "default"), {"metadata": {"annotations": marks}})

    async def revoke(self) -> None:
        self.harvester.credentials.revoke(self.token)

    async def restore(self) -> None:
        self.token = self.harvester.new_token()

    async def vms(self) -> list[str]:
        return sorted(vm["metadata"]["name"] for vm in await self.line.list(kinds.VM, "default"))

    async def claims(self) -> list[str]:
        for claim in await self.line.list(PVC, "default"):
            if claim["metadata"].get("deletionTimestamp"):
                await eventually(self.harvester, PVC.ref(claim["metadata"]["name"], "default"), is_gone)
        return sorted(claim["metadata"]["name"][:-6] for claim in await self.line.list(PVC, "default"))

    async def document(self, name: str) -> str:
        secret = await self.line.get(SECRET.ref(f"{name}-cloudinit", "default"))
        return base64.b64decode(secret["data"]["userdata"]).decode()

    async def size(self, name: str) -> tuple[int, str]:
        vm = await self.line.get(kinds.VM.ref(name, "default"))
        domain = vm["spec"]["template"]["spec"]["domain"]
        return domain["cpu"]["cores"], domain["resources"]["limits"]["memory"]


@asynccontextmanager
async def harvester_rig() -> AsyncIterator[HarvesterRig]:
    guests: list[BlankMachine] = []

    def guest(hardware: Hardware, wires: HostInterface) -> BlankMachine:
        guests.append(blank(hardware, wires))
        return guests[-1]

    async with a_harvester(machine=guest) as harvester:
        rig = HarvesterRig(harvester)
        rig.guests = guests
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(rig.machines.run())
            yield rig
            running.cancel()
