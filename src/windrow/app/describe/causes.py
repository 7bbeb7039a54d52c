"""Why a cluster or a machine is not Ready: the chain of objects from the one that is asked about to the first cause.

    Cluster -> its condition, or the Machine that it waits for -> VirtualMachine -> host, quota, disk or image -> console

Each link is one object with its state in the API's own words, since when, and what to look at or do next. The last link
is the first cause as far as it can be seen: what Harvester says is read with the cluster's credential, and where that
cannot be had the chain ends before it and says so. Pure: who calls has read the objects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from windrow.app.describe.conditions import condition_of
from windrow.app.describe.sentences import format_phase, machine_state, without_count
from windrow.app.describe.views import (
    ClusterView,
    MachineView,
    Wait,
    parse_or_none,
    read_cluster,
    read_machine,
)
from windrow.harvester.hosts.maintenance import read_host_state
from windrow.harvester.names import IMAGE_ID
from windrow.harvester.problems import split_problems
from windrow.harvester.references import read_image
from windrow.harvester.status import read_vm_status
from windrow.harvester.vmis import Vmi, read_vmi
from windrow.harvester.vms import Vm, read_vm
from windrow.kubernetes.conditions import Condition
from windrow.kubernetes.objects import annotations_of, name_of, namespace_of, nested

Raw = Mapping[str, Any]
R = TypeVar("R", bound=Raw)


@dataclass(frozen=True, slots=True)
class Link:
    """One object of the chain. `hint` is a sentence or a command; `since` is None where no date is known."""

    kind: str
    name: str
    namespace: str
    message: str
    since: datetime | None = None
    hint: str = ""

    @property
    def object(self) -> str:
        """`VirtualMachine default/orchard-servers-a`."""
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where}"


@dataclass(frozen=True, slots=True)
class HarvesterObjects:
    """What Harvester says of a machine's VM. `vm` is None where it does not exist; the others, where they do not exist or
    the credential may not read them. `hidden`: why nothing is known at all."""

    name: str
    namespace: str
    vm: Raw | None = None
    vmi: Raw | None = None
    host: Raw | None = None
    claims: tuple[Raw, ...] = ()
    images: tuple[Raw, ...] = ()
    quotas: tuple[Raw, ...] = ()
    console: tuple[str, ...] = ()
    hidden: str = ""


def explain_cluster(
    cluster: Raw, machines: Iterable[Raw], harvester: HarvesterObjects | None = None
) -> tuple[Link, ...]:
    """The chain of a cluster: one link where it is Ready and waits for nothing. `harvester` is of the machine that
    `find_waiting_machine` names."""
    listed = list(machines)
    view = read_cluster(cluster, map(read_machine, listed))
    first = _cluster_link(cluster, view)
    if view.ready and view.wait is None and not view.deleting:
        return (first, *_refused_change(cluster, view))
    if found := _deciding_condition(cluster, view):
        return (first, found)
    machine = find_waiting_machine(cluster, listed)
    if machine is None:
        return (first, *_wait_link(view))
    return (first, *_held_condition(cluster), *_machine_chain(machine, harvester))


def explain_machine(machine: Raw, harvester: HarvesterObjects | None = None) -> tuple[Link, ...]:
    """The chain of a machine: one link where it is Ready and waits for nothing."""
    return _machine_chain(machine, harvester)


def find_waiting_machine(cluster: Raw, machines: Iterable[R]) -> R | None:
    """The Machine that the cluster waits for: whose wait the cluster repeats, else which its sentence names."""
    mine = [
        (raw, read_machine(raw))
        for raw in machines
        if nested(raw, "spec", "clusterName") == name_of(cluster)
        and namespace_of(raw) == namespace_of(cluster)
    ]
    wait = read_cluster(cluster, ()).wait
    if wait is None:
        return None
    what = without_count(wait.what)
    same = [raw for raw, view in mine if view.wait is not None and view.wait.what == what]
    named = [raw for raw, view in mine if re.search(rf"(?<![\w.-]){re.escape(view.name)}(?![\w-])", what)]
    return next(iter([*same, *named]), None)


# -- the cluster ---------------------------------------------------------------------------------------------------


def _cluster_link(raw: Raw, view: ClusterView) -> Link:
    ready = condition_of(raw, "Ready")
    name = f"{view.namespace}/{view.name}"
    if ready is None:
        message = "the manager has not observed it yet"
        return Link(
            "Cluster", view.name, view.namespace, message, view.created, "Is it running? windrow serve"
        )
    reason = f" ({ready.reason})" if ready.reason else ""
    # What it waits for is told by the links below.
    is_own = ready.status == "Unknown" and not ready.message.startswith("waiting for")
    return Link(
        "Cluster",
        view.name,
        view.namespace,
        f"condition Ready is {ready.status}{reason}{f': {ready.message}' if is_own and ready.message else ''}",
        _since(ready),
        f"windrow status {name}",
    )


def _refused_change(raw: Raw, view: ClusterView) -> tuple[Link, ...]:
    accepted = condition_of(raw, "Accepted")
    if not view.refused_change or accepted is None:
        return ()
    return (_condition_link(accepted, raw),)


# What decides by itself that a cluster does not go on, in this order; with the words that its wait has then, "" for any.
_DECIDING: tuple[tuple[str, str], ...] = (
    ("Accepted", "to be corrected"),
    ("CredentialValid", ""),
    ("PreflightPassed", "to be corrected"),
    ("LeaseHeld", "to be released"),
    ("WatchesCurrent", "watch"),
    ("VMsRecorded", "later backup"),
    ("EndpointReady", "LoadBalancer"),
)


def _deciding_condition(raw: Raw, view: ClusterView) -> Link | None:
    wait = view.wait.what if view.wait else ""
    for type, words in _DECIDING:
        found = condition_of(raw, type)
        if found is None or found.status == "True" or words not in wait:
            continue
        if type == "CredentialValid":
            return _credential_link(raw, found)
        return _condition_link(found, raw)
    return None


def _held_condition(raw: Raw) -> tuple[Link, ...]:
    """Why a machine that is unhealthy is not replaced."""
    found = condition_of(raw, "RemediationAllowed")
    return (_condition_link(found, raw),) if found is not None and found.status == "False" else ()


def _condition_link(found: Condition, raw: Raw) -> Link:
    problems = split_problems(found.message)
    message, hint = problems[0] if problems else ("", "")
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    reason = f" ({found.reason})" if found.reason else ""
    text = f"is {found.status}{reason}{f': {message}' if message else ''}{more}"
    return Link("Condition", found.type, "", text, _since(found), hint or _describe(raw, "Cluster"))


def _credential_link(raw: Raw, found: Condition) -> Link:
    named = str(nested(raw, "spec", "cloudCredentialSecretName", default=""))
    namespace, _, name = named.rpartition(":")
    link = _condition_link(found, raw)
    message = link.message.partition(": ")[2] or link.message
    return Link("Secret", name or "(none)", namespace or namespace_of(raw), message, link.since, link.hint)


# What a sentence waits for, by its words, and what to look at next. The same table is on the page of waits.
_NEXT: tuple[tuple[str, str], ...] = (
    (r"request .* to expire", "nothing to do: Harvester is asked again, two minutes later at most"),
    (r"Secret \S+ ", "correct the Secret that the sentence names"),
    (r"guest API", "see its servers: windrow machine list {cluster}"),
    (r"cloud provider", "in the guest cluster: kubectl -n kube-system get pods"),
    (r"load ?balancers?\b", "see who put the finalizer on it that the sentence names, and the credential's rights"),
    (r"PersistentVolumeClaim", "see the finalizer that the sentence names, and which VM uses the claim"),
    (r"Lease ", "stop the other manager that has a copy of this one's state"),
    (r"machine pool \S+ to be complete", "see what the manager did: windrow events {cluster}"),
    (r"etcd member|etcd quorum", "see its etcd members: windrow status {cluster}"),
)  # fmt: skip

_NAMED = re.compile(
    r"\b(Machine|VirtualMachine|Secret|Lease|Node|LoadBalancer|PersistentVolumeClaim|IPPool|Namespace)"
    r" (?:([a-z0-9][a-z0-9.-]*)/)?([a-z0-9][a-z0-9.-]*[a-z0-9])"
)


def _wait_link(view: ClusterView) -> tuple[Link, ...]:
    """What the cluster waits for where that is no machine: of the object that the sentence names."""
    if view.wait is None:
        return ()
    what = view.wait.what
    named = _NAMED.search(what)
    kind, namespace, name = named.groups(default="") if named else ("Cluster", view.namespace, view.name)
    return (Link(kind, name, namespace, _waits(view.wait), view.wait.since, _next_of(view.wait, view)),)


def _waits(wait: Wait) -> str:
    return f"waits for {wait.what}{f'; then {wait.next_step}' if wait.next_step else ''}"


def _next_of(wait: Wait, view: ClusterView) -> str:
    cluster = f"{view.namespace}/{view.name}"
    found = (hint for words, hint in _NEXT if re.search(words, wait.what))
    return next(found, "see what the manager did: windrow events {cluster}").format(cluster=cluster)


# -- a machine and its VM ------------------------------------------------------------------------------------------


def _machine_chain(raw: Raw, harvester: HarvesterObjects | None) -> tuple[Link, ...]:
    machine = read_machine(raw)
    link = _machine_link(raw, machine)
    if machine.ready and machine.wait is None and not machine.deleting:
        return (link,)
    if nested(raw, "status", "nodeRef", "name") and "VirtualMachine" not in (machine.wait or Wait("")).what:
        return (link, *_host_condition(raw))  # its VM runs: what is wrong is in the guest
    if harvester is None:
        return (link, *_host_condition(raw))
    return (link, *_vm_chain(harvester))


def _machine_link(raw: Raw, machine: MachineView) -> Link:
    name = f"{machine.namespace}/{machine.name}"
    if machine.wait is None:
        message = machine.problem or f"is {machine_state(machine)}"
        return Link("Machine", machine.name, machine.namespace, message, _ready_since(raw), "")
    update = condition_of(raw, "Updating")
    hint = f"windrow machine console {name}"
    if machine.has_failed_update and update is not None:
        hint = split_problems(update.message)[0][1] or hint
    elif nested(raw, "status", "nodeRef", "name"):
        node = nested(raw, "status", "nodeRef", "name")
        hint = f"in the guest cluster: kubectl describe node {node}"
    return Link("Machine", machine.name, machine.namespace, _waits(machine.wait), machine.wait.since, hint)


def _host_condition(raw: Raw) -> tuple[Link, ...]:
    """Its host as the manager recorded it, where it is out of order."""
    host = str(nested(raw, "status", "host", default=""))
    found = condition_of(raw, "HostReady")
    if found is None or found.status != "False" or not host:
        return ()
    return (Link("Host", host, "", found.message, _since(found), _HOST_HINT),)


_HOST_HINT = "see the host in Harvester's UI, Hosts; its VMs go on when it is back, or are moved"


def _vm_chain(seen: HarvesterObjects) -> tuple[Link, ...]:
    if seen.hidden:
        hint = "grant the credential the right to read it, or see Harvester's UI, Virtual Machines"
        return (
            Link("VirtualMachine", seen.name, seen.namespace, f"cannot be read: {seen.hidden}", None, hint),
        )
    if seen.vm is None:
        hint = "the manager replaces its machine, or creates it; see Harvester's own log of who deleted it"
        return (Link("VirtualMachine", seen.name, seen.namespace, "does not exist on Harvester", None, hint),)
    vm, vmi = read_vm(seen.vm), read_vmi(seen.vmi) if seen.vmi is not None else None
    links = [_vm_link(seen, vm, vmi)]
    for find in _BELOW_VM:
        if found := find(seen, vm, vmi):
            return (*links, found)
    return tuple(links)


def _vm_link(seen: HarvesterObjects, vm: Vm, vmi: Vmi | None) -> Link:
    status = read_vm_status(vm, vmi)
    word = vm.status or format_phase(status.state)
    host = f" on host {status.host}" if status.host else ""
    because = f": {status.because}" if status.because else ""
    hint = f"kubectl --kubeconfig HARVESTER.yaml -n {seen.namespace} describe vm {seen.name}"
    return Link(
        "VirtualMachine", seen.name, seen.namespace, f"is {word}{host}{because}", _vm_since(seen), hint
    )


def _vm_since(seen: HarvesterObjects) -> datetime | None:
    ready = condition_of(seen.vm, "Ready")
    return _since(ready) or parse_or_none(nested(seen.vm, "metadata", "creationTimestamp"))


def _quota_link(seen: HarvesterObjects, vm: Vm, vmi: Vmi | None) -> Link | None:
    if not vm.halted_by_quota:
        return None
    hint = f"raise the quota of namespace {seen.namespace}, or remove what uses it; the VM is started once there is room"
    for quota in seen.quotas:
        used = [text for key in nested(quota, "spec", "hard", default={}) if (text := _usage(quota, key))]
        if used:
            message = f"is used up: {', '.join(used)}"
            return Link("ResourceQuota", name_of(quota), seen.namespace, message, None, hint)
    return Link(
        "ResourceQuota", "(hidden)", seen.namespace, f"allows no more: {vm.halted_by_quota}", None, hint
    )


def _usage(quota: Raw, key: str) -> str:
    hard, used = nested(quota, "spec", "hard", key), nested(quota, "status", "used", key)
    return f"{key} {used} of {hard}" if used is not None else f"{key} at most {hard}"


def _host_link(seen: HarvesterObjects, vm: Vm, vmi: Vmi | None) -> Link | None:
    if seen.host is None:
        return None
    state = read_host_state(seen.host)
    ready = condition_of(seen.host, "Ready")
    if state.has_maintenance_mode:
        hint = "nothing to do: the VM is started again when the host is back"
        return Link("Host", state.name, "", "is in maintenance", None, hint)
    if state.is_ready:
        return None
    why = f" ({ready.message})" if ready is not None and ready.message else ""
    return Link("Host", state.name, "", f"is not Ready{why}", _since(ready), _HOST_HINT)


def _image_link(seen: HarvesterObjects, vm: Vm, vmi: Vmi | None) -> Link | None:
    if vmi is not None and vmi.phase == "Running":
        return None
    for raw in seen.images:
        image = read_image(raw)
        if image.is_ready:
            continue
        message, hint = (
            f"is imported to {image.progress} %",
            "nothing to do: the disks follow when it is whole",
        )
        if image.import_failed:
            message = f"failed to import: {image.failure or 'Harvester gives no reason'}"
            hint = "correct its source or its checksum in Harvester's UI, Images, or name another image"
        name, namespace = image.ref.name, image.ref.namespace
        return Link("VirtualMachineImage", name, namespace, message, None, hint)
    return None


def _claim_link(seen: HarvesterObjects, vm: Vm, vmi: Vmi | None) -> Link | None:
    if vmi is not None and vmi.phase == "Running":
        return None
    known = {name_of(one): one for one in seen.claims}
    for name in vm.claims:
        claim = known.get(name)
        if claim is None or nested(claim, "status", "phase") == "Bound":
            continue
        image = annotations_of(claim).get(IMAGE_ID)
        message = f"is {nested(claim, 'status', 'phase', default='Pending')}{f', of image {image}' if image else ''}"
        hint = f"kubectl --kubeconfig HARVESTER.yaml -n {seen.namespace} describe pvc {name}"
        created = parse_or_none(nested(claim, "metadata", "creationTimestamp"))
        return Link("PersistentVolumeClaim", name, seen.namespace, message, created, hint)
    return None


def _schedule_link(seen: HarvesterObjects, vm: Vm, vmi: Vmi | None) -> Link | None:
    found = condition_of(seen.vmi, "PodScheduled")
    if found is None or found.status != "False" or not found.message:
        return None
    hint = "free memory or CPU on a host, or lower the pool's cpuCount and memorySize"
    message = f"is not scheduled: {found.message}"
    return Link("VirtualMachineInstance", seen.name, seen.namespace, message, _since(found), hint)


# What a console says of a machine that does not join, and the way out. The last line that fits counts.
_CONSOLE: tuple[tuple[str, str], ...] = (
    (r"no bootable device|not a bootable disk", "its boot disk has no system: name a cloud image in diskInfo"),
    (r"dhcp server .* leased all|no dhcp offer|dhcp.*(?:timed out|no answer)", "widen the DHCP range of its network"),
    (r"no space left on device", "give its disk a larger size in diskInfo"),
    (r"could not resolve host|temporary failure in name resolution", "give its network a DNS server, or a proxy"),
    (r"certificate (?:has expired|is not yet valid|is not trusted|signed by)|x509", "see the clock and the CA that it trusts"),
    (r"connection (?:refused|timed out)|no route to host", "see whether its network reaches the address in that line"),
    (r"kernel panic", "its image does not boot with this firmware or these disks: try efi, or another image"),
    (r"\b(?:fatal|failed|error|panic)\b", "read the lines before it"),
)  # fmt: skip


def _console_link(seen: HarvesterObjects, vm: Vm, vmi: Vmi | None) -> Link | None:
    for words, hint in _CONSOLE:
        lines = [line for line in seen.console if re.search(words, line, re.IGNORECASE)]
        if lines:
            return Link("Console", seen.name, seen.namespace, f"says: {lines[-1].strip()[:300]}", None, hint)
    return None


_BELOW_VM: Sequence[Callable[[HarvesterObjects, Vm, Vmi | None], Link | None]] = (
    _quota_link,
    _host_link,
    _image_link,
    _claim_link,
    _schedule_link,
    _console_link,
)


# -- readings ------------------------------------------------------------------------------------------------------


def _since(found: Condition | None) -> datetime | None:
    return parse_or_none(found.last_transition_time) if found is not None else None


def _ready_since(raw: Raw) -> datetime | None:
    return _since(condition_of(raw, "Ready"))


def _describe(raw: Raw, kind: str) -> str:
    return f"windrow describe {kind.lower()} {namespace_of(raw)}/{name_of(raw)}"
