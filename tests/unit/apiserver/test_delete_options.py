"""Preconditions, policies and grace periods of a DELETE (reference/05 §7.11)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from windrow.apiserver.server import ApiServer
from windrow.core.formats.json import dumps
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.resources import CONFIG_MAP, NAMESPACE, POD

Api = Any
NS = "/api/v1/namespaces/default"
MAPS = f"{NS}/configmaps"


async def made(api: Api, name: str = "m", **head: Any) -> dict[str, Any]:
    _, found = await api.json("POST", MAPS, {"metadata": {"name": name, **head}})
    return found["metadata"]


@pytest.mark.parametrize("field", ["uid", "resourceVersion"])
async def test_an_object_that_differs_from_the_precondition_stays(api: Api, field: str) -> None:
    head = await made(api)

    status, answer = await api.json("DELETE", f"{MAPS}/m", {"preconditions": {field: "77"}})

    name = {"uid": "UID", "resourceVersion": "ResourceVersion"}[field]
    assert (status, answer["reason"]) == (409, "Conflict")
    assert answer["message"].startswith(
        f'Operation cannot be fulfilled on ConfigMap "m": the {name} in the precondition (77) does not match the {name} in '
        f"record ({head[field]})."
    )
    assert (await api("GET", f"{MAPS}/m")).status == 200
    status, _ = await api.json("DELETE", f"{MAPS}/m", {"preconditions": {field: head[field]}})
    assert (status, (await api("GET", f"{MAPS}/m")).status) == (200, 404)


@pytest.mark.parametrize(
    ("options", "query", "finalizers"),
    [
        ({"orphanDependents": True}, "", ["x/y", "orphan"]),
        ({}, "?orphanDependents=true", ["x/y", "orphan"]),
        ({"orphanDependents": False}, "", ["x/y"]),
        ({}, "?orphanDependents=false", ["x/y"]),
        ({"propagationPolicy": "Orphan"}, "?propagationPolicy=Foreground", ["x/y", "orphan"]),
        ({}, "?propagationPolicy=Foreground", ["x/y", "foregroundDeletion"]),
        ({"propagationPolicy": "Background"}, "", ["x/y"]),
        ({}, "", ["x/y", "foregroundDeletion"]),
    ],
)
async def test_what_becomes_of_dependents_is_a_finalizer(
    api: Api, options: dict[str, Any], query: str, finalizers: list[str]
) -> None:
    await made(api, finalizers=["x/y", "foregroundDeletion"])

    _, answer = await api.json("DELETE", f"{MAPS}/m{query}", options)

    assert answer["metadata"]["finalizers"] == finalizers


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422, "cannot be both set"),
        ({"propagationPolicy": "Sideways"}, 422, "propagationPolicy"),
        ({"dryRun": ["Some"]}, 422, "dryRun"),
        ({"kind": "Pod"}, 400, 'no kind "Pod" is registered'),
    ],
)
async def test_options_that_make_no_sense_delete_nothing(
    api: Api, options: dict[str, Any], status: int, words: str
) -> None:
    await made(api)

    found, answer = await api.json("DELETE", f"{MAPS}/m", options)

    assert (found, words in answer["message"]) == (status, True)
    assert (await api("GET", f"{MAPS}/m")).status == 200


@pytest.mark.parametrize("kind", [{}, {"kind": ""}, {"kind": "DeleteOptions"}])
async def test_options_need_not_name_their_kind(api: Api, kind: dict[str, Any]) -> None:
    await made(api)

    status, _ = await api.json("DELETE", f"{MAPS}/m", kind)

    assert (status, (await api("GET", f"{MAPS}/m")).status) == (200, 404)


async def test_a_dry_run_deletes_nothing(server: ApiServer, api: Api) -> None:
    await made(api)
    await made(api, "held", finalizers=["x/y"])
    before = server.store.rev

    for name in ("m", "held"):
        assert (await api("DELETE", f"{MAPS}/{name}", {"dryRun": ["All"]})).status == 200

    assert server.store.rev == before


async def test_only_namespaces_are_immortal_by_their_name(server: ApiServer) -> None:
    client = server.local()
    for name in ("default", "kube-system", "kube-public"):
        with pytest.raises(Forbidden, match="this namespace may not be deleted"):
            await client.delete(NAMESPACE.ref(name))
        await client.create(CONFIG_MAP, {"metadata": {"name": name}}, "default")
        await client.delete(CONFIG_MAP.ref(name, "default"))
        assert await client.find(CONFIG_MAP.ref(name, "default")) is None


async def test_a_namespace_that_is_deleted_again_is_deleted_since_the_first_time(
    server: ApiServer, clock: Any
) -> None:
    client = server.local()
    await client.create(NAMESPACE, {"metadata": {"name": "team"}})
    first = await client.delete(NAMESPACE.ref("team"))
    clock.instant += timedelta(minutes=5)

    again = await client.delete(NAMESPACE.ref("team"))

    assert again == first
    assert (first["status"]["phase"], first["metadata"]["deletionTimestamp"]) == (
        "Terminating",
        "2026-01-01T12:00:00Z",
    )
    assert "deletionGracePeriodSeconds" not in first["metadata"]


# -- grace periods of pods


async def a_pod(server: ApiServer, *, node: str = "n", phase: str = "Running", **spec: Any) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], **({"nodeName": node} if node else {}), **spec}
    raw = {"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase}}
    client = server.local()
    created = await client.create(POD, raw, "default")
    await client.update(POD, {**created, "status": {"phase": phase}}, subresource="status")


async def grace_after(server: ApiServer, api: Api, query: str = "") -> tuple[int, str] | None:
    """The grace period and the time of deletion that the pod is kept for; None where it is gone."""
    assert (await api("DELETE", f"{NS}/pods/p{query}")).status == 200
    pod = await server.local().find(POD.ref("p", "default"))
    if pod is None:
        return None
    return pod["metadata"]["deletionGracePeriodSeconds"], pod["metadata"]["deletionTimestamp"][11:19]


@pytest.mark.parametrize(
    ("pod", "query", "kept"),
    [
        ({}, "", (30, "12:00:30")),
        ({"terminationGracePeriodSeconds": 5}, "", (5, "12:00:05")),
        ({"terminationGracePeriodSeconds": 5}, "?gracePeriodSeconds=60", (60, "12:01:00")),
        ({}, "?gracePeriodSeconds=-5", (1, "12:00:01")),
        ({}, "?gracePeriodSeconds=0", None),
        # Ten years at most: a clock has to name the end.
        ({"terminationGracePeriodSeconds": 10**12}, "", (315_360_000, "12:00:00")),
        ({"node": ""}, "", None),
        ({"phase": "Succeeded"}, "", None),
        ({"phase": "Failed"}, "", None),
    ],
)
async def test_a_pod_on_a_node_is_kept_for_its_grace_period(
    a_server: Any, api_as: Any, pod: dict[str, Any], query: str, kept: tuple[int, str] | None
) -> None:
    server = a_server(graceful_pod_deletion=True)
    await a_pod(server, **pod)

    assert await grace_after(server, api_as(server), query) == kept


async def test_a_later_delete_shortens_the_grace_period_and_never_lengthens_it(
    a_server: Any, api_as: Any
) -> None:
    server = a_server(graceful_pod_deletion=True)
    await a_pod(server)
    api = api_as(server)

    found = [await grace_after(server, api, f"?gracePeriodSeconds={seconds}") for seconds in (20, 50, 7, 0)]

    assert found == [(20, "12:00:20"), (20, "12:00:20"), (7, "12:00:07"), None]


async def test_only_pods_and_only_where_kubelets_run_have_a_grace_period(a_server: Any, api_as: Any) -> None:
    plain, graceful = a_server(), a_server(graceful_pod_deletion=True)
    await a_pod(plain)
    assert await grace_after(plain, api_as(plain)) is None
    await graceful.local().create(CONFIG_MAP, {"metadata": {"name": "m"}, "data": {}}, "default")
    assert (await api_as(graceful)("DELETE", f"{MAPS}/m", dumps({"gracePeriodSeconds": 60}))).status == 200
    assert (await api_as(graceful)("GET", f"{MAPS}/m")).status == 404


async def test_a_policy_that_there_is_not_is_refused_with_those_that_there_are(api: Api) -> None:
    await made(api)
    status, answer = await api.json("DELETE", f"{MAPS}/m", {"propagationPolicy": "Later"})

    assert status == 422
    assert answer["message"].endswith(
        'Unsupported value: "Later": supported values: "Foreground", "Background", "Orphan", "nil"'
    )
