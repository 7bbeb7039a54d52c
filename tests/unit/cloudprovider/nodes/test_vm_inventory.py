import asyncio
from datetime import timedelta

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.client.client import Client
from windrow.cloudprovider.nodes.vms import VmInventory
from windrow.core.clock import sleep
from windrow.core.formats.json import dumps
from windrow.kubernetes.errors import Unreachable
from windrow.kubernetes.requests import Reply


class Harvester:
    """Answers lists of VMs, after a second."""

    def __init__(self, *uids):
        self.uids, self.lists, self.fails = list(uids), 0, False

    async def send(self, request):
        self.lists += 1
        found = [{"metadata": {"name": uid, "uid": uid}} for uid in self.uids]
        await asyncio.sleep(1)
        if self.fails:
            raise Unreachable("no answer")
        return Reply(200, dumps({"items": found, "metadata": {"resourceVersion": "1"}}))


def ask(harvester, story):
    async def whole():
        clock = LoopClock()
        return await story(VmInventory(Client(harvester), "default", clock), clock)

    return run_driven(whole())


@pytest.mark.parametrize(
    ("uids", "wanted"),
    [
        (["b"], True),
        (["a", "b"], False),
        (["foreign"], False),  # not our namespace
        ([], False),
    ],
)
def test_a_vm_is_gone_when_a_list_with_another_of_ours_lacks_it(uids, wanted):
    async def story(roll, clock):
        return await roll.is_missing("a", ["a", "b"])

    assert ask(Harvester(*uids), story) is wanted


def test_those_who_ask_at_the_same_moment_share_a_list():
    harvester = Harvester("z")

    async def story(roll, clock):
        return await asyncio.gather(*(roll.is_missing(uid, ["a", "b", "c", "z"]) for uid in "abc"))

    assert ask(harvester, story) == [True, True, True]
    assert harvester.lists == 1


def test_a_vm_that_a_list_still_held_is_asked_for_anew():
    harvester = Harvester("a", "z")

    async def story(roll, clock):
        before = await roll.is_missing("a", ["a", "z"])
        harvester.uids.remove("a")
        return before, await roll.is_missing("a", ["a", "z"])

    assert ask(harvester, story) == (False, True)


def test_an_old_list_proves_nothing():
    harvester = Harvester("z")

    async def story(roll, clock):
        await roll.is_missing("a", ["z"])
        harvester.uids = []
        await sleep(clock, timedelta(minutes=1))
        return await roll.is_missing("b", ["z"])

    assert ask(harvester, story) is False


def test_a_list_that_fails_proves_nothing():
    harvester = Harvester("z")

    async def story(roll, clock):
        harvester.fails = True
        with pytest.raises(Unreachable):
            await roll.is_missing("a", ["z"])
        harvester.fails = False
        return await roll.is_missing("a", ["z"])

    assert ask(harvester, story) is True
