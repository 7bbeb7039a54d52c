"""Broken connections, lost answers, kills between any two writes: nothing leaks, nothing is held twice."""

import asyncio

import pytest

from windrow.cloudprovider import names
from windrow.emulator import kinds
from windrow.harvester.unanswered import LATEST
from windrow.kubernetes.objects import annotations_of, name_of, new_object
from windrow.kubernetes.requests import Reply
from windrow.kubernetes.resources import EVENT, SERVICE

from .rig import CLUSTER, FaultyTransport, ingress, protected, run_story

WEB = SERVICE.ref("web", "default")
WRITES = (
    "guest PATCH services",
    "host POST loadbalancers",
    "host PUT loadbalancers",
    "host DELETE loadbalancers",
    "guest POST events",
)


async def check(world, services):
    """Every service has its address, no other service has one, and both sides say the same."""
    wanted = {}
    for name in services:
        service, balancer = await world.service(name), await world.balancer(name)
        address = balancer["status"]["allocatedAddress"]["ip"]
        assert annotations_of(service)[names.VIP_ADDRESSES] == address
        assert ingress(service) == [address]
        assert balancer["status"]["address"] == address
        assert protected(service)
        wanted[address] = f"default/{name_of(balancer)}"
    assert await world.held() == wanted
    assert len(await world.balancers()) == len(wanted)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("write", WRITES)
def test_a_write_that_breaks_is_made_good(write, side):
    async def story(world):
        await world.pool()
        side_cable = world.host_cable if write.startswith("host") else world.guest_cable
        side_cable.breaks.append((write.partition(" ")[2], side))
        world.start()
        await world.serve("web")
        await world.serve("two")
        await world.settle(30)
        await check(world, ["web", "two"])
        await world.delete("web")
        await world.settle(30)
        await check(world, ["two"])
        return await world.is_gone("web")

    assert run_story(story)


class Dead(Exception):
    """The process was killed."""


class Mortal(FaultyTransport):
    """A way on which the process is killed at the n-th write, before or after it is carried out."""

    fuse = None

    async def send(self, request):
        if request.is_read or self.fuse is None:
            return await super().send(request)
        self.fuse["left"] -= 1
        last = self.fuse["left"] == 0
        if self.fuse["left"] < 0 or (last and self.fuse["side"] == "before"):
            self.fuse["blown"].set()
            await asyncio.Event().wait()
        reply = await super().send(request)
        if last:
            self.fuse["blown"].set()
            await asyncio.Event().wait()
        return reply


async def life(world):
    """Three services come, one of them shares; then two go, and one changes its type."""
    await world.serve("web")
    await world.serve("one", primary="web", ports=(81,))
    await world.serve("two")
    await world.settle(20)
    await world.delete("web")
    await world.delete("one")
    await world.settle(20)
    await world.guest.patch(SERVICE.ref("two", "default"), {"spec": {"type": "ClusterIP"}})
    await world.settle(20)
    await world.annotate(
        "two", addresses=None, **dict.fromkeys(names.VIP_STATUS_KEYS)
    )  # kube-vip is restarted
    await world.settle(20)
    await world.guest.patch(SERVICE.ref("two", "default"), {"spec": {"type": "LoadBalancer"}})
    await world.settle(20)


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 34))
def test_a_kill_at_any_write_is_healed_by_the_next_process(nth, side):
    async def story(world):
        await world.pool()
        fuse = {"left": nth, "side": side, "blown": asyncio.Event()}
        for label in ("guest_cable", "host_cable"):
            cable = getattr(world, label)
            mortal = Mortal(cable.local, cable.label, cable.calls)
            mortal.fuse = fuse
            setattr(world, label, mortal)
        world.start()
        living = asyncio.create_task(life(world))
        await asyncio.wait({living, asyncio.create_task(fuse["blown"].wait())}, return_when="FIRST_COMPLETED")
        assert fuse["blown"].is_set()
        world.guest_cable.fuse = world.host_cable.fuse = None
        await world.restart()
        await living
        await world.settle(60)
        await check(world, ["two"])
        return await world.is_gone("web"), await world.is_gone("one")

    assert run_story(story) == (True, True)


def test_while_harvester_is_down_a_deleted_service_stays_and_says_so_once():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve()
        await world.settle()
        world.host_cable.cut()
        await world.settle(1)
        await world.delete()
        await world.settle(900)
        stays, complaints = not await world.is_gone(), await world.complaints()
        held = await world.held()
        world.host_cable.mend()
        await world.settle(70)
        return stays, complaints, held, await world.is_gone(), await world.held()

    stays, complaints, held, gone, afterwards = run_story(story)
    assert stays
    assert len(complaints) == 1
    assert "failed to delete load balancer: Harvester cannot be reached" in complaints[0]
    assert len(held) == 1
    assert gone
    assert afterwards == {}


@pytest.mark.parametrize("away_s", [20, 600])
def test_two_seconds_after_harvester_is_back_services_that_came_and_went_are_served(away_s):
    async def story(world):
        await world.pool(last=20)
        world.start()
        await world.serve("old")
        await world.settle()
        world.host_cable.cut()
        for number in range(5):
            await world.serve(f"web-{number}")
        await world.delete("old")
        await world.settle(away_s)
        world.host_cable.mend()
        await world.settle(2)
        return [bool(await world.address(f"web-{number}")) for number in range(5)], await world.is_gone("old")

    assert run_story(story) == ([True] * 5, True)


def test_the_finalizer_stays_as_long_as_the_load_balancer_does():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve()
        await world.settle()
        ref = kinds.LOAD_BALANCER.ref(name_of(await world.balancer()), "default")
        stuck = [*(await world.balancer())["metadata"]["finalizers"], "acme.io/stuck"]
        await world.harvester.patch(ref, {"metadata": {"finalizers": stuck}})
        await world.delete()
        await world.settle(200)
        stays, complaints = protected(await world.service()), await world.complaints()
        await world.harvester.patch(ref, {"metadata": {"finalizers": None}})
        await world.settle()
        return stays, complaints, await world.is_gone()

    stays, complaints, gone = run_story(story)
    assert stays
    assert len(complaints) == 1
    assert "held by" in complaints[0]
    assert "acme.io/stuck" in complaints[0]
    assert gone


def test_the_finalizer_stays_although_the_watch_has_not_told_of_the_load_balancer_yet():
    async def story(world):
        await world.pool()
        world.start()
        await world.settle()
        world.host_cable.hold_news()
        world.host_cable.breaks.append(("POST loadbalancers", "after"))
        await world.serve()
        await world.settle(1)
        await world.delete()
        for _ in range(200):
            await asyncio.sleep(0.1)
            assert not await world.is_gone() or not await world.balancers()
        world.host_cable.flows.set()
        await world.settle(10)
        assert await world.balancers() == {}
        await world.settle(LATEST.total_seconds())  # since a request had no answer
        return await world.is_gone(), await world.balancers()

    assert run_story(story) == (True, {})


def test_the_load_balancer_of_another_service_is_not_deleted_on_old_news_of_it():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve()
        await world.settle()
        ours = await world.balancer()
        ref = kinds.LOAD_BALANCER.ref(name_of(ours), "default")
        world.host_cable.hold_news()
        await world.harvester.delete(ref)
        await world.settle(1)
        theirs = new_object(kinds.LOAD_BALANCER, ref.name, "default", spec=ours["spec"])
        await world.harvester.create(kinds.LOAD_BALANCER, theirs)
        await world.delete()
        await world.settle(10)
        world.host_cable.flows.set()
        await world.settle(10)
        return await world.is_gone(), ref.name in await world.balancers()

    assert run_story(story) == (True, True)


def test_a_load_balancer_is_not_deleted_on_old_news_of_its_service():
    async def story(world):
        await world.pool(last=10)
        world.start()
        await world.serve("first")
        await world.settle()
        await world.serve()
        await world.settle()
        before = await world.balancer()
        world.host_cable.cut()
        await world.settle(1)
        await world.guest.patch(WEB, {"spec": {"type": "ClusterIP"}})
        await world.settle(1)
        world.guest_cable.hold_news()
        await world.guest.patch(WEB, {"spec": {"type": "LoadBalancer"}})
        world.host_cable.mend()
        await world.settle(100)
        after = await world.balancer()
        return after["metadata"]["uid"] == before["metadata"]["uid"], "deletionTimestamp" in after["metadata"]

    assert run_story(story) == (True, False)


def test_a_service_that_is_deleted_before_its_address_came_leaks_nothing():
    async def story(world):
        await world.pool()
        world.start()
        await world.settle()
        await world.serve()
        await asyncio.sleep(0.05)
        await world.delete()
        await world.settle()
        return await world.is_gone(), await world.balancers(), await world.held()

    assert run_story(story) == (True, {}, {})


def test_a_harvester_that_is_slow_to_list_is_waited_for_in_silence():
    async def story(world):
        await world.pool()
        world.host_cable.lists_in_s = 20
        world.start()
        await world.serve()
        await world.settle(30)
        return await world.address(), await world.complaints()

    assert run_story(story) == ("10.1.0.10", [])


def test_a_watch_that_says_nothing_for_long_makes_no_flood_of_conflicts():
    async def story(world):
        await world.pool(last=10)
        world.start()
        await world.serve("first")
        await world.settle()
        await world.serve()
        await world.settle()
        world.guest_cable.hold_news()
        await world.annotate(colour="blue")
        await world.widen(20)
        world.calls.clear()
        await world.settle(600)
        conflicts = world.calls["guest PATCH services"]
        world.guest_cable.flows.set()
        await world.settle(300)
        return conflicts, await world.address()

    conflicts, address = run_story(story)
    assert 5 <= conflicts <= 20
    assert address == "10.1.0.11"


def test_a_moment_without_harvester_is_no_news():
    async def story(world):
        await world.pool()
        world.start()
        await world.settle()
        world.host_cable.cut()
        await world.settle(0.1)
        await world.serve()
        await world.settle(1)
        world.host_cable.mend()
        await world.settle(10)
        return await world.complaints(), await world.address()

    assert run_story(story) == ([], "10.1.0.10")


def test_a_server_that_says_no_for_ever_is_asked_less_and_less_and_told_of_once():
    async def story(world):
        async def deny(operation):
            if operation.kind == kinds.LOAD_BALANCER and operation.verb == "create":
                from windrow.kubernetes.errors import AdmissionDenied

                raise AdmissionDenied('admission webhook "acme" denied the request: not today', status=500)

        await world.pool()
        world.host_api.admission.append(deny)
        world.start()
        await world.serve()
        await world.settle(3600)
        return world.calls, await world.complaints()

    calls, complaints = run_story(story)
    posts = calls["host POST loadbalancers"]
    assert 10 <= posts <= 20  # 5 s, 10 s, … 300 s
    assert len(complaints) == 1
    assert "not today" in complaints[0]
    assert calls["guest POST events"] + calls["guest PATCH events"] == 2  # and again after 50 minutes


def test_one_service_that_cannot_go_on_holds_up_no_other():
    async def story(world):
        await world.pool(last=40)
        world.start(service_workers=1)
        for number in range(5):
            await world.serve(f"stuck-{number}", pool="nowhere")
        await world.serve("web")
        begun = world.seconds
        await world.until(world.address, 5)
        return world.seconds - begun

    assert run_story(story) < 1


def test_a_hundred_services_have_their_addresses_within_a_second():
    async def story(world):
        await world.pool(last=200)
        world.start()
        await world.settle()
        begun = world.seconds
        world.calls.clear()
        for number in range(100):
            await world.serve(f"web-{number}")

        async def all_have():
            return all([await world.address(f"web-{number}") for number in range(100)])

        await world.until(all_have, 10)
        took = world.seconds - begun
        await world.settle(20)
        return took, {key: count for key, count in world.calls.items() if key.startswith("host")}

    took, calls = run_story(story)
    assert took < 1
    assert calls["host POST loadbalancers"] == 100
    assert sum(calls.values()) <= 200


def test_old_harvesters_that_mutate_and_refuse_less_work_as_well():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve()
        await world.settle()
        await check(world, ["web"])
        world.calls.clear()
        await world.restart()
        await world.settle(30)
        return world.writes()

    assert run_story(story, version="v1.5.0") == {}


def test_the_watch_of_harvester_that_breaks_misses_nothing():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve()
        await asyncio.sleep(0.03)
        world.host_cable.break_watches()
        await world.settle(10)
        await check(world, ["web"])
        return True

    assert run_story(story)


def test_a_throttling_harvester_is_obeyed():
    async def story(world):
        await world.pool()
        world.start()
        await world.settle()
        body = b'{"kind":"Status","status":"Failure","reason":"TooManyRequests","message":"slow down","code":429}'
        world.host_cable.refusal = Reply(429, body, headers={"Retry-After": "60"})
        await world.serve()
        await world.settle(50)
        world.host_cable.mend()
        before = await world.address()
        await world.settle(30)
        return before, await world.address()

    assert run_story(story) == ("", "10.1.0.10")


def test_the_cluster_is_called_the_same_on_both_sides():
    async def story(world):
        await world.pool()
        world.start(management_network="default/mgmt")
        await world.serve(**{names.PROJECT: "c-1/p-1", names.NAMESPACE: "somewhere"})
        await world.settle()
        return annotations_of(await world.balancer())

    said = run_story(story)
    assert said[names.LB_CLUSTER] == CLUSTER
    assert said[names.MANAGEMENT_NETWORK] == "default/mgmt"
    assert said[names.FIXED_NETWORK] == ""


def test_a_leftover_that_cannot_be_deleted_makes_no_flood_of_events():
    async def story(world):
        await world.pool(last=19)
        world.start()
        await world.serve("web")
        await world.settle()
        world.host_cable.denies = "DELETE loadbalancers"
        await world.guest.patch(WEB, {"metadata": {"finalizers": None}})
        await world.delete("web")
        await world.serve("web")
        await world.settle(600)
        await world.guest.patch(WEB, {"spec": {"loadBalancerIP": "10.1.0.19"}})
        await world.settle(6 * 3600)
        found = [raw for raw in await world.guest.list(EVENT) if raw["involvedObject"]["name"] == "web"]
        return {raw["reason"]: raw.get("count") for raw in found}

    counts = run_story(story)

    assert counts["AddressNotAsRequested"] == 1
    assert 1 < counts["SyncLoadBalancerFailed"] < 12  # told again before it expires


def test_a_load_balancer_that_loses_its_status_for_a_moment_costs_no_service_its_address():
    async def story(world):
        await world.pool()
        world.start()
        await world.serve("web")
        await world.serve("one", primary="web", ports=(81,))
        await world.settle()
        before = [await world.service(name) for name in ("web", "one")]
        world.writes()
        ref = kinds.LOAD_BALANCER.ref(name_of(await world.balancer("web")), "default")
        await world.harvester.patch(ref, {"status": None})
        await world.settle(30)
        await check(world, ["web"])
        after = [await world.service(name) for name in ("web", "one")]
        return before, after, {key for key in world.writes() if key.startswith("guest")}

    before, after, guest_writes = run_story(story)

    assert after == before
    assert guest_writes == set()


def test_a_service_loses_no_address_because_the_news_of_its_load_balancer_is_late():
    async def story(world):
        await world.pool()
        world.start()
        await world.settle(3)
        world.host_cable.lag_s = 30
        await world.serve("web")
        await world.until(world.address)
        await world.settle(6)
        await world.annotate("web", ipam="nonsense")
        shown = []
        for _ in range(60):
            await world.settle(1)
            shown.append(await world.address())
        return set(shown), await world.complaints()

    shown, complaints = run_story(story)

    assert shown == {"10.1.0.10"}
    assert "nonsense" in complaints[-1]
