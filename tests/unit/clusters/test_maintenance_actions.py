"""What is written for machines whose host is in maintenance: on the Machine, and on its Node."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.clusters.builders import NOON
from tests.unit.clusters.test_machine_execution import REF, Site, on_a_site

from windrow.clusters.api.names import CORDONED
from windrow.clusters.api.updates.maintenance import RecordedMaintenance, read_maintenance
from windrow.clusters.context import StalePlan
from windrow.clusters.execute.maintenance_actions import MaintenanceActions
from windrow.clusters.plan.actions import CordonNode, EndMaintenance, RecordHostBack, RecordMaintenance
from windrow.clusters.state import ClusterState, read_node
from windrow.kubernetes.objects import nested, new_object
from windrow.kubernetes.resources import NODE

RECORD = RecordedMaintenance("host-1", "maintenance mode", NOON, "it cannot be migrated", cordoned=True)
BEGIN, CORDON = RecordMaintenance("its host is cordoned", "s1", RECORD), CordonNode("its VM goes", "s1", "s1")
END = EndMaintenance("its host is back", "s1", "s1", uncordons=True)


def actions_of(site: Site) -> MaintenanceActions:
    guests: Any = SimpleNamespace(find=lambda uid: site.guest)
    return MaintenanceActions(site.actions._context, guests)


async def with_node(site: Site) -> ClusterState:
    """The state with the Node as it is now."""
    state = await site.look()
    (machine,) = state.machines
    node = read_node(await site.guest_api.get(NODE.ref("s1")))
    return replace(state, machines=(replace(machine, node=node),))


async def is_cordoned(site: Site) -> bool:
    return nested(await site.guest_api.get(NODE.ref("s1")), "spec", "unschedulable") is True


def test_the_record_is_there_until_the_node_is_uncordoned_and_both_may_be_repeated() -> None:
    async def story(site: Site) -> None:
        await site.guest_api.create(NODE, new_object(NODE, "s1", ""))
        actions = actions_of(site)
        await actions.execute(BEGIN, await with_node(site))
        assert read_maintenance(await site.status()) == RECORD
        await site.actions.cordon_node(CORDON, await with_node(site))
        assert await is_cordoned(site)
        back = replace(RECORD, ended=NOON)
        await actions.execute(RecordHostBack("its host is back", "s1", back), await with_node(site))
        assert read_maintenance(await site.status()) == back
        await actions.execute(END, await with_node(site))
        await actions.execute(END, await with_node(site))
        assert not await is_cordoned(site)
        assert "hostMaintenance" not in await site.status()

    on_a_site(story)


def test_a_node_that_was_not_cordoned_for_it_stays_as_it_is() -> None:
    async def story(site: Site) -> None:
        await site.guest_api.create(NODE, new_object(NODE, "s1", "", spec={"unschedulable": True}))
        await actions_of(site).execute(replace(END, uncordons=False), await with_node(site))
        assert await is_cordoned(site)

    on_a_site(story)


def test_of_two_managers_that_see_the_same_one_records_it() -> None:
    async def story(site: Site) -> None:
        await site.guest_api.create(NODE, new_object(NODE, "s1", ""))
        seen = await with_node(site)
        await actions_of(site).execute(BEGIN, seen)
        other = replace(RECORD, because="another reason")
        with pytest.raises(StalePlan):
            await actions_of(site).execute(replace(BEGIN, maintenance=other), seen)
        assert read_maintenance(await site.status()) == RECORD

    on_a_site(story)


def test_a_cordon_that_arrives_when_all_is_over_is_refused() -> None:
    async def story(site: Site) -> None:
        await site.guest_api.create(NODE, new_object(NODE, "s1", ""))
        stalled = await with_node(site)
        await site.actions.cordon_node(CORDON, stalled)
        await actions_of(site).execute(END, await with_node(site))
        with pytest.raises(StalePlan):
            await site.actions.cordon_node(CORDON, stalled)
        assert not await is_cordoned(site)

    on_a_site(story)


def test_a_node_that_was_changed_meanwhile_is_uncordoned_by_the_next_attempt() -> None:
    async def story(site: Site) -> None:
        await site.guest_api.create(NODE, new_object(NODE, "s1", ""))
        await actions_of(site).execute(BEGIN, await with_node(site))
        await site.actions.cordon_node(CORDON, await with_node(site))
        seen = await with_node(site)
        await site.guest_api.patch(NODE.ref("s1"), {"metadata": {"labels": {"a": "b"}}})
        with pytest.raises(StalePlan):
            await actions_of(site).execute(END, seen)
        assert read_maintenance(await site.status()) == RECORD  # so it is tried again
        await actions_of(site).execute(END, await with_node(site))
        assert not await is_cordoned(site)
        assert nested(await site.management.get(REF), "status", "hostMaintenance") is None

    on_a_site(story)


def test_a_node_that_a_person_has_cordoned_meanwhile_is_not_uncordoned() -> None:
    """Red before: the record says that the Node was schedulable, and a person has cordoned it before the manager did."""

    async def story(site: Site) -> None:
        await site.guest_api.create(NODE, new_object(NODE, "s1", ""))
        await actions_of(site).execute(BEGIN, await with_node(site))
        await site.guest_api.patch(NODE.ref("s1"), {"spec": {"unschedulable": True}})
        await site.actions.cordon_node(CORDON, await with_node(site))
        await actions_of(site).execute(END, await with_node(site))
        assert await is_cordoned(site)
        assert "hostMaintenance" not in await site.status()

    on_a_site(story)


def test_a_node_whose_mark_a_person_has_removed_stays_cordoned() -> None:
    async def story(site: Site) -> None:
        await site.guest_api.create(NODE, new_object(NODE, "s1", ""))
        await actions_of(site).execute(BEGIN, await with_node(site))
        await site.actions.cordon_node(CORDON, await with_node(site))
        await site.guest_api.patch(NODE.ref("s1"), {"metadata": {"annotations": {CORDONED: None}}})
        await actions_of(site).execute(END, await with_node(site))
        assert await is_cordoned(site)

    on_a_site(story)
