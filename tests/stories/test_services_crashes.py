"""The cloud provider may be killed before and after any write, and the objects afterwards are the same.

A calm life shows every write. Then, for each of them, two more lives: the process dies before the write is sent, and
after it was carried out but before its answer was heard. A new process takes over a second later. At the end of each
chapter everything that stands in both APIs must be the same as in the calm life, object by object, and no load
balancer may ever have been made that the calm life did not make. `make test` takes every third write, `make test-long` each.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.emulator import kinds
from windrow.harvester.unanswered import LATEST
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested
from windrow.kubernetes.resources import EVENT, SERVICE

from .crashes import AtWrite, Write
from .service_invariants import InvariantChecker, find_faults, look
from .service_rig import ServiceRig, a_service_rig

Chapter = Callable[[ServiceRig], Awaitable[Any]]
# A process that is not there, and the back-off of those that waited for it.
PATIENCE_S = 90.0


async def create(rig: ServiceRig) -> None:
    await rig.serve(finalizers=["example.com/mine"], labels={"mine": "yes"})


async def create_dhcp(rig: ServiceRig) -> None:
    await rig.serve("lease", ipam="dhcp")


async def share(rig: ServiceRig) -> None:
    await rig.serve("second", ipam="", ports=[443], primary="web")


async def part(rig: ServiceRig) -> None:
    await rig.annotate("second", ipam="pool", primary_service=None)


async def unpublish(rig: ServiceRig) -> None:
    await rig.guest.patch(SERVICE.ref("web", "default"), {"spec": {"type": "ClusterIP"}})


async def publish(rig: ServiceRig) -> None:
    await rig.guest.patch(SERVICE.ref("web", "default"), {"spec": {"type": "LoadBalancer"}})


async def lose_balancer(rig: ServiceRig) -> None:
    for raw in await rig.balancers():
        await rig.at_host.delete(kinds.LOAD_BALANCER.ref(name_of(raw), "default"))


async def delete(rig: ServiceRig) -> None:
    ours = "metadata.name!=kubernetes"
    for raw in await rig.guest.list(SERVICE, "default", fields=ours):
        await rig.delete(name_of(raw))
    for raw in await rig.guest.list(SERVICE, "default", fields=ours):
        kept = [one for one in raw["metadata"].get("finalizers", []) if one != "example.com/mine"]
        await rig.guest.patch(
            SERVICE.ref(name_of(raw), "default"), {"metadata": {"finalizers": kept or None}}
        )


LIVES: dict[str, tuple[Chapter, ...]] = {
    "pool": (create, delete),
    "dhcp": (create_dhcp, delete),
    "shared": (create, share, part, delete),
    "type": (create, unpublish, publish, lose_balancer, delete),
}


@dataclass
class Result:
    """One life: what stood there after each chapter, what was written, what was wrong."""

    states: list[dict[str, Raw]] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    deaths: int = 0
    first: int = 0  # the number of the last write before the first chapter

    def made(self) -> Counter[str]:
        return Counter(
            write.what
            for write in self.writes
            if write.made_something and not write.what.endswith((" events", " leases"))
        )


def run_chapters(chapters: tuple[Chapter, ...], fate: AtWrite | None = None) -> Result:
    async def whole() -> Result:
        result = Result()
        async with a_service_rig(1) as rig:
            checker = InvariantChecker(rig)
            await rig.make_pool("10.1.0.10-12")
            rig.start("--leader-elect=false")
            await rig.pass_time(5)
            result.first = rig.sent
            rig.fate = fate
            for chapter in chapters:
                deaths = len(rig.deaths)
                await chapter(rig)
                await rig.pass_time(PATIENCE_S)
                if len(rig.deaths) > deaths:  # the next process waits for what this one may have requested
                    await rig.pass_time(LATEST.total_seconds())
                result.states.append(await _state(rig))
                result.faults += find_faults(await look(rig))
            result.writes, result.deaths = rig.writes, len(rig.deaths)
            result.faults += checker.faults
        return result

    return run_driven(whole())


async def _state(rig: ServiceRig) -> dict[str, Raw]:
    """Everything there is, without what differs from life to life: versions, times, and how often events were recorded."""
    found = {}
    for line, kind in (
        (rig.guest, SERVICE),
        (rig.at_host, kinds.LOAD_BALANCER),
        (rig.at_host, kinds.IP_POOL),
    ):
        for raw in await line.list(kind):
            found[_plain(f"{kind.kind} {namespace_of(raw)}/{name_of(raw)}")] = _plain(raw)
    for raw in await rig.guest.list(EVENT):
        if nested(raw, "involvedObject", "kind") == "Service":
            key = f"event {raw['involvedObject']['name']} {raw['reason']} {raw['message']}"
            found[key] = {}
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return _HASH.sub(r"\1", value)
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if key not in _PASSING}
    return [_plain(one) for one in value] if isinstance(value, list) else value


_PASSING = {
    "resourceVersion",
    "uid",
    "lastUpdateTime",
    "lastTransitionTime",
    "creationTimestamp",
    "deletionTimestamp",
}
# The hash in the name of a load balancer is of a uid, and uids are drawn in the order of requests.
_HASH = re.compile(r"(demo-default-[a-z]+)-[0-9a-f]{8}")


def find_differences(result: Result, calm: Result) -> list[str]:
    found = [*result.faults]
    if not result.deaths:
        found.append("no process died")
    for place, (state, wanted) in enumerate(zip(result.states, calm.states, strict=True)):
        for key in sorted(state.keys() | wanted.keys()):
            # What was told before a death may be told once more, and what was about to be told may be lost.
            if not key.startswith("event "):
                found += [
                    f"chapter {place}: {key} {one}" for one in _compare(state.get(key), wanted.get(key))
                ]
    if result.made() != calm.made():
        found.append(f"made {result.made()} instead of {calm.made()}")
    return found


def _compare(found: Any, wanted: Any, path: str = "") -> list[str]:
    if isinstance(found, dict) and isinstance(wanted, dict):
        return [
            one
            for key in sorted(found.keys() | wanted.keys())
            for one in _compare(found.get(key), wanted.get(key), f"{path}.{key}")
        ]
    return [] if found == wanted else [f"{path} is {found} instead of {wanted}"]


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", LIVES)
def test_a_process_killed_at_any_write_leaves_no_trace(name: str, every: int) -> None:
    calm = run_chapters(LIVES[name])
    assert calm.faults == []
    found = []
    for write in [write for write in calm.writes if write.number > calm.first][::every]:
        for when in ("before", "after"):
            result = run_chapters(LIVES[name], AtWrite(write.number, when))  # type: ignore[arg-type]
            found += [f"{when} {write.number} {write.what}: {one}" for one in find_differences(result, calm)]
    assert not found, f"{len(found)} differences:\n" + "\n".join(found[:40])
