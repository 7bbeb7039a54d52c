"""What is counted of the queues, by both controllers in the same way."""

import asyncio

from windrow.cloudprovider.metrics import Metrics

from .rig import run_story
from .services.rig import run_story as run_service_story


def test_a_depth_is_asked_for_at_each_scrape():
    metrics, waiting = Metrics(), []
    metrics.register_queue("service", lambda: len(waiting))
    before = metrics.value("workqueue_depth", name="service")
    waiting += ["web", "api"]

    assert (before, metrics.value("workqueue_depth", name="service")) == (0, 2)


def test_each_failure_of_a_service_is_one_retry_and_one_more_that_waits():
    async def story(world):
        await world.pool()
        world.start()
        await world.settle()
        names = ("workqueue_adds_total", "workqueue_retries_total", "workqueue_depth")
        read = lambda: [world.metrics.value(name, name="service") for name in names]  # noqa: E731
        world.host_cable.breaks += [("POST loadbalancers", "before")] * 2
        before = read()
        await world.serve()
        await world.settle(60)
        return [late - early for early, late in zip(before, read(), strict=True)]

    adds, retries, depth = run_service_story(story)

    assert (retries, depth) == (2, 0)
    # The service itself, two retries, and the few writes that it saw: its finalizer, its address, its balancer.
    assert 3 < adds < 12


def test_a_node_that_waits_already_is_not_counted_again():
    async def story(world):
        metrics = Metrics()
        for number in range(3):
            await world.make_vm(f"w{number}", f"192.168.1.{number}")
            await world.join(f"w{number}", f"192.168.1.{number}")
        world.start(metrics=metrics)
        await asyncio.sleep(30)
        settled = metrics.value("workqueue_adds_total", name="Nodes")
        await asyncio.sleep(3600)
        return settled, metrics.value("workqueue_adds_total", name="Nodes")

    settled, later = run_story(story)

    assert 3 <= settled <= 8
    assert later == settled
