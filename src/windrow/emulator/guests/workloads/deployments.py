"""The Deployment controller: ReplicaSets for a template, old ones and new ones in step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from windrow.emulator.guests.workloads.bench import Bench
from windrow.emulator.guests.workloads.replicas import (
    EndSet,
    MakeSet,
    MarkDeployment,
    ScaleSet,
    plan_deployment,
    render_deployment_status,
)
from windrow.emulator.guests.workloads.sight import Owned
from windrow.emulator.guests.workloads.templates import render_replica_set, selects_its_own
from windrow.emulator.world import Key
from windrow.kubernetes.objects import Raw, annotations_of, is_deleting
from windrow.kubernetes.resources import DEPLOYMENT, REPLICA_SET


class Deployments:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._sets = Owned(bench.sights[REPLICA_SET])
        bench.sights[REPLICA_SET].listen(partial(bench.add_owner, DEPLOYMENT))

    async def serve(self, key: Key) -> None:
        bench = self._bench
        deployment = bench.sights[DEPLOYMENT].get(key)
        if deployment is None or is_deleting(deployment) or not selects_its_own(deployment):
            return
        for step in plan_deployment(deployment, self._sets.of(deployment)):
            match step:
                case MakeSet(replicas, marks, _):
                    await bench.make(REPLICA_SET, render_replica_set(deployment, replicas, marks))
                case ScaleSet(replica_set, replicas, marks, _):
                    await bench.change(REPLICA_SET, replica_set, partial(_scale, replicas, marks))
                case MarkDeployment(marks, _):
                    await bench.change(DEPLOYMENT, deployment, partial(_annotate, marks))
                case EndSet(replica_set, _):
                    await bench.end(REPLICA_SET, replica_set)
        status = render_deployment_status(deployment, self._sets.of(deployment), bench.now())
        await bench.show(DEPLOYMENT, deployment, status)


def _scale(replicas: int, marks: Mapping[str, str], raw: Raw) -> None:
    raw["spec"]["replicas"] = replicas
    _annotate(marks, raw)


def _annotate(marks: Mapping[str, str], raw: Raw) -> None:
    raw["metadata"]["annotations"] = {**annotations_of(raw), **marks}
