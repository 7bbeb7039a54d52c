"""The embedded management API authorizes as a Kubernetes API server does: by Roles and bindings (issue 10 A2)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.clock import LoopClock

from windrow.apiserver.loopback import LoopbackClient
from windrow.apiserver.server import SYSTEM_ADMIN, ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.cluster_roles import install_cluster_roles
from windrow.app.embedded import install_crds, management_api
from windrow.app.state.pki import new_ca
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG, MACHINE
from windrow.core.formats.fastjson import dumps, loads
from windrow.core.rng import Rng
from windrow.drivers.api import NODE_DRIVER
from windrow.kubernetes.errors import Forbidden, NotFound
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import (
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    NAMESPACE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    ApiResource,
)

TENANT = "team-a"
ROBOT = f"system:serviceaccount:{TENANT}:robot"
ACCESS_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


@pytest.fixture
async def api() -> ApiServer:
    server = management_api(MemoryStore(), LoopClock(), Rng(1))
    await install_crds(Client(server.local()))
    await install_cluster_roles(Client(server.local()))
    admin = server.local()
    for name in (TENANT, "team-b"):
        await admin.create(NAMESPACE, {"metadata": {"name": name}})
    await admin.create(SERVICE_ACCOUNT, {"metadata": {"name": "robot"}}, TENANT)
    await admin.create(SECRET, {"metadata": {"name": "cc"}, "stringData": {"key": "value"}}, TENANT)
    return server


def a_robot(api: ApiServer) -> LoopbackClient:
    return api.local(ROBOT, ("system:serviceaccounts", f"system:serviceaccounts:{TENANT}"))


async def bind(api: ApiServer, role: str, namespace: str = TENANT) -> None:
    raw: dict[str, Any] = {
        "metadata": {"name": role},
        "roleRef": {"apiGroup": ROLE_BINDING.group, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": TENANT}],
    }
    await api.local().create(ROLE_BINDING if namespace else CLUSTER_ROLE_BINDING, raw, namespace)


async def refused(coroutine: Any) -> str:
    with pytest.raises(Forbidden) as raised:
        await coroutine
    return raised.value.message


def a_harvester_config(name: str) -> dict[str, Any]:
    return {
        "apiVersion": HARVESTER_CONFIG.api_version,
        "kind": HARVESTER_CONFIG.kind,
        "metadata": {"name": name},
    }


def a_cluster(name: str) -> dict[str, Any]:
    spec = {"kubernetesVersion": "v1.34.3+rke2r1", "rkeConfig": {"machinePools": []}}
    return {
        "apiVersion": CLUSTER.api_version,
        "kind": CLUSTER.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.mark.parametrize(
    "kind", [SECRET, SERVICE_ACCOUNT, CONFIG_MAP, NAMESPACE, CLUSTER, MACHINE, NODE_DRIVER]
)
async def test_a_service_account_without_roles_reads_nothing(api: ApiServer, kind: ApiResource) -> None:
    robot = a_robot(api)

    assert "cannot list resource" in await refused(robot.list(kind))
    assert "cannot list resource" in await refused(robot.list(kind, TENANT))
    async with api.local().watch(kind):
        with pytest.raises(Forbidden):
            async with robot.watch(kind):
                pass


async def test_a_service_account_without_roles_writes_nothing(api: ApiServer) -> None:
    robot, ref = a_robot(api), SECRET.ref("cc", TENANT)

    await refused(robot.delete(ref))
    await refused(robot.patch(ref, {"data": {}}))
    await refused(robot.create(CLUSTER, a_cluster("c"), TENANT))

    assert await api.local().get(ref)


async def test_a_service_account_without_roles_may_not_impersonate(api: ApiServer) -> None:
    token = await _token(api)
    headers = (("Authorization", f"Bearer {token}"), ("Impersonate-User", "admin"))

    as_admin = await api.send(Request("GET", "/api/v1/secrets", headers=headers), Peer())
    as_masters = await api.send(
        Request("GET", "/api/v1/secrets", headers=(*headers, ("Impersonate-Group", "system:masters"))), Peer()
    )

    assert (as_admin.status, as_masters.status) == (403, 403)
    assert "cannot impersonate resource" in loads(as_admin.body)["message"]


async def test_the_admin_kubeconfig_may_do_everything(api: ApiServer) -> None:
    clock = LoopClock()
    access = new_ca("windrow", clock).admin_config(clock, "https://127.0.0.1:1")

    reply = await api.send(Request("GET", "/api/v1/secrets"), Peer(access.certificate))
    as_robot = await api.send(
        Request("GET", "/api/v1/secrets", headers=(("Impersonate-User", ROBOT),)), Peer(access.certificate)
    )

    assert (reply.status, as_robot.status) == (200, 403)


async def test_role_edit_is_for_clusters_and_their_machine_configs_in_its_namespace(api: ApiServer) -> None:
    await bind(api, "edit")
    robot = a_robot(api)

    await robot.create(CLUSTER, a_cluster("c"), TENANT)
    await robot.create(HARVESTER_CONFIG, a_harvester_config("pool"), TENANT)
    await robot.list(MACHINE, TENANT)
    with pytest.raises(NotFound):
        await robot.delete(MACHINE.ref("none", TENANT))

    await refused(robot.create(CLUSTER, a_cluster("c"), "team-b"))
    await refused(robot.list(CLUSTER))
    await refused(robot.list(NODE_DRIVER))


@pytest.mark.parametrize("role", ["admin", "edit"])
async def test_what_the_manager_records_is_not_written_by_tenants(api: ApiServer, role: str) -> None:
    await bind(api, role)
    robot = a_robot(api)
    await robot.create(CLUSTER, a_cluster("c"), TENANT)
    machine = {"metadata": {"name": "m"}, "spec": {"credential": "team-b:cc"}}

    await refused(
        robot.create(MACHINE, {**machine, "kind": "Machine", "apiVersion": MACHINE.api_version}, TENANT)
    )
    await refused(robot.patch(CLUSTER.ref("c", TENANT), {"status": {"initialized": True}}, "status"))
    await refused(robot.patch(MACHINE.ref("m", TENANT), {"status": {"driverConfig": {}}}, "status"))


async def test_role_view_reads_no_secret(api: ApiServer) -> None:
    await bind(api, "view")
    robot = a_robot(api)

    await robot.list(CLUSTER, TENANT)
    await robot.list(MACHINE, TENANT)

    await refused(robot.list(SECRET, TENANT))
    await refused(robot.create(CLUSTER, a_cluster("c"), TENANT))


async def test_role_view_of_the_whole_api_shows_node_drivers(api: ApiServer) -> None:
    await bind(api, "view", namespace="")

    await a_robot(api).list(NODE_DRIVER)


async def test_a_user_grants_no_more_than_he_holds(api: ApiServer) -> None:
    await bind(api, "admin")
    robot = a_robot(api)
    raw = {
        "metadata": {"name": "more"},
        "roleRef": {"apiGroup": ROLE_BINDING.group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": TENANT}],
    }

    assert "not currently held" in await refused(robot.create(ROLE_BINDING, raw, TENANT))
    await robot.create(ROLE_BINDING, {**raw, "roleRef": {**raw["roleRef"], "name": "edit"}}, TENANT)  # type: ignore[dict-item]


async def test_can_i_tells_the_truth(api: ApiServer) -> None:
    await bind(api, "edit")

    assert await _may(api, verb="create", group=CLUSTER.group, resource="clusters", namespace=TENANT)
    assert not await _may(api, verb="create", group=CLUSTER.group, resource="clusters", namespace="team-b")
    assert not await _may(api, verb="get", resource="secrets", namespace="kube-system")
    assert not await _may(api, verb="*", group="*", resource="*")


async def _token(api: ApiServer) -> str:
    path = SERVICE_ACCOUNT.ref("robot", TENANT).path + "/token"
    reply: Reply = await api.handle(
        Request("POST", path, body=dumps({"spec": {}}), content_type="application/json"), SYSTEM_ADMIN
    )
    return str(loads(reply.body)["status"]["token"])


async def _may(api: ApiServer, **attributes: str) -> bool:
    user = await api.authenticate_token(await _token(api))
    assert user is not None
    body = dumps({"spec": {"resourceAttributes": attributes}})
    reply = await api.handle(Request("POST", ACCESS_REVIEW, body=body, content_type="application/json"), user)
    assert reply.status == 201, reply.body
    return bool(loads(reply.body)["status"]["allowed"])
