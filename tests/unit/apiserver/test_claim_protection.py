"""A claim that is deleted while a pod mounts it: kept, with its data, until the last such pod has ended."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.apiserver.controllers.claims import PROTECTION, PvcProtectionController
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.port import Change, Entry
from windrow.kubernetes.resources import POD, PVC

KEY = "/persistentvolumeclaims/default/data"
CLAIM = PVC.ref("data", "default")


async def a_claim(server: ApiServer, *finalizers: str) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    raw = {"metadata": {"name": "data", "finalizers": list(finalizers)}, "spec": spec}
    await server.local().create(PVC, raw, "default")


async def a_pod(server: ApiServer, claim: str, phase: str = "Running") -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": claim}}
    spec = {"containers": [{"name": "c", "image": "i"}], "volumes": [volume, {"name": "e", "emptyDir": {}}]}
    client = server.local()
    made = await client.create(POD, {"metadata": {"name": "p"}, "spec": spec}, "default")
    await client.update(POD, {**made, "status": {"phase": phase}}, subresource="status")


async def finalizers_left(server: ApiServer) -> list[str] | None:
    """Those of the claim after the controller has reconciled it; None where the claim is gone."""
    await PvcProtectionController(server.context).reconcile((KEY,))
    raw = await server.local().find(CLAIM)
    return None if raw is None else raw["metadata"].get("finalizers", [])


@pytest.mark.parametrize(
    ("claim", "phase", "is_kept"),
    [
        ("data", "Running", True),
        ("data", "Pending", True),
        ("data", "Succeeded", False),
        ("data", "Failed", False),
        ("other", "Running", False),
    ],
)
async def test_a_deleted_claim_is_kept_while_a_pod_that_has_not_ended_mounts_it(
    server: ApiServer, claim: str, phase: str, is_kept: bool
) -> None:
    await a_claim(server, PROTECTION)
    await a_pod(server, claim, phase)
    await server.local().delete(CLAIM)

    assert await finalizers_left(server) == ([PROTECTION] if is_kept else None)


async def test_a_claim_that_is_not_deleted_keeps_its_protection(server: ApiServer) -> None:
    await a_claim(server, PROTECTION)

    assert await finalizers_left(server) == [PROTECTION]


async def test_only_the_protection_is_removed(server: ApiServer) -> None:
    await a_claim(server, "example.io/backup", PROTECTION)
    await server.local().delete(CLAIM)

    assert await finalizers_left(server) == ["example.io/backup"]
    before = server.store.rev
    assert await finalizers_left(server) == ["example.io/backup"]
    assert server.store.rev == before


async def test_a_claim_that_is_gone_already_is_no_error(server: ApiServer) -> None:
    assert await finalizers_left(server) is None


def change(key: str, raw: dict[str, Any], *, gone: bool = False) -> Change:
    entry = Entry(key, 2, raw)
    return Change(2, key, entry, None if gone else entry, entry)


VOLUMES = [{"persistentVolumeClaim": {"claimName": name}} for name in ("logs", "data", "data")]
POD_WITH_CLAIMS = {"spec": {"volumes": [*VOLUMES, {"emptyDir": {}}, {"persistentVolumeClaim": {}}]}}
OF_POD = [(KEY,), ("/persistentvolumeclaims/default/logs",)]


@pytest.mark.parametrize(
    ("happened", "affected"),
    [
        (change(KEY, {}), [(KEY,)]),
        (change(KEY, {}, gone=True), []),
        (change("/pods/default/p", POD_WITH_CLAIMS), OF_POD),
        (change("/pods/default/p", POD_WITH_CLAIMS, gone=True), OF_POD),
        (change("/pods/default/p", {"spec": {}}), []),
        (change("/configmaps/default/data", POD_WITH_CLAIMS), []),
        (change("example.io/pods/default/p", POD_WITH_CLAIMS), []),
        (change("example.io/persistentvolumeclaims/default/data", {}), []),
    ],
)
async def test_a_claim_is_reconciled_after_a_change_of_it_or_of_a_pod_that_mounts_it(
    server: ApiServer, happened: Change, affected: list[Any]
) -> None:
    assert list(PvcProtectionController(server.context).keys_of_change(happened)) == affected


async def test_at_the_start_every_claim_is_reconciled(server: ApiServer) -> None:
    await a_claim(server)
    await a_pod(server, "data")

    assert list(await PvcProtectionController(server.context).list_keys()) == [(KEY,)]
