"""What a cloud provider makes of its inputs, in a form that can be compared field by field, and how it is got."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.conformance.cloud_provider_cases import (
    ALL_SERVICES,
    BARE_NETWORK,
    NODES,
    POOL_FIRST,
    POOL_LAST,
    SMALL_NETWORK,
    CaseContext,
    NodeCase,
)
from tests.conformance.cloud_provider_rig import (
    NETWORK,
    PREFIX,
    UNINITIALISED,
    FakeKubeVip,
    Guest,
    Host,
    Running,
    a_host,
    a_provider,
    addresses_of,
    count_api_requests,
    eventually,
    has_taint,
    our_guest,
    run_beside,
    writes,
)
from tests.conformance.node_driver_rig import RecordedRequest
from tests.conformance.object_tables import (
    ABSENT,
    Difference,
    Row,
    compare,
    field_differences,
    flat,
    list_differences,
)

from windrow.emulator import kinds
from windrow.kubernetes.objects import Raw, labels_of, name_of, nested
from windrow.kubernetes.resources import CONFIG_MAP, EVENT, NODE, SERVICE

DOCUMENT = Path(__file__).parents[2] / "docs/reference/differences-cloud-provider.md"
SERVICES_HEADING = "### Services and their load balancers"
NODES_HEADING = "### Nodes"
VERSION = "v1.9.0"  # before it, Harvester overwrites the network that a service asks for
QUIET_S = 4.0
PHASE_S = 240.0
# What the API server, the emulator and the other actors write, and what differs from run to run.
NOT_COMPARED = re.compile(
    r"\.metadata\.(uid|resourceVersion|creationTimestamp|generation|managedFields|deletionTimestamp"
    r"|deletionGracePeriodSeconds|selfLink)\b|lastTransitionTime|lastUpdateTime|lastHeartbeatTime"
    r"|\.spec\.clusterIPs?\b|[nN]odePort$|healthCheckNodePort"
)


@dataclass(frozen=True, slots=True, order=True)
class EventSummary:
    """An event."""

    title: str
    message: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The objects of one case in the end, each by what it is called in it; the events, and what was written."""

    objects: Mapping[str, Raw]
    events: Sequence[EventSummary]
    writes: Sequence[str]
    general: Callable[[str], str] = field(repr=False)

    def fields(self) -> dict[str, str]:
        found = dict(line for name, raw in self.objects.items() for line in flat(name, _shown(raw)))
        return {
            self.general(path): self.general(text)
            for path, text in found.items()
            if not NOT_COMPARED.search(path)
        }


def _shown(raw: Raw) -> Raw:
    """Of a Service's status only its addresses: the rest is what kube-vip makes of the spec."""
    if raw.get("kind") != SERVICE.kind:
        return raw
    return raw | {"status": {"loadBalancer": ", ".join(addresses_of(raw)) or "none"}}


def differences(go: Outcome, ours: Outcome) -> Iterator[Difference]:
    """An object that only one has counts as one difference."""
    names = {*go.objects, *ours.objects}
    alone = {name for name in names if (name in go.objects) != (name in ours.objects)}
    for name in sorted(alone):
        yield go.general(name), *("present" if name in one.objects else "absent" for one in (go, ours))
    for difference in field_differences(go.fields(), ours.fields()):
        if not any(
            difference[0].startswith((f"{go.general(name)}.", f"{go.general(name)}[")) for name in alone
        ):
            yield difference
    yield from _event_differences(go.events, ours.events)
    yield from _only_what(list_differences("writes", sorted(go.writes), sorted(ours.writes)))


def _event_differences(theirs: Sequence[EventSummary], mine: Sequence[EventSummary]) -> Iterator[Difference]:
    """Events that one of them has more; and the sentences, where both have the event."""
    yield from _only_what(list_differences("events", _titles(theirs), _titles(mine)))
    for title in {*_titles(theirs)} & {*_titles(mine)}:
        left, right = (sorted(one.message for one in said if one.title == title) for said in (theirs, mine))
        for message in {*left} & {*right}:
            left.remove(message)
            right.remove(message)
        if left or right:
            yield _message_difference(title, " / ".join(left) or ABSENT, " / ".join(right) or ABSENT)


def _message_difference(title: str, theirs: str, mine: str) -> Difference:
    """What follows our first semicolon is the cure; the whole sentences are our unit tests' business."""
    said, semicolon, _ = mine.partition("; ")
    if said.startswith(theirs):
        theirs, said = "<sentence>", "<sentence>" + (": <more>" if said != theirs else "")
    return f"message of {title}", theirs, said + ("; <cure>" if semicolon else "")


def _titles(events: Sequence[EventSummary]) -> list[str]:
    return sorted({one.title for one in events})


def _only_what(found: Iterable[Difference]) -> Iterator[Difference]:
    return (one for one in found if not one[0].endswith("(order)"))


def compare_outcomes(go: Mapping[str, Outcome], ours: Mapping[str, Outcome]) -> list[Row]:
    return compare(go, ours, differences)


@dataclass(frozen=True, slots=True)
class Result:
    """What became of every case, and what it cost in requests."""

    outcomes: Mapping[str, Outcome]
    host_calls: Counter[str]
    guest_calls: Counter[str]
    seconds: float

    def __add__(self, other: Result) -> Result:
        return Result(
            {**self.outcomes, **other.outcomes},
            self.host_calls + other.host_calls,
            self.guest_calls + other.guest_calls,
            self.seconds + other.seconds,
        )


# --- services -----------------------------------------------------------------------------------------------------


async def serve_all(program: Path, folder: Path) -> Result:
    """Every case of services, given to one program between a Harvester and a guest API of its own."""
    begun = time.monotonic()
    async with (
        a_host(networks=[BARE_NETWORK], version=VERSION) as host,
        our_guest() as guest,
    ):
        await host.make_pool("pool", POOL_FIRST, POOL_LAST, NETWORK)
        await host.make_pool("small", "192.168.60.100", "192.168.60.100", SMALL_NETWORK)
        for name in ("n-1", "n-2"):
            await host.make_vm(name, NETWORK, SMALL_NETWORK, BARE_NETWORK)
            await guest.register(name, await host.address_of(name))
        async with run_beside(FakeKubeVip(guest).run()), a_provider(program, folder, host, guest) as running:
            stage = CaseRun(host, guest, running)
            await stage.wait_for_network_map()
            await stage.play_all()
            outcomes = {name: await stage.outcome(name) for name in ALL_SERVICES}
    assert host.door is not None
    assert guest.door is not None
    return Result(
        outcomes,
        count_api_requests(host.door.notes),
        count_api_requests(guest.door.notes),
        time.monotonic() - begun,
    )


@dataclass
class CaseRun:
    """Where all cases of services play together."""

    host: Host
    guest: Guest
    running: Running

    def world(self, name: str) -> CaseContext:
        return CaseContext(self.host, self.guest, namespace_for(name))

    async def wait_for_network_map(self) -> None:
        ref = CONFIG_MAP.ref("harvester-nad-mapping", "kube-system")

        async def there() -> bool:
            raw = await self.guest.api.find(ref)
            return BARE_NETWORK in nested(raw, "data", "interface-nad-mapping", default="")

        await eventually(there, f"the network map\n{self.running.log()[-2000:]}", 30)

    async def play_all(self) -> None:
        for phase in ("first", "then", "late"):
            for name, case in ALL_SERVICES.items():
                await getattr(case, phase)(self.world(name))
            turns = {"first": "turns", "late": "late_turns"}.get(phase)
            for name, case in ALL_SERVICES.items():
                for service in getattr(case, turns) if turns else ():
                    await self._has_had_its_turn(name, service)
            await self._quiet()

    async def _has_had_its_turn(self, name: str, service: str) -> None:
        """Wait until the provider has said how it went."""

        async def told() -> bool:
            events = await self.guest.api.list(EVENT, namespace_for(name))
            said = {one["reason"] for one in events if one["involvedObject"]["name"] == service}
            return bool(said & {"EnsuredLoadBalancer", "SyncLoadBalancerFailed"})

        await eventually(told, f"{name}: a word on {service}", PHASE_S, every=0.2)

    async def _quiet(self) -> None:
        """Wait until the provider has asked nothing for a while, but for the cases that never settle."""
        restless = [namespace_for(name) for name, case in ALL_SERVICES.items() if case.fails]
        deadline = time.monotonic() + PHASE_S
        seen, since = self._activity(restless), time.monotonic()
        while time.monotonic() - since < QUIET_S:
            assert time.monotonic() < deadline, "the provider does not come to rest"
            await asyncio.sleep(0.2)
            if (now := self._activity(restless)) != seen:
                seen, since = now, time.monotonic()

    def _activity(self, restless: Sequence[str]) -> int:
        assert self.guest.door is not None
        ours = re.compile(rf"c-.*|{re.escape(PREFIX)}")
        return sum(
            1
            for note in (*self.host.door.notes, *self.guest.door.notes)
            if ours.search(_about(note)) and not any(_is_of(note, one) for one in restless)
        )

    async def outcome(self, name: str) -> Outcome:
        namespace = namespace_for(name)
        services = await self.guest.api.list(SERVICE, namespace)
        objects = {f"Service {name_of(raw)}": raw for raw in services}
        restless = ALL_SERVICES[name].fails
        label = f"{PREFIX}/serviceNamespace"
        for raw in await self.host.api.list(kinds.LOAD_BALANCER, "default"):
            if labels_of(raw).get(label) == namespace:
                service = labels_of(raw)[f"{PREFIX}/serviceName"]
                if not (restless and _has_no_address(raw)):  # it may be made and deleted over and over
                    objects[f"LoadBalancer of {service}"] = raw
        events = await self.guest.api.list(EVENT, namespace)
        assert self.guest.door is not None
        notes = [*self.host.door.notes, *self.guest.door.notes]
        written = {
            _request_line(note)
            for note in writes(notes)
            if _is_of(note, namespace) and "events" not in note.what
        }
        generals = _name_masks(namespace, list(objects.values()))
        return Outcome(objects, _event_summaries(events, generals), sorted(written), generals)


def namespace_for(name: str) -> str:
    return "c-" + re.sub(r"[^a-z]+", "-", name.lower())


def _has_no_address(balancer: Raw) -> bool:
    return not nested(balancer, "status", "allocatedAddress", "ip")


def _about(note: RecordedRequest) -> str:
    """What a request is about: its path, and the name in its body where it makes something."""
    if note.request.method == "POST" and note.request.content_type.startswith("application/json"):
        return f"{note.request.path} {json.loads(note.request.body or b'{}').get('metadata', {}).get('name', '')}"
    return note.request.path


def _is_of(note: RecordedRequest, namespace: str) -> bool:
    about = _about(note)
    return (
        re.search(rf"(/namespaces/{namespace}/|[/ -]{namespace}-(web|more|third|a-service))", about)
        is not None
    )


def _request_line(note: RecordedRequest) -> str:
    return f"{note.request.method} {note.what}"


def _event_summaries(events: Iterable[Raw], general: Callable[[str], str]) -> list[EventSummary]:
    found = set()
    for raw in events:
        source = nested(raw, "source", "component", default="")
        about = f"{raw['involvedObject']['kind']} {raw['involvedObject']['name']}"
        message = raw["message"].replace("Error syncing load balancer: failed to ensure load balancer: ", "")
        found.add(
            EventSummary(general(f"{raw['type']} {raw['reason']} of {about} ({source})"), general(message))
        )
    return sorted(found)


def _name_masks(namespace: str, objects: Sequence[Raw]) -> Callable[[str], str]:
    """Replaces what differs from run to run by what it stands for; addresses by whose they are."""
    seen: dict[str, str] = {}
    for raw in sorted(objects, key=lambda one: (one["kind"], name_of(one))):  # load balancers first
        service = labels_of(raw).get(f"{PREFIX}/serviceName") or name_of(raw)
        for address in (nested(raw, "status", "allocatedAddress", "ip", default=""), *addresses_of(raw)):
            seen.setdefault(address, f"<address of {service}>")

    def general(text: str) -> str:
        text = re.sub(
            r"\b192\.168\.\d+\.(?:1\d\d|2[0-4]\d)\b", lambda found: seen.get(found[0], "<address>"), text
        )
        text = re.sub(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uid>", text)
        text = re.sub(rf"demo-{namespace}-([a-z-]*?)-?[0-9a-f]{{8}}\b", r"<load balancer of \1>", text)
        return text.replace(namespace, "<namespace>")

    return general


# --- nodes --------------------------------------------------------------------------------------------------------


async def run_all_nodes(program: Path, folder: Path, cases: Mapping[str, NodeCase], *flags: str) -> Result:
    """These cases of nodes, given to one program between a Harvester and a guest API of its own."""
    begun = time.monotonic()
    async with a_host() as host, our_guest() as guest:
        world = CaseContext(host, guest)
        for name, case in cases.items():
            node = node_for(name)
            if case.vm:
                await host.make_vm(node, *case.networks, report=case.report(node))
        async with a_provider(program, folder, host, guest, *flags) as running:
            for name, case in cases.items():
                await _register(guest, node_for(name), case)
            try:
                if not flags:  # under some, not every node can be initialised
                    await asyncio.gather(*(_play_node(world, name, case) for name, case in cases.items()))
            except AssertionError as error:
                raise AssertionError(f"{error}\n{running.log()[-5000:]}") from error
            await asyncio.sleep(
                12
            )  # two rounds of the Go program's lifecycle loop, with all that it does then
            outcomes = {name: await _node_outcome(guest, name) for name in cases}
    assert guest.door is not None
    return Result(
        outcomes,
        count_api_requests(host.door.notes),
        count_api_requests(guest.door.notes),
        time.monotonic() - begun,
    )


def node_for(name: str) -> str:
    """The case's name without the flag that it may carry."""
    return "n-" + re.sub(r"[^a-z]+", "-", name.partition(" under ")[0].lower())


async def _register(guest: Guest, node: str, case: NodeCase) -> None:
    await guest.register(node, case.provided, labels=case.labels, annotations=case.annotations)


async def _play_node(world: CaseContext, name: str, case: NodeCase) -> None:
    node = node_for(name)
    if not case.stays:
        await world.guest.node_where(node, lambda raw: not has_taint(raw, UNINITIALISED), "initialised")
    if case.then is not None:
        await case.then(world, node)


async def _node_outcome(guest: Guest, name: str) -> Outcome:
    node = node_for(name)
    raw = await guest.api.find(NODE.ref(node))
    objects = {} if raw is None else {"Node": raw}
    events = [one for one in await guest.api.list(EVENT, "default") if one["involvedObject"]["name"] == node]

    def general(text: str) -> str:
        text = re.sub(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uid>", text)
        text = re.sub(r"\bzone-\d\b", "<zone>", text)
        return re.sub(rf"\b{node}\b", "<node>", text)

    return Outcome(objects, _event_summaries(events, general), [], general)


__all__ = [
    "DOCUMENT",
    "NODES",
    "NODES_HEADING",
    "SERVICES_HEADING",
    "Result",
    "compare_outcomes",
    "run_all_nodes",
    "serve_all",
]
