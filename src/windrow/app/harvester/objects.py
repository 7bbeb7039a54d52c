"""What Harvester says of one machine's VM, read once for `describe.causes`: eight requests and a console at most.

What the credential may not read is left out, since a tenant's credential may read neither hosts nor quotas.
"""

from __future__ import annotations

from typing import Any

from windrow.app.describe.causes import HarvesterObjects
from windrow.app.harvester.console import NoConsole, read_console_lines
from windrow.client.client import Client
from windrow.client.transport import Transport
from windrow.clusters.api.machine import read_machine
from windrow.core.errors import UserError
from windrow.harvester.names import IMAGE_ID
from windrow.harvester.resources import IMAGE, VM, VMI
from windrow.harvester.vms import claim_volumes_of
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, annotations_of, nested
from windrow.kubernetes.resources import NODE, PVC, RESOURCE_QUOTA, ObjectRef

MAX_DISKS = 16  # of a VM, which are looked at
CONSOLE_LINES = 20


async def read_harvester_objects(
    harvester: Transport, raw: Raw, server: str = "", console_lines: int = CONSOLE_LINES
) -> HarvesterObjects:
    """What is behind Machine `raw`. An error of Harvester is part of the answer."""
    machine = read_machine(raw)
    name, namespace, client = machine.name, machine.vm_namespace, Client(harvester)
    try:
        vm = await client.find(VM.ref(name, namespace))
    except UserError as error:
        return HarvesterObjects(name, namespace, hidden=error.message)
    except KubeError as error:
        return HarvesterObjects(name, namespace, hidden=str(error))
    if vm is None:
        return HarvesterObjects(name, namespace)
    vmi = await _find(client, VMI.ref(name, namespace))
    host = nested(vmi, "status", "nodeName", default="") or nested(raw, "status", "host", default="")
    claims = await _claims(client, vm, namespace)
    return HarvesterObjects(
        name,
        namespace,
        vm=vm,
        vmi=vmi,
        host=await _find(client, NODE.ref(str(host))) if host else None,
        claims=claims,
        images=await _images(client, claims),
        quotas=await _quotas(client, namespace),
        console=await _console(harvester, raw, server, console_lines),
    )


async def _find(client: Client, ref: ObjectRef) -> Raw | None:
    try:
        return await client.find(ref)
    except KubeError:
        return None


async def _claims(client: Client, vm: Raw, namespace: str) -> tuple[Raw, ...]:
    names = [str(claim.get("claimName") or "") for claim in claim_volumes_of(vm)[:MAX_DISKS]]
    found = [await _find(client, PVC.ref(name, namespace)) for name in names if name]
    return tuple(one for one in found if one is not None)


async def _images(client: Client, claims: tuple[Raw, ...]) -> tuple[Raw, ...]:
    named: dict[str, Any] = dict.fromkeys(
        image for claim in claims if (image := annotations_of(claim).get(IMAGE_ID, ""))
    )
    places = [image.partition("/") for image in named if "/" in image]
    found = [await _find(client, IMAGE.ref(name, namespace)) for namespace, _, name in places]
    return tuple(one for one in found if one is not None)


async def _quotas(client: Client, namespace: str) -> tuple[Raw, ...]:
    try:
        return tuple(await client.list(RESOURCE_QUOTA, namespace))
    except KubeError:
        return ()


async def _console(harvester: Transport, raw: Raw, server: str, lines: int) -> tuple[str, ...]:
    try:
        return tuple(await read_console_lines(harvester, raw, lines, server))
    except (NoConsole, KubeError):
        return ()
