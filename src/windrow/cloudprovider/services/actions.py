"""What can be done for a service, as values that know their reason, and the plan that holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from windrow.cloudprovider.services.balancer_readings import Balancer
from windrow.cloudprovider.services.seeing import Seen, Unseen

# How long a step of somebody else may take before we say on the service what it waits for.
PATIENCE = timedelta(seconds=60)
# How long a user may take for what belongs together: services that come or go with one command do so one by one.
GRACE = timedelta(seconds=3)
# How long Harvester's no to an address that it gave before may last: some of them it mends at once.
HICCUP = timedelta(seconds=2)
# What a plan waits for while Harvester's load balancers are not known.
HARVESTER = "Harvester"


@dataclass(frozen=True, slots=True)
class Mark:
    """Write on the service, in one patch. None removes."""

    because: str
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    labels: Mapping[str, str | None] = field(default_factory=dict)
    protects: bool = False  # with the finalizer


@dataclass(frozen=True, slots=True)
class ClearStatus:
    """Take the addresses out of the service's status."""

    because: str


@dataclass(frozen=True, slots=True)
class Reserve:
    """Create the LoadBalancer on Harvester."""

    name: str
    because: str


@dataclass(frozen=True, slots=True)
class Amend:
    """Update the LoadBalancer where it differs. The pool "" leaves the choice to Harvester."""

    balancer: Balancer
    because: str
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    pool: str | None = None
    address: str | None = None


@dataclass(frozen=True, slots=True)
class Release:
    """Delete the LoadBalancer, which gives its address back."""

    balancer: Balancer
    because: str


@dataclass(frozen=True, slots=True)
class LetGo:
    """Take the finalizer away, once Harvester itself says that the LoadBalancer `unless` is gone."""

    because: str
    unless: str
    annotations: Mapping[str, str | None] = field(default_factory=dict)
    labels: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Confirm:
    """Go on only once Harvester itself says that this service's LoadBalancer `name` is gone: a watch may lag."""

    name: str


@dataclass(frozen=True, slots=True)
class Tell:
    """An event on the service."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


Action = Mark | ClearStatus | Reserve | Amend | Release | LetGo | Confirm | Tell

ENSURING = Tell("EnsuringLoadBalancer", "Ensuring load balancer")
ENSURED = Tell("EnsuredLoadBalancer", "Ensured load balancer")
DELETING = Tell("DeletingLoadBalancer", "Deleting load balancer")
DELETED = Tell("DeletedLoadBalancer", "Deleted load balancer")


@dataclass(frozen=True, slots=True)
class Plan:
    """`problem` is told as an event, once; `waits_for` is what brings the next plan, at `until` at the latest."""

    actions: tuple[Action, ...] = ()
    problem: str = ""
    waits_for: str = ""
    until: datetime | None = None


NOTHING = Plan()


def cannot_ensure(text: str) -> str:
    """The problem in the framework's words."""
    return f"failed to ensure load balancer: {text}"


def refused(text: str) -> Plan:
    return Plan(problem=cannot_ensure(text))


def waiting(
    seen: Seen,
    what: str,
    complaint: str,
    actions: tuple[Action, ...] = (),
    patience: timedelta = PATIENCE,
) -> Plan:
    """Wait for `what`; after a while with the complaint."""
    since = seen.pause.since if seen.pause.what == what and seen.pause.since else seen.now
    if seen.now - since >= patience:
        return Plan(actions, problem=complaint, waits_for=what)
    return Plan(actions, waits_for=what, until=since + patience)


def waited_in_vain(seen: Seen, what: str) -> bool:
    return (
        seen.pause.what == what and seen.pause.since is not None and seen.now - seen.pause.since >= PATIENCE
    )


def without_host(host: Unseen, doing: str) -> Plan:
    problem = f"failed to {doing} load balancer: {host.problem}" if host.problem else ""
    return Plan(problem=problem, waits_for=HARVESTER, until=host.until)
