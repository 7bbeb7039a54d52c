"""Certificates of nodes: new keys for them, which `rotateCertificates` asks for, and their renewal by a restart.

Both restart the service of the machines, one turn after the other. Leaf certificates are valid for 365 days; a start renews
those that end within 120 days (reference/10-day2 §2.7), and makes others only where `certificate rotate` was run before. What
is 60 days before its end is renewed by itself, unless the user has turned that off.

When they end is known without asking: of the API server that is watched, from the certificate that it shows; of all others they
end no sooner than 365 days after the machine was made, or after the turn that renewed them. Of two such dates that differ by
less than a day the recorded one stays.

No clock and no server can have machines restart again and again: what was renewed once is not renewed again for the same end, and
nothing within 30 days of the renewal before.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from windrow.bootstrap import DISTRIBUTIONS
from windrow.clusters.api import names
from windrow.clusters.api.operations.rotations import RecordedRenewal
from windrow.clusters.plan.actions import PartialPlan
from windrow.clusters.plan.operations import restarts
from windrow.clusters.plan.operations.actions import BeginRenewal, FinishRenewal, WarnOfCertificates
from windrow.clusters.plan.operations.snapshots import find_runtime
from windrow.clusters.state import ClusterState, MachineState
from windrow.core.clock import format_time
from windrow.kubernetes.conditions import Condition
from windrow.kubernetes.objects import time_of

LIFETIME = timedelta(days=365)
# Before their end a start renews them, in every release.
RENEWED_WITHIN = timedelta(days=90)
RENEW_BEFORE = timedelta(days=60)
WARN_DAYS = (60, 30, 7, 0)
TOLERANCE = timedelta(days=1)
RENEWAL_PAUSE = timedelta(days=30)  # between two renewals by themselves
CERTIFICATES_VALID = "CertificatesValid"
RENEWED = (
    "every service was restarted, which renews certificates within 120 days of their end (90 before v1.33.1, v1.32.5, v1.31.9 and "
    "v1.30.13); others stay as they are, and no new keys were made"
)


def begin(state: ClusterState, partial: PartialPlan) -> None:
    """Begin what `rotateCertificates` asks for, or wait."""
    operations = state.cluster.operations
    then = "the certificates of each machine get new keys"
    if missing := restarts.why_not_begin(state):
        partial.wait(missing, then)
        return
    why = f"rotateCertificates.generation is {operations.rotate_certificates}"
    partial.actions.append(
        BeginRenewal(why, operations.rotate_certificates, True, operations.certificate_services)
    )


def go_on(state: ClusterState, partial: PartialPlan) -> None:
    """Wait for the machines that have yet to restart; then it is over."""
    recorded, left = state.recorded.operations.renewal, restarts.list_not_restarted(state)
    if left:
        then = "all use the new certificates" if recorded.makes_keys else "what was near its end is renewed"
        partial.wait(f"{len(left)} machines to restart ({restarts.name_some(left)})", then)
        return
    partial.actions.append(FinishRenewal(describe_end(recorded), recorded.wanted))


def describe_end(recorded: RecordedRenewal) -> str:
    """What has been done to the certificates."""
    if not recorded.makes_keys:
        return RENEWED
    of = f"of {', '.join(recorded.services)}" if recorded.services else "of every service"
    return f"new certificates {of} were made, with new keys, and the services restarted"


# -- when they end ---------------------------------------------------------------------------------------------------


def find_end(machine: MachineState, state: ClusterState) -> datetime | None:
    """When the first certificate of the machine ends, as far as is known; None before its Node was Ready."""
    record = machine.record
    if not (machine.is_ready or record.was_ready):
        return None
    known = time_of(record.status, "certificatesExpiryDate") or record.created + LIFETIME
    url = DISTRIBUTIONS[find_runtime(state)].LAYOUT.api_url(machine.address) if machine.address else ""
    shown = state.guest.certificate_ends.get(url)
    return known if shown is None or abs(shown - known) < TOLERANCE else shown


def find_next_end(machine: MachineState, end: datetime, now: datetime, *, is_new: bool) -> datetime:
    """When they end after a restart: those of workers are made at each start."""
    is_renewed = is_new or not machine.record.is_server or end - now <= RENEWED_WITHIN
    return now + LIFETIME if is_renewed else end


def find_first_end(state: ClusterState) -> tuple[MachineState, datetime] | None:
    """The machine whose certificates end first, and when."""
    ends = [(end, one.name, one) for one in state.active if (end := find_end(one, state)) is not None]
    if not ends:
        return None
    end, _, machine = min(ends, key=lambda one: one[:2])
    return machine, end


# -- renewal by itself -----------------------------------------------------------------------------------------------


def watch_ends(state: ClusterState, partial: PartialPlan) -> None:
    """Warn of what ends soon, and begin to renew it."""
    first = find_first_end(state)
    if first is None or first[1] - state.now > RENEW_BEFORE or not state.recorded.provisioned:
        return
    machine, end = first
    recorded, days = state.recorded.operations.renewal, _days_left(end, state)
    why = f"those of Machine {machine.name} {_describe(end, state)}"
    if _is_to_warn(end, days, recorded):
        partial.actions.append(WarnOfCertificates(f"{why}; {_describe_next(end, state)}", end, days))
    if state.cluster.renewal_disabled or was_renewed(end, recorded, state.now):
        return
    if missing := restarts.why_not_begin(state):
        partial.wait(missing, f"services restart, which renews certificates that end on {_date(end)}")
        return
    partial.actions.append(BeginRenewal(why, recorded.generation, False, (), end))


def was_renewed(end: datetime, recorded: RecordedRenewal, now: datetime) -> bool:
    """Whether services were restarted for this end, or only lately: another restart would renew nothing."""
    if recorded.expiry is None:
        return False
    is_lately = recorded.since is not None and abs(now - recorded.since) < RENEWAL_PAUSE
    return is_lately or abs(end - recorded.expiry) < TOLERANCE


def _is_to_warn(end: datetime, days: int, recorded: RecordedRenewal) -> bool:
    if recorded.warned_of is None or end - recorded.warned_of > RENEWAL_PAUSE:
        return True
    return days < recorded.warned_days


def _days_left(end: datetime, state: ClusterState) -> int:
    """The step of `WARN_DAYS` that it has come to."""
    return min(days for days in WARN_DAYS if end - state.now <= timedelta(days=days) or days == WARN_DAYS[0])


def _describe(end: datetime, state: ClusterState) -> str:
    return f"{'ended' if end <= state.now else 'end'} on {_date(end)}"


def _date(end: datetime) -> str:
    return format_time(end)[:10]


def _describe_next(end: datetime, state: ClusterState) -> str:
    if was_renewed(end, state.recorded.operations.renewal, state.now):
        return (
            "a restart of the services did not renew them; compare the clocks of the manager and of the nodes, or set "
            "rotateCertificates.generation"
        )
    if state.cluster.renewal_disabled:
        return f"annotation {names.RENEW_CERTIFICATES} turns their renewal off; set rotateCertificates.generation, or remove it"
    if state.cluster.paused:
        return "spec.paused holds their renewal; windrow resume goes on"
    return "services restart one after the other, which renews them"


def certificates_condition(state: ClusterState) -> Condition | None:
    """Whether they are far from their end; None as long as none has ever been near it."""
    first, recorded = find_first_end(state), state.recorded.operations.renewal
    if first is None or (recorded.warned_of is None and first[1] - state.now > RENEW_BEFORE):
        return None
    machine, end = first
    said = f"certificates of Machine {machine.name} {_describe(end, state)}"
    if end - state.now > RENEW_BEFORE:
        return Condition(CERTIFICATES_VALID, "True", "Valid", said)
    if recorded.id:
        return Condition(CERTIFICATES_VALID, "True", "Renewing", f"{said}; services restart")
    reason = "Expired" if end <= state.now else "ExpireSoon"
    return Condition(CERTIFICATES_VALID, "False", reason, f"{said}; {_describe_next(end, state)}")


def describe_credential_end(state: ClusterState) -> str:
    """What is said of a client certificate for Harvester that ends soon, which only its owner can renew; "" where none does."""
    if state.credential_end is None or state.credential_end[1] - state.now > RENEW_BEFORE:
        return ""
    name, end = state.credential_end
    secret = name.replace(":", "/")
    return (
        f"the client certificate in the kubeconfig of Secret {secret} {_describe(end, state)}; put a kubeconfig with a new one, or "
        "with a token, there"
    )
