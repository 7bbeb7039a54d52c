"""Repair: judge each machine by two witnesses, the guest's Node and Harvester's VM, and ask to replace what is lost.

| Node      | VM                      | Host  | verdict                                                     |
|-----------|-------------------------|-------|-------------------------------------------------------------|
| Ready     | any                     | any   | well                                                        |
| not Ready | unknown                 | —     | wait: unknown is not gone                                   |
| not Ready | missing                 | —     | lost, at once                                               |
| not Ready | stopped or failed       | any   | start it; lost if it stands still again, or does not return |
| not Ready | on its way up or moving | any   | wait                                                        |
| not Ready | running                 | fails | wait for Harvester to move it; lost after a longer time     |
| not Ready | running                 | fine  | lost after the pool's unhealthyNodeTimeout                  |
| never yet | running                 | —     | lost after the pool's nodeStartupTimeout                    |

"Not Ready" needs the guest API: while it is silent nothing is judged but what may always be started again. Only the
times are ours: since when a node is not Ready stands in our own record, so that a guest with a wrong clock, or a
restart of the manager, changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from windrow.clusters.actions import Retire, Start, Wait, brief
from windrow.clusters.parts import Disruption, Part, Sheet
from windrow.clusters.reading import Pool
from windrow.clusters.seen import INITIALIZING, STANDING, MachineSeen, Seen, silent_about

HOST_WITHIN = timedelta(minutes=15)
START_WITHIN = timedelta(minutes=2)
ASK_FOR = timedelta(
    minutes=2
)  # a manager that was away asks a first server for as long before it gives it up
_MOVING = frozenset({"provisioning", "starting", "stopping", "migrating", "deleting"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done about one machine. `until` is when a wait ends by itself; without `then` all goes well."""

    kind: Literal["well", "wait", "start", "lost"]
    because: str = ""
    then: str = ""
    until: datetime | None = None


WELL = Verdict("well")


def plan(seen: Seen) -> Part:
    sheet = Sheet()
    for machine in seen.staying:
        pool = seen.cluster.find_pool(machine.pool)
        if pool is None or not machine.record.was_made:
            continue
        verdict = judge(machine, pool, seen)
        if verdict.kind in ("start", "lost") and (held := _switched_off(pool, seen)):
            verdict = Verdict("wait", f"{verdict.because}; {held}", "it is repaired once that is changed")
        match verdict.kind:
            case "well":
                continue
            case "wait":
                sheet.waits.append(Wait(verdict.because, verdict.then, machine.name, verdict.until))
            case "start":
                sheet.actions.append(Start(verdict.because, machine.name))
            case "lost":
                pass
        # For the last member it is asked although the answer is known, so that the status says what will not happen.
        # Of one that nobody can see there is nothing to say but that.
        if verdict.kind == "lost" or (machine.presence != "unknown" and _is_last_member(machine, seen)):
            sheet.asked.append(_replace(machine, verdict.because))
    return sheet.part()


def _replace(machine: MachineSeen, because: str) -> Disruption:
    return Disruption("replace", machine.name, Retire(because, machine.name))


def _switched_off(pool: Pool, seen: Seen) -> str:
    if not seen.cluster.repair:
        return "repair is turned off by annotation"
    return f"pool {pool.name} is paused" if pool.paused else ""


def _is_last_member(machine: MachineSeen, seen: Seen) -> bool:
    alone = [member.name for member in seen.members] == [machine.name]
    return alone and machine.is_etcd and machine.record.was_ready


def judge(machine: MachineSeen, pool: Pool, seen: Seen) -> Verdict:
    """The verdict on one machine that stays and was ordered."""
    if machine.is_ready and seen.guest.answers:
        return _judge_wish(machine)
    sighting = machine.sighting
    if sighting is None or sighting.presence == "unknown":
        why = sighting.because if sighting else "it has not been looked at yet"
        return Verdict(
            "wait", f"Harvester to show {machine.name} ({why})", "it is judged; unknown is not gone"
        )
    if sighting.presence == "missing":
        return _judge_missing(machine, seen)
    if sighting.state in STANDING:
        return _judge_standing(machine, seen)
    if sighting.state in _MOVING:
        return Verdict(
            "wait",
            f"{machine.name}, which is {sighting.state} on Harvester{_words(sighting.because)}",
            next_of_state(machine),
        )
    return _judge_running(machine, pool, seen)


def next_of_state(machine: MachineSeen) -> str:
    """What comes after the state that Harvester shows."""
    usual = "its node becomes Ready again" if machine.record.was_ready else "it joins the cluster"
    return _AFTER.get(machine.sighting.state, usual) if machine.sighting else usual


_AFTER = {
    "provisioning": "it boots",
    "stopping": "it is started again",
    "stopped": "it is started again",
    "failed": "it is started again",
    "deleting": "it is replaced",
}


def _words(because: str) -> str:
    return f" ({brief(because)})" if because else ""


def _judge_wish(machine: MachineSeen) -> Verdict:
    if machine.is_down:
        state = (
            "gone" if machine.sighting is None or machine.presence == "missing" else machine.sighting.state
        )
        return Verdict("wait", f"node {machine.name} to be seen as lost, whose VM is {state}", "it is judged")
    if machine.record.replace_now:
        return Verdict("lost", "its annotation asks for a replacement")
    return WELL


def _judge_missing(machine: MachineSeen, seen: Seen) -> Verdict:
    if seen.guest.answers or not seen.standing.initialized:
        return Verdict("lost", "its VM is gone from Harvester")
    return Verdict(
        "wait",
        f"the guest API, to judge {machine.name}, whose VM is gone from Harvester ({silent_about(seen.guest)})",
        "the machine is replaced",
    )


def _judge_standing(machine: MachineSeen, seen: Seen) -> Verdict:
    record, state = machine.record, machine.sighting.state if machine.sighting else ""
    if record.last_start is None or record.starts == 0:
        return Verdict("start", f"its VM is {state}; starting is quicker than replacing")
    until = record.last_start + START_WITHIN
    if seen.now < until:
        return Verdict(
            "wait", f"{machine.name} to start, as was ordered", "it is replaced if it stands still", until
        )
    why = f"its VM is {state} again after it was started"
    if _is_last_member(machine, seen):
        return Verdict("start", why)
    if seen.guest.answers or not seen.standing.initialized:
        return Verdict("lost", why)
    return Verdict("wait", f"the guest API ({silent_about(seen.guest)})", f"{machine.name} is judged: {why}")


def _judge_running(machine: MachineSeen, pool: Pool, seen: Seen) -> Verdict:
    if not seen.standing.initialized:
        return _judge_first(machine, pool, seen)
    if not seen.guest.answers:
        return Verdict("wait", f"the guest API ({silent_about(seen.guest)})", f"{machine.name} is judged")
    if not machine.record.was_ready:
        return _judge_newcomer(machine, pool, seen)
    sighting = machine.sighting
    if sighting is not None and sighting.host_ready is False:
        until = _unready_since(machine, seen) + max(HOST_WITHIN, pool.unhealthy_after)
        what = f"Harvester to move {machine.name} off host {sighting.host}, which fails"
        why = f"not Ready since its host {sighting.host} failed"
    else:
        until = _unready_since(machine, seen) + pool.unhealthy_after
        reason = machine.node.because if machine.node else "its Node was deleted"
        what = f"node {machine.name} to be Ready again{_words(reason)}"
        why = f"its node has not been Ready for {_minutes(pool.unhealthy_after)}{_words(reason)}"
    if seen.now >= until:
        return Verdict("lost", why)
    return Verdict("wait", what, "the machine is replaced", until)


def _judge_first(machine: MachineSeen, pool: Pool, seen: Seen) -> Verdict:
    """Before the cluster has started, only the first server can be late; the others wait for it."""
    first = seen.first
    if first is None or machine.name != first.name:
        return Verdict(
            "wait",
            f"the first server {seen.standing.first_name} to start the cluster",
            f"{machine.name} joins",
        )
    what = f"{machine.name} to start the cluster"
    if seen.guest.state == "unasked" and machine.address:
        # It may have started the cluster while no manager was there to see it.
        return Verdict("wait", what, "it is judged once its API has been asked")
    verdict = _judge_startup(machine, pool, seen, what, machine.record.created)
    asked = seen.guest.asked_since
    if verdict.kind == "lost" and asked is not None and seen.now < asked + ASK_FOR:
        return Verdict("wait", what, "the machine is replaced if its API stays silent", asked + ASK_FOR)
    return verdict


def _judge_newcomer(machine: MachineSeen, pool: Pool, seen: Seen) -> Verdict:
    started = next(
        (
            c.get("lastTransitionTime")
            for c in seen.standing.raw.get("conditions") or ()
            if c.get("type") == "Initialized"
        ),
        None,
    )
    since = (
        max(machine.record.created, datetime.fromisoformat(started)) if started else machine.record.created
    )
    what = f"{machine.name} to join as a node"
    if machine.node is not None:
        what = f"node {machine.name} to be Ready{_words(machine.node.because)}"
    return _judge_startup(machine, pool, seen, what, since)


def _judge_startup(machine: MachineSeen, pool: Pool, seen: Seen, what: str, since: datetime) -> Verdict:
    if pool.startup_within is None:
        return Verdict("wait", what, "it goes on")
    if machine.record.last_start is not None:
        since = max(since, machine.record.last_start)
    until = since + pool.startup_within
    if seen.now >= until:
        return Verdict("lost", f"it did not become a Ready node within {_minutes(pool.startup_within)}")
    half = since + pool.startup_within / 2
    if seen.now < half:
        return Verdict("wait", what, "", half)  # what comes next is that it goes well
    return Verdict(
        "wait",
        what,
        f"the machine is replaced if that takes longer than {_minutes(pool.startup_within)}",
        until,
    )


def _unready_since(machine: MachineSeen, seen: Seen) -> datetime:
    """When we first saw that its node is not Ready, or started it again since."""
    found = machine.record.find_condition("Ready")
    since = seen.now
    # While it was being initialised its node was Ready, though the machine was not.
    if found is not None and found.status == "False" and found.since and found.reason != INITIALIZING:
        since = datetime.fromisoformat(found.since)
    return max(since, machine.record.last_start) if machine.record.last_start else since


def is_unhealthy(machine: MachineSeen, seen: Seen) -> bool:
    """For the breaker: was a node, and is not Ready now; or its VM is missing, node or not."""
    if machine.presence == "missing" and not machine.is_ready:
        return True
    return machine.record.was_ready and seen.guest.answers and not machine.is_ready


def _minutes(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    if seconds % 60 or seconds == 0:
        return f"{seconds} s"
    return f"{seconds // 60} min"
