"""Harvester's own webhook of load balancers before a real API server, where WINDROW_LOAD_BALANCER_WEBHOOK names the program.

It is built from Harvester's source, which no Go module proxy serves. The API server finds it by a Service of type ExternalName.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.conformance.cloud_provider_rig import eventually, free_port
from tests.conformance.real_cluster import Cluster

from windrow.client.client import Client
from windrow.core.formats import yaml
from windrow.harvester.resources import IP_POOL, LOAD_BALANCER, VM, VMI
from windrow.kubernetes.errors import AdmissionDenied, AlreadyExists, KubeError
from windrow.kubernetes.kubeconfig import render_kubeconfig
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import CRD, NAMESPACE, SERVICE, ApiResource

PROGRAM = "WINDROW_LOAD_BALANCER_WEBHOOK"
DEFINITIONS = "WINDROW_DEFINITIONS"
NETWORK = ApiResource(
    "k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition", "network-attachment-definitions"
)
NAME, NAMESPACE_OF_IT = "harvester-load-balancer-webhook", "harvester-system"
CONFIGURATIONS = tuple(
    ApiResource("admissionregistration.k8s.io", "v1", kind, f"{kind.lower()}s", namespaced=False)
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
)


def definition(kind: ApiResource) -> Raw:
    """The real definition where WINDROW_DEFINITIONS has it, else one without a schema."""
    path = Path(os.environ.get(DEFINITIONS, "")) / f"{kind.group}_{kind.plural}.yaml"
    if path.is_file():
        found: Raw = yaml.load(path.read_text())
        return found
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": kind.version, "served": True, "storage": True, "schema": schema}
    return new_object(
        CRD,
        f"{kind.plural}.{kind.group}",
        spec={
            "group": kind.group,
            "names": {"kind": kind.kind, "plural": kind.plural},
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [{**version, "subresources": {"status": {}}}],
        },
    )


def _needed() -> Iterator[tuple[ApiResource, Raw]]:
    for kind in (LOAD_BALANCER, IP_POOL, NETWORK, VM, VMI):
        yield CRD, definition(kind)
    yield NAMESPACE, new_object(NAMESPACE, NAMESPACE_OF_IT)


@asynccontextmanager
async def the_webhook(api: Client, cluster: Cluster, folder: Path) -> AsyncIterator[None]:
    """Have the program judge load balancers and pools for as long as the block runs; without it nothing is done."""
    program = os.environ.get(PROGRAM)
    if not program:
        yield
        return
    for kind, raw in _needed():
        with suppress(AlreadyExists):
            await api.create(kind, raw)
    port = free_port()
    spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}
    await api.create(SERVICE, new_object(SERVICE, NAME, NAMESPACE_OF_IT, spec=spec))
    kubeconfig = folder / "webhook.kubeconfig"
    kubeconfig.write_text(render_kubeconfig(cluster.access(), "webhook"))
    with (folder / "webhook.log").open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(program, "--https-port", str(port)),
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "KUBECONFIG": str(kubeconfig)},
            cwd=folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=out,
            stderr=asyncio.subprocess.STDOUT,
        )
    try:
        for kind in CONFIGURATIONS:

            async def registered(kind: ApiResource = kind) -> Raw | None:
                found = await api.find(kind.ref(NAME))
                return found if found is not None and found.get("webhooks") else None

            raw = await eventually(registered, "the webhook has registered itself", 60)
            for one in raw["webhooks"]:
                one["clientConfig"]["service"]["port"] = port
            await api.update(kind, raw)
        await eventually(lambda: _refuses(api), "the webhook judges", 30)
        yield
    finally:
        process.kill()
        await process.wait()
        for kind in CONFIGURATIONS:
            with suppress(KubeError):
                await api.delete(kind.ref(NAME))
        await api.delete(SERVICE.ref(NAME, NAMESPACE_OF_IT))


async def _refuses(api: Client) -> bool:
    """Whether it refuses what it has to: a load balancer of VMs without a listener."""
    spec = {"ipam": "pool", "workloadType": "vm"}
    try:
        await api.create(LOAD_BALANCER, new_object(LOAD_BALANCER, "no-listener", NAMESPACE_OF_IT, spec=spec))
    except AdmissionDenied as denied:
        return "at least one listener" in str(denied)
    except KubeError:
        return False
    await api.delete(LOAD_BALANCER.ref("no-listener", NAMESPACE_OF_IT))
    return False
