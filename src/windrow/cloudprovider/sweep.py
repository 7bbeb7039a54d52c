"""The orphan sweep: LoadBalancers on Harvester that were created for a service of this cluster which exists no more.

Usually the finalizer of a service keeps it until its LoadBalancer is deleted. Where the finalizer is removed by hand, or
by another controller, the LoadBalancer stays, with its address. The sweep finds such orphans in the caches and reports
each once; with `--orphan-sweep=delete` it deletes them, an hour after the report. Rights: in the guest services get; on
Harvester loadbalancers get, delete; both only where it deletes.

An orphan has our cluster's name, a namespace and a service in its labels, and the name of the load balancer of exactly
this service; and the service is gone or has another uid. Labels with no name of their own (`kubernetes`, or none) prove
nothing. One that was created for this guest, by uid, under another cluster name is an orphan where no service shows its
address; it is reported and kept, because a copy of the cluster may have it.

Labels alone prove little: two clusters of one name may share a namespace, a credential may be the wrong one, a guest may
answer with an empty list while it is being restored. So an orphan is deleted only if, beyond that,

* it carries the uid of this guest (of its service `default/kubernetes`) as an annotation. LoadBalancers of the Go program
  have none; they are reported and kept;
* it has been an orphan for an hour without a break, as observed by this process;
* the guest, asked live, has that uid, and not the service;
* Harvester, asked live, has the same object with the same labels, and the DELETE names its uid;
* no service of the guest uses its address: secondaries outlive a primary that was deleted by force.

One is deleted every ten minutes, so that an operator can stop a sweep that is wrong.

Limits: a guest that was restored to a day before some services were created deletes their LoadBalancers, slowly; when the
services come back, they are given new addresses. A cluster whose disks were all copied cannot be told from its copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from windrow.client.client import Client
from windrow.client.informer import Cache
from windrow.cloudprovider import names
from windrow.cloudprovider.context import ControllerContext
from windrow.cloudprovider.names import (
    is_load_balancer_name,
    load_balancer_name,
    second_load_balancer_name,
)
from windrow.cloudprovider.options import Options
from windrow.cloudprovider.services.readings import LoadBalancer, Service, load_balancer_reader, read_service
from windrow.core.clock import sleep
from windrow.core.crash import handle_crash
from windrow.core.logs import FieldLogger, with_values
from windrow.harvester import names as harvester_names
from windrow.harvester.resources import LOAD_BALANCER
from windrow.kubernetes.errors import KubeError, NotFound
from windrow.kubernetes.kubectl import ON_HARVESTER, render_delete
from windrow.kubernetes.objects import nested
from windrow.kubernetes.resources import SERVICE

# The service controller comes first: what it is about to delete is no orphan.
INITIAL_DELAY = timedelta(minutes=1)
SWEEP_PERIOD = timedelta(minutes=10)
DELETE_AFTER = timedelta(hours=1)
GUEST_SERVICE = SERVICE.ref(*names.GUEST_SERVICE)


@dataclass(frozen=True, slots=True)
class Orphan:
    """A LoadBalancer without a service. `kept_because` says why it must not be deleted, "" when it may be."""

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
    if guest is None:
        return ()
    users = _users(known.values())
    found = []
    for one in sorted(balancers, key=lambda one: one.name):
        if options.has_cluster_name and is_managed(one, options):
            if because := _find_loss(one, known):
                found.append(Orphan(one, because, _reason_to_keep(one, guest.uid, users)))
        elif _has_former_name(one, options, guest.uid) and (because := _find_former_loss(one, known)):
            why = (
                f"it was created under the cluster name {one.owner.cluster!r}, and this cloud provider runs with "
                f"{options.cluster_name!r}: a cluster of that name may use it"
            )
            found.append(Orphan(one, because, why))
    return tuple(found)


def _has_former_name(balancer: LoadBalancer, options: Options, guest_uid: str) -> bool:
    """Whether it was created for this guest, by uid, under another cluster name."""
    owner = balancer.owner
    return (
        owner.cluster not in ("", options.cluster_name)
        and not balancer.is_deleting
        and balancer.annotations.get(harvester_names.GUEST_UID) == guest_uid
        and is_load_balancer_name(balancer.name, owner.cluster, owner.namespace, owner.service)
    )


def _find_former_loss(balancer: LoadBalancer, known: Mapping[tuple[str, str], Service]) -> str:
    """Why no service uses it, "" when one shows its address."""
    if loss := _find_loss(balancer, known):
        return loss
    service = known[(balancer.owner.namespace, balancer.owner.service)]
    if service.shown & set(balancer.reserved):
        return ""
    return f"service {service.title} does not show its address"


def is_managed(balancer: LoadBalancer, options: Options) -> bool:
    """Whether labels, annotation, workload type and name are those of the cloud provider of this cluster."""
    owner = balancer.owner
    return (
        owner.cluster == options.cluster_name
        and bool(owner.namespace and owner.service)
        and not balancer.is_deleting
        and is_load_balancer_name(balancer.name, owner.cluster, owner.namespace, owner.service)
        and balancer.annotations.get(names.LB_CLUSTER, owner.cluster) == owner.cluster
        and nested(balancer.raw, "spec", "workloadType") == "cluster"
    )


def _find_loss(balancer: LoadBalancer, known: Mapping[tuple[str, str], Service]) -> str:
    """Why it has no service, "" when it has one."""
    owner = balancer.owner
    service = known.get((owner.namespace, owner.service))
    if service is None:
        return f"service {owner.namespace}/{owner.service} does not exist"
    parts = (owner.cluster, owner.namespace, owner.service, service.uid)
    if balancer.name in (load_balancer_name(*parts), second_load_balancer_name(*parts)):
        return ""
    return f"service {owner.namespace}/{owner.service} was recreated with another uid"


def _users(services: Iterable[Service]) -> dict[str, str]:
    """Address -> a service that uses it."""
    found: dict[str, str] = {}
    for service in services:
        found |= dict.fromkeys(service.shown, service.title)
    return found


def _reason_to_keep(balancer: LoadBalancer, guest_uid: str, users: Mapping[str, str]) -> str:
    mark = balancer.annotations.get(harvester_names.GUEST_UID, "")
    if not mark:
        return f"it has no annotation {harvester_names.GUEST_UID}, as those of the Go program"
    if mark != guest_uid:
        return f"its annotation {harvester_names.GUEST_UID} is that of another guest cluster of this name"
    for address in {*balancer.allocated, balancer.address} - names.DHCP_PLACEHOLDERS - {""}:
        if address in users:
            return f"service {users[address]} uses its address {address}"
    return ""


class Sweep:
    """Reports each orphan once while it runs, and deletes them where that is asked for."""

    def __init__(
        self, context: ControllerContext, services: Cache[Service], balancers: Cache[LoadBalancer]
    ) -> None:
        self._guest = Client(context.guest)
        self._host = Client(context.host)
        self._options = context.options
        self._clock = context.clock
        self._log = context.log
        self._metrics = context.metrics
        self._services = services
        self._balancers = balancers
        # The report of each orphan, by uid, and since when it has been one.
        self._reported: dict[str, tuple[str, timedelta]] = {}

    async def run(self) -> None:
        """Check every ten minutes until cancelled. Returns at once where the sweep is off."""
        if self._options.orphan_sweep == "off":
            return
        await self._services.wait_for_sync()
        await self._balancers.wait_for_sync()
        await sleep(self._clock, INITIAL_DELAY)
        while True:
            with handle_crash(self._log, "the orphan sweep failed; trying again in %s", SWEEP_PERIOD):
                await self.check()
            await sleep(self._clock, SWEEP_PERIOD)

    async def check(self) -> None:
        """Report new orphans, and delete one that is due. Caches that are not watching prove nothing."""
        if not self._services.is_watching or not self._balancers.is_watching:
            return
        orphans = plan_sweep(self._services.values(), self._balancers.values(), self._options)
        self._metrics.orphans.set(len(orphans))
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
            reported, since = before.get(orphan.balancer.uid, ("", self._clock.monotonic()))
            if reported != sentence:
                self._log_of(orphan).info("%s", sentence)
            self._reported[orphan.balancer.uid] = (sentence, since)

    def _is_due(self, orphan: Orphan) -> bool:
        _, since = self._reported[orphan.balancer.uid]
        return not orphan.kept_because and self._clock.monotonic() - since >= DELETE_AFTER

    async def _delete(self, orphan: Orphan) -> None:
        balancer = orphan.balancer
        log = self._log_of(orphan)
        # One that cannot be deleted waits another hour, so that the next one is tried.
        del self._reported[balancer.uid]
        try:
            problem = await self._recheck(orphan)
            if problem:
                log.info("orphan not deleted: %s", problem)
                return
            await self._host.delete(balancer.ref, uid=balancer.uid)
        except NotFound:
            return
        except KubeError as error:
            log.warning("failed to delete orphan: %s", error)
            return
        log.info("orphan deleted: %s", orphan.because)
        self._metrics.orphans_deleted.inc()

    def _log_of(self, orphan: Orphan) -> FieldLogger:
        balancer = orphan.balancer
        return with_values(self._log, loadbalancer=f"{balancer.namespace}/{balancer.name}")

    async def _recheck(self, orphan: Orphan) -> str:
        """Why it must not be deleted, after a live read of both clusters; "" when it may be."""
        balancer, owner = orphan.balancer, orphan.balancer.owner
        asked = [
            await self._guest.find(ref)
            for ref in (GUEST_SERVICE, SERVICE.ref(owner.service, owner.namespace))
        ]
        if asked[0] is None:
            return f"service {GUEST_SERVICE.namespace}/{GUEST_SERVICE.name} of the guest is not found"
        # What was read live comes last, and holds over what is cached.
        now = [*self._services.values(), *(read_service(one) for one in asked if one is not None)]
        raw = await self._host.find(balancer.ref)
        if raw is None:
            raise NotFound(f"{balancer.name} is gone already")
        fresh = load_balancer_reader(self._options.cluster_name)(raw)
        match plan_sweep(now, [fresh], self._options):
            case [Orphan(kept_because="") as found] if found.balancer.uid == balancer.uid:
                return ""
            case [Orphan(kept_because=why)] if why:
                return why
            case _:
                return "it is no orphan any more"


def describe_orphan(orphan: Orphan, options: Options) -> str:
    """The report: why it is an orphan, and what happens next or can be done."""
    balancer = orphan.balancer
    addresses = ", ".join(balancer.allocated) or "no address"
    by_hand = render_delete(LOAD_BALANCER.ref(balancer.name, balancer.namespace), kubeconfig=ON_HARVESTER)
    if orphan.kept_because:
        end = f"it is kept, because {orphan.kept_because}; to delete it, on Harvester: {by_hand}"
    elif options.orphan_sweep == "delete":
        end = "it is deleted in an hour; --orphan-sweep=report prevents that"
    else:
        end = f"--orphan-sweep=delete deletes orphans; to delete this one, on Harvester: {by_hand}"
    return f"orphan with {addresses}: {orphan.because}; {end}"
