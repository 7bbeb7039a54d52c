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

from windrow.assembly.acts import plan_acts, play
from windrow.assembly.authority import write_private
from windrow.assembly.chronicle import tell_event
from windrow.assembly.clock import SystemClock
from windrow.assembly.driver_file import insist_on_driver
from windrow.assembly.embedded import Emulated, Managed, embedded_harvester, embedded_manager
from windrow.assembly.machinery import PluginHost
from windrow.assembly.manifests import read_documents, shipped
from windrow.assembly.network import Sockets
from windrow.assembly.options import DemoOptions, Out
from windrow.assembly.report import Moment, Report, folded
from windrow.assembly.service_acts import address_of, find_service
from windrow.assembly.stage import Stage
from windrow.assembly.stock import Stock, credential_secrets, read_stock
from windrow.assembly.waiting import NotSeen, wait_for
from windrow.client.client import Client
from windrow.clusters.dumps import clean
from windrow.clusters.kinds import CLUSTER, HARVESTER_CONFIG, MACHINE
from windrow.emulator.inventory import inventory
from windrow.formats.json import pretty
from windrow.kube.errors import Exists
from windrow.kube.objects import Raw, dig, name_of, namespace_of
from windrow.kube.refs import EVENT, NAMESPACE, SECRET, Kind
from windrow.machines.plugin_host import Pace
from windrow.values.chance import Chance

KINDS: tuple[Kind, ...] = (NAMESPACE, SECRET, HARVESTER_CONFIG, CLUSTER)


@dataclass(frozen=True)
class Demo:
    """The parts of a running demo."""

    emulated: Emulated
    managed: Managed
    harvester: Client
    manager: Client
    sockets: Sockets
    report: Report
    out: Out
    clock: SystemClock
    patience: timedelta
    driver: Path | None = None

    def stage(self, cluster: Mapping[str, Any]) -> Stage:
        return Stage(
            namespace_of(cluster),
            name_of(cluster),
            self.harvester,
            self.manager,
            self.sockets.dial,
            self.clock,
            self.report,
            self.patience,
        )


async def run(options: DemoOptions, out: Out) -> int:
    """Play the demo; 0 only when every check held."""
    documents = _documents(options, out)
    if options.driver is not None:
        await insist_on_driver(options.driver, options.env, SystemClock())
    with tempfile.TemporaryDirectory(prefix="windrow-") as scratch:
        state = options.state or Path(scratch)
        state.mkdir(parents=True, exist_ok=True)
        return await _run(options, out, documents, state)


def _documents(options: DemoOptions, out: Out) -> list[Raw]:
    documents, notes = clean(options.documents or read_documents(shipped()))
    for note in notes:
        _say(out, note, hang=2)
    return documents


def _clusters(documents: list[Raw]) -> list[Raw]:
    return [document for document in documents if document["kind"] == "Cluster"]


def _say(out: Out, text: str, hang: int) -> None:
    for line in folded(text, hang):
        out.say(line)


async def _run(options: DemoOptions, out: Out, documents: list[Raw], state: Path) -> int:
    clock = SystemClock()
    report = Report(clock, lambda told: out.moment(told) if isinstance(told, Moment) else out.check(told))
    async with _opened(options, out, documents, state, clock, report) as demo:
        await _introduce(demo, read_stock(documents))
        before = await inventory(demo.emulated.harvester.api)
        async with asyncio.TaskGroup() as group:
            views = [group.create_task(_show(demo)), group.create_task(_tell_events(demo))]
            try:
                await _play(demo, documents, keep=options.keep)
                if not options.keep:
                    await _delete(demo, documents, before)
            finally:
                for view in views:
                    view.cancel()
        report.calls.update(demo.managed.calls)
        _conclude(options, report, out)
        if options.keep:
            await _stay(demo, documents)
    return 0 if report.held else 1


# Plugins have to be asked; in a demo's time, where a minute is a few seconds, as often as a rack is in its own.
DEMO_PACE = Pace(
    quick=timedelta(seconds=1),
    steady=timedelta(seconds=2),
    doubtful=timedelta(seconds=1),
)


def _plugin_host(options: DemoOptions, state: Path) -> PluginHost:
    return PluginHost(state, options.env, options.driver, pace=DEMO_PACE)


@asynccontextmanager
async def _opened(
    options: DemoOptions, out: Out, documents: list[Raw], state: Path, clock: SystemClock, report: Report
) -> AsyncIterator[Demo]:
    stock = read_stock(documents)
    async with (
        Sockets(clock) as sockets,
        embedded_harvester(state, stock, clock, Chance(), speed=options.speed) as emulated,
        embedded_manager(
            state, clock, Chance(), sockets.dial, plugins=_plugin_host(options, state)
        ) as managed,
    ):
        yield Demo(
            emulated,
            managed,
            Client(sockets.dial(emulated.access)),
            Client(sockets.dial(managed.access)),
            sockets,
            report,
            out,
            clock,
            timedelta(seconds=60 + 1200 / options.speed),
            options.driver,
        )


async def _introduce(demo: Demo, stock: Stock) -> None:
    demo.report.note(
        f"an embedded Harvester {demo.emulated.version} answers at {demo.emulated.access.server}"
    )
    for line in stock.lines():
        _say(demo.out, f"  put on its shelves, since the manifest names them: {line}", hang=4)
    if demo.driver is not None:
        demo.report.note(f"machines are made by the docker-machine plugin {demo.driver}")
    demo.report.note(f"the cluster manager answers at {demo.managed.access.server}")


async def _play(demo: Demo, documents: list[Raw], *, keep: bool) -> None:
    await _apply(demo, documents)
    for cluster in _clusters(documents):
        stage = demo.stage(cluster)
        if not await _is_born(stage):
            continue
        for act in plan_acts(await stage.pools(), keep=keep):
            await play(stage, act)


async def _apply(demo: Demo, documents: list[Raw]) -> None:
    stock = read_stock(documents)
    secrets = credential_secrets(stock, demo.emulated.kubeconfig)
    namespaces = sorted({namespace_of(raw) for raw in documents + secrets} - {""})
    spaces = [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in namespaces]
    for raw in [*spaces, *secrets, *documents]:
        kind = next((kind for kind in KINDS if kind.kind == raw["kind"]), None)
        if kind is None:
            _say(demo.out, f"left out: {raw['kind']} {name_of(raw)}, which the demo has no use for", hang=2)
            continue
        try:
            await demo.manager.create(kind, raw)
        except Exists:
            continue
        if kind in (CLUSTER, HARVESTER_CONFIG):
            demo.report.note(f"{raw['kind']} {namespace_of(raw)}/{name_of(raw)} is applied")


async def _is_born(stage: Stage) -> bool:
    begun = stage.clock.now()
    try:
        await stage.settled()
    except NotSeen as error:
        waits = dig(await stage.cluster(), "status", "waiting", "for", default="nothing that it names")
        stage.report.check("cluster-ready", False, f"{error}; it waits for {waits}")
        return False
    took = (stage.clock.now() - begun).total_seconds()
    stage.report.note(f"cluster {stage.name} is Ready")
    stage.report.check("cluster-ready", True, f"{stage.name} was Ready {took:.1f} s after it was asked for")
    return True


# -- the end -----------------------------------------------------------------------------------------------------


async def _delete(demo: Demo, documents: list[Raw], before: frozenset[tuple[str, str, str]]) -> None:
    for cluster in _clusters(documents):
        name, namespace = name_of(cluster), namespace_of(cluster)
        demo.report.note(f"cluster {name} is deleted")
        await demo.manager.delete(CLUSTER.ref(name, namespace))
        try:
            await demo.stage(cluster).gone()
        except NotSeen as error:
            left = await demo.manager.find(CLUSTER.ref(name, namespace))
            waits = (
                dig(left, "status", "waiting", "for", default="nothing that it names") if left else "nothing"
            )
            demo.report.check("cluster-deleted", False, f"{error}; it waits for {waits}")
        else:
            demo.report.check("cluster-deleted", True, f"{name} and its machines are gone")
    await _compare(demo, before)


async def _compare(demo: Demo, before: frozenset[tuple[str, str, str]]) -> None:
    """Harvester collects garbage a moment after the last finalizer; give it that moment."""
    deadline = demo.clock.now() + timedelta(seconds=10)
    left = await inventory(demo.emulated.harvester.api) - before
    while left and demo.clock.now() < deadline:
        await demo.clock.until(demo.clock.now() + timedelta(seconds=0.2))
        left = await inventory(demo.emulated.harvester.api) - before
    names = ", ".join("/".join(part for part in entry if part) for entry in sorted(left))
    demo.report.check(
        "nothing-left", not left, f"left on Harvester: {names}" if left else "Harvester is as it was before"
    )


def _conclude(options: DemoOptions, report: Report, out: Out) -> None:
    if options.report:
        options.report.write_text(pretty(report.as_json()) + "\n")
    out.say()
    out.say("Timeline")
    for moment in report.moments:
        if not moment.detail:
            out.moment(moment)
    failed = [check.name for check in report.checks if not check.ok]
    out.say()
    out.say(
        f"{len(report.checks)} checks, {len(failed)} failed" + (f": {', '.join(failed)}" if failed else ".")
    )
    if not options.keep and not failed:
        out.say("Next: keep a cluster running and use it with kubectl: windrow demo --keep")
        out.say("      or bring your own manifest:               windrow demo --manifest FILE")


async def _stay(demo: Demo, documents: list[Raw]) -> None:
    """Leave everything running until interrupted, and say how to reach it."""
    out, state = demo.out, demo.managed.kubeconfig_path.parent
    out.say()
    out.say("Everything keeps running until you press Ctrl-C. In another terminal:")
    out.say(f"  kubectl --kubeconfig {demo.emulated.kubeconfig_path} get vms,vmis -A")
    out.say(f"  kubectl --kubeconfig {demo.managed.kubeconfig_path} get clusters,machines -A")
    for cluster in _clusters(documents):
        path = state / f"{name_of(cluster)}.yaml"
        stage = demo.stage(cluster)
        write_private(path, await stage.guest_kubeconfig())
        out.say(f"  kubectl --kubeconfig {path} get nodes -o wide")
        if (service := await find_service(stage)) is not None:
            proxy = demo.emulated.access.proxy_url
            out.say(f"  curl --proxy {proxy} http://{address_of(service)}/")
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        # Ctrl-C is how a kept demo ends; its exit code still tells whether the checks held.
        if task := asyncio.current_task():
            task.uncancel()


# -- views -------------------------------------------------------------------------------------------------------


async def _show(demo: Demo) -> None:
    """Feed the live view after every change of a Cluster or Machine."""

    async def follow(kind: Kind) -> None:
        def look(world: Mapping[tuple[str, str], Raw]) -> None:
            known[kind] = dict(world)
            demo.out.show(known.get(CLUSTER, {}).values(), known.get(MACHINE, {}).values())

        await wait_for(
            demo.manager.transport, kind, look, what="the end", clock=demo.clock, within=timedelta(days=3650)
        )

    known: dict[Kind, dict[tuple[str, str], Raw]] = {}
    async with asyncio.TaskGroup() as group:
        group.create_task(follow(CLUSTER))
        group.create_task(follow(MACHINE))


async def _tell_events(demo: Demo) -> None:
    """What the manager decides, in its own words: its events become moments of the timeline."""
    told: set[str] = set()

    def look(world: Mapping[tuple[str, str], Raw]) -> None:
        for raw in world.values():
            uid = raw["metadata"]["uid"]
            if uid not in told and (line := tell_event(raw)):
                demo.report.note(line, detail=True)
            told.add(uid)

    await wait_for(
        demo.manager.transport, EVENT, look, what="the end", clock=demo.clock, within=timedelta(days=3650)
    )
