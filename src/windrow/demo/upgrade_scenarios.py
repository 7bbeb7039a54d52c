"""The demo's upgrade: the next minor version of Kubernetes, machine by machine in place, while the Service is asked all the time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from windrow.app.loop import running
from windrow.bootstrap.support_matrix.matrix import SupportMatrix, shipped_matrix
from windrow.clusters.api.kinds import CLUSTER
from windrow.core.clock import sleep
from windrow.core.formats.version import NotVersion, Version
from windrow.demo.cluster import DemoCluster, is_ready
from windrow.demo.service_scenarios import (
    DEPLOYMENT_REF,
    address_of,
    find_service,
    send_request,
    spread_pods,
    wait_for_service,
)
from windrow.demo.waiting import Objects
from windrow.harvester.resources import VM
from windrow.kubernetes.conditions import is_true
from windrow.kubernetes.objects import Raw, name_of, nested, uid_of

CHECKS = ("upgraded", "service-during-upgrade")
WITHOUT_SERVICE = "there is no Service that could be asked meanwhile"
ON_ONE_NODE = "all pods of the Service are on one Node, and are no endpoints while its kubelet restarts"
INTERVAL = timedelta(seconds=0.1)


@dataclass(slots=True)
class RequestCount:
    """Requests to one address, and when after the first one the first without an answer was sent."""

    answered: int = 0
    failed: int = 0
    first_failure: str = ""

    @property
    def sent(self) -> int:
        return self.answered + self.failed


def find_next_version(version: str, matrix: SupportMatrix) -> str:
    """The newest known release of the next minor version, of the same distribution; "" where none is known.

    Where the matrix knows no revision of a distribution, it is the first.
    """
    try:
        now = Version.parse(version)
    except NotVersion:
        return ""
    newest = matrix.find_newest(Version(now.major, now.minor + 1, 0, distribution=now.distribution))
    if newest is None or not now.distribution:
        return ""
    build = newest.build or {"rke2": "rke2r1", "k3s": "k3s1"}[now.distribution]
    return f"v{newest.major}.{newest.minor}.{newest.patch}+{build}"


async def upgrade(cluster: DemoCluster) -> None:
    """Ask for the next minor version: every Node must run it, on the VM of before, and the Service must answer throughout."""
    before = str(nested(await cluster.get_cluster(), "spec", "kubernetesVersion", default=""))
    wanted = find_next_version(before, shipped_matrix())
    if not wanted:
        cluster.report.skip(CHECKS, f"no release of the minor version after {before} is known")
        return
    vms = await _list_vms(cluster)
    service = await find_service(cluster)
    if service is None:
        cluster.report.skip(("service-during-upgrade",), WITHOUT_SERVICE)
    elif len(on := await spread_pods(cluster)) < 2:
        cluster.report.skip(("service-during-upgrade",), ON_ONE_NODE)
        service = None
    else:
        cluster.report.add(f"{DEPLOYMENT_REF} is restarted; its pods are on Nodes {', '.join(on)}")
    begun = cluster.clock.now()
    async with asking(cluster, service) as count:
        cluster.report.add(f"{cluster.ref} is given version {wanted}; it runs {before}")
        step = {"op": "replace", "path": "/spec/kubernetesVersion", "value": wanted}
        changed = await cluster.manager.json_patch(cluster.ref, [step])
        await wait_until_up_to_date(cluster, changed["metadata"]["generation"])
        await cluster.wait_for_settled()
    took = (cluster.clock.now() - begun).total_seconds()
    nodes = await cluster.list_nodes()
    done = [raw for raw in nodes if _runs(raw, wanted) and is_ready(raw)]
    same = await _list_vms(cluster) == vms
    cluster.report.add(f"{cluster.ref} runs {wanted}")
    where = "each on the VM that it was on" if same else "not all on the VMs that they were on"
    text = f"{len(done)} of {len(nodes)} Nodes run {wanted} after {took:.1f} s, {where}"
    cluster.report.check("upgraded", same and len(done) == len(nodes), text)
    if service is None:
        return
    await wait_for_service(cluster)
    text = (
        f"{count.answered} of {count.sent} requests to http://{address_of(service)}/ were answered meanwhile"
    )
    more = f"; the first that failed was sent {count.first_failure}" if count.failed else ""
    cluster.report.check("service-during-upgrade", count.sent > 0 and not count.failed, text + more)


@asynccontextmanager
async def asking(cluster: DemoCluster, service: Raw | None) -> AsyncIterator[RequestCount]:
    """Send requests to the Service inside, ten a second, each over a connection of its own; none without a Service."""
    count = RequestCount()
    if service is None:
        yield count
        return
    address, begun = address_of(service), cluster.clock.now()

    async def ask() -> None:
        while True:
            sent = cluster.clock.now()
            if await send_request(cluster, address) is not None:
                count.answered += 1
            else:
                count.failed += 1
                count.first_failure = (
                    count.first_failure or f"{(sent - begun).total_seconds():.1f} s after the first"
                )
            await sleep(cluster.clock, INTERVAL)

    async with running(ask):
        yield count


async def wait_until_up_to_date(cluster: DemoCluster, generation: int) -> Raw:
    """The Cluster, once its status is about this generation and every machine is as it asks. Raises WaitTimedOut."""

    def find_up_to_date(objects: Objects) -> Raw | None:
        raw = objects.get((cluster.namespace, cluster.name))
        observed = nested(raw, "status", "observedGeneration", default=0)
        is_done = observed >= generation and is_true(nested(raw, "status", "conditions"), "UpToDate")
        return raw if is_done else None

    what = f"{cluster.ref} to be UpToDate"
    return await cluster.wait_on(cluster.manager, CLUSTER, find_up_to_date, what, cluster.namespace)


def _runs(node: Raw, version: str) -> bool:
    return bool(nested(node, "status", "nodeInfo", "kubeletVersion") == version)


async def _list_vms(cluster: DemoCluster) -> dict[str, str]:
    """The uids of the machines' VMs, by name."""
    names = {name_of(raw) for raw in await cluster.list_machines()}
    return {name_of(raw): uid_of(raw) for raw in await cluster.harvester.list(VM) if name_of(raw) in names}
