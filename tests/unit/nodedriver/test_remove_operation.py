"""A removal's writes carry their proofs, and what another has is not taken along."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.nodedriver.api_double import ApiDouble, refusal

from windrow.core.formats.json import dumps, loads
from windrow.harvester.identity import owner_annotations
from windrow.harvester.names import (
    CLUSTER_UID,
    GUEST_CLUSTER,
    MACHINE_UID,
    OWNED_BY,
    REMOVE_ALL_CLAIMS,
    REMOVED_CLAIMS,
)
from windrow.harvester.problems import Problem
from windrow.harvester.vms import read_vm
from windrow.harvester.volumes import claim_name
from windrow.kubernetes.errors import Conflict, KubeError, NotFound
from windrow.kubernetes.objects import annotations_of
from windrow.kubernetes.requests import JSON_PATCH, Reply, Request, WatchEvent
from windrow.kubernetes.resources import PVC, SECRET
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.vm.remove import remove, remove_and_wait

MACHINE = Configuration(
    machine_name="m",
    vm_namespace="ns",
    cluster_name="c",
    machine_uid="m-1",
    cluster_uid="c-1",
    vm_uid="vm-1",
    claims=("own",),
)
REF = MACHINE.ref


def a_vm(*claims: str, uid: str = "vm-1", **annotations: str) -> dict[str, Any]:
    volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
    return {
        "metadata": {"uid": uid, "annotations": {**owner_annotations("c-1", "m-1"), **annotations}},
        "spec": {"template": {"spec": {"volumes": volumes}}},
    }


class Watched(ApiDouble):
    """Notes how each PATCH was answered, and what else happens just before one."""

    def __init__(self, raw_vm: dict[str, Any], *claims: dict[str, Any]) -> None:
        super().__init__((REF, raw_vm))
        self.listed = claims
        self.patches: list[tuple[str, int]] = []
        self.removed: list[str] = []
        self.before_patch: Callable[[], None] = lambda: None

    def serve(self, request: Request) -> Reply:
        if request.method == "GET" and request.path.endswith("/persistentvolumeclaims"):
            return Reply(200, dumps({"metadata": {}, "items": list(self.listed)}))
        if request.method == "DELETE":
            self.removed.append(annotations_of(self.objects[request.path]).get(REMOVED_CLAIMS, ""))
        if request.method != "PATCH":
            return super().serve(request)
        self.before_patch()
        reply = super().serve(request)
        self.patches.append(("unseen" if request.content_type == JSON_PATCH else "seen", reply.status))
        return reply


def test_named_volumes_go_along_though_they_are_not_in_the_vm() -> None:
    for uid, how in (("vm-1", "unseen"), ("", "seen")):  # with the first write, and after a look
        api = Watched(a_vm("own"))
        api.run(remove_and_wait(replace(MACHINE, vm_uid=uid, volumes=("data",))))
        assert api.removed == ["data,own"]
        assert api.patches == [(how, 200)]


@pytest.mark.parametrize("uid", ["vm-1", ""])
def test_a_patch_that_is_answered_without_a_body_is_no_end(uid: str) -> None:
    api = Watched(a_vm("own"))
    serve = api.serve

    def without_body(request: Request) -> Reply:
        reply = serve(request)
        return Reply(reply.status, b"") if request.method == "PATCH" else reply

    api.serve = without_body  # type: ignore[method-assign]
    api.run(remove_and_wait(replace(MACHINE, vm_uid=uid)))
    assert api.removed == ["own"]


def test_claims_that_others_named_for_a_vm_without_own_claims_stay() -> None:
    api = Watched(a_vm("data", **{REMOVED_CLAIMS: "data"}))
    api.run(remove_and_wait(replace(MACHINE, vm_uid="", claims=())))
    assert api.removed == [""]


# --- proofs --------------------------------------------------------------------------------------------------------


def test_the_first_write_changes_the_recorded_vm() -> None:
    api = Watched(a_vm("own"))
    api.run(remove_and_wait(MACHINE))
    assert api.patches == [("unseen", 200)]
    assert api.removed == ["own"]
    assert api.requests[:2] == ["PATCH virtualmachines/m", "DELETE virtualmachines/m"]


@pytest.mark.parametrize(
    "machine",
    [
        replace(MACHINE, vm_uid=""),
        replace(MACHINE, machine_uid="", cluster_uid=""),
        replace(MACHINE, claims=()),
    ],
    ids=["no VM uid", "no machine uid", "no claims"],
)
def test_without_all_proofs_and_claims_the_vm_is_read_before_it_is_changed(machine: Configuration) -> None:
    api = Watched(a_vm("own"))
    with suppress(Refused):  # where nothing tells whose it is
        api.run(remove_and_wait(machine))
    assert api.requests[0] == "GET virtualmachines/m"


def test_a_vm_that_others_change_at_every_attempt_is_given_up_after_four() -> None:
    api = Watched(a_vm("own"))
    api.answer("PATCH", "m", *[refusal(409, "Conflict", "it was changed")] * 9)
    with pytest.raises(Conflict, match="it was changed"):
        api.run(remove_and_wait(replace(MACHINE, vm_uid="")))
    assert api.requests.count("PATCH virtualmachines/m") == 4


def test_of_the_recorded_claims_those_go_that_a_current_reading_has_and_no_others() -> None:
    api = Watched(a_vm("own", "plugged"))
    known = read_vm(api.objects[REF.path])
    api.run(remove(replace(MACHINE, claims=("own", "moved")), frozenset(), known))
    assert api.removed == ["own"]


@pytest.mark.parametrize("annotated", [True, False])
def test_the_end_of_a_vm_is_watched_from_the_last_reading_on(annotated: bool) -> None:
    """From a later one on a VM that is gone by then would be waited for without end."""
    api = Watched(a_vm("own", **({REMOVED_CLAIMS: "own"} if annotated else {})))
    read = api.objects[REF.path]["metadata"]["resourceVersion"]
    versions: list[str | None] = []
    watch = api.watch

    def noting(request: Request) -> Iterator[WatchEvent | None]:
        versions.append(request.query_parameter("resourceVersion"))
        return watch(request)

    api.watch = noting  # type: ignore[method-assign]
    api.run(remove_and_wait(replace(MACHINE, vm_uid="")))
    assert versions == [read if annotated else str(int(read) + 1)]


@pytest.mark.parametrize(
    "raw_vm",
    [
        a_vm("own", uid="vm-2"),
        a_vm("own", **{MACHINE_UID: "m-2"}),
        a_vm("own", **{CLUSTER_UID: "c-2"}),
        {"spec": a_vm("own")["spec"], "metadata": {"uid": "vm-1"}},
    ],
    ids=["another uid", "another machine", "another cluster", "no marks"],
)
def test_the_first_write_changes_no_vm_that_differs_in_any_proof(raw_vm: dict[str, Any]) -> None:
    api = Watched(raw_vm)
    before = loads(dumps(api.objects[REF.path]))
    seen: list[dict[str, Any]] = []
    get = api.serve

    def serve(request: Request) -> Reply:
        if request.method == "GET" and not seen:
            seen.append(loads(dumps(api.objects[REF.path])))
        return get(request)

    api.serve = serve  # type: ignore[method-assign]
    try:
        api.run(remove_and_wait(MACHINE))
    except Refused:
        assert api.objects[REF.path] == before
    assert api.patches[0] == ("unseen", 422)
    assert seen == [before]


def test_a_vm_that_changes_hands_before_the_second_write_is_not_hit() -> None:
    api = Watched(a_vm("own"))
    another = a_vm("own", uid="vm-2", **{MACHINE_UID: "m-2"})

    def swap() -> None:
        api.before_patch = lambda: None
        api.put(REF, another)

    api.before_patch = swap
    api.run(remove_and_wait(replace(MACHINE, vm_uid="")))
    assert api.patches == [("seen", 409)]
    assert annotations_of(api.objects[REF.path]) == another["metadata"]["annotations"]


# --- the volumes of a cluster that goes ----------------------------------------------------------------------------


def a_claim(name: str, **annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "ns", "annotations": annotations}}


def in_vms(*vms: str) -> str:
    return dumps([{"schema": "kubevirt.io.virtualmachine", "refs": list(vms)}]).decode()


GOES: dict[str, dict[str, str]] = {
    "plain": {},
    "ours": {CLUSTER_UID: "c-1"},
    "our-own": owner_annotations("c-1", "m-1"),
    "in-this-vm": {OWNED_BY: in_vms("ns/m")},
    "in-two": {OWNED_BY: in_vms("ns/other", "ns/m")},
    "in-none": {OWNED_BY: "[]"},
    "unclear": {OWNED_BY: "{"},
    "odd": {OWNED_BY: dumps([{"schema": "kubevirt.io.virtualmachine", "refs": "ns/other"}, 5]).decode()},
    "of-no-vm": {OWNED_BY: dumps([{"schema": "other", "refs": ["ns/other"]}]).decode()},
}
STAYS: dict[str, dict[str, str]] = {
    "of-another-cluster": {CLUSTER_UID: "c-2"},
    "of-another-machine": owner_annotations("c-1", "m-2"),
    "of-a-machine-elsewhere": {MACHINE_UID: "m-2"},
    "in-another-vm": {OWNED_BY: in_vms("ns/other")},
    "in-a-vm-of-that-name-elsewhere": {OWNED_BY: in_vms("other/m")},
}


def taken(machine: Configuration, raw_vm: dict[str, Any]) -> tuple[set[str], str]:
    """The claims that go along, and what is said."""
    claims = [a_claim(name, **annotations) for name, annotations in {**GOES, **STAYS}.items()]
    api = Watched(raw_vm, *claims)
    api.run(remove_and_wait(machine))
    assert PVC.ref("x", "ns").path not in api.objects
    return set(api.removed[0].split(",")), "\n".join(api.log_lines)


def test_of_the_volumes_under_a_cluster_s_name_those_of_others_stay() -> None:
    went, said = taken(MACHINE, a_vm("own", "plugged", **{REMOVE_ALL_CLAIMS: "true"}))
    assert went == {"own", "plugged", *GOES}
    assert all(name in said for name in STAYS)


def test_the_volumes_of_a_cluster_are_listed_by_its_name() -> None:
    api = Watched(a_vm("own", **{REMOVE_ALL_CLAIMS: "true"}), a_claim("plain"))
    serve, selectors = api.serve, []

    def noting(request: Request) -> Reply:
        if request.path.endswith("/persistentvolumeclaims"):
            selectors.append(request.query_parameter("labelSelector"))
        return serve(request)

    api.serve = noting  # type: ignore[method-assign]
    api.run(remove_and_wait(MACHINE))
    assert selectors == [f"{GUEST_CLUSTER}=c"]


def test_a_machine_without_a_cluster_uid_takes_no_volume_that_bears_one() -> None:
    rancher_s = replace(MACHINE, cluster_uid="")
    raw_vm = a_vm("own", **{REMOVE_ALL_CLAIMS: "true"})
    del raw_vm["metadata"]["annotations"][CLUSTER_UID]
    went, _ = taken(rancher_s, raw_vm)
    assert went == {"own", *GOES} - {"ours", "our-own"}


def test_a_volume_in_the_vm_goes_with_it_whatever_its_annotations() -> None:
    went, said = taken(MACHINE, a_vm("own", "of-another-cluster", **{REMOVE_ALL_CLAIMS: "true"}))
    assert "of-another-cluster" in went
    assert "of-another-cluster" not in said


# --- a VM that is gone ---------------------------------------------------------------------------------------------

SECRET_REF = SECRET.ref("m-cloudinit", "ns")
ELSEWHERE = Problem("this is another Harvester", "name the right one")


def test_what_is_left_of_a_vm_that_is_gone_is_deleted() -> None:
    api = ApiDouble((SECRET_REF, {"metadata": {"annotations": owner_annotations("c-1", "m-1")}}))
    api.run(remove_and_wait(MACHINE))
    assert api.objects == {}
    assert api.requests[:2] == ["PATCH virtualmachines/m", "GET virtualmachines/m"]


def test_on_another_harvester_a_404_proves_nothing() -> None:
    api = ApiDouble((SECRET_REF, {"metadata": {"annotations": owner_annotations("c-1", "m-1")}}))
    with pytest.raises(Refused, match="this is another Harvester"):
        api.run(remove_and_wait(MACHINE, ELSEWHERE))
    assert SECRET_REF.path in api.objects


def test_a_404_that_does_not_name_the_vm_proves_nothing() -> None:
    """Of a server that does not serve the kind, for a moment: the VM and what is left of it stay."""
    api = ApiDouble(
        (REF, a_vm("own")), (SECRET_REF, {"metadata": {"annotations": owner_annotations("c-1", "m-1")}})
    )
    api.replies["PATCH", REF.path] = [Reply(404, b"404 page not found")]
    with pytest.raises(NotFound):
        api.run(remove_and_wait(MACHINE))
    assert api.requests == ["PATCH virtualmachines/m"]
    assert len(api.objects) == 2


def test_a_vm_that_was_there_and_is_gone_at_the_next_attempt_is_removed() -> None:
    api = ApiDouble((REF, a_vm("own")))
    serve = api.serve

    def serve_and_drop(request: Request) -> Reply:
        if request.method == "DELETE":
            api.drop(REF)
        return serve(request)

    api.serve = serve_and_drop  # type: ignore[method-assign]
    api.run(remove_and_wait(MACHINE, ELSEWHERE))
    assert api.objects == {}


def test_without_a_uid_nothing_is_looked_for_that_could_not_be_proven() -> None:
    api = ApiDouble()
    api.run(remove_and_wait(replace(MACHINE, machine_uid="", cluster_uid="", vm_uid="")))
    assert api.requests == ["GET virtualmachines/m"]


OWN = {"metadata": {"annotations": owner_annotations("c-1", "m-1")}}
CLAIM_REF = PVC.ref("own", "ns")


def test_without_recorded_claims_those_are_deleted_that_were_planned() -> None:
    planned = PVC.ref(claim_name("m", "disk-1", "m-1"), "ns")
    api = ApiDouble((planned, OWN))
    api.run(remove_and_wait(replace(MACHINE, claims=())))
    assert api.objects == {}


def test_a_named_volume_goes_without_any_uid_and_nothing_else_of_its_name() -> None:
    bare: dict[str, Any] = {"metadata": {}}
    api = ApiDouble((PVC.ref("data", "ns"), bare), (SECRET_REF, bare))
    without_uid = replace(MACHINE, machine_uid="", cluster_uid="", vm_uid="", claims=())
    api.run(remove_and_wait(replace(without_uid, volumes=("data", "m-cloudinit"))))
    assert list(api.objects) == [SECRET_REF.path]


def test_a_claim_that_is_being_deleted_is_not_deleted_again() -> None:
    going = {"metadata": {**OWN["metadata"], "deletionTimestamp": "2026-01-01T12:00:00Z"}}
    api = ApiDouble((CLAIM_REF, going))
    api.run(remove_and_wait(MACHINE))
    assert not [request for request in api.requests if request.startswith("DELETE")]


@pytest.mark.parametrize(("status", "reason"), [(403, "Forbidden"), (409, "AlreadyExists"), (422, "Invalid")])
def test_a_claim_that_harvester_keeps_stays_and_is_told(status: int, reason: str) -> None:
    api = ApiDouble((CLAIM_REF, OWN), (SECRET_REF, OWN))
    api.answer("DELETE", "own", refusal(status, reason, "another VM uses it"))
    api.run(remove_and_wait(MACHINE))
    assert list(api.objects) == [CLAIM_REF.path]
    assert "PersistentVolumeClaim ns/own stays: another VM uses it" in "\n".join(api.log_lines)


@pytest.mark.parametrize("request_of", [("DELETE", "own"), ("GET", "own")])
def test_an_error_of_the_server_about_what_is_left_is_raised(request_of: tuple[str, str]) -> None:
    api = ApiDouble((CLAIM_REF, OWN))
    api.answer(*request_of, refusal(500, "InternalError", "etcd leader changed"))
    with pytest.raises(KubeError, match="etcd leader changed"):
        api.run(remove_and_wait(MACHINE))


# --- the requests --------------------------------------------------------------------------------------------------


def bodies(api: ApiDouble, method: str, machine: Configuration) -> list[Any]:
    sent: list[Any] = []
    serve = api.serve

    def serve_and_keep(request: Request) -> Reply:
        if request.method == method:
            sent.append(loads(request.body))
        return serve(request)

    api.serve = serve_and_keep  # type: ignore[method-assign]
    api.run(remove_and_wait(machine))
    return sent


def test_a_vm_is_deleted_by_uid_and_after_its_dependents() -> None:
    (options,) = bodies(ApiDouble((REF, a_vm("own"))), "DELETE", MACHINE)
    assert options["preconditions"] == {"uid": "vm-1"}
    assert options["propagationPolicy"] == "Foreground"


def test_an_annotation_with_the_claims_of_others_is_taken_off() -> None:
    api = ApiDouble((REF, a_vm("data", **{REMOVED_CLAIMS: "data"})))
    (patch,) = bodies(api, "PATCH", replace(MACHINE, vm_uid="", claims=()))
    assert patch["metadata"] == {"uid": "vm-1", "annotations": {REMOVED_CLAIMS: None}}


def test_a_vm_that_is_gone_with_the_answer_is_not_watched() -> None:
    gone = ApiDouble((REF, a_vm("own")))
    gone.answer("DELETE", "m", Reply(200, dumps({"kind": "Status", "status": "Success"})))
    gone.run(remove_and_wait(MACHINE))
    stays = ApiDouble((REF, a_vm("own")))
    stays.run(remove_and_wait(MACHINE))
    assert [any("WATCH" in one for one in api.requests) for api in (gone, stays)] == [False, True]
