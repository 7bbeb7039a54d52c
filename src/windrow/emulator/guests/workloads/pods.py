"""What becomes of pods: what kubelets do with them while they live, and the control plane when they do not."""

from __future__ import annotations

from datetime import datetime, timedelta

from windrow.emulator.guests.workloads.addresses import Addresses
from windrow.emulator.guests.workloads.bench import Bench
from windrow.emulator.guests.workloads.pod_life import (
    Bind,
    End,
    Later,
    Pace,
    Show,
    Situation,
    Start,
    plan_pod,
    render_readiness,
    render_running,
    stage_of,
)
from windrow.emulator.guests.workloads.scheduler import Scheduler
from windrow.emulator.world import Key
from windrow.kubernetes.objects import Raw, name_of, nested, uid_of
from windrow.kubernetes.resources import NODE, POD


class Pods:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        delays, speed = bench.box.delays, bench.box.wires.speed
        self._pace = Pace(
            timedelta(seconds=delays.pod_start / speed),
            timedelta(seconds=delays.pod_ready / speed),
            timedelta(seconds=delays.pod_stop / speed),
            speed,
        )
        self._scheduler = Scheduler(bench)
        self._addresses = Addresses()
        self._by_node = bench.sights[POD].index(lambda raw: [("", _node_of(raw))])
        self._stages: dict[Key, tuple[str, str, datetime]] = {}
        self._tainted: dict[str, dict[str, datetime]] = {}
        self._alive: frozenset[str] = frozenset()
        bench.sights[NODE].listen(self._node_changed)

    async def serve(self, key: Key) -> None:
        bench = self._bench
        pod = bench.sights[POD].get(key)
        if pod is None:
            self._stages.pop(key, None)
            bench.line.forget(POD, key)
            return
        node = bench.sights[NODE].get(("", _node_of(pod)))
        for step in plan_pod(pod, self._situation(key, pod, node)):
            match step:
                case Bind():
                    await self._scheduler.place(pod)
                case Start() if node is not None:
                    address = self._addresses.pick(pod, node, self._used_on(name_of(node)))
                    await bench.show(POD, pod, render_running(pod, node, address, bench.now()))
                case Show(ready, _):
                    probed = self._is_alive(pod)
                    await bench.show(
                        POD, pod, render_readiness(pod["status"], ready, bench.now(), probed=probed)
                    )
                case End(at_once, _):
                    await bench.end(POD, pod, 0 if at_once else None)
                case Later(until, _):
                    bench.line.add_at(until, POD, key)

    async def follow_beats(self) -> None:
        """Kubelets come and go."""
        cluster = self._bench.cluster
        while True:
            alive = frozenset(name for name, beat in cluster.beats.items() if beat.alive)
            for name in sorted(alive ^ self._alive):
                self._add_pods_on(name)
            self._alive = alive
            await cluster.pulse.wait()

    def _node_changed(self, node: Raw) -> None:
        name = name_of(node)
        before = self._tainted.get(name, {})
        keys = {
            one["key"]
            for one in nested(node, "spec", "taints", default=[])
            if one.get("effect") == "NoExecute"
        }
        self._tainted[name] = {key: before.get(key, self._bench.now()) for key in keys}
        self._add_pods_on(name)
        self._add_pods_on("")

    def _add_pods_on(self, node: str) -> None:
        for key in self._by_node.get(("", node), ()):
            self._bench.line.add(POD, key)

    def _used_on(self, node: str) -> set[str]:
        pods = self._bench.sights[POD]
        return {nested(pods[key], "status", "podIP") for key in self._by_node.get(("", node), ())}

    def _is_alive(self, pod: Raw) -> bool:
        beat = self._bench.cluster.beats.get(_node_of(pod))
        return beat is not None and beat.alive

    def _situation(self, key: Key, pod: Raw, node: Raw | None) -> Situation:
        now, alive = self._bench.now(), self._is_alive(pod)
        stage = stage_of(pod, alive=alive)
        before = self._stages.get(key)
        if before is None or before[:2] != (uid_of(pod), stage):
            before = self._stages[key] = (uid_of(pod), stage, now)
        tainted = self._tainted.get(name_of(node), {}) if node is not None else {}
        return Situation(now, before[2], node, alive, tainted, self._pace)


def _node_of(pod: Raw) -> str:
    return str(nested(pod, "spec", "nodeName", default=""))
