"""`/windrow/logs`: which lines of the manager's log are about a Cluster, and who may read them."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.clock import LoopClock

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.clock import SystemClock
from windrow.app.cluster_roles import install_cluster_roles
from windrow.app.embedded import embedded_manager, install_crds, management_api
from windrow.app.network import HttpConnector
from windrow.app.support.log_buffer import LogBuffer
from windrow.app.support.log_pages import LOGS_PATH, ROLE_NAME, install_log_role, is_about, serve_logs
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.core.formats.json import loads
from windrow.core.logs import FieldLogger, with_values
from windrow.core.rng import Rng
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import NAMESPACE, ROLE, ROLE_BINDING

PROD, OTHER = "team-a/prod", "team-b/prod"


class Log:
    """A management API with the tenants ann, who may view team-a, and bob, who may view team-b, and a log."""

    def __init__(self, api: ApiServer, buffer: LogBuffer) -> None:
        self.api, self.buffer = api, buffer
        logger = logging.Logger("test", logging.INFO)
        logger.addHandler(buffer)
        self.log: FieldLogger = with_values(logger)

    async def ask(self, user: str, path: str, method: str = "GET", **query: str) -> Reply:
        headers = (("Authorization", f"Bearer {user}"),)
        return await self.api.send(Request(method, path, tuple(query.items()), headers=headers), Peer())

    async def messages(self, user: str, path: str, **query: str) -> list[str]:
        reply = await self.ask(user, path, **query)
        assert reply.status == 200, reply.body
        return [line["msg"] for line in loads(reply.body)["lines"]]


@pytest.fixture
async def log() -> Log:
    api = management_api(MemoryStore(), LoopClock(), Rng(1))
    client, admin = Client(api.local()), api.local()
    await install_crds(client)
    await install_cluster_roles(client)
    await install_log_role(client)
    for namespace, user in (("team-a", "ann"), ("team-b", "bob")):
        await admin.create(NAMESPACE, new_object(NAMESPACE, namespace))
        for name in ("prod", "prod-w"):
            await admin.create(CLUSTER, new_object(CLUSTER, name, namespace, spec={}))
            spec: dict[str, Any] = {"clusterName": name, "clusterUID": "u", "pool": "w", "roles": ["worker"]}
            spec |= {"options": {}, "credential": "a:b", "version": "v1.34.7+rke2r1"}
            await admin.create(MACHINE, new_object(MACHINE, f"{name}-w-1", namespace, spec=spec))
        role = {"apiGroup": ROLE_BINDING.group, "kind": "ClusterRole", "name": "view"}
        subjects = [{"apiGroup": ROLE_BINDING.group, "kind": "User", "name": user}]
        binding = {**new_object(ROLE_BINDING, "view", namespace), "roleRef": role, "subjects": subjects}
        await admin.create(ROLE_BINDING, binding)
        api.tokens[user] = (user, (), None)
    api.tokens["root"] = ("root", ("system:masters",), None)
    buffer = LogBuffer()
    serve_logs(api, buffer, wait_s=0.2)
    return Log(api, buffer)


async def test_a_tenant_reads_the_lines_about_clusters_that_the_tenant_may_get_and_no_others(log: Log):
    log.log.info("of a", cluster=PROD)
    log.log.info("of b", cluster=OTHER)
    log.log.info("machine of a", machine=f"{PROD}-w-1")
    log.log.info("machine of b", object=MACHINE.ref("prod-w-1", "team-b"))
    log.log.info("machine of another of a", machine="team-a/prod-w-w-1")
    log.log.info("of all")

    assert await log.messages("ann", f"{LOGS_PATH}/{PROD}") == ["of a", "machine of a"]
    assert await log.messages("ann", f"{LOGS_PATH}/team-a/prod-w") == ["machine of another of a"]
    assert await log.messages("bob", f"{LOGS_PATH}/{OTHER}") == ["of b", "machine of b"]
    assert len(await log.messages("root", LOGS_PATH)) == 6
    for user, path in (("ann", OTHER), ("bob", PROD), ("ann", "team-b/none"), ("ann", "none/none")):
        assert (await log.ask(user, f"{LOGS_PATH}/{path}")).status == 403
    for user in ("ann", "bob"):
        assert (await log.ask(user, LOGS_PATH)).status == 403
    assert (await log.ask("unknown", f"{LOGS_PATH}/{PROD}")).status == 401


async def test_a_right_to_one_cluster_by_name_is_no_right_to_its_neighbours(log: Log):
    admin = log.api.local()
    rule = {
        "apiGroups": [CLUSTER.group],
        "resources": ["clusters"],
        "resourceNames": ["prod"],
        "verbs": ["get"],
    }
    await admin.create(ROLE, {**new_object(ROLE, "prod", "team-a"), "rules": [rule]})
    role = {"apiGroup": ROLE.group, "kind": "Role", "name": "prod"}
    subjects = [{"apiGroup": ROLE.group, "kind": "User", "name": "eve"}]
    binding = {**new_object(ROLE_BINDING, "prod", "team-a"), "roleRef": role, "subjects": subjects}
    await admin.create(ROLE_BINDING, binding)
    log.api.tokens["eve"] = ("eve", (), None)

    assert (await log.ask("eve", f"{LOGS_PATH}/{PROD}")).status == 200
    assert (await log.ask("eve", f"{LOGS_PATH}/team-a/prod-w")).status == 403


@pytest.mark.parametrize(
    ("line", "is_of_prod"),
    [
        ({"cluster": PROD}, True),
        ({"key": f"Cluster {PROD}"}, True),
        ({"object": f"Cluster {PROD}"}, True),
        ({"machine": f"{PROD}-w-1"}, True),
        ({"key": f"Machine {PROD}-w-1"}, True),
        ({"cluster": PROD, "machine": "team-a/gone"}, True),
        ({"cluster": "team-a/production"}, False),
        ({"cluster": OTHER, "machine": f"{PROD}-w-1"}, False),
        ({"object": f"Cluster {OTHER}", "machine": f"{PROD}-w-1"}, False),
        ({"machine": f"{PROD}-w-2"}, False),
        ({"machine": "prod-w-1"}, False),
        ({"cluster": "prod"}, False),
        ({"object": f"VirtualMachine {PROD}"}, False),
        ({"msg": PROD}, False),
        ({"machine": 1, "cluster": None}, False),
    ],
)
def test_a_line_is_about_the_cluster_that_its_fields_name(line: dict[str, Any], is_of_prod: bool):
    assert is_about(line, PROD, frozenset({f"{PROD}-w-1"})) is is_of_prod


async def test_tenants_see_no_tracebacks_and_nothing_in_the_form_of_a_secret(log: Log):
    try:
        raise RuntimeError("refused with password=hunter2")
    except RuntimeError:
        log.log.exception("Authorization: Bearer abc123", cluster=PROD)

    text = (await log.ask("ann", f"{LOGS_PATH}/{PROD}")).body.decode()

    assert "refused with" in text
    assert not any(word in text for word in ("abc123", "hunter2", "Traceback", __file__))


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/{PROD}/", 404),
        ("/", 404),
        ("//", 404),
        ("/team-a", 404),
        ("/team-a/", 404),
        ("/team-a/../team-b/prod", 404),
        ("/team-a%2fprod/x", 404),
        ("/team-a/" + "x" * 300, 404),
    ],
)
async def test_a_path_names_one_cluster_or_none(log: Log, path: str, status: int):
    assert (await log.ask("root", f"{LOGS_PATH}{path}")).status == status


async def test_only_reading_is_served_and_a_position_is_a_number(log: Log):
    assert (await log.ask("root", LOGS_PATH, "DELETE")).status == 405
    for after in ("x", "-1", "", "9" * 30, "1.5"):
        assert (await log.ask("root", LOGS_PATH, after=after)).status == 400


async def test_with_a_position_the_answer_waits_for_a_line_about_the_cluster(log: Log):
    log.log.info("old", cluster=PROD)
    asking = asyncio.create_task(log.messages("ann", f"{LOGS_PATH}/{PROD}", after="1"))
    await asyncio.sleep(0.02)
    log.log.info("of b", cluster=OTHER)
    await asyncio.sleep(0.02)
    assert not asking.done()

    logs_in_a_thread = threading.Thread(target=lambda: log.log.info("new", cluster=PROD))
    logs_in_a_thread.start()

    assert await asking == ["new"]
    logs_in_a_thread.join()


async def test_a_wait_is_bounded_and_its_answer_tells_where_to_go_on(log: Log):
    log.log.info("of b", cluster=OTHER)

    reply = await log.ask("ann", f"{LOGS_PATH}/{PROD}", after="0")

    assert loads(reply.body) == {"position": 1, "lines": []}


async def test_a_right_that_is_withdrawn_during_the_wait_shows_nothing_more(log: Log):
    asking = asyncio.create_task(log.ask("ann", f"{LOGS_PATH}/{PROD}", after="0"))
    await asyncio.sleep(0.02)
    await log.api.local().delete(ROLE_BINDING.ref("view", "team-a"))
    log.log.info("new", cluster=PROD)

    assert (await asking).status == 403


async def test_a_position_of_a_manager_before_this_one_begins_anew(log: Log):
    log.log.info("first", cluster=PROD)

    assert await log.messages("ann", f"{LOGS_PATH}/{PROD}", after="812") == ["first"]


async def test_lines_that_were_dropped_shift_no_position():
    buffer = LogBuffer(max_bytes=400)
    logger = logging.Logger("test", logging.INFO)
    logger.addHandler(buffer)
    for number in range(9):
        logger.info("number %d", number)

    kept, position = buffer.lines_after(0)

    assert position == 9
    assert 0 < len(kept) < 9
    assert buffer.lines_after(8) == ([kept[-1]], 9)
    assert buffer.lines_after(9) == ([], 9)
    assert buffer.text() == "".join(f"{line}\n" for line in kept)


def test_a_line_after_the_end_of_a_loop_that_waited_is_no_error():
    buffer = LogBuffer()
    loop = asyncio.new_event_loop()
    loop.close()
    buffer._waiting[asyncio.Event()] = loop

    buffer.handle(logging.makeLogRecord({"msg": "on"}))

    assert buffer.position == 1


@pytest.mark.long
async def test_a_manager_serves_its_log_and_ends_though_a_follower_waits(tmp_path: Path):
    clock = SystemClock()
    async with HttpConnector(clock) as sockets:
        async with embedded_manager(tmp_path, clock, Rng(1), sockets.connect) as manager:
            logging.getLogger("windrow.test").warning("it is said")
            admin = sockets.connect(manager.access)
            reply = await admin.send(Request("GET", LOGS_PATH))
            assert b"it is said" in reply.body
            roles = await admin.send(
                Request("GET", f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{ROLE_NAME}")
            )
            assert roles.status == 200
            foreign = sockets.connect(replace(manager.access, certificate="", key="", token="wrong"))
            assert (await foreign.send(Request("GET", LOGS_PATH))).status == 401
            after = str(loads(reply.body)["position"])
            waiting = asyncio.create_task(admin.send(Request("GET", LOGS_PATH, (("after", after),))))
            began = clock.monotonic()
        assert (clock.monotonic() - began).total_seconds() < 20
        await asyncio.gather(waiting, return_exceptions=True)
