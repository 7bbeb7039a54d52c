"""The serial console of a machine's VM, read with the cluster's own credential for Harvester.

The emulator serves consoles itself. A real Harvester has the text only where KubeVirt logs serial consoles: in container
`guest-console-log` of the VM's virt-launcher pod. Harvester turns that off by default, so there is a pointer instead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from windrow.app.clock import SystemClock
from windrow.app.embedded import read_credential
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.client.transport import Transport
from windrow.clusters.api.machine import read_machine
from windrow.core.errors import UserError
from windrow.harvester.shutdown import LAUNCHERS, select_launchers
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, parse_kubeconfig
from windrow.kubernetes.objects import Raw, name_of
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import POD

CONTAINER = "guest-console-log"
MAX_BYTES = 1 << 20  # of an answer, of which the end counts


class NoConsole(UserError):
    """Harvester has no console text of this VM."""


@asynccontextmanager
async def open_credential(
    api: Client, reference: str, env: Mapping[str, str]
) -> AsyncIterator[tuple[Transport, ClientConfig]]:
    """A connection to the Harvester that the credential Secret `NAMESPACE:NAME` leads to. Raises NoConsole, and KubeError of
    the management API."""
    try:
        config = parse_kubeconfig(await read_credential(api, reference))
    except BadKubeconfig as bad:
        raise NoConsole(f"Secret {reference}: {bad.message}", bad.hint) from bad
    async with HttpTransport(config, SystemClock(), env=env, user_agent="windrow-cli") as transport:
        yield transport, config


@asynccontextmanager
async def open_harvester(
    api: Client, raw: Raw, env: Mapping[str, str]
) -> AsyncIterator[tuple[Transport, str]]:
    """A connection to the Harvester of Machine `raw` with the machine's own credential, and the address of its server.
    Raises NoConsole, and KubeError of the management API."""
    async with open_credential(api, read_machine(raw).credential, env) as (transport, config):
        yield transport, config.server


async def read_console(api: Client, raw: Raw, tail: int, env: Mapping[str, str]) -> list[str]:
    """The last lines of the console of the VM of Machine `raw`. Raises NoConsole, and KubeError of the management API."""
    async with open_harvester(api, raw, env) as (transport, server):
        return await read_console_lines(transport, raw, tail, server)


async def read_console_lines(harvester: Transport, raw: Raw, tail: int, server: str) -> list[str]:
    """`read_console` by a connection to the Harvester at `server`. Raises NoConsole."""
    machine = read_machine(raw)
    namespace, name = machine.vm_namespace, machine.name
    found = f"VirtualMachine {namespace}/{name} has no virt-launcher pod"
    try:
        path = f"/windrow/console/{namespace}/{name}"
        reply = await harvester.send(Request("GET", path, accept="text/plain"))
        if reply.status == 200:
            return _last_lines(reply, tail)
        for pod in select_launchers(name, await Client(harvester).list(POD, namespace, LAUNCHERS)):
            path = f"/api/v1/namespaces/{namespace}/pods/{name_of(pod)}/log"
            query = (("container", CONTAINER), ("tailLines", str(tail)))
            reply = await harvester.send(Request("GET", path, query=query, accept="text/plain"))
            if reply.status == 200:
                return _last_lines(reply, tail)
            found = (
                f"Pod {namespace}/{name_of(pod)} gives no log of container {CONTAINER} (HTTP {reply.status})"
            )
    except KubeError as error:
        found = str(error)
    raise NoConsole(
        f"Harvester {server} has no console text of VirtualMachine {namespace}/{name}: {found}.",
        f"Open the console itself: virtctl console -n {namespace} {name}, or Harvester's UI, Virtual Machines.",
    )


def _last_lines(reply: Reply, tail: int) -> list[str]:
    """A guest writes what it likes: no control character of it reaches the terminal."""
    lines = reply.body[-MAX_BYTES:].decode("utf-8", "replace").splitlines()[-tail:]
    return ["".join(one for one in line.expandtabs() if one.isprintable()) for line in lines]
