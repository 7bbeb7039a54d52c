"""`windrow demo`: an emulated Harvester, a cluster manager and a manifest, then losses and repairs.

Everything runs in one process, over the sockets, certificates and credentials of a real site: the manager and the
demo's own requests go through TLS and the emulator's proxy. Only the emulator's delays follow the time scale.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from windrow.app.access.management import ask_for_link
from windrow.app.clock import SystemClock
from windrow.app.embedded import EmbeddedManager, embedded_manager
from windrow.app.emulate import EmbeddedHarvester, embedded_harvester
from windrow.app.loop import running
from windrow.app.machines import PluginSettings, require_harvester_driver
from windrow.app.network import HttpConnector
from windrow.app.preload import (
    Preload,
    credential_secrets,
    describe_preload,
    leave_out_kubeconfigs,
    read_preload,
)
from windrow.app.preload.buckets import list_buckets
from windrow.app.state.directory import open_state_directory
from windrow.client.client import Client
from windrow.client.informer import make_watcher, watching
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG, MACHINE
from windrow.clusters.api.rancher_import import strip_server_fields
from windrow.core.files import write_private
from windrow.core.formats.json import pretty
from windrow.core.rng import Rng
from windrow.demo.cluster import ClusterRefused, DemoCluster
from windrow.demo.endpoint_balancers import follow_machines, list_frontends
from windrow.demo.known_flaws import Leftovers, find_known_flaw, read_go_driver_version
from windrow.demo.manifests import for_demo, shipped
from windrow.demo.options import DemoOptions, DemoOutput
from windrow.demo.report import Report, TimelineEntry, describe_event, wrap_text
from windrow.demo.scenarios import list_skipped, plan_scenarios, run_scenario
from windrow.demo.service_scenarios import address_of, delete_pool, read_service
from windrow.demo.waiting import WaitTimedOut
from windrow.emulator.kit.inventory import inventory
from windrow.kubernetes.errors import AlreadyExists, KubeError, NotFound
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested, new_object, uid_of
from windrow.kubernetes.resources import EVENT, NAMESPACE, SECRET, ApiResource
from windrow.machines.plugin.poller import PollIntervals

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
    output: DemoOutput
    clock: SystemClock
    timeout: timedelta
    driver: Path | None = None

    def cluster(self, raw: Mapping[str, Any]) -> DemoCluster:
        return DemoCluster(
            namespace_of(raw),
            name_of(raw),
            self.harvester,
            self.manager,
            self.connector.connect,
            self.clock,
            self.report,
            self.timeout,
            self.embedded.object_stores,
        )


async def run(options: DemoOptions, output: DemoOutput) -> int:
    """Run the demo. 0 only when every check passed; raises ClusterRefused as soon as the manager refuses a Cluster."""
    documents = _documents(options, output)
    if options.driver is not None:
        await require_harvester_driver(options.driver, options.env, SystemClock())
    with tempfile.TemporaryDirectory(prefix="windrow-") as scratch:
        state_dir = options.state_dir or Path(scratch)
        for line in open_state_directory(state_dir):
            output.print_line(line)
        return await _run(options, output, documents, state_dir)


def _documents(options: DemoOptions, output: DemoOutput) -> list[Raw]:
    documents, notes = strip_server_fields(options.documents or for_demo(shipped(options.distribution)))
    documents, left_out = leave_out_kubeconfigs(documents)
    for note in [*notes, *left_out]:
        _print_wrapped(output, note, indent=2)
    return documents


def _clusters(documents: list[Raw]) -> list[Raw]:
    return [document for document in documents if document["kind"] == "Cluster"]


def _print_wrapped(output: DemoOutput, text: str, indent: int) -> None:
    for line in wrap_text(text, indent):
        output.print_line(line)


def write_refusal(path: Path, problems: Sequence[str]) -> None:
    """Write the report of a demo that was not started, since the manifest has these problems."""
    report = Report(SystemClock(), lambda _: None)
    report.check("cluster-ready", False, f"refused: {'; '.join(problems)}")
    path.write_text(pretty(report.as_json()) + "\n")


async def _run(options: DemoOptions, output: DemoOutput, documents: list[Raw], state_dir: Path) -> int:
    clock = SystemClock()
    report = Report(
        clock,
        lambda one: (
            output.timeline_entry(one) if isinstance(one, TimelineEntry) else output.check_record(one)
        ),
    )
    async with _start(options, output, documents, state_dir, clock, report) as demo:
        _print_start(demo, read_preload(documents))
        before = await inventory(demo.embedded.harvester.api)
        stand_in = partial(_stand_in_for_balancers, demo, documents)
        try:
            async with running(stand_in, partial(_update_display, demo), partial(_record_events, demo)):
                refused = await _run_scenarios(demo, documents, keep=options.keep)
                if refused is None and not options.keep:
                    await _delete(demo, documents, before)
        finally:
            report.calls.update(demo.manager_process.request_counts)
            if options.report:
                options.report.write_text(pretty(report.as_json()) + "\n")
        if refused is None:
            print_summary(options, report, output)
            if options.keep:
                await _keep_running(demo, documents)
    if refused is not None:
        raise refused
    return 0 if report.passed else 1


# Machines of plugins are polled. The demo's time scale turns minutes into seconds, so the intervals are short, too.
POLL_INTERVALS = PollIntervals(
    transitional=timedelta(seconds=1),
    steady=timedelta(seconds=2),
    unknown=timedelta(seconds=1),
)


def _plugin_settings(options: DemoOptions, state_dir: Path) -> PluginSettings:
    return PluginSettings(state_dir, options.env, options.driver, poll_intervals=POLL_INTERVALS)


@asynccontextmanager
async def _start(
    options: DemoOptions,
    output: DemoOutput,
    documents: list[Raw],
    state_dir: Path,
    clock: SystemClock,
    report: Report,
) -> AsyncIterator[Demo]:
    preload, plugins = read_preload(documents), _plugin_settings(options, state_dir)
    async with (
        HttpConnector(clock) as connector,
        embedded_harvester(
            state_dir,
            preload,
            clock,
            Rng(),
            time_scale=options.time_scale,
            site=options.site,
            buckets=list_buckets(documents),
        ) as embedded,
        embedded_manager(
            state_dir, clock, Rng(), connector.connect, plugins=plugins, dashboard=options.dashboard
        ) as manager,
    ):
        if manager.dashboard:
            link = await ask_for_link(Client(connector.connect(manager.access)))
            output.print_line(f"Dashboard, to be opened within a minute: {link}")
        yield Demo(
            embedded,
            manager,
            Client(connector.connect(embedded.access)),
            Client(connector.connect(manager.access)),
            connector,
            report,
            output,
            clock,
            timedelta(seconds=60 + 1200 / options.time_scale),
            options.driver,
        )


def _print_start(demo: Demo, preload: Preload) -> None:
    demo.report.add(f"an emulated Harvester {demo.embedded.version} serves at {demo.embedded.access.server}")
    for line in describe_preload(preload):
        _print_wrapped(demo.output, f"  created because the manifest refers to it: {line}", indent=4)
    for bucket in demo.embedded.object_stores.buckets:
        _print_wrapped(demo.output, f"  bucket for snapshots of etcd: {bucket}", indent=4)
    if demo.driver is not None:
        demo.report.add(f"machines are created by the docker-machine plugin {demo.driver}")
    demo.report.add(f"the cluster manager serves at {demo.manager_process.access.server}")


async def _stand_in_for_balancers(demo: Demo, documents: list[Raw]) -> None:
    """Be the load balancers that the endpoints of the manifest want of their user."""
    frontends = list_frontends(documents)
    for one in frontends:
        demo.report.add(f"the demo stands in for your load balancer: {one}")
    balancers = demo.embedded.harvester.external_balancers
    await follow_machines(frontends, demo.manager.transport, balancers, demo.clock)


async def _run_scenarios(demo: Demo, documents: list[Raw], *, keep: bool) -> ClusterRefused | None:
    """Apply the manifest and run every scenario; ends with the first Cluster that is refused."""
    await _apply(demo, documents)
    for raw in _clusters(documents):
        cluster = demo.cluster(raw)
        try:
            if not await _wait_until_ready(cluster):
                continue
        except ClusterRefused as refused:
            cluster.report.check("cluster-ready", False, str(refused))
            return refused
        pools = await cluster.list_pools()
        for scenario in plan_scenarios(pools, keep=keep):
            await run_scenario(cluster, scenario)
        for one in list_skipped(pools, keep=keep):
            cluster.report.skip([one.name], one.why)
    return None


async def _apply(demo: Demo, documents: list[Raw]) -> None:
    """Create the objects in the order of KINDS: a Cluster that came first would be refused for what it refers to."""
    secrets = [
        *credential_secrets(documents, demo.embedded.kubeconfig),
        *demo.embedded.object_stores.render_secrets(documents),
    ]
    names = sorted({namespace_of(raw) for raw in documents + secrets} - {""})
    namespaces = [new_object(NAMESPACE, name) for name in names]
    for kind in KINDS:
        for raw in (raw for raw in [*namespaces, *secrets, *documents] if raw["kind"] == kind.kind):
            with suppress(AlreadyExists):
                await demo.manager.create(kind, raw)
                if kind in (CLUSTER, HARVESTER_CONFIG):
                    demo.report.add(f"{kind.kind} {namespace_of(raw)}/{name_of(raw)} applied")
    for raw in documents:
        if raw["kind"] not in {kind.kind for kind in KINDS}:
            text = f"not applied: {raw['kind']} {name_of(raw)}, a kind that the demo does not use"
            _print_wrapped(demo.output, text, indent=2)


async def _wait_until_ready(cluster: DemoCluster) -> bool:
    started = cluster.clock.now()
    try:
        await cluster.wait_for_ready_or_refused()
        await cluster.wait_for_settled()
    except WaitTimedOut as error:
        cluster.report.check(
            "cluster-ready", False, f"{error}; {_describe_wait(await cluster.get_cluster())}"
        )
        return False
    took = (cluster.clock.now() - started).total_seconds()
    cluster.report.add(f"{cluster.ref} is Ready")
    cluster.report.check("cluster-ready", True, f"{cluster.ref} became Ready in {took:.1f} s")
    return True


def _describe_wait(raw: Raw | None) -> str:
    waiting = nested(raw, "status", "waiting", "for", default="")
    return f"it waits for {waiting}" if waiting else "its status.waiting is empty"


# -- end ---------------------------------------------------------------------------------------------------------


async def _delete(demo: Demo, documents: list[Raw], before: frozenset[tuple[str, str, str]]) -> None:
    for raw in _clusters(documents):
        cluster = demo.cluster(raw)
        demo.report.add(f"{cluster.ref} is deleted")
        await demo.manager.delete(cluster.ref)
        try:
            await cluster.wait_for_deletion()
        except WaitTimedOut as error:
            left = await demo.manager.find(cluster.ref)
            demo.report.check("cluster-deleted", False, f"{error}; {_describe_wait(left)}")
        else:
            demo.report.check("cluster-deleted", True, f"{cluster.ref} and its Machines are gone")
        await delete_pool(cluster)
    await _check_inventory(demo, before)


async def _check_inventory(demo: Demo, before: frozenset[tuple[str, str, str]]) -> None:
    """Compare Harvester's objects with those of before; garbage collection may take seconds."""
    deadline = demo.clock.now() + timedelta(seconds=60)
    left = await inventory(demo.embedded.harvester.api) - before
    while left and demo.clock.now() < deadline:
        await demo.clock.sleep_until(demo.clock.now() + timedelta(seconds=0.2))
        left = await inventory(demo.embedded.harvester.api) - before
    names = ", ".join("/".join(part for part in entry if part) for entry in sorted(left))
    version = None if demo.driver is None else await asyncio.to_thread(read_go_driver_version, demo.driver)
    flaw = find_known_flaw(version, "nothing-left", Leftovers(left, demo.report.deleted_vms))
    demo.report.check(
        "nothing-left",
        not left,
        f"left on Harvester: {names}" if left else "Harvester is as it was before",
        "" if flaw is None else f"{flaw.flaw} ({flaw.versions}; this one is {version})",
    )


def print_summary(options: DemoOptions, report: Report, output: DemoOutput) -> None:
    output.print_line()
    output.print_line("Timeline")
    for entry in report.entries:
        if not entry.detail:
            output.timeline_entry(entry)
    failed = [check.name for check in report.checks if check.failed]
    known = [check.name for check in report.checks if check.known_flaw]
    names = f": {', '.join(failed)}" if failed else "."
    if report.skipped:
        output.print_line()
        for skipped in report.skipped:
            _print_wrapped(output, f"not applicable: {skipped.name}: {skipped.why}", indent=2)
    output.print_line()
    output.print_line(f"{len(report.checks)} checks, {len(failed)} failed{names}")
    if known:
        output.print_line(f"Known flaws of the node driver, not counted as failed: {', '.join(known)}")
    if not options.keep and not failed:
        output.print_line("Next, keep a cluster running and use it with kubectl:")
        output.print_line("  windrow demo --keep")
        output.print_line("Or with K3s, or a manifest of yours:")
        output.print_line("  windrow demo --distro k3s")
        output.print_line("  windrow demo -f FILE")


async def _keep_running(demo: Demo, documents: list[Raw]) -> None:
    """Print how to reach everything, and keep it running until Ctrl-C."""
    output, manager = demo.output, demo.manager_process.kubeconfig_path
    harvester = f"kubectl --kubeconfig {demo.embedded.kubeconfig_path}"
    output.print_line()
    output.print_line("Everything keeps running until you press Ctrl-C. In another terminal:")
    output.print_line(f"  export WINDROW_KUBECONFIG={manager} KUBECONFIG={manager}")
    output.print_line("  windrow status -A")
    output.print_line("  kubectl get clusters,machines -A")
    if demo.manager_process.dashboard:
        output.print_line("  windrow dashboard")
    output.print_line("The emulated Harvester, and a host of it that goes into maintenance mode:")
    output.print_line(f"  {harvester} get vms,vmis,nodes -A")
    output.print_line(f"  {harvester} annotate node host-2 harvesterhci.io/drain-requested=true")
    output.print_line("The clusters:")
    for raw in _clusters(documents):
        path, cluster = manager.parent / f"{name_of(raw)}.yaml", demo.cluster(raw)
        try:
            write_private(path, await cluster.guest_kubeconfig())
        except NotFound:
            continue  # it never became Ready
        output.print_line(f"  kubectl --kubeconfig {path} get nodes -o wide")
        with suppress(KubeError):
            if (service := await read_service(cluster)) is not None:
                proxy = demo.embedded.access.proxy_url
                output.print_line(f"  curl --proxy {proxy} http://{address_of(service)}/")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        # Ctrl-C ends a kept demo; the exit code still says whether the checks passed.
        if task := asyncio.current_task():
            task.uncancel()


# -- views -------------------------------------------------------------------------------------------------------


async def _update_display(demo: Demo) -> None:
    """Update the live view after every change of a Cluster or Machine."""
    clusters = make_watcher(demo.manager.transport, CLUSTER, dict, demo.clock)
    machines = make_watcher(demo.manager.transport, MACHINE, dict, demo.clock)
    async with watching(clusters, machines) as changed:
        while True:
            changed.clear()
            demo.output.update(clusters.values(), machines.values())
            await changed.wait()


async def _record_events(demo: Demo) -> None:
    """Add the manager's events to the timeline."""
    events, recorded = make_watcher(demo.manager.transport, EVENT, dict, demo.clock), set[str]()
    async with watching(events) as changed:
        while True:
            changed.clear()
            for event in events.values():
                if uid_of(event) not in recorded and (line := describe_event(event)):
                    demo.report.add(line, detail=True)
                recorded.add(uid_of(event))
            await changed.wait()
