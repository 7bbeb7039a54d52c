"""Actions: shown first, written with the user's own rights, and not at all where the object is another meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.dashboard.conftest import Browser, Dashboard, a_cluster, add_cluster, add_tenant

from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.clusters.api.names import CANARY, REPLACE_NOW, RETRY_UPDATE
from windrow.dashboard.pages.actions import (
    Step,
    pause,
    remediate,
    restart,
    resume,
    retry,
    scale,
    snapshot,
    upgrade,
)
from windrow.kubernetes.errors import BadRequest

PROD = CLUSTER.ref("prod", "fleet-default")
AT = "/clusters/fleet-default/prod"


@pytest.fixture
async def browser(dashboard: Dashboard) -> Browser:
    await add_cluster(dashboard.api, a_cluster("prod", version="v1.34.7+rke2r1"))
    return await dashboard.signed_in()


async def spec_of(dashboard: Dashboard) -> dict[str, Any]:
    return dict((await dashboard.api.local().get(PROD))["spec"])


async def test_a_preview_says_what_would_change_and_writes_nothing(dashboard: Dashboard, browser: Browser):
    before = await dashboard.api.local().get(PROD)

    page = (await browser.get(f"{AT}/actions/scale?pool=servers&quantity=5")).body.decode()

    assert "Pool servers: from 3 machines to 5." in page
    assert "windrow scale fleet-default/prod servers=5" in page
    assert await dashboard.api.local().get(PROD) == before


@pytest.mark.parametrize(
    ("action", "form", "changed"),
    [
        ("pause", {}, {"paused": True}),
        ("upgrade", {"version": "v1.35.1+rke2r1"}, {"kubernetesVersion": "v1.35.1+rke2r1"}),
    ],
)
async def test_an_action_is_written_after_it_was_confirmed(
    dashboard: Dashboard, browser: Browser, action: str, form: dict[str, str], changed: dict[str, Any]
):
    answer = await browser.post(f"{AT}/actions/{action}", {**form, "csrf": await browser.csrf()})

    assert (answer.status, answer.headers["Location"]) == (303, AT)
    spec = await spec_of(dashboard)
    assert {key: spec[key] for key in changed} == changed


@pytest.mark.parametrize(
    ("action", "key", "command"),
    [
        ("snapshot", "etcdSnapshotCreate", "windrow snapshot create fleet-default/prod"),
        ("restart", "rotateCertificates", "windrow rotate certificates fleet-default/prod"),
    ],
)
async def test_a_request_is_shown_first_and_written_once(
    dashboard: Dashboard, browser: Browser, action: str, key: str, command: str
):
    page = (await browser.get(f"{AT}/actions/{action}")).body.decode()
    assert command in page
    assert 'name="generation" value="1"' in page
    assert key not in (await spec_of(dashboard))["rkeConfig"]

    form = {"generation": "1", "csrf": await browser.csrf()}
    assert (await browser.post(f"{AT}/actions/{action}", {"generation": "1"})).status == 403
    assert (await browser.post(f"{AT}/actions/{action}", form)).status == 303
    again = await browser.post(f"{AT}/actions/{action}", form)  # the form sent twice

    assert (again.status, b"was asked for meanwhile" in again.body) == (400, True)
    assert (await spec_of(dashboard))["rkeConfig"][key] == {"generation": 1}


async def test_a_pool_is_scaled(dashboard: Dashboard, browser: Browser):
    form = {"pool": "servers", "quantity": "5", "csrf": await browser.csrf()}
    await browser.post(f"{AT}/actions/scale", form)

    assert (await spec_of(dashboard))["rkeConfig"]["machinePools"][0]["quantity"] == 5


async def test_who_may_only_look_changes_nothing(dashboard: Dashboard):
    await add_tenant(dashboard.api, "team-a", user="ann", role="windrow-view")
    await add_cluster(dashboard.api, a_cluster("theirs", "team-a"))
    browser = await dashboard.signed_in("ann", ())
    page = (await browser.get("/clusters/team-a/theirs")).body.decode()
    csrf = page.split('name="csrf" value="')[1][:64]

    answer = await browser.post("/clusters/team-a/theirs/actions/pause", {"csrf": csrf})

    assert answer.status == 403
    assert b"cannot patch resource &#34;clusters&#34;" in answer.body
    assert "paused" not in (await dashboard.api.local().get(CLUSTER.ref("theirs", "team-a")))["spec"]


@pytest.mark.parametrize(
    ("action", "query"),
    [
        ("upgrade", "version=1.35"),
        ("upgrade", "version=v1.35.1%2Brke2r1%0A"),
        ("upgrade", "version=%3Cscript%3E"),
        ("scale", "pool=none&quantity=1"),
        ("scale", "pool=servers&quantity=-1"),
        ("scale", "pool=servers&quantity=99999999999999999999"),
        ("scale", "pool=servers&quantity=%D9%A3"),
        ("scale", "pool=servers&quantity=0"),
        ("scale", ""),
    ],
)
async def test_a_form_with_another_value_is_told_so(browser: Browser, action: str, query: str):
    answer = await browser.get(f"{AT}/actions/{action}?{query}")
    if query.endswith("%0A"):  # space around it is taken off
        assert answer.status == 200
    else:
        assert answer.status == 400
        assert b"<script>" not in answer.body


@pytest.mark.parametrize(
    "path", [f"{AT}/actions/delete", "/machines/fleet-default/m/actions/pause", f"{AT}/actions/"]
)
async def test_an_action_that_does_not_exist_is_404(browser: Browser, path: str):
    assert (await browser.get(path)).status == 404
    assert (await browser.post(path, {"csrf": await browser.csrf()})).status == 404


async def test_an_action_without_the_token_of_the_session_writes_nothing(
    dashboard: Dashboard, browser: Browser
):
    assert (await browser.post(f"{AT}/actions/pause", {})).status == 403
    assert "paused" not in await spec_of(dashboard)


async def test_an_action_on_what_has_changed_since_writes_nothing(dashboard: Dashboard, browser: Browser):
    """Between the read and the write of the same request."""
    get = dashboard.api.send_as

    async def change_after_read(request: Any, user: Any) -> Any:
        reply = await get(request, user)
        if request.method == "GET":
            pools = [{"name": "first", "quantity": 1, "etcdRole": True, "controlPlaneRole": True}]
            await dashboard.api.local().patch(PROD, {"spec": {"rkeConfig": {"machinePools": pools}}})
        return reply

    csrf = await browser.csrf()
    dashboard.api.send_as = change_after_read  # type: ignore[method-assign]
    answer = await browser.post(f"{AT}/actions/scale", {"pool": "servers", "quantity": "5", "csrf": csrf})

    assert answer.status in (409, 422)
    assert b"was changed meanwhile" in answer.body
    assert (await spec_of(dashboard))["rkeConfig"]["machinePools"][0]["quantity"] == 1


async def test_a_machine_is_asked_to_be_replaced(dashboard: Dashboard):
    api = dashboard.api.local()
    spec = {
        "clusterName": "prod",
        "clusterUID": "u",
        "pool": "w",
        "roles": ["worker"],
        "options": {},
        "credential": "a:b",
        "version": "v1",
    }
    await api.create(MACHINE, {"metadata": {"name": "m", "namespace": "fleet-default"}, "spec": spec})
    browser = await dashboard.signed_in()

    page = await browser.get("/machines/fleet-default/m/actions/remediate")
    assert b"Its disks are deleted with it" in page.body
    await browser.post("/machines/fleet-default/m/actions/remediate", {"csrf": await browser.csrf()})

    found = await api.get(MACHINE.ref("m", "fleet-default"))
    assert found["metadata"]["annotations"] == {REPLACE_NOW: "true"}


async def test_only_a_change_that_has_failed_can_be_tried_again(dashboard: Dashboard):
    api, failure = dashboard.api.local(), {"step": "Restart", "message": "no answer"}
    browser = await dashboard.signed_in()
    for name, update in (
        ("failed", {"id": "u", "failure": failure}),
        ("goes-on", {"id": "u", "step": "Drain"}),
    ):
        spec = {"clusterName": "prod", "clusterUID": "u", "pool": "w", "roles": ["worker"], "options": {}, "credential": "a:b", "version": "v1"}  # fmt: skip
        await api.create(MACHINE, {"metadata": {"name": name, "namespace": "fleet-default"}, "spec": spec})
        await api.patch(MACHINE.ref(name, "fleet-default"), {"status": {"update": update}}, "status")

        page = (await browser.get(f"/machines/fleet-default/{name}")).body.decode()
        assert ("Try its change again" in page) is (name == "failed")


# --- steps ------------------------------------------------------------------------------------------------------------


def a_raw(**metadata: Any) -> dict[str, Any]:
    return {**a_cluster("prod"), "metadata": {"name": "prod", "namespace": "default", **metadata}}


def test_a_step_fails_where_the_value_is_another_and_names_are_escaped():
    assert Step(("metadata", "annotations", "a/b~c"), "1", "2").as_patch() == [
        {"op": "test", "path": "/metadata/annotations/a~1b~0c", "value": "1"},
        {"op": "add", "path": "/metadata/annotations/a~1b~0c", "value": "2"},
    ]


def test_resuming_takes_the_canary_off_too():
    steps = resume(a_raw(annotations={CANARY: "1"}), {}).steps

    assert [step.as_patch()[-1]["op"] for step in steps] == ["add", "remove"]
    assert len(resume(a_raw(), {}).steps) == 1


def test_an_annotation_is_added_beside_others_or_as_the_first():
    assert remediate(a_raw(), {}).steps[0].path == ("metadata", "annotations")
    assert remediate(a_raw(annotations={"a": "b"}), {}).steps[0].path == (
        "metadata",
        "annotations",
        REPLACE_NOW,
    )


def test_a_request_is_above_all_that_were_carried_out():
    raw = a_raw()
    raw["status"] = {"etcdSnapshotCreate": {"generation": 4}, "certificateRotationGeneration": 6}
    raw["spec"]["rkeConfig"]["rotateCertificates"] = {"generation": 6, "services": ["etcd"]}

    assert snapshot(raw, {}).steps[0].as_patch() == [
        {"op": "add", "path": "/spec/rkeConfig/etcdSnapshotCreate", "value": {"generation": 5}}
    ]
    test, add = restart(raw, {}).steps[0].as_patch()
    assert (test["op"], test["value"]) == ("test", {"generation": 6, "services": ["etcd"]})
    assert add["value"] == {"generation": 7}


def test_a_failed_change_is_tried_again_by_its_annotation():
    change = retry(a_raw(annotations={"a": "b"}), {})

    assert change.steps[0].path == ("metadata", "annotations", RETRY_UPDATE)
    assert change.command == f"kubectl annotate machine.windrow.io prod -n default {RETRY_UPDATE}=true"


def test_no_action_leaves_a_cluster_without_etcd_or_control_plane():
    with pytest.raises(BadRequest, match="no machine for etcd"):
        scale(a_raw(), {"pool": "servers", "quantity": "0"})


def test_a_command_is_quoted_for_the_shell():
    raw = a_raw()
    raw["metadata"]["name"] = "a;rm -rf"

    assert pause(raw, {}).command == "windrow pause 'default/a;rm -rf'"
    assert "'a;rm -rf'" in upgrade(raw, {"version": "v1.35.1+k3s1"}).command


async def test_what_the_plan_refuses_has_no_button_and_is_not_written(dashboard: Dashboard, browser: Browser):
    page = (await browser.get(f"{AT}/actions/upgrade?version=v1.36.1%2Brke2r1")).body.decode()
    assert "no minor may be skipped" in page
    assert "It is refused, so nothing can be written." in page
    assert '<button type="submit">Upgrade' not in page

    form = {"version": "v1.36.1+rke2r1", "csrf": await browser.csrf()}
    answer = await browser.post(f"{AT}/actions/upgrade", form)

    assert (answer.status, b"no minor may be skipped" in answer.body) == (400, True)
    assert (await spec_of(dashboard))["kubernetesVersion"] == "v1.34.7+rke2r1"


async def test_what_was_refused_before_does_not_forbid_another_action(dashboard: Dashboard, browser: Browser):
    await dashboard.api.local().patch(PROD, {"spec": {"kubernetesVersion": "v1.36.1+rke2r1"}})

    for action, form in (("pause", {}), ("upgrade", {"version": "v1.35.1+rke2r1"})):
        answer = await browser.post(f"{AT}/actions/{action}", {**form, "csrf": await browser.csrf()})
        assert answer.status == 303


async def test_an_unknown_release_has_the_warning_of_the_plan_and_its_button(browser: Browser):
    known = (await browser.get(f"{AT}/actions/upgrade?version=v1.35.1%2Brke2r1")).body.decode()
    unknown = (await browser.get(f"{AT}/actions/upgrade?version=v1.35.99%2Brke2r1")).body.decode()

    assert "make sure that this release exists" not in known
    assert "make sure that this release exists" in unknown
    assert '<button type="submit">Upgrade to v1.35.99+rke2r1</button>' in unknown


def test_scaling_is_tied_to_the_pool_that_was_shown():
    """Pools stand in a list: in another order meanwhile, another pool would be scaled."""
    name = ("spec", "rkeConfig", "machinePools", 0, "name")

    assert (
        Step(name, "servers", "servers")
        in scale(a_cluster("prod"), {"pool": "servers", "quantity": "5"}).steps
    )
