"""What a real API server and controller manager make of StorageClasses and claims, and what a guest's do: the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from tests.conformance.cloud_provider_rig import eventually
from tests.conformance.real_cluster import Cluster
from tests.support.clock import run_driven
from tests.unit.emulator.guests.test_workloads import a_rig

from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.core.clock import sleep
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, nested, new_object
from windrow.kubernetes.resources import PVC, STORAGE_CLASS, ApiResource, ObjectRef

pytestmark = [pytest.mark.go, pytest.mark.timeout(180)]

PV = ApiResource("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False)
Api = Any
Until = Callable[[Callable[[], Awaitable[bool]], str], Awaitable[None]]
Seen = dict[str, Any]
CLASSES = ("rules-z-old", "rules-b-new", "rules-a-new")
DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}


def a_claim(name: str, storage_class: str | None = None, size: str = "5Gi") -> Raw:
    spec: Raw = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if storage_class is not None:
        spec["storageClassName"] = storage_class
    return new_object(PVC, name, "default", spec=spec)


def a_volume(name: str, storage_class: str) -> Raw:
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
        "csi": {"driver": "a.driver", "volumeHandle": name},
    }
    return new_object(PV, name, spec=spec)


async def act(api: Api, pause: Callable[[float], Awaitable[None]], until: Until) -> Seen:
    """Claims of classes that are, and are not, the default; claims that grow, and may not."""
    seen: Seen = {}
    for place, name in enumerate(CLASSES):
        if place:
            await pause(1.2)  # a creationTimestamp has whole seconds
        grows = {"allowVolumeExpansion": True} if name == "rules-a-new" else {}
        raw = new_object(STORAGE_CLASS, name, annotations=DEFAULT, provisioner="a.driver", **grows)
        await api.create(STORAGE_CLASS, raw)
    if isinstance(
        api, Client
    ):  # the admission of the real server has its classes from an informer, which is late at times
        await until(lambda: is_default(api, CLASSES[-1]), f"{CLASSES[-1]} is the default class")
    await api.create(PVC, a_claim("rules-late"))
    await api.create(PVC, a_claim("rules-none", ""))
    for name in ("rules-late", "rules-none"):
        seen[name] = nested(await api.get(PVC.ref(name, "default")), "spec", "storageClassName")
    for name in CLASSES[:1] + CLASSES[2:]:
        await api.create(PV, a_volume(name, name))
        await api.create(PVC, a_claim(name, name, "1Gi"))
        await until(lambda name=name: is_bound(api, name), f"{name} is bound")
        seen[f"{name} grows"] = await outcome(api, PVC.ref(name, "default"), "2Gi")
        seen[f"{name} shrinks"] = await outcome(api, PVC.ref(name, "default"), "512Mi")
    seen["unbound grows"] = await outcome(api, PVC.ref("rules-none", "default"), "9Gi")
    return seen


async def is_default(api: Api, storage_class: str) -> bool:
    """Whether a claim that names no class would be of this one."""
    made = await api.apply(PVC.ref("rules-late", "default"), a_claim("rules-late"), "tests", dry_run=True)
    return bool(nested(made, "spec", "storageClassName") == storage_class)


async def is_bound(api: Api, name: str) -> bool:
    return bool(nested(await api.get(PVC.ref(name, "default")), "status", "phase") == "Bound")


async def outcome(api: Api, ref: ObjectRef, size: str) -> Any:
    """What becomes of a claim that asks for another size: the answer of the server, but for the difference that it shows."""
    try:
        await api.patch(ref, {"spec": {"resources": {"requests": {"storage": size}}}})
    except KubeError as error:
        return error.status, error.reason, error.message.splitlines()[0]
    return "accepted"


def test_the_default_class_and_the_growth_of_claims_are_those_of_a_real_api_server(
    managed_cluster: Cluster,
) -> None:
    async def real() -> Seen:
        async with HttpTransport(managed_cluster.access(), SystemClock()) as transport:
            api = Client(transport)
            try:
                return await act(api, asyncio.sleep, eventually)
            finally:
                for ref in [PVC.ref(name, "default") for name in ("rules-late", "rules-none")] + [
                    ref
                    for name in CLASSES
                    for ref in (PVC.ref(name, "default"), PV.ref(name), STORAGE_CLASS.ref(name))
                ]:
                    with suppress(KubeError):
                        await api.delete(ref)

    async def ours() -> Seen:
        async with a_rig() as rig:
            (cluster,) = rig.testbed.machines["one"].clusters.values()  # type: ignore[attr-defined]

            async def until(holds: Callable[[], Awaitable[bool]], what: str) -> None:
                await rig.testbed.wait_for(holds)

            async def pause(seconds: float) -> None:
                await sleep(rig.testbed.clock, timedelta(seconds=seconds))

            return await act(cluster.client(), pause, until)

    expected, found = asyncio.run(real()), run_driven(ours())

    assert found == expected
    assert found["rules-late"] == "rules-a-new", "the newest"
