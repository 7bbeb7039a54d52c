"""What the executor makes of each answer: the plan is stale, Harvester failed, or it is done."""

from dataclasses import replace
from typing import Any

import pytest
from tests.support.clock import NOON, LoopClock, run_driven

from windrow.cloudprovider.context import ControllerContext
from windrow.cloudprovider.metrics import Metrics
from windrow.cloudprovider.options import Options
from windrow.cloudprovider.services.actions import (
    Action,
    ClearStatus,
    ConfirmDeleted,
    CreateLoadBalancer,
    DeleteLoadBalancer,
    PatchService,
    RemoveFinalizer,
    UpdateLoadBalancer,
)
from windrow.cloudprovider.services.controller import ServiceController
from windrow.cloudprovider.services.execute import HostFailed, Stale
from windrow.cloudprovider.services.readings import Service, load_balancer_reader
from windrow.cloudprovider.services.state import ClusterSettings, ServiceState
from windrow.core.formats.json import dumps
from windrow.core.logs import line_logger
from windrow.core.rng import Rng
from windrow.harvester.resources import LOAD_BALANCER
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import SERVICE

SETTINGS = ClusterSettings("demo", "default")
WEB = Service("default", "web", "uid-1", version="7", is_load_balancer=True, finalizers=("x",))
NAME = SETTINGS.name_for(WEB)


def a_balancer(name: str = NAME, **metadata: Any) -> Any:
    raw = new_object(LOAD_BALANCER, name, "default", spec={"ipam": "pool"})
    raw["metadata"] |= {"uid": f"lb-{name}", "resourceVersion": "1", **metadata}
    return raw


def a_service(version: str = "7") -> Any:
    raw = new_object(SERVICE, "web", "default", spec={"type": "LoadBalancer"})
    raw["metadata"] |= {"uid": "uid-1", "resourceVersion": version}
    return raw


READ = load_balancer_reader("demo")
LB, OTHER = (replace(READ(raw), raw=raw) for raw in (a_balancer(), a_balancer("demo-old")))


def failure(code: int, reason: str, name: str = "") -> Reply:
    body = {"kind": "Status", "status": "Failure", "reason": reason, "code": code, "message": reason}
    return Reply(code, dumps({**body, "details": {"name": name}}))


CONFLICT = failure(409, "Conflict")
EXISTS = failure(409, "AlreadyExists", NAME)
NO_SERVICE, NO_BALANCER = failure(404, "NotFound", "web"), failure(404, "NotFound", NAME)
NO_KIND = failure(404, "NotFound")
FORBIDDEN = failure(403, "Forbidden")


class Answers:
    """One reply for each method; it keeps what was asked."""

    def __init__(self, **replies: Reply | Any) -> None:
        self._replies = {
            verb: reply if isinstance(reply, Reply) else Reply(200, dumps(reply))
            for verb, reply in replies.items()
        }
        self.asked: list[str] = []

    async def send(self, request: Request) -> Reply:
        self.asked.append(request.method)
        return self._replies[request.method]

    def stream(self, request: Request) -> Any:
        raise AssertionError("nothing is watched")

    async def aclose(self) -> None:
        pass


def execute(action: Action, guest: Answers, host: Answers) -> None:
    async def story() -> None:
        context = ControllerContext(
            guest,
            host,
            "default",
            Options(cluster_name="demo"),
            LoopClock(),
            Rng(1),
            line_logger("harvester-cloud-provider", lambda line: None),
            Metrics(),
        )
        executor = ServiceController(context)._executor
        await executor.execute(ServiceState(WEB, NOON, SETTINGS), [action])

    run_driven(story())


PATCH = PatchService("it is", {"a": "b"})
REMOVE_FINALIZER = RemoveFinalizer("it is", load_balancer=NAME)
STALE: list[tuple[str, Action, Answers, Answers]] = [
    ("patch, changed", PATCH, Answers(PATCH=CONFLICT), Answers()),
    ("patch, gone", PATCH, Answers(PATCH=NO_SERVICE), Answers()),
    ("clear status, changed", ClearStatus("it is"), Answers(PATCH=CONFLICT), Answers()),
    (
        "finalizer, changed",
        REMOVE_FINALIZER,
        Answers(PATCH=CONFLICT),
        Answers(GET=NO_BALANCER),
    ),
    ("create, exists", CreateLoadBalancer(NAME, "it is"), Answers(), Answers(POST=EXISTS, GET=a_balancer())),
    (
        "create, exists and is gone",
        CreateLoadBalancer(NAME, "it is"),
        Answers(),
        Answers(POST=EXISTS, GET=NO_BALANCER),
    ),
    ("update, changed", UpdateLoadBalancer(LB, "it is", {"a": "b"}), Answers(), Answers(PUT=CONFLICT)),
    ("update, gone", UpdateLoadBalancer(LB, "it is", {"a": "b"}), Answers(), Answers(PUT=NO_BALANCER)),
    (
        "delete, another has the name",
        DeleteLoadBalancer(LB, "it is"),
        Answers(GET=a_service()),
        Answers(DELETE=CONFLICT),
    ),
    ("delete, gone", DeleteLoadBalancer(LB, "it is"), Answers(GET=a_service()), Answers(DELETE=NO_BALANCER)),
    (
        "delete, the service has changed",
        DeleteLoadBalancer(LB, "it is"),
        Answers(GET=a_service("8")),
        Answers(),
    ),
]
FAILED: list[tuple[str, Action, Answers, str]] = [
    ("create", CreateLoadBalancer(NAME, "it is"), Answers(POST=FORBIDDEN), ""),
    (
        "create, and it cannot be read",
        CreateLoadBalancer(NAME, "it is"),
        Answers(POST=EXISTS, GET=FORBIDDEN),
        "",
    ),
    ("update", UpdateLoadBalancer(LB, "it is", {"a": "b"}), Answers(PUT=FORBIDDEN), ""),
    ("update, no such kind", UpdateLoadBalancer(LB, "it is", {"a": "b"}), Answers(PUT=NO_KIND), ""),
    ("delete its own", DeleteLoadBalancer(LB, "it is"), Answers(DELETE=FORBIDDEN), ""),
    ("delete an orphan", DeleteLoadBalancer(OTHER, "it is"), Answers(DELETE=FORBIDDEN), "demo-old"),
    ("delete, no such kind", DeleteLoadBalancer(LB, "it is"), Answers(DELETE=NO_KIND), ""),
    ("confirm", ConfirmDeleted(NAME), Answers(GET=FORBIDDEN), ""),
    ("remove the finalizer", REMOVE_FINALIZER, Answers(GET=FORBIDDEN), ""),
]


@pytest.mark.parametrize(
    ("action", "guest", "host"), [row[1:] for row in STALE], ids=[row[0] for row in STALE]
)
def test_what_has_changed_since_the_plan_ends_it(action: Action, guest: Answers, host: Answers) -> None:
    with pytest.raises(Stale):
        execute(action, guest, host)


@pytest.mark.parametrize(
    ("action", "host", "orphan"), [row[1:] for row in FAILED], ids=[row[0] for row in FAILED]
)
def test_what_harvester_refuses_is_its_failure_and_names_the_orphan(
    action: Action, host: Answers, orphan: str
) -> None:
    with pytest.raises(HostFailed) as raised:
        execute(action, Answers(GET=a_service()), host)

    assert raised.value.orphan == orphan


def test_what_the_guest_refuses_is_no_failure_of_harvester() -> None:
    with pytest.raises(Forbidden):
        execute(PATCH, Answers(PATCH=FORBIDDEN), Answers())


def test_a_service_that_is_gone_needs_no_finalizer_removed() -> None:
    guest, host = Answers(PATCH=NO_SERVICE), Answers(GET=NO_BALANCER)

    execute(REMOVE_FINALIZER, guest, host)

    assert (guest.asked, host.asked) == (["PATCH"], ["GET"])


def test_no_finalizer_is_removed_while_harvester_has_the_load_balancer_of_the_service() -> None:
    labels = {
        "cloudprovider.harvesterhci.io/cluster": "demo",
        "cloudprovider.harvesterhci.io/serviceNamespace": "default",
        "cloudprovider.harvesterhci.io/serviceName": "web",
    }
    guest = Answers()

    with pytest.raises(Stale):
        execute(REMOVE_FINALIZER, guest, Answers(GET=a_balancer(labels=labels)))
    assert guest.asked == []
