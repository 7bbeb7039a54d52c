"""The ReplicaSet controller: as many pods as are wanted."""

from __future__ import annotations

from functools import partial

from windrow.emulator.guests.workloads.bench import Bench
from windrow.emulator.guests.workloads.replicas import (
    EndPod,
    MakePods,
    plan_replica_set,
    render_replica_set_status,
)
from windrow.emulator.guests.workloads.sight import Owned
from windrow.emulator.guests.workloads.templates import render_pod
from windrow.emulator.world import Key
from windrow.kubernetes.objects import is_deleting
from windrow.kubernetes.resources import POD, REPLICA_SET


class ReplicaSets:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._pods = Owned(bench.sights[POD])
        bench.sights[POD].listen(partial(bench.add_owner, REPLICA_SET))

    async def serve(self, key: Key) -> None:
        bench = self._bench
        replica_set = bench.sights[REPLICA_SET].get(key)
        if replica_set is None or is_deleting(replica_set):
            return
        for step in plan_replica_set(replica_set, self._pods.of(replica_set)):
            match step:
                case MakePods(count, _):
                    for _ in range(count):
                        await bench.make(POD, render_pod(replica_set, int(bench.box.delays.eviction)))
                case EndPod(pod, _):
                    await bench.end(POD, pod)
        status = render_replica_set_status(replica_set, self._pods.of(replica_set))
        await bench.show(REPLICA_SET, replica_set, status)
