"""Actions on a cluster or a machine: what would be written, what that brings about, and then the write, with the user's rights.

An action is a function of the object as it is and of a form. It gives the steps of a JSON patch, which fail where the value is not
what the preview has shown any more. The preview of a Cluster is the plan that the manager makes of it with those steps.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from windrow.app.manifest_checks.edits import Forecast, foresee
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.clusters.api.names import CANARY, REPLACE_NOW, RETRY_UPDATE
from windrow.clusters.api.operations.generations import next_generation
from windrow.clusters.change.describe import group_alike
from windrow.dashboard.pages.page import Page, PageContext
from windrow.dashboard.rendering import path_of
from windrow.kubernetes.errors import BadRequest, NotFound
from windrow.kubernetes.objects import Raw, annotations_of, mappings_at, nested
from windrow.kubernetes.resources import ObjectRef

MAX_QUANTITY = 1000
_VERSION = re.compile(r"v[0-9]{1,3}(\.[0-9]{1,4}){2}\+(rke2r|k3s)[0-9]{1,3}")
_LAST_OF = (("etcdRole", "etcd"), ("controlPlaneRole", "the control plane"))

Form = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Step:
    """A value that is set, where it still is what it was; None is none."""

    path: tuple[str | int, ...]
    old: Any
    new: Any

    def as_patch(self) -> list[dict[str, Any]]:
        """Its JSON patch."""
        pointer = "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in self.path)
        guard = [{"op": "test", "path": pointer, "value": self.old}] if self.old is not None else []
        if self.new is None:
            return [*guard, {"op": "remove", "path": pointer}]
        return [*guard, {"op": "add", "path": pointer, "value": self.new}]


@dataclass(frozen=True, slots=True)
class Change:
    """What an action writes, in words and as steps; `command` does the same in a terminal."""

    title: str
    says: str
    steps: tuple[Step, ...]
    command: str
    fields: Mapping[str, str]  # of the form, once it is read


@dataclass(frozen=True, slots=True)
class Reviewed:
    """An action on an object as it is now."""

    ref: ObjectRef
    raw: Raw
    change: Change
    back: str


def _set(raw: Raw, value: Any, *path: str | int) -> Step:
    return Step(path, nested(raw, *path), value)


def _annotate(raw: Raw, key: str, value: str) -> tuple[Step, ...]:
    if nested(raw, "metadata", "annotations") is None:
        return (Step(("metadata", "annotations"), None, {key: value}),)
    return (Step(("metadata", "annotations", key), annotations_of(raw).get(key), value),)


def pause(raw: Raw, form: Form) -> Change:
    says = "No machine is updated, restarted or replaced because of what the spec asks for. A turn that has begun is finished, and machines that are lost are still replaced."
    return Change("Pause", says, (_set(raw, True, "spec", "paused"),), f"windrow pause {_full(raw)}", {})


def resume(raw: Raw, form: Form) -> Change:
    says = "Its machines are changed to what the spec asks for, in turns."
    steps = [_set(raw, False, "spec", "paused")]
    # A number of machines after which changes wait: for this.
    if (canary := annotations_of(raw).get(CANARY)) is not None:
        steps.append(Step(("metadata", "annotations", CANARY), canary, None))
    return Change("Resume", says, tuple(steps), f"windrow resume {_full(raw)}", {})


def upgrade(raw: Raw, form: Form) -> Change:
    """Raises BadRequest for what is no version; which ones may follow, the manager decides."""
    version = form.get("version", "").strip()
    if not _VERSION.fullmatch(version):
        raise BadRequest("wanted a version such as v1.35.1+rke2r1 or v1.35.1+k3s1", status=400)
    step = _set(raw, version, "spec", "kubernetesVersion")
    name, namespace = _quoted(raw, "name"), _quoted(raw, "namespace")
    change = f'{{"spec":{{"kubernetesVersion":"{version}"}}}}'
    command = f"kubectl patch cluster.provisioning.cattle.io {name} -n {namespace} --type merge -p {shlex.quote(change)}"
    return Change(
        f"Upgrade to {version}",
        f"From {step.old or 'none'} to {version}.",
        (step,),
        command,
        {"version": version},
    )


def scale(raw: Raw, form: Form) -> Change:
    """Raises BadRequest for no number, for no pool, and where no machine would be left for etcd or the control plane."""
    pools = mappings_at(raw, "spec", "rkeConfig", "machinePools")
    names = [str(pool.get("name")) for pool in pools]
    pool, text = form.get("pool", ""), form.get("quantity", "").strip()
    if pool not in names:
        raise BadRequest(f"the cluster has no such pool; its pools are: {', '.join(names)}", status=400)
    if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) <= MAX_QUANTITY):
        raise BadRequest(f"wanted a number of machines from 0 to {MAX_QUANTITY}", status=400)
    place, wanted = names.index(pool), int(text)
    for role, label in _LAST_OF:
        sizes = [wanted if at == place else _quantity(one) for at, one in enumerate(pools) if one.get(role)]
        if not sum(sizes):
            raise BadRequest(
                f"that would leave no machine for {label}; keep one, or delete the cluster", status=400
            )
    at = ("spec", "rkeConfig", "machinePools", place)
    # The order of the pools may have changed; then this test fails, and nothing is written.
    steps = (Step((*at, "name"), pool, pool), _set(raw, wanted, *at, "quantity"))
    says = f"Pool {pool}: from {_quantity(pools[place])} machines to {wanted}."
    command = f"windrow scale {_full(raw)} {shlex.quote(f'{pool}={wanted}')}"
    return Change(f"Scale {pool}", says, steps, command, {"pool": pool, "quantity": str(wanted)})


def snapshot(raw: Raw, form: Form) -> Change:
    says = "Each etcd member makes a snapshot, in up to three tries. Nothing restarts."
    return _request(raw, form, "Make a snapshot", says, "etcdSnapshotCreate", "windrow snapshot create", ())


def restart(raw: Raw, form: Form) -> Change:
    says = "The services of all machines restart with new keys and certificates: servers first, one machine at a time. VMs run on, nothing is drained."
    command, done = "windrow rotate certificates", ("certificateRotationGeneration",)
    return _request(
        raw, form, "Restart services with new certificates", says, "rotateCertificates", command, done
    )


def _request(
    raw: Raw, form: Form, title: str, says: str, key: str, command: str, done: tuple[str, ...]
) -> Change:
    """A request of the next generation. Raises BadRequest where that is another than the form was shown with: then another user has
    asked meanwhile, or the form was sent twice."""
    generation = str(next_generation(raw, key, done))
    if form.get("generation", generation) != generation:
        raise BadRequest(
            "it was asked for meanwhile; go back, and look whether it still is wanted", status=400
        )
    step = _set(raw, {"generation": int(generation)}, "spec", "rkeConfig", key)
    return Change(title, says, (step,), f"{command} {_full(raw)}", {"generation": generation})


def retry(raw: Raw, form: Form) -> Change:
    says = "The change that has failed on this machine is tried again, in a new turn."
    command = f"kubectl annotate machine.windrow.io {_quoted(raw, 'name')} -n {_quoted(raw, 'namespace')} {RETRY_UPDATE}=true"
    return Change("Try its change again", says, _annotate(raw, RETRY_UPDATE, "true"), command, {})


def _quoted(raw: Raw, key: str) -> str:
    return shlex.quote(str(raw["metadata"][key]))


def remediate(raw: Raw, form: Form) -> Change:
    says = "The machine is replaced by a new one, as soon as quorum and the cluster's limits allow. Its disks are deleted with it."
    name, namespace = _quoted(raw, "name"), _quoted(raw, "namespace")
    command = f"kubectl annotate machine.windrow.io {name} -n {namespace} {REPLACE_NOW}=true"
    return Change("Replace this machine", says, _annotate(raw, REPLACE_NOW, "true"), command, {})


CLUSTER_ACTIONS: Mapping[str, Callable[[Raw, Form], Change]] = {
    "pause": pause,
    "resume": resume,
    "restart": restart,
    "scale": scale,
    "snapshot": snapshot,
    "upgrade": upgrade,
}
MACHINE_ACTIONS: Mapping[str, Callable[[Raw, Form], Change]] = {"remediate": remediate, "retry": retry}


def _full(raw: Raw) -> str:
    return shlex.quote(f"{raw['metadata']['namespace']}/{raw['metadata']['name']}")


def _quantity(pool: Mapping[str, Any]) -> int:
    found = pool.get("quantity")
    return found if isinstance(found, int) else 1


async def review(context: PageContext, form: Form) -> Reviewed:
    """The action that the path names, on the object as it is now. Raises NotFound, BadRequest and what the API says."""
    plural, namespace, name, action = context.names
    kind, actions = (CLUSTER, CLUSTER_ACTIONS) if plural == "clusters" else (MACHINE, MACHINE_ACTIONS)
    if action not in actions:
        raise NotFound("there is no such action", status=404)
    ref = kind.ref(name, namespace)
    raw = await context.api.get(ref)
    return Reviewed(ref, raw, actions[action](raw, form), path_of(plural, namespace, name))


async def preview(context: PageContext) -> Page:
    """What an action would write and bring about. Nothing is written."""
    found = await review(context, context.query)
    foreseen = await _foresee(context, found)
    plan = foreseen.plan
    values = {
        "change": found.change,
        "back": found.back,
        "target": path_of(*context.names[:3], "actions", context.names[3]),
        "name": context.names[2],
        "namespace": context.names[1],
        "plan": plan,
        "groups": group_alike(plan.pending) if plan is not None else (),
        "plan_hidden": foreseen.hidden,
        "errors": foreseen.errors,
        "warnings": foreseen.warnings,
        "is_refused": bool(foreseen.refused),
    }
    return Page("action.html", found.change.title, values, "clusters", commands=(found.change.command,))


async def execute(context: PageContext, form: Form) -> str:
    """Write it, as the user. Gives the path of the page that shows it. Raises BadRequest for what the plan refuses, and what the
    API says, Conflict included."""
    found = await review(context, form)
    if refused := (await _foresee(context, found)).refused:
        said = "; ".join(f"{one.message} → {one.hint}" for one in refused)
        raise BadRequest(f"refused, and nothing was written: {said}", status=400)
    patch = [one for step in found.change.steps for one in step.as_patch()]
    await context.api.json_patch(found.ref, patch)
    return found.back


async def _foresee(context: PageContext, found: Reviewed) -> Forecast:
    """What the steps bring about; of a Machine, nothing is told."""
    if found.ref.kind != CLUSTER:
        return Forecast()
    raw = deepcopy(found.raw)
    for step in found.change.steps:
        _put(raw, step)
    return await foresee(found.raw, raw, context.api, context.now)


def _put(raw: Any, step: Step) -> None:
    *parents, last = step.path
    here = raw
    for part in parents:
        here = here[part] if isinstance(part, int) else here.setdefault(part, {})
    here[last] = step.new
