"""Actions of the service controller, as values with their reason, and the Plan that lists them. An action that writes is
logged as its `str`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from windrow.cloudprovider.services.readings import LoadBalancer
from windrow.cloudprovider.services.state import ServiceState, Unavailable

# How long another controller may take before the service gets an event about what it waits for.
WAIT_TIMEOUT = timedelta(seconds=60)
# How long a user may take for what belongs together: services that come or go with one command do so one by one.
GRACE = timedelta(seconds=3)
# How long a refusal of an address that was allocated before may last: Harvester recovers from some at once.
REFUSAL_GRACE = timedelta(seconds=2)
# What a plan waits for while the informer of LoadBalancers is not watching.
HARVESTER = "Harvester"


Entries = Mapping[str, str | None]


def describe_entries(what: str, entries: Iterable[tuple[str, str | None]]) -> str:
    """Which labels or annotations were set, which emptied (""), and which removed (None). "" for none."""
    known = tuple(entries)
    keys_by_verb = {
        "set": [f"{key}={value}" for key, value in known if value],
        "emptied": [key for key, value in known if value == ""],
        "removed": [key for key, value in known if value is None],
    }
    parts = [f"{what} {', '.join(keys)} {verb}" for verb, keys in keys_by_verb.items() if keys]
    return " and ".join(parts)


@dataclass(frozen=True, slots=True)
class _Patch:
    """Annotations and labels to patch in one request; None removes."""

    because: str
    annotations: Entries = field(default_factory=dict)
    labels: Entries = field(default_factory=dict)

    def _describe(self, finalizer: str) -> str:
        annotations = describe_entries("annotations", self.annotations.items())
        labels = describe_entries("labels", self.labels.items())
        return f"{'; '.join(filter(None, (finalizer, annotations, labels)))} because {self.because}"


@dataclass(frozen=True, slots=True)
class PatchService(_Patch):
    """Patch the service, with the finalizer where that is to be added."""

    add_finalizer: bool = False

    def __str__(self) -> str:
        return self._describe("finalizer added" if self.add_finalizer else "")


@dataclass(frozen=True, slots=True)
class RemoveFinalizer(_Patch):
    """Remove the finalizer, once Harvester, asked live, has no LoadBalancer `load_balancer`."""

    load_balancer: str = field(kw_only=True)

    def __str__(self) -> str:
        return self._describe("finalizer removed")


@dataclass(frozen=True, slots=True)
class ClearStatus:
    """Remove the addresses from the service's status."""

    because: str

    def __str__(self) -> str:
        return f"addresses removed from its status because {self.because}"


@dataclass(frozen=True, slots=True)
class CreateLoadBalancer:
    """Create the LoadBalancer on Harvester, or the one for the address of its second family."""

    name: str
    because: str
    is_second: bool = False

    def __str__(self) -> str:
        return f"load balancer {self.name} created because {self.because}"


@dataclass(frozen=True, slots=True)
class UpdateLoadBalancer:
    """Update the LoadBalancer where it differs. The pool "" leaves the choice to Harvester."""

    balancer: LoadBalancer
    because: str
    annotations: Entries = field(default_factory=dict)
    pool: str | None = None
    address: str | None = None

    def __str__(self) -> str:
        return f"load balancer {self.balancer.name} updated because {self.because}"


@dataclass(frozen=True, slots=True)
class DeleteLoadBalancer:
    """Delete the LoadBalancer, which gives its address back."""

    balancer: LoadBalancer
    because: str

    def __str__(self) -> str:
        return f"load balancer {self.balancer.name} deleted because {self.because}"


@dataclass(frozen=True, slots=True)
class ConfirmDeleted:
    """Execute the actions behind it only when Harvester, asked live, has no LoadBalancer `name` of this service."""

    name: str


@dataclass(frozen=True, slots=True)
class EmitEvent:
    """An event on the service."""

    reason: str
    message: str
    type: Literal["Normal", "Warning"] = "Normal"


Action = (
    PatchService
    | ClearStatus
    | CreateLoadBalancer
    | UpdateLoadBalancer
    | DeleteLoadBalancer
    | RemoveFinalizer
    | ConfirmDeleted
    | EmitEvent
)

ENSURING = EmitEvent("EnsuringLoadBalancer", "Ensuring load balancer")
ENSURED = EmitEvent("EnsuredLoadBalancer", "Ensured load balancer")
DELETING = EmitEvent("DeletingLoadBalancer", "Deleting load balancer")
DELETED = EmitEvent("DeletedLoadBalancer", "Deleted load balancer")


@dataclass(frozen=True, slots=True)
class Plan:
    """`problem` becomes an event, once; `waits_for` is what brings the next plan, at `until` at the latest."""

    actions: tuple[Action, ...] = ()
    problem: str = ""
    waits_for: str = ""
    until: datetime | None = None


NO_ACTION = Plan()


def ensure_failed(text: str) -> str:
    """The problem with the framework's prefix."""
    return f"failed to ensure load balancer: {text}"


def refused(text: str, actions: tuple[Action, ...] = ()) -> Plan:
    return Plan(actions, problem=ensure_failed(text))


def waiting(
    state: ServiceState,
    what: str,
    problem: str,
    actions: tuple[Action, ...] = (),
    timeout: timedelta = WAIT_TIMEOUT,
) -> Plan:
    """Wait for `what`; from the timeout on with the problem."""
    since = state.wait.since if state.wait.what == what and state.wait.since else state.now
    if state.now - since >= timeout:
        return Plan(actions, problem=problem, waits_for=what)
    return Plan(actions, waits_for=what, until=since + timeout)


def wait_timed_out(state: ServiceState, what: str) -> bool:
    return (
        state.wait.what == what
        and state.wait.since is not None
        and state.now - state.wait.since >= WAIT_TIMEOUT
    )


def host_unavailable(host: Unavailable, doing: str) -> Plan:
    problem = f"failed to {doing} load balancer: {host.problem}" if host.problem else ""
    return Plan(problem=problem, waits_for=HARVESTER, until=host.until)
