"""The orphan sweep: load balancers on Harvester that a service of ours had made, and that no service has any more.

Usually a service takes its load balancer along. Where somebody removed its finalizer by hand, or another controller
did, the load balancer stays, and with it an address of a pool. The sweep finds such orphans in what is watched anyway
and tells of each once; with `--orphan-sweep=delete` it deletes them, an hour after it told. It asks the guest: services
get; Harvester: loadbalancers get, delete; and both only where it deletes.

An orphan has our cluster's name, a namespace and a service in its labels, the name that the cloud provider gives to
the load balancer of exactly this service, and the service is gone or has another uid. Clusters without a name of their
own (`kubernetes`, or none) have no orphans: their labels prove nothing.

Labels prove little anyhow. Two clusters of one name may share a namespace; a credential may have been mixed up; a
guest may answer with an empty list while it is being restored. So what is deleted must, beyond that,

* carry the mark of this very guest (the uid of its service `default/kubernetes`). Load balancers that the Go program
  made have no mark; they are told, and left to a person;
* have been an orphan for an hour without a break, as seen by this process;
* be confirmed by the guest, asked now: it has the mark's uid, and not the service;
* be the same object with the same labels on Harvester, asked now, and the DELETE names its uid;
* have an address that no service of the guest uses: secondaries outlive a primary that was torn away.

One is deleted at each look, every ten minutes: whoever sees it go wrong has time to stop it.

What remains: a guest that was restored to a day before some services were made deletes their load balancers, slowly.
That is what the guest now says; should they come back, they are given addresses anew. And a cluster whose disks were
all copied cannot be told from its copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from windrow.client.client import Client
from windrow.client.informer import Cache
from windrow.cloudprovider import names
from windrow.cloudprovider.cmd.flags import Options
from windrow.cloudprovider.metrics import Metrics
from windrow.cloudprovider.services.load_balancer_names import is_load_balancer_name, load_balancer_name
from windrow.cloudprovider.services.load_balancers import LoadBalancer, load_balancer_reader
from windrow.cloudprovider.services.readings import Service, read_service
from windrow.core.clock import Clock, sleep
from windrow.kubernetes.errors import KubeError, NotFound
from windrow.kubernetes.objects import nested
from windrow.kubernetes.resources import SERVICE

# The service controller comes first: what it is about to remove by itself is no orphan.
INITIAL_DELAY = timedelta(minutes=1)
SWEEP_PERIOD = timedelta(minutes=10)
DELETE_AFTER = timedelta(hours=1)
GUEST_SERVICE = SERVICE.ref(*names.GUEST_SERVICE)


@dataclass(frozen=True, slots=True)
class Orphan:
    """A load balancer that no service has. `spared` tells why it is not to be deleted, "" when it may be."""

    balancer: LoadBalancer
    because: str
    kept_because: str = ""


def plan_sweep(
    services: Iterable[Service], balancers: Iterable[LoadBalancer], options: Options
) -> tuple[Orphan, ...]:
    """The orphans among `balancers`, in the order of their names.

    None at all where the guest does not show its own service: then this is no complete list of its services.
    """
    known = {(one.namespace, one.name): one for one in services}
    guest = known.get((GUEST_SERVICE.namespace, GUEST_SERVICE.name))
    if guest is None or not options.has_cluster_name:
        return ()
    users = _users(known.values())
    return tuple(
        Orphan(one, because, _reason_to_keep(one, guest.uid, users))
        for one in sorted(balancers, key=lambda one: one.name)
        if is_managed(one, options) and (because := _find_loss(one, known))
    )


def is_managed(balancer: LoadBalancer, options: Options) -> bool:
    """Whether labels, annotation, workload and name all say that the cloud provider of this cluster made it."""
    owner = balancer.owner
    return (
        owner.cluster == options.cluster_name
        and bool(owner.namespace and owner.service)
        and not balancer.is_deleting
        and is_load_balancer_name(balancer.name, owner.cluster, owner.namespace, owner.service)
        and balancer.annotations.get(names.LB_CLUSTER, owner.cluster) == owner.cluster
        and nested(balancer.raw, "spec", "workloadType", default="") == "cluster"
    )


def _find_loss(balancer: LoadBalancer, known: Mapping[tuple[str, str], Service]) -> str:
    """Why no service has it, "" when one does."""
    owner = balancer.owner
    service = known.get((owner.namespace, owner.service))
    if service is None:
        return f"service {owner.namespace}/{owner.service} does not exist any more"
    if load_balancer_name(owner.cluster, owner.namespace, owner.service, service.uid) == balancer.name:
        return ""
    return f"service {owner.namespace}/{owner.service} was made anew and has another one"


def _users(services: Iterable[Service]) -> dict[str, str]:
    """Address -> a service that uses it."""
    found: dict[str, str] = {}
    for service in services:
        found |= dict.fromkeys(service.shown, service.title)
    return found


def _reason_to_keep(balancer: LoadBalancer, guest_uid: str, users: Mapping[str, str]) -> str:
    mark = balancer.annotations.get(names.GUEST_MARK, "")
    if not mark:
        return (
            "it has no mark of the guest that had it made, as those of the Go program; a person has to decide"
        )
    if mark != guest_uid:
        return "it has the mark of another guest cluster of this name; it may be in use there"
    for address in {*balancer.allocated, balancer.address} - names.DHCP_PLACEHOLDERS - {""}:
        if address in users:
            return f"service {users[address]} uses its address {address}"
    return ""


class Sweep:
    """Looks for orphans while it runs, tells of each once, and deletes them if it is to."""

    def __init__(
        self,
        guest: Client,
        host: Client,
        services: Cache[Service],
        balancers: Cache[LoadBalancer],
        options: Options,
        clock: Clock,
        say: Callable[[str], None],
        metrics: Metrics,
    ) -> None:
        self._guest = guest
        self._host = host
        self._services = services
        self._balancers = balancers
        self._options = options
        self._clock = clock
        self._say = say
        self._metrics = metrics
        # What was told of each orphan, by uid, and since when it has been one.
        self._reported: dict[str, tuple[str, datetime]] = {}

    async def run(self) -> None:
        """Look again and again until cancelled. Returns at once where nothing is to be looked for."""
        if self._options.orphan_sweep == "off" or not self._options.has_cluster_name:
            return
        await self._services.wait_for_sync()
        await self._balancers.wait_for_sync()
        await sleep(self._clock, INITIAL_DELAY)
        while True:
            await self.check()
            await sleep(self._clock, SWEEP_PERIOD)

    async def check(self) -> None:
        """Tell of new orphans, and delete one that is ripe. Caches that are not current prove nothing."""
        if not self._services.is_watching or not self._balancers.is_watching:
            return
        orphans = plan_sweep(self._services.values(), self._balancers.values(), self._options)
        self._metrics.set_orphans(len(orphans))
        self._report(orphans)
        if self._options.orphan_sweep != "delete":
            return
        due = next((one for one in orphans if self._is_due(one)), None)
        if due is not None:
            await self._delete(due)

    def _report(self, orphans: tuple[Orphan, ...]) -> None:
        before, self._reported = self._reported, {}
        for orphan in orphans:
            sentence = describe_orphan(orphan, self._options)
            told, since = before.get(orphan.balancer.uid, ("", self._clock.now()))
            if told != sentence:
                self._say(sentence)
            self._reported[orphan.balancer.uid] = (sentence, since)

    def _is_due(self, orphan: Orphan) -> bool:
        _, since = self._reported[orphan.balancer.uid]
        return not orphan.kept_because and self._clock.now() - since >= DELETE_AFTER

    async def _delete(self, orphan: Orphan) -> None:
        balancer = orphan.balancer
        title = f"orphan {balancer.namespace}/{balancer.name}"
        # Whatever comes of it, it is the next one's turn; should this one stay, its hour begins anew.
        del self._reported[balancer.uid]
        try:
            problem = await self._recheck(orphan)
            if problem:
                self._say(f"{title} is not deleted: {problem}")
                return
            await self._host.delete(balancer.ref, uid=balancer.uid)
        except NotFound:
            return
        except KubeError as error:
            self._say(f"{title} could not be deleted: {error}")
            return
        self._say(f"{title} is deleted: {orphan.because}")
        self._metrics.count_deleted_orphan()

    async def _recheck(self, orphan: Orphan) -> str:
        """What guest and host say against its deletion, both asked now; "" when they say nothing."""
        balancer, owner = orphan.balancer, orphan.balancer.owner
        asked = [
            await self._guest.find(ref)
            for ref in (GUEST_SERVICE, SERVICE.ref(owner.service, owner.namespace))
        ]
        if asked[0] is None:
            return "the guest does not show its own service now"
        now = {(one.namespace, one.name): one for one in self._services.values()}
        now.pop((owner.namespace, owner.service), None)
        now |= {(one.namespace, one.name): one for one in map(read_service, filter(None, asked))}
        raw = await self._host.find(balancer.ref)
        if raw is None:
            raise NotFound(f"{balancer.name} is gone already")
        fresh = load_balancer_reader(self._options.cluster_name)(raw)
        match plan_sweep(now.values(), [fresh], self._options):
            case [Orphan(kept_because="") as found] if found.balancer.uid == balancer.uid:
                return ""
            case [Orphan(kept_because=why)] if why:
                return why
            case _:
                return "it is an orphan no longer"


def describe_orphan(orphan: Orphan, options: Options) -> str:
    """What is said of it: the fact, and what can be done."""
    balancer = orphan.balancer
    addresses = ", ".join(balancer.allocated) or "no address"
    by_hand = (
        f"kubectl -n {balancer.namespace} delete loadbalancers.loadbalancer.harvesterhci.io {balancer.name}"
    )
    if orphan.kept_because:
        end = f"it is left alone, because {orphan.kept_because}; by hand, on Harvester: {by_hand}"
    elif options.orphan_sweep == "delete":
        end = "it is deleted in an hour; --orphan-sweep=report prevents it"
    else:
        end = f"--orphan-sweep=delete deletes such ones; by hand, on Harvester: {by_hand}"
    return f"orphan {balancer.namespace}/{balancer.name} ({addresses}): {orphan.because}; {end}"
