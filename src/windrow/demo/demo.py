"""`windrow demo`: an embedded Harvester, a manager, a manifest; losses and repairs in front of the user.

Everything runs in one process, but over the same sockets, certificates and credentials as in a rack: the manager
and the demo's own questions go through TLS and the rack's proxy. Only the emulator's delays are scaled by `speed`.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from windrow.app.clock import SystemClock
from windrow.app.driver_file import require_harvester_driver
from windrow.app.embedded import EmbeddedHarvester, EmbeddedManager, embedded_harvester, embedded_manager
from windrow.app.machines import PluginSettings
from windrow.app.network import HttpConnector
from windrow.app.pki import write_private
from windrow.app.preload import Preload, credential_secrets, read_preload
from windrow.app.waiting import WaitTimedOut, wait_for
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG, MACHINE
from windrow.clusters.api.rancher_import import strip_server_fields
from windrow.core.json import pretty
from windrow.core.rng import Rng
from windrow.demo.cluster import DemoCluster
from windrow.demo.manifests import read_documents, shipped
from windrow.demo.options import DemoOptions
from windrow.demo.options import DemoOutput as Output
from windrow.demo.report import Report, TimelineEntry, wrap_text
from windrow.demo.scenarios import plan_scenarios, run_scenario
from windrow.demo.service_scenarios import address_of, find_service
from windrow.demo.timeline import describe_event
from windrow.emulator.kit.inventory import inventory
from windrow.kubernetes.errors import AlreadyExists
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested
from windrow.kubernetes.resources import EVENT, NAMESPACE, SECRET, ApiResource
from windrow.machines.plugin.machines import PollIntervals

KINDS: tuple[ApiResource, ...] = (NAMESPACE, SECRET, HARVESTER_CONFIG, CLUSTER)


@dataclass(frozen=True)
class Demo:
    """The parts of a running demo."""

    embedded: EmbeddedHarvester
    manager_process: EmbeddedManager
    harvester: Client
    manager: Client
    connector: HttpConnector
    report: Report
    output: Output
    clock: SystemClock
    timeout: timedelta
    driver: Path | None = None

    def cluster(self, cluster: Mapping[str, Any]) -> DemoCluster:
        return DemoCluster(
            namespace_of(cluster),
            name_of(cluster),
            self.harvester,
            self.manager,
            self.connector.connect,
            self.clock,
            self.report,
            self.timeout,
        )


async def run(options: DemoOptions, out: Output) -> int:
    """Play the demo; 0 only when every check held."""
    documents = _documents(options, out)
    if options.driver is not None:
        await require_harvester_driver(options.driver, options.env, SystemClock())
    with tempfile.TemporaryDirectory(prefix="windrow-") as scratch:
        state = options.state_dir or Path(scratch)
        state.mkdir(parents=True, exist_ok=True)
        return await _run(options, out, documents, state)


def _documents(options: DemoOptions, out: Output) -> list[Raw]:
    documents, notes = strip_server_fields(options.documents or read_documents(shipped()))
    for note in notes:
        _print_wrapped(out, note, indent=2)
    return documents


def _clusters(documents: list[Raw]) -> list[Raw]:
    return [document for document in documents if document["kind"] == "Cluster"]


def _print_wrapped(out: Output, text: str, indent: int) -> None:
    for line in wrap_text(text, indent):
        out.print_line(line)


async def _run(options: DemoOptions, out: Output, documents: list[Raw], state: Path) -> int:
    clock = SystemClock()
    report = Report(
        clock,
        lambda told: out.timeline_entry(told) if isinstance(told, TimelineEntry) else out.check_record(told),
    )
    async with _start(options, out, documents, state, clock, report) as demo:
        await _print_start(demo, read_preload(documents))
        before = await inventory(demo.embedded.harvester.api)
        async with asyncio.TaskGroup() as group:
            views = [group.create_task(_update_display(demo)), group.create_task(_record_events(demo))]
            try:
                await _run_scenarios(demo, documents, keep=options.keep)
                if not options.keep:
                    await _delete(demo, documents, before)
            finally:
                for view in views:
                    view.cancel()
        report.calls.update(demo.manager_process.request_counts)
        _print_summary(options, report, out)
        if options.keep:
            await _keep_running(demo, documents)
    return 0 if report.passed else 1


# Plugins have to be asked; in a demo's time, where a minute is a few seconds, as often as a rack is in its own.
POLL_INTERVALS = PollIntervals(
    transitional=timedelta(seconds=1),
    steady=timedelta(seconds=2),
    unknown=timedelta(seconds=1),
)


def _plugin_host(options: DemoOptions, state: Path) -> PluginSettings:
    return PluginSettings(state, options.env, options.driver, poll_intervals=POLL_INTERVALS)


@asynccontextmanager
async def _start(
    options: DemoOptions, out: Output, documents: list[Raw], state: Path, clock: SystemClock, report: Report
) -> AsyncIterator[Demo]:
    stock = read_preload(documents)
    async with (
        HttpConnector(clock) as sockets,
        embedded_harvester(state, stock, clock, Rng(), time_scale=options.time_scale) as emulated,
        embedded_manager(
            state, clock, Rng(), sockets.connect, plugins=_plugin_host(options, state)
        ) as managed,
    ):
        yield Demo(
            emulated,
            managed,
            Client(sockets.connect(emulated.access)),
            Client(sockets.connect(managed.access)),
            sockets,
            report,
            out,
            clock,
            timedelta(seconds=60 + 1200 / options.time_scale),
            options.driver,
        )


async def _print_start(demo: Demo, stock: Preload) -> None:
    demo.report.add(f"an embedded Harvester {demo.embedded.version} answers at {demo.embedded.access.server}")
    for line in stock.lines():
        _print_wrapped(demo.output, f"  put on its shelves, since the manifest names them: {line}", indent=4)
    if demo.driver is not None:
        demo.report.add(f"machines are made by the docker-machine plugin {demo.driver}")
    demo.report.add(f"the cluster manager answers at {demo.manager_process.access.server}")


async def _run_scenarios(demo: Demo, documents: list[Raw], *, keep: bool) -> None:
    await _apply(demo, documents)
    for cluster in _clusters(documents):
        stage = demo.cluster(cluster)
        if not await _wait_until_ready(stage):
            continue
        for act in plan_scenarios(await stage.list_pools(), keep=keep):
            await run_scenario(stage, act)


async def _apply(demo: Demo, documents: list[Raw]) -> None:
    stock = read_preload(documents)
    secrets = credential_secrets(stock, demo.embedded.kubeconfig)
    namespaces = sorted({namespace_of(raw) for raw in documents + secrets} - {""})
    spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in namespaces]
    for raw in [*spaces, *secrets, *documents]:
        kind = next((kind for kind in KINDS if kind.kind == raw["kind"]), None)
        if kind is None:
            _print_wrapped(
                demo.output,
                f"left out: {raw['kind']} {name_of(raw)}, which the demo has no use for",
                indent=2,
            )
            continue
        try:
            await demo.manager.create(kind, raw)
        except AlreadyExists:
            continue
        if kind in (CLUSTER, HARVESTER_CONFIG):
            demo.report.add(f"{raw['kind']} {namespace_of(raw)}/{name_of(raw)} is applied")


async def _wait_until_ready(stage: DemoCluster) -> bool:
    started = stage.clock.now()
    try:
        await stage.wait_for_settled()
    except WaitTimedOut as error:
        waits = nested(await stage.get_cluster(), "status", "waiting", "for", default="nothing that it names")
        stage.report.check("cluster-ready", False, f"{error}; it waits for {waits}")
        return False
    took = (stage.clock.now() - started).total_seconds()
    stage.report.add(f"cluster {stage.name} is Ready")
    stage.report.check("cluster-ready", True, f"{stage.name} was Ready {took:.1f} s after it was asked for")
    return True


# -- the end -----------------------------------------------------------------------------------------------------


async def _delete(demo: Demo, documents: list[Raw], before: frozenset[tuple[str, str, str]]) -> None:
    for cluster in _clusters(documents):
        name, namespace = name_of(cluster), namespace_of(cluster)
        demo.report.add(f"cluster {name} is deleted")
        await demo.manager.delete(CLUSTER.ref(name, namespace))
        try:
            await demo.cluster(cluster).wait_for_deletion()
        except WaitTimedOut as error:
            left = await demo.manager.find(CLUSTER.ref(name, namespace))
            waits = (
                nested(left, "status", "waiting", "for", default="nothing that it names")
                if left
                else "nothing"
            )
            demo.report.check("cluster-deleted", False, f"{error}; it waits for {waits}")
        else:
            demo.report.check("cluster-deleted", True, f"{name} and its machines are gone")
    await _check_inventory(demo, before)


async def _check_inventory(demo: Demo, before: frozenset[tuple[str, str, str]]) -> None:
    """Harvester collects garbage a moment after the last finalizer; give it that moment."""
    deadline = demo.clock.now() + timedelta(seconds=10)
    left = await inventory(demo.embedded.harvester.api) - before
    while left and demo.clock.now() < deadline:
        await demo.clock.sleep_until(demo.clock.now() + timedelta(seconds=0.2))
        left = await inventory(demo.embedded.harvester.api) - before
    names = ", ".join("/".join(part for part in entry if part) for entry in sorted(left))
    demo.report.check(
        "nothing-left", not left, f"left on Harvester: {names}" if left else "Harvester is as it was before"
    )


def _print_summary(options: DemoOptions, report: Report, out: Output) -> None:
    if options.report:
        options.report.write_text(pretty(report.as_json()) + "\n")
    out.print_line()
    out.print_line("Timeline")
    for moment in report.entries:
        if not moment.detail:
            out.timeline_entry(moment)
    failed = [check.name for check in report.checks if not check.ok]
    out.print_line()
    out.print_line(
        f"{len(report.checks)} checks, {len(failed)} failed" + (f": {', '.join(failed)}" if failed else ".")
    )
    if not options.keep and not failed:
        out.print_line("Next: keep a cluster running and use it with kubectl: windrow demo --keep")
        out.print_line("      or bring your own manifest:               windrow demo --manifest FILE")


async def _keep_running(demo: Demo, documents: list[Raw]) -> None:
    """Leave everything running until interrupted, and say how to reach it."""
    out, state = demo.output, demo.manager_process.kubeconfig_path.parent
    out.print_line()
    out.print_line("Everything keeps running until you press Ctrl-C. In another terminal:")
    out.print_line(f"  kubectl --kubeconfig {demo.embedded.kubeconfig_path} get vms,vmis -A")
    out.print_line(f"  kubectl --kubeconfig {demo.manager_process.kubeconfig_path} get clusters,machines -A")
    for cluster in _clusters(documents):
        path = state / f"{name_of(cluster)}.yaml"
        stage = demo.cluster(cluster)
        write_private(path, await stage.guest_kubeconfig())
        out.print_line(f"  kubectl --kubeconfig {path} get nodes -o wide")
        if (service := await find_service(stage)) is not None:
            proxy = demo.embedded.access.proxy_url
            out.print_line(f"  curl --proxy {proxy} http://{address_of(service)}/")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        # Ctrl-C is how a kept demo ends; its exit code still tells whether the checks held.
        if task := asyncio.current_task():
            task.uncancel()


# -- views -------------------------------------------------------------------------------------------------------


async def _update_display(demo: Demo) -> None:
    """Feed the live view after every change of a Cluster or Machine."""

    async def follow(kind: ApiResource) -> None:
        def look(world: Mapping[tuple[str, str], Raw]) -> None:
            objects[kind] = dict(world)
            demo.output.update(objects.get(CLUSTER, {}).values(), objects.get(MACHINE, {}).values())

        await wait_for(
            demo.manager.transport, kind, look, what="the end", clock=demo.clock, within=timedelta(days=3650)
        )

    objects: dict[ApiResource, dict[tuple[str, str], Raw]] = {}
    async with asyncio.TaskGroup() as group:
        group.create_task(follow(CLUSTER))
        group.create_task(follow(MACHINE))


async def _record_events(demo: Demo) -> None:
    """What the manager decides, in its own words: its events become moments of the timeline."""
    recorded: set[str] = set()

    def look(world: Mapping[tuple[str, str], Raw]) -> None:
        for raw in world.values():
            uid = raw["metadata"]["uid"]
            if uid not in recorded and (line := describe_event(raw)):
                demo.report.add(line, detail=True)
            recorded.add(uid)

    await wait_for(
        demo.manager.transport, EVENT, look, what="the end", clock=demo.clock, within=timedelta(days=3650)
    )
