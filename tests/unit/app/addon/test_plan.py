"""What is created, replaced and deleted on Harvester for an addon account, without any I/O."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from windrow.app.addon.account import AddonAccount, list_tokens
from windrow.app.addon.plan import (
    Action,
    AddonRefused,
    AddonState,
    Create,
    Delete,
    Mark,
    list_obstacles,
    plan_deletion,
    plan_grant,
    plan_revocation,
)
from windrow.harvester.names import CLUSTER_UID
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.patches import apply_merge_patch
from windrow.kubernetes.resources import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    ObjectRef,
    ref_of,
)

NARROW, WIDE = AddonAccount("demo", "vms"), AddonAccount("demo", "vms", cluster_wide=True)
CSI_ONLY = AddonAccount("demo", "vms", csi_driver_only=True)


class Harvester:
    """The objects, as plans are carried out on them."""

    def __init__(self, *raws: Raw) -> None:
        self.objects: dict[ObjectRef, Raw] = {}
        self.made = 0
        for raw in raws:
            kind = {"ServiceAccount": SERVICE_ACCOUNT, "Secret": SECRET}.get(
                raw["kind"], CLUSTER_ROLE_BINDING
            )
            self.add(ref_of(kind, raw), raw)

    def add(self, ref: ObjectRef, raw: Raw) -> None:
        self.made += 1
        self.objects[ref] = copy.deepcopy(raw)
        self.objects[ref]["metadata"]["uid"] = f"uid-{self.made}"
        if ref.kind == SECRET:
            self.objects[ref]["data"] = {"token": "dA=="}

    def state(self, account: AddonAccount, **rest: Any) -> AddonState:
        secrets = [raw for ref, raw in self.objects.items() if ref.kind == SECRET]
        tokens = tuple(list_tokens(account, secrets))
        taken = {token.ref for token in tokens}
        names = (*account.refs, account.token(1))
        found = {ref: self.objects[ref] for ref in names if ref in self.objects and ref not in taken}
        return AddonState(
            **{"namespace_exists": True, "server": "s", "found": found, "tokens": tokens, **rest}
        )

    def execute(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Create():
                    assert action.ref not in self.objects
                    self.add(action.ref, action.raw)
                case Mark():
                    self.objects[action.ref] = apply_merge_patch(self.objects[action.ref], action.change)
                case Delete():
                    assert self.objects.pop(action.ref)["metadata"]["uid"] == action.uid

    def grant(self, account: AddonAccount, *, rotate: bool = False) -> None:
        self.execute(plan_grant(account, self.state(account), rotate=rotate))

    def rights(self) -> dict[ObjectRef, tuple[Any, ...]]:
        return {
            ref: tuple(raw.get(field) for field in ("type", "rules", "roleRef", "subjects"))
            for ref, raw in self.objects.items()
        }


def granted(account: AddonAccount) -> Harvester:
    harvester = Harvester()
    harvester.grant(account)
    return harvester


@pytest.mark.parametrize("account", [NARROW, WIDE, CSI_ONLY])
def test_a_whole_account_needs_nothing(account: AddonAccount):
    harvester = granted(account)

    assert plan_grant(account, harvester.state(account)) == []
    assert list_obstacles(account, harvester.state(account), adopt=False) == []


@pytest.mark.parametrize("before", [None, NARROW, WIDE, CSI_ONLY])
@pytest.mark.parametrize("after", [NARROW, WIDE, CSI_ONLY])
def test_wherever_a_run_ends_the_next_one_completes_it(before: AddonAccount | None, after: AddonAccount):
    start = granted(before) if before else Harvester()
    actions = plan_grant(after, start.state(after))

    for done in range(len(actions) + 1):
        harvester = copy.deepcopy(start)
        harvester.execute(actions[:done])
        harvester.grant(after)
        assert harvester.rights() == granted(after).rights()


@pytest.mark.parametrize("account", [NARROW, WIDE, CSI_ONLY])
def test_wherever_a_deletion_ends_the_next_one_completes_it(account: AddonAccount):
    start = granted(account)
    start.grant(account, rotate=True)
    actions = plan_deletion(account, start.state(account))

    assert [action.ref.kind for action in actions if isinstance(action, Delete)][:2] == [SECRET, SECRET]
    assert actions[-1] == Delete(account.account, "uid-1", "the account is deleted")
    for done in range(len(actions) + 1):
        harvester = copy.deepcopy(start)
        harvester.execute(actions[:done])
        harvester.execute(plan_deletion(account, harvester.state(account)))
        assert harvester.objects == {}


def test_rotation_adds_one_token_and_revocation_leaves_the_newest():
    harvester = granted(NARROW)

    for serial in (2, 3, 4):
        harvester.grant(NARROW, rotate=True)
        assert plan_grant(NARROW, harvester.state(NARROW), rotate=True) == [], "one at a time"
        harvester.execute(plan_revocation(NARROW, harvester.state(NARROW)))
        assert [token.serial for token in harvester.state(NARROW).tokens] == [serial]


def test_no_token_is_revoked_for_one_that_was_never_handed_out():
    harvester = granted(NARROW)
    harvester.grant(NARROW, rotate=True)
    del harvester.objects[NARROW.token(2)]["data"]

    with pytest.raises(AddonRefused, match="has no token yet"):
        plan_revocation(NARROW, harvester.state(NARROW))


def test_the_tenth_token_is_newer_than_the_ninth():
    secrets = [NARROW.render_token(serial)[1] for serial in (10, 9, 2)]

    assert [token.serial for token in list_tokens(NARROW, secrets)] == [2, 9, 10]


def of(account: AddonAccount, kind: str) -> Raw:
    return next(raw for _, raw in account.render_objects() if raw["kind"] == kind)


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (new_object(SERVICE_ACCOUNT, "demo", "vms"), "--adopt"),
        (new_object(SERVICE_ACCOUNT, "demo", "vms", annotations={CLUSTER_UID: "u"}), "that Windrow manages"),
        (new_object(SECRET, "demo-token", "vms", type="Opaque"), "is no token of ServiceAccount vms/demo"),
        (of(NARROW, "ServiceAccount") | {"metadata": {}}, "is being deleted"),
        # Both bindings are called vms-demo-x.
        (of(AddonAccount("x", "vms-demo"), "ClusterRoleBinding"), "belongs to the addon account vms-demo/x"),
    ],
)
def test_what_is_not_the_accounts_is_left_alone(raw: Raw, words: str):
    account = AddonAccount("demo-x", "vms") if "vms-demo/x" in words else NARROW
    if not raw["metadata"]:
        raw = of(NARROW, "ServiceAccount")
        raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    state = Harvester(raw).state(account)

    (obstacle,) = list_obstacles(account, state, adopt=False)

    assert words in str(obstacle)
    assert plan_deletion(account, state) == [] or "deleted" in words


def test_a_scripts_objects_may_be_adopted_and_others_may_not():
    script = Harvester(new_object(SERVICE_ACCOUNT, "demo", "vms"))
    cluster = Harvester(new_object(SERVICE_ACCOUNT, "demo", "vms", annotations={CLUSTER_UID: "u"}))

    assert list_obstacles(NARROW, script.state(NARROW), adopt=True) == []
    assert list_obstacles(NARROW, cluster.state(NARROW), adopt=True) != []

    script.grant(NARROW)
    assert plan_grant(NARROW, script.state(NARROW)) == []
    assert script.rights() == granted(NARROW).rights()


def test_a_cluster_role_that_no_script_creates_is_never_adopted():
    role = new_object(CLUSTER_ROLE, "vms-demo", rules=[])
    harvester = Harvester(new_object(SERVICE_ACCOUNT, "demo", "vms"))
    harvester.add(NARROW.cluster_role, role)

    (obstacle,) = list_obstacles(NARROW, harvester.state(NARROW), adopt=True)

    assert "ClusterRole vms-demo exists and is not that of ServiceAccount vms/demo" in str(obstacle)


@pytest.mark.parametrize("adopt", [True, False])
def test_a_role_of_another_under_the_account_s_name_is_not_taken(adopt: bool):
    """It may be bound to others, whose rights would change."""
    harvester = granted(CSI_ONLY)
    harvester.objects[CSI_ONLY.csi_role]["metadata"] = {"name": "vms-demo-csi", "namespace": "vms"}

    obstacles = list_obstacles(CSI_ONLY, harvester.state(CSI_ONLY), adopt=adopt)

    assert [one.message for one in obstacles] == [
        "Role vms/vms-demo-csi exists and is not that of ServiceAccount vms/demo"
    ]


def test_all_obstacles_are_told_at_once():
    state = Harvester(new_object(SERVICE_ACCOUNT, "demo", "vms")).state(NARROW, server="")

    assert len(list_obstacles(NARROW, state, adopt=False)) == 2


def test_nothing_shows_a_token():
    harvester = granted(NARROW)
    harvester.objects[NARROW.token(1)]["data"] = {"token": "hunter2"}

    assert "hunter2" not in repr(harvester.state(NARROW).tokens)
