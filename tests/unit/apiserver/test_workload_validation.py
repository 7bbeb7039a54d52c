"""Refusals of workloads. That they are a real server's is judged in conformance."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.core.rng import Rng
from windrow.kubernetes.errors import Invalid
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import DEPLOYMENT

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
