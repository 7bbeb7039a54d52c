"""Whether a place on Harvester is that of this cluster: it holds the VM of one of its nodes, by uid.

Another namespace in a renewed cloud config may be a slip, or half of a file. Whoever followed it would make every
load balancer a second time, and take the addresses of the first away. Asks the guest for nodes list, Harvester for
virtualmachines list; both only when the place has changed.
"""

from __future__ import annotations

import asyncio

from windrow.client.client import Client
from windrow.harvester.identity import vm_uid_of
from windrow.harvester.kinds import VM
from windrow.kube.errors import KubeError
from windrow.kube.objects import dig, uid_of
from windrow.kube.refs import NODE

PAGE = 100
ANSWER_S = 30.0
_CURE = "correct the file; or, where it is meant so, restart this program: at its start it takes the file as it is"


async def find_doubt(guest: Client, host: Client, namespace: str) -> str:
    """Why this may be no place of ours, with the cure; "" when it is, or when no node says which VM it runs in."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await _compare(guest, host, namespace)
    except KubeError as error:
        return f"whether namespace {namespace!r} holds VMs of our nodes cannot be asked: {error}"
    except TimeoutError:
        return f"whether namespace {namespace!r} holds VMs of our nodes was not answered in {ANSWER_S:.0f} s"


async def _compare(guest: Client, host: Client, namespace: str) -> str:
    told = {vm_uid_of(dig(raw, "spec", "providerID", default="")) for raw in await guest.list(NODE)}
    ours = told - {""}
    if not ours:
        return ""
    async for page in host.pages(VM, namespace, limit=PAGE):
        if any(uid_of(raw) in ours for raw in page.items):
            return ""
    return f"namespace {namespace!r} holds none of the VMs that our {len(ours)} nodes run in; {_CURE}"
