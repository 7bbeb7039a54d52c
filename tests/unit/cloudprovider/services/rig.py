"""A guest's API, Harvester's load balancer controller, a kube-vip, and the service controller between.

Nothing touches a socket; time passes when all tasks wait. What goes to either side passes a `FaultyTransport`, which counts
and breaks.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

from tests.stories.announcing import Announcer
from tests.stories.balancing import Balancing
from tests.support.clock import NOON, LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.app.network import verb_and_resource
from windrow.cloudprovider import names
from windrow.cloudprovider.context import ControllerContext
from windrow.cloudprovider.metrics import Metrics
from windrow.cloudprovider.names import load_balancer_name
from windrow.cloudprovider.options import Options
from windrow.cloudprovider.services.controller import ServiceController
from windrow.core.formats.json import dumps
from windrow.core.logs import line_logger
from windrow.core.rng import Rng
from windrow.emulator import kinds
from windrow.kubernetes.errors import AdmissionDenied, NotFound, OutcomeUnknown, Unreachable, error_for
from windrow.kubernetes.objects import (
    annotations_of,
    finalizers_of,
    labels_of,
    name_of,
    nested,
    new_object,
    uid_of,
)
from windrow.kubernetes.resources import CONFIG_MAP, EVENT, NAMESPACE, SERVICE

CLUSTER = "demo"


class FaultyTransport:
    """The way to one API server."""

    def __init__(self, local, label, calls):
        self.local, self.label, self.calls = local, label, calls
        self._streams = set()
        self.is_cut = False
        self.refusal = None  # a Reply instead of any answer
        self.denies = ""  # verb and resource that an admission webhook denies
        self.breaks = []  # (verb and resource, before or after): once each
        self.holds = ""  # verb and resource: the next one is carried out when it `arrives`
        self.late = None
        self.arrives, self.gives_up = asyncio.Event(), asyncio.Event()
        self.lag_s = 0.0  # of each event of a watch
        self.lists_in_s = 0.0
        self.flows = asyncio.Event()
        self.flows.set()

    async def send(self, request):
        words = verb_and_resource(request)
        if self.is_cut:
            raise Unreachable(f"cannot reach {self.label}: connection refused")
        self.calls[f"{self.label} {words}"] += 1
        if request.is_read and self.lists_in_s:
            await asyncio.sleep(self.lists_in_s)
        if self.refusal is not None:
            return self.refusal
        if words == self.denies:
            raise AdmissionDenied('admission webhook "x" denied the request: no')
        if (words, "before") in self.breaks:
            self.breaks.remove((words, "before"))
            raise Unreachable(f"cannot reach {self.label}: connection refused")
        if words == self.holds and self.late is None:
            self.late = asyncio.create_task(self._send_late(request))
            await self.gives_up.wait()
            raise OutcomeUnknown(f"{self.label} did not answer")
        reply = await self.local.send(request)
        if (words, "after") in self.breaks:
            self.breaks.remove((words, "after"))
            raise OutcomeUnknown(f"{self.label} did not answer")
        return reply

    async def _send_late(self, request):
        """Also when its sender has gone."""
        await self.arrives.wait()
        return await self.local.send(request)

    async def arrive(self):
        self.arrives.set()
        return await self.late

    @asynccontextmanager
    async def stream(self, request):
        if self.is_cut:
            raise Unreachable(f"cannot reach {self.label}: connection refused")
        if self.refusal is not None:
            raise error_for(self.refusal)
        scope = asyncio.timeout(None)
        try:
            async with scope, self.local.stream(request) as events:
                self._streams.add(scope)
                yield self._in_time(events)
        except TimeoutError as error:
            raise OutcomeUnknown(f"the watch of {self.label} broke") from error
        finally:
            self._streams.discard(scope)

    async def _in_time(self, events):
        async for event in events:
            await self.flows.wait()
            if self.lag_s:
                await asyncio.sleep(self.lag_s)
            yield event

    def hold_news(self):
        """From now on no watch brings anything, and none breaks."""
        self.flows.clear()

    def cut(self):
        """From now on no request gets through, and watches break."""
        self.is_cut = True
        self.break_watches()

    def break_watches(self):
        for scope in tuple(self._streams):
            scope.reschedule(asyncio.get_running_loop().time())
        self._streams.clear()

    def refuse(self, reply):
        self.refusal = reply
        self.break_watches()

    def mend(self):
        self.is_cut, self.refusal = False, None

    async def aclose(self):
        pass


class Rig:
    """Guest objects through `guest`, Harvester's through `harvester`."""

    def __init__(self, tasks, version="v1.8.2", seed=1):
        self.clock = LoopClock()
        self.tasks = tasks
        rng = Rng(seed)
        self._host = Balancing(self.clock, rng, version)
        self.host_api, self.room = self._host.api, self._host.balancers
        self.guest_api = ApiServer(MemoryStore(), self.clock, rng, name="guest")
        self.harvester, self.guest = self.host_api.local("admin"), self.guest_api.local("user")
        self.calls = Counter()
        self.host_cable = FaultyTransport(self.host_api.local("provider"), "host", self.calls)
        self.guest_cable = FaultyTransport(self.guest_api.local("provider"), "guest", self.calls)
        self.lines = []
        self.metrics = Metrics()
        self._provider = None
        self.vip = Announcer(self.guest_api)
        self._starts = 0

    async def set_up(self):
        # Every cluster has this service from the beginning; its uid distinguishes clusters of one name.
        if await self.guest.find(SERVICE.ref("kubernetes", "default")) is None:
            raw = new_object(SERVICE, "kubernetes", "default", spec={"ports": [a_port(443)]})
            await self.guest.create(SERVICE, raw)
        self.tasks.create_task(self._host.run())
        self.tasks.create_task(self.vip.run())

    # --- the program ------------------------------------------------------------------------------------------------

    def start(self, cluster=CLUSTER, **options):
        self._starts += 1
        context = ControllerContext(
            self.guest_cable,
            self.host_cable,
            "default",
            Options(cluster_name=cluster, **options),
            self.clock,
            Rng(self._starts),
            line_logger("harvester-cloud-provider", self.lines.append),
            self.metrics,
        )
        provider = ServiceController(context)
        self.provider = provider
        self._provider = self.tasks.create_task(provider.run())
        return provider

    async def stop(self):
        self._provider.cancel()
        await asyncio.gather(self._provider, return_exceptions=True)

    async def restart(self, **options):
        await self.stop()
        self.start(**options)

    # --- Harvester ----------------------------------------------------------------------------------------------------

    async def pool(self, name="pool", first=10, last=12, cluster=CLUSTER, **selector):
        ranges = a_range(first, last)
        scope = [{"project": "*", "namespace": "*", "guestCluster": cluster}]
        spec = {"ranges": ranges, "selector": {"scope": scope, **selector}}
        await self.harvester.create(kinds.IP_POOL, new_object(kinds.IP_POOL, name, spec=spec))

    async def widen(self, last, name="pool", first=10):
        await self.harvester.patch(kinds.IP_POOL.ref(name), {"spec": {"ranges": a_range(first, last)}})

    async def held(self, name="pool"):
        """Address -> load balancer."""
        pool = await self.harvester.get(kinds.IP_POOL.ref(name))
        return dict(nested(pool, "status", "allocated", default={}))

    async def balancers(self):
        found = await self.harvester.list(kinds.LOAD_BALANCER)
        return {name_of(raw): raw for raw in found}

    async def balancer(self, service="web", namespace="default", cluster=CLUSTER):
        raw = await self.service(service, namespace)
        name = load_balancer_name(cluster, namespace, service, uid_of(raw))
        return await self.harvester.find(kinds.LOAD_BALANCER.ref(name, "default"))

    # --- the guest ----------------------------------------------------------------------------------------------------

    async def serve(self, name="web", namespace="default", ports=(80,), spec=None, **annotations):
        if namespace != "default" and await self.guest.find(NAMESPACE.ref(namespace)) is None:
            await self.guest.create(NAMESPACE, new_object(NAMESPACE, namespace))
        said = {KEYS.get(key, key): value for key, value in annotations.items()}
        raw = new_object(
            SERVICE,
            name,
            namespace,
            annotations=said,
            spec={"type": "LoadBalancer", "ports": [a_port(one) for one in ports], **(spec or {})},
        )
        return await self.guest.create(SERVICE, raw)

    async def service(self, name="web", namespace="default"):
        return await self.guest.get(SERVICE.ref(name, namespace))

    async def annotate(self, name="web", namespace="default", **annotations):
        said = {KEYS.get(key, key): value for key, value in annotations.items()}
        await self.guest.patch(SERVICE.ref(name, namespace), {"metadata": {"annotations": said}})

    async def delete(self, name="web", namespace="default"):
        await self.guest.delete(SERVICE.ref(name, namespace))

    async def is_gone(self, name="web", namespace="default"):
        return await self.guest.find(SERVICE.ref(name, namespace)) is None

    async def address(self, name="web", namespace="default"):
        return annotations_of(await self.service(name, namespace)).get(names.VIP_ADDRESSES)

    async def map_networks(self, **interfaces):
        data = {names.NETWORK_MAP_KEY: dumps(interfaces).decode() if interfaces else ""}
        ref = CONFIG_MAP.ref(names.NETWORK_MAP_NAME, names.NETWORK_MAP_NAMESPACE)
        try:
            await self.guest.patch(ref, {"data": data})
        except NotFound:
            await self.guest.create(CONFIG_MAP, new_object(CONFIG_MAP, ref.name, ref.namespace, data=data))

    async def events(self, name="web", reason=""):
        """(reason, message) of the events on a service, in order."""
        found = [raw for raw in await self.guest.list(EVENT) if raw["involvedObject"]["name"] == name]
        return [(raw["reason"], raw["message"]) for raw in found if reason in ("", raw["reason"])]

    async def complaints(self, name="web"):
        return [message for _, message in await self.events(name, "SyncLoadBalancerFailed")]

    async def until(self, holds, within_s=600):
        """What `holds()` gives as soon as it is something."""
        end = self.clock.now().timestamp() + within_s
        while not (found := await holds()):
            assert self.clock.now().timestamp() < end, "timed out"
            await asyncio.sleep(0.05)
        return found

    async def settle(self, seconds=5):
        await asyncio.sleep(seconds)

    @property
    def seconds(self):
        return (self.clock.now() - NOON).total_seconds()

    def writes(self):
        """Calls that are no reads, since the last time this was asked."""
        found = {key: count for key, count in self.calls.items() if key.split()[1] not in ("GET", "WATCH")}
        self.calls.clear()
        return found


KEYS = {
    "ipam": names.IPAM,
    "network": names.NETWORK,
    "primary": names.PRIMARY_SERVICE,
    "pool": names.IP_POOL,
    "addresses": names.VIP_ADDRESSES,
}


def a_port(port):
    protocol, number = port if isinstance(port, tuple) else ("TCP", port)
    return {"name": f"{protocol.lower()}-{number}", "port": number, "protocol": protocol}


def a_range(first, last):
    return [{"subnet": "10.1.0.0/24", "rangeStart": f"10.1.0.{first}", "rangeEnd": f"10.1.0.{last}"}]


def protected(raw):
    return names.FINALIZER in finalizers_of(raw)


def sharing(raw):
    return labels_of(raw).get(names.PRIMARY_SERVICE)


def ingress(raw):
    return [one["ip"] for one in nested(raw, "status", "loadBalancer", "ingress", default=[])]


def run_story(story, **rest):
    """Run `story(world)`."""

    async def whole():
        async with asyncio.TaskGroup() as tasks:
            world = Rig(tasks, **rest)
            await world.set_up()
            result = await story(world)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
        return result

    return run_driven(whole())
