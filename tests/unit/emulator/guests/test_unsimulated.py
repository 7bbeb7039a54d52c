"""Kinds of a guest cluster that are stored and not simulated: a write is answered with a warning."""

from __future__ import annotations

from typing import Any

from tests.support.clock import run_driven

from windrow.emulator.guest_cluster.components.unsimulated import MAX_KINDS, UnsimulatedKinds
from windrow.kubernetes import requests
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import CONFIG_MAP, JOB, ApiResource

from .test_workloads import Rig, a_rig

QUOTA = ApiResource("", "v1", "ResourceQuota", "resourcequotas")
WIDGET = ApiResource("example.org", "v1", "Widget", "widgets")


async def warning_of(rig: Rig, kind: ApiResource, name: str, **rest: Any) -> str:
    door = rig.testbed.network.find("10.0.0.11", 6443)
    assert door is not None
    reply = await door.send(
        requests.create(kind, new_object(kind, name, "default", **rest)), Peer(rig.cluster.admin[0])
    )
    assert reply.status == 201, reply.body
    return reply.headers.get("Warning", "")


def test_the_first_write_to_a_kind_that_nothing_acts_on_is_answered_with_a_warning():
    async def scenario() -> None:
        async with a_rig() as rig:
            first = await warning_of(rig, QUOTA, "one", spec={"hard": {"pods": "1"}})
            second = await warning_of(rig, QUOTA, "two", spec={"hard": {"pods": "1"}})
            data = await warning_of(rig, CONFIG_MAP, "one", data={"a": "b"})

            text = "ResourceQuota is stored but not simulated: no quota of a guest cluster is enforced"
            assert first == f'299 - "{text}"'
            assert second == data == ""

    run_driven(scenario())


def test_which_kinds_are_told_and_how_many():
    kinds = UnsimulatedKinds()
    helm = ApiResource("helm.cattle.io", "v1", "HelmChart", "helmcharts")

    assert kinds.warn(JOB, custom=False) == ""
    assert kinds.warn(helm, custom=True) == ""
    assert kinds.warn(WIDGET, custom=True) == (
        "Widget is stored but not simulated: the emulator runs no controller for it"
    )
    assert kinds.warn(WIDGET, custom=True) == ""
    many = [
        kinds.warn(ApiResource("example.org", "v1", f"K{n}", f"k{n}"), custom=True) for n in range(MAX_KINDS)
    ]
    assert [bool(one) for one in many] == [True] * (MAX_KINDS - 1) + [False]
