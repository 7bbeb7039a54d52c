"""Validation of Deployments, ReplicaSets, DaemonSets, StatefulSets and Jobs; messages are those of kube-apiserver."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from windrow.apiserver.apierrors import Cause, forbidden_value, invalid_value, not_supported, required
from windrow.apiserver.types.validation import IMMUTABLE
from windrow.kubernetes.objects import name_of, nested, uid_of
from windrow.kubernetes.selectors import read_label_selector

Raw = dict[str, Any]
Rule = Callable[[Raw, Raw | None], list[Cause]]

MISMATCH = "`selector` does not match template `labels`"
STATEFUL = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', "
    "'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"
)


def _selector(spec: Raw, kind: str) -> Iterable[Cause]:
    selector = spec.get("selector")
    labels = nested(spec, "template", "metadata", "labels")
    if selector is None and kind != "daemonset":
        yield required("spec.selector")
    if selector is not None and not any(selector.values()):
        yield invalid_value("spec.selector", selector, f"empty selector is invalid for {kind}")
    elif selector is None or not read_label_selector(selector).matches(labels or {}):
        yield invalid_value("spec.template.metadata.labels", labels, MISMATCH)


def _template(spec: Raw) -> Iterable[Cause]:
    if not nested(spec, "template", "spec", "containers"):
        yield required("spec.template.spec.containers")
    restart = nested(spec, "template", "spec", "restartPolicy", default="Always")
    if restart != "Always":
        yield not_supported("spec.template.spec.restartPolicy", restart, ("Always",))


def _count(spec: Raw) -> Iterable[Cause]:
    if (spec.get("replicas") or 0) < 0:
        yield invalid_value("spec.replicas", spec["replicas"], "must be greater than or equal to 0")


def _strategy(spec: Raw) -> Iterable[Cause]:
    rolling = nested(spec, "strategy", "rollingUpdate")
    if nested(spec, "strategy", "type") == "Recreate" and rolling:
        text = "may not be specified when strategy `type` is 'Recreate'"
        yield forbidden_value("spec.strategy.rollingUpdate", text)
    elif rolling and all(rolling.get(key) in (0, "0%") for key in ("maxSurge", "maxUnavailable")):
        text = "may not be 0 when `maxSurge` is 0"
        yield invalid_value("spec.strategy.rollingUpdate.maxUnavailable", rolling["maxUnavailable"], text)


def _validate_workload(raw: Raw, old: Raw | None, kind: str) -> list[Cause]:
    spec = raw.get("spec") or {}
    counted = [] if kind == "daemonset" else _count(spec)
    found = [*_selector(spec, kind), *counted, *_strategy(spec), *_template(spec)]
    if old is None or spec.get("selector") == nested(old, "spec", "selector"):
        return found
    if kind == "statefulset":
        return [*found, forbidden_value("spec", STATEFUL)]
    return [*found, invalid_value("spec.selector", spec.get("selector"), IMMUTABLE)]


validate_deployment: Rule = partial(_validate_workload, kind="deployment")
validate_replica_set: Rule = partial(_validate_workload, kind="deployment")  # kube-apiserver's text
validate_daemon_set: Rule = partial(_validate_workload, kind="daemonset")
validate_stateful_set: Rule = partial(_validate_workload, kind="statefulset")


# --- Jobs -----------------------------------------------------------------------------------------------------------

_JOB_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")
_JOB_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")


def prepare_job(raw: Raw) -> None:
    """Defaults that depend on each other, and the selector and labels by which a Job knows its pods."""
    spec = raw.setdefault("spec", {})
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    defaults = {"parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False}
    for field, value in {**defaults, "manualSelector": False}.items():
        if spec.get(field) is None:
            spec[field] = value
    spec.setdefault(
        "podReplacementPolicy", "Failed" if spec.get("podFailurePolicy") else "TerminatingOrFailed"
    )
    if not spec["manualSelector"] and isinstance(spec.get("template"), dict):
        _generate_selector(raw, spec)
    template_labels = nested(spec, "template", "metadata", "labels")
    if template_labels and not raw["metadata"].get("labels"):
        raw["metadata"]["labels"] = dict(template_labels)


def _generate_selector(raw: Raw, spec: Raw) -> None:
    metadata = spec["template"]["metadata"] = dict(spec["template"].get("metadata") or {})
    generated = dict.fromkeys(_JOB_NAME_LABELS, name_of(raw)) | dict.fromkeys(_JOB_UID_LABELS, uid_of(raw))
    metadata["labels"] = {**generated, **(metadata.get("labels") or {})}
    selector = spec["selector"] = dict(spec.get("selector") or {})
    selector["matchLabels"] = {_JOB_UID_LABELS[1]: uid_of(raw), **(selector.get("matchLabels") or {})}


def validate_job(raw: Raw, old: Raw | None) -> list[Cause]:
    """A Job's own selector, counts that are not negative, and pods that end."""
    spec = raw.get("spec") or {}
    found = [
        invalid_value(f"spec.{field}", spec[field], "must be greater than or equal to 0")
        for field in (
            "parallelism",
            "completions",
            "activeDeadlineSeconds",
            "backoffLimit",
            "ttlSecondsAfterFinished",
        )
        if (spec.get(field) or 0) < 0
    ]
    selector, labels = spec.get("selector"), nested(spec, "template", "metadata", "labels")
    if selector is None:
        found.append(required("spec.selector"))
    elif not read_label_selector(selector).matches(labels or {}):
        found.append(invalid_value("spec.template.metadata.labels", labels, MISMATCH))
    if not nested(spec, "template", "spec", "containers"):
        found.append(required("spec.template.spec.containers"))
    if nested(spec, "template", "spec", "restartPolicy", default="Always") == "Always":
        found.append(required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"'))
    if old is not None and selector != nested(old, "spec", "selector"):
        found.append(invalid_value("spec.selector", selector, IMMUTABLE))
    return found
