"""Refusals of workloads. That they are a real server's is judged in conformance."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.core.rng import Rng
from windrow.kubernetes.errors import Invalid
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import DEPLOYMENT, JOB

from .conftest import FrozenClock

Raw = dict[str, Any]
SELECTOR: Raw = {"matchLabels": {"app": "a"}}
TEMPLATE: Raw = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}


async def refusal(**spec: Any) -> str:
    line = ApiServer(MemoryStore(), FrozenClock(), Rng(1)).local()
    with pytest.raises(Invalid) as caught:
        await line.create(DEPLOYMENT, new_object(DEPLOYMENT, "web", "default", spec=spec))
    return caught.value.message


async def test_a_deployment_needs_a_selector_that_finds_its_own_pods() -> None:
    assert "spec.selector: Required value" in await refusal(template=TEMPLATE)
    other = {"matchLabels": {"app": "b"}}
    assert "`selector` does not match template `labels`" in await refusal(selector=other, template=TEMPLATE)


async def test_its_pods_need_containers_that_are_started_again() -> None:
    empty = {**TEMPLATE, "spec": {}}
    assert "spec.template.spec.containers: Required value" in await refusal(selector=SELECTOR, template=empty)
    once = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "OnFailure"}}
    assert 'Unsupported value: "OnFailure"' in await refusal(selector=SELECTOR, template=once)


async def test_the_selector_is_immutable() -> None:
    line = ApiServer(MemoryStore(), FrozenClock(), Rng(1)).local()
    spec = {"selector": SELECTOR, "template": TEMPLATE}
    made = await line.create(DEPLOYMENT, new_object(DEPLOYMENT, "web", "default", spec=spec))
    made["spec"]["selector"] = {"matchLabels": {"app": "b"}}
    made["spec"]["template"]["metadata"]["labels"] = {"app": "b"}

    with pytest.raises(Invalid, match="field is immutable"):
        await line.update(DEPLOYMENT, made)


def a_job(restart: str = "Never", **spec: Any) -> Raw:
    template = {"spec": {**TEMPLATE["spec"], "restartPolicy": restart}}
    return new_object(JOB, "work", "default", spec={"template": template, **spec})


async def refusal_of_job(raw: Raw) -> str:
    line = ApiServer(MemoryStore(), FrozenClock(), Rng(1)).local()
    with pytest.raises(Invalid) as caught:
        await line.create(JOB, raw)
    return caught.value.message


async def test_a_job_gets_defaults_and_a_selector_that_finds_its_own_pods_alone() -> None:
    line = ApiServer(MemoryStore(), FrozenClock(), Rng(1)).local()
    made = await line.create(JOB, a_job())
    spec, uid = made["spec"], made["metadata"]["uid"]

    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, 6)
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert spec["template"]["metadata"]["labels"] == {
        "job-name": "work",
        "batch.kubernetes.io/job-name": "work",
        "controller-uid": uid,
        "batch.kubernetes.io/controller-uid": uid,
    }
    assert made["metadata"]["labels"] == spec["template"]["metadata"]["labels"]


async def test_with_a_parallelism_alone_a_job_has_no_number_of_completions() -> None:
    line = ApiServer(MemoryStore(), FrozenClock(), Rng(1)).local()
    made = await line.create(JOB, a_job(parallelism=3))

    assert "completions" not in made["spec"]
    assert made["spec"]["parallelism"] == 3


async def test_with_a_manual_selector_a_job_keeps_its_own() -> None:
    selector = {"matchLabels": {"app": "a"}}
    raw = a_job(manualSelector=True, selector=selector)
    assert "`selector` does not match template `labels`" in await refusal_of_job(raw)
    raw["spec"]["template"]["metadata"] = {"labels": {"app": "a"}}
    line = ApiServer(MemoryStore(), FrozenClock(), Rng(1)).local()

    made = await line.create(JOB, raw)

    assert made["spec"]["selector"] == selector
    assert made["metadata"]["labels"] == {"app": "a"}


async def test_the_pods_of_a_job_end_and_its_counts_are_not_negative() -> None:
    text = 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'
    assert text in await refusal_of_job(a_job("Always"))
    for field in (
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
    ):
        assert f"spec.{field}: Invalid value: -1" in await refusal_of_job(a_job(**{field: -1})), field
    assert "spec.selector: Required value" in await refusal_of_job(a_job(manualSelector=True))
    empty = a_job()
    empty["spec"]["template"]["spec"]["containers"] = []
    assert "spec.template.spec.containers: Required value" in await refusal_of_job(empty)


async def test_the_selector_of_a_job_is_immutable() -> None:
    line = ApiServer(MemoryStore(), FrozenClock(), Rng(1)).local()
    made = await line.create(JOB, a_job())
    made["spec"]["selector"] = {"matchLabels": {"job-name": "work"}}

    with pytest.raises(Invalid, match="field is immutable"):
        await line.update(JOB, made)
