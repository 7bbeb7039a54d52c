"""The steps of a change in place, executed on a management API and the API of a guest."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.unit.clusters.builders import NOON, SERVER, a_cluster, a_machine, a_pool, look, silent
from tests.unit.clusters.supervisors import Supervisors

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import management_api
from windrow.bootstrap.install.update_job import MACHINE_LABEL, SCRIPT
from windrow.bootstrap.pki import new_cluster_secrets
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.mutation_cache import MutationCache
from windrow.clusters.api.kinds import CLUSTER, MACHINE
from windrow.clusters.api.machine import Machine, read_machine
from windrow.clusters.api.names import APPLIED_REVISION, RETRY_UPDATE, STALLED_ROLLOUT
from windrow.clusters.api.operations.recorded import read_recorded_operations
from windrow.clusters.api.updates.turn import (
    LIVE,
    SERVICE_RESTART,
    VM_RESTART,
    MachineUpdate,
    UpdateFailure,
    render_machine_update,
)
from windrow.clusters.change.fields import OptionRules
from windrow.clusters.context import ReconcileContext, StalePlan
from windrow.clusters.execute.servers.supervisors import Supervisors as ServerSupervisors
from windrow.clusters.execute.update_actions import UpdateActions
from windrow.clusters.plan import actions as do
from windrow.clusters.state import ClusterState, MachineState, read_node
from windrow.clusters.updates.observed import ObservedJob
from windrow.core.rng import Rng
from windrow.kubernetes.objects import Raw, annotations_of, name_of, new_object, resource_version_of, uid_of
from windrow.kubernetes.resources import DEPLOYMENT, JOB, NAMESPACE, NODE, POD, SECRET
from windrow.machines.port import MachineRefused, Power, Problem
from windrow.nodedriver.vm.changes import find_changes

OLD, NEW = "v1.35.1+rke2r1", "v1.35.4+rke2r1"
SERVERS, WORKERS = a_pool("servers", 1, SERVER), a_pool("workers", 1)
REF, PROD, W1 = MACHINE.ref("w1", "fleet-default"), CLUSTER.ref("prod", "fleet-default"), NODE.ref("w1")
NOW = "windrow-update-now"
SECRETS = new_cluster_secrets(NOON)
UPDATE = MachineUpdate("digest", SERVICE_RESTART, NEW, "hash", "Apply", since=NOON, job=NOW)
OPTIONS = {
    "vmNamespace": "default",
    "cpuCount": "2",
    "reservedMemorySize": "512Mi",
    "imageName": "default/jammy",
}


@dataclass
class Infrastructure:
    """What VMs are asked for; an edit is refused where that is said."""

    asked: list[Any] = field(default_factory=list)
    refusal: MachineRefused | None = None

    async def power(self, config: Mapping[str, Any], wanted: Power) -> Mapping[str, Any]:
        self.asked.append((config["MachineName"], wanted.value))
        return config

    async def edit(self, config: Mapping[str, Any], options: Mapping[str, Any]) -> Mapping[str, Any]:
        if self.refusal is not None:
            raise self.refusal
        self.asked.append(dict(options))
        return {**config, "CPU": 4}


@dataclass
class Connection:
    """That to the guest. `created` are the Jobs that its watch was told of; `meanwhile` is what another writes to a Node."""

    client: Client
    meanwhile: Mapping[str, Any] | None = None
    created: list[str] = field(default_factory=list)

    @property
    def updates(self) -> Any:
        return type("Updates", (), {"created": lambda _, raw: self.created.append(name_of(raw))})()

    async def patch_node(self, name: str, change: Mapping[str, Any]) -> None:
        if self.meanwhile is not None:
            await self.client.patch(NODE.ref(name), self.meanwhile)
            self.meanwhile = None
        await self.client.patch(NODE.ref(name), change)


@dataclass
class Site:
    api: Client
    guest: Client
    actions: UpdateActions
    infrastructure: Infrastructure
    connection: Connection
    consents: list[str]
    servers: Supervisors

    async def machine(self) -> Machine:
        return read_machine(await self.api.get(REF))

    async def state(self, *, changed: Mapping[str, Any] | None = None, **rest: Any) -> ClusterState:
        """`changed` are fields of the MachineState."""
        raw = await self.api.get(PROD)
        cluster = replace(a_cluster(SERVERS, replace(WORKERS, options=rest.pop("options", OPTIONS)), raw=raw))
        cluster = replace(cluster, uid=uid_of(raw), **rest.pop("cluster", {}))
        machine = MachineState(await self.machine(), node=a_machine("w1", WORKERS).node)
        return look(cluster, [replace(machine, **(changed or {}))], secrets=SECRETS, **rest)

    async def turn(self, **rest: Any) -> MachineUpdate:
        """Record a turn of the machine."""
        update = replace(UPDATE, **rest)
        await self.api.patch(REF, {"status": {"update": render_machine_update(update)}}, "status")
        return update

    async def add_job(self, name: str, machine: str = "uid-w1") -> None:
        labels = {MACHINE_LABEL: machine}
        container = {"name": "update", "image": "pause"}
        template = {
            "metadata": {"labels": labels},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }
        await self.guest.create(SECRET, new_object(SECRET, name, "kube-system", labels=labels))
        spec = {"template": template}
        await self.guest.create(JOB, new_object(JOB, name, "kube-system", labels=labels, spec=spec))

    async def left(self) -> tuple[list[str], list[str]]:
        """The Jobs and the Secrets that there are."""
        jobs, secrets = [await self.guest.list(kind, "kube-system") for kind in (JOB, SECRET)]
        return sorted(map(name_of, jobs)), sorted(map(name_of, secrets))

    async def node(self) -> Raw:
        return await self.guest.get(W1)

    async def revision(self) -> str:
        return annotations_of(await self.node()).get(APPLIED_REVISION, "")

    async def is_cordoned(self) -> bool:
        return (await self.node())["spec"].get("unschedulable") is True


def on_a_site(story: Callable[[Site], Awaitable[None]]) -> None:
    async def run() -> None:
        clock = LoopClock(NOON)
        server = management_api(MemoryStore(), clock, Rng(1))
        await server.prepare()
        guest_server = ApiServer(MemoryStore(), clock, Rng(3), name="guest")
        await guest_server.prepare()
        api, guest = Client(server.local()), Client(guest_server.local())
        await api.create(NAMESPACE, new_object(NAMESPACE, "fleet-default"))
        await api.create(
            CLUSTER, new_object(CLUSTER, "prod", "fleet-default", spec={"kubernetesVersion": NEW})
        )
        spec = {
            "machineUID": "uid-w1",
            "clusterName": "prod",
            "clusterUID": "cluster-uid",
            "pool": "workers",
            "roles": ["worker"],
            "options": OPTIONS,
            "credential": "ns:cc",
            "version": OLD,
            "configHash": "before",
            "joinServer": "https://10.0.0.1:9345",
        }
        await api.create(MACHINE, new_object(MACHINE, "w1", "fleet-default", spec=spec))
        config = {"MachineName": "w1", "WindrowVMUID": "vm-w1", "WindrowCredential": "ns:driver"}
        await api.patch(REF, {"status": {"driverConfig": config}}, "status")
        await guest.create(NODE, new_object(NODE, "w1", spec={"unschedulable": True}))

        unused: Any = None
        consents: list[str] = []

        class Context(ReconcileContext):
            def require_consent(self, reference: str, namespace: str) -> None:
                consents.append(f"{reference} {namespace}")

        clusters = MutationCache(
            Informer(server.local(), CLUSTER, "", lambda raw: raw, clock, Rng(2)), lambda raw: "", clock
        )
        machines: MutationCache[Machine] = MutationCache(
            Informer(server.local(), MACHINE, "", read_machine, clock, Rng(2)),
            lambda one: one.resource_version,
            clock,
        )
        context = Context(api, clusters, machines, unused, clock, Rng(2), unused)
        connection, infrastructure = Connection(guest), Infrastructure()
        guests: Any = type("Guests", (), {"find": lambda _, uid: connection})()
        port: Any = infrastructure
        harvesters: Any = type("Harvesters", (), {"find_proxy": lambda *_: ""})()
        servers = Supervisors()
        asked = ServerSupervisors(harvesters, servers.connect)
        actions = UpdateActions(context, guests, port, asked)
        await story(Site(api, guest, actions, infrastructure, connection, consents, servers))

    run_driven(run())


# -- the records of a turn ---------------------------------------------------------------------------------------


def test_the_version_that_all_machines_run_is_recorded_once() -> None:
    async def story(site: Site) -> None:
        before = await site.state()
        await site.actions.record_version(do.RecordVersion("all run it", NEW), before)
        assert (await site.api.get(PROD))["status"]["version"] == NEW
        with pytest.raises(StalePlan):
            await site.actions.record_version(do.RecordVersion("all run it", OLD), before)

    on_a_site(story)


def test_a_turn_is_recorded_once_and_the_order_to_repeat_it_is_taken_off() -> None:
    async def story(site: Site) -> None:
        await site.api.patch(REF, {"metadata": {"annotations": {RETRY_UPDATE: "", "other": "1"}}})
        before = await site.state()
        await site.actions.begin_update(do.BeginUpdate("asked", "w1", UPDATE), before)
        machine = await site.machine()
        assert (machine.update, machine.retry_update) == (UPDATE, False)
        assert annotations_of(await site.api.get(REF)) == {"other": "1"}
        with pytest.raises(StalePlan):
            await site.actions.begin_update(do.BeginUpdate("asked", "w1", UPDATE), before)

    on_a_site(story)


def test_before_a_turn_is_begun_anew_its_former_jobs_go_but_for_one_that_runs() -> None:
    async def story(site: Site) -> None:
        await site.turn(failure=UpdateFailure("Apply", "no"))
        for name in ("over", "runs"):
            await site.add_job(name)
        await site.add_job("of-another", "uid-w2")
        running = {"former_jobs": (ObservedJob("runs", "running"), ObservedJob("over", "failed"))}
        action = do.BeginUpdate("asked again", "w1", replace(UPDATE, attempt=2))

        await site.actions.begin_update(action, await site.state(changed=running, guest=silent()))
        assert (await site.left())[0] == ["of-another", "over", "runs"]

        await site.actions.begin_update(action, await site.state(changed=running))
        assert await site.left() == (["of-another", "runs"], ["of-another", "runs"])

    on_a_site(story)


def test_a_first_turn_deletes_no_job() -> None:
    async def story(site: Site) -> None:
        await site.add_job("left")
        await site.actions.begin_update(do.BeginUpdate("asked", "w1", UPDATE), await site.state())
        assert await site.left() == (["left"], ["left"])

    on_a_site(story)


def test_the_next_step_is_recorded() -> None:
    async def story(site: Site) -> None:
        update = await site.turn(step="Drain")
        following = replace(update, step="Apply", step_since=NOON)
        await site.actions.record_update_step(
            do.RecordUpdateStep("drained", "w1", following), await site.state()
        )
        assert (await site.machine()).update == following

    on_a_site(story)


@pytest.mark.parametrize("cordons", [True, False])
def test_a_node_is_marked_and_cordoned_where_that_is_asked(cordons: bool) -> None:
    async def story(site: Site) -> None:
        await site.guest.patch(W1, {"spec": {"unschedulable": None}})
        action = do.MarkNode("its files change", "w1", "w1", cordons)
        with pytest.raises(StalePlan):
            await site.actions.mark_node(action, await site.state())
        assert await site.revision() == ""
        await site.turn()
        await site.actions.mark_node(action, await site.state())
        assert (await site.revision(), await site.is_cordoned()) == ("updating-digest", cordons)

    on_a_site(story)


# -- the Job -----------------------------------------------------------------------------------------------------

APPLY = do.ApplyUpdate("it is its turn", "w1", NOW, "w1")


def test_the_job_is_created_with_its_secret_which_it_owns_and_the_watch_is_told() -> None:
    async def story(site: Site) -> None:
        await site.turn()
        await site.actions.apply_update(APPLY, await site.state())
        job = await site.guest.get(JOB.ref(NOW, "kube-system"))
        secret = await site.guest.get(SECRET.ref(NOW, "kube-system"))
        (owner,) = secret["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Job", uid_of(job))
        pod = job["spec"]["template"]["spec"]
        assert (pod["nodeName"], job["metadata"]["labels"]) == ("w1", {MACHINE_LABEL: "uid-w1"})
        script = b64decode(secret["data"][SCRIPT]).decode()
        assert pod["containers"][0]["image"].startswith("rancher/mirrored-pause:")
        assert NEW in script
        assert "rke2-agent" in script
        assert len(secret["data"]) > 2
        assert site.connection.created == [NOW]

    on_a_site(story)


def test_the_job_that_asks_has_the_script_alone_and_a_name_of_its_own() -> None:
    async def story(site: Site) -> None:
        update = await site.turn(step="Preflight")
        name = update.preflight_job
        action = do.PreflightUpdate("it is to take it", "w1", name, "w1")
        await site.actions.preflight_update(action, await site.state())
        await site.actions.preflight_update(action, await site.state())  # as after a restart
        job = await site.guest.get(JOB.ref(name, "kube-system"))
        secret = await site.guest.get(SECRET.ref(name, "kube-system"))
        assert secret["metadata"]["ownerReferences"][0]["uid"] == uid_of(job)
        assert list(secret["data"]) == [SCRIPT]
        assert "nothing was changed" in b64decode(secret["data"][SCRIPT]).decode()
        assert name != update.job

    on_a_site(story)


def test_what_an_attempt_that_was_cut_off_has_left_is_used_and_brought_up_to_date() -> None:
    async def story(site: Site) -> None:
        await site.turn()
        await site.add_job(NOW)
        await site.actions.apply_update(APPLY, await site.state())
        job = await site.guest.get(JOB.ref(NOW, "kube-system"))
        secret = await site.guest.get(SECRET.ref(NOW, "kube-system"))
        assert job["spec"]["template"]["spec"]["containers"][0]["image"] == "pause"
        assert SCRIPT in secret["data"]
        assert secret["metadata"]["ownerReferences"][0]["uid"] == uid_of(job)
        assert site.connection.created == [NOW]

    on_a_site(story)


def ordered(status: dict[str, Any]) -> dict[str, Any]:
    """Of a cluster whose status orders to restart services."""
    recorded = replace(a_cluster().recorded, operations=read_recorded_operations(status))
    return {"cluster": {"recorded": recorded}}


RENEWAL = {"certificateRotationRun": {"generation": 1, "id": "certificates-1-7"}}


def test_a_restart_that_was_ordered_writes_no_file() -> None:
    async def story(site: Site) -> None:
        await site.turn(restart="certificates-1-7")
        await site.actions.apply_update(APPLY, await site.state(**ordered(RENEWAL)))
        secret = await site.guest.get(SECRET.ref(NOW, "kube-system"))
        assert list(secret["data"]) == [SCRIPT]
        assert "certificates-1-7" in b64decode(secret["data"][SCRIPT]).decode()

    on_a_site(story)


def test_files_that_were_ordered_are_written_and_nothing_restarts() -> None:
    async def story(site: Site) -> None:
        rotation = {"rotateTokenPhase": "PostRotateRestart", "rotateTokenRun": {"id": "token-1-7"}}
        state = ordered(rotation)
        await site.turn(restart="token-1-7", change=LIVE)
        await site.actions.apply_update(APPLY, await site.state(**state))
        secret = await site.guest.get(SECRET.ref(NOW, "kube-system"))
        script = b64decode(secret["data"][SCRIPT]).decode()
        assert len(secret["data"]) > 1
        assert "token-1-7" not in script
        assert "systemctl restart" not in script
        assert "restart-pending" not in script

    on_a_site(story)


def test_the_image_is_of_the_registry_of_the_cluster() -> None:
    async def story(site: Site) -> None:
        await site.turn()
        mirrored = {"cluster": {"global_config": {"system-default-registry": "registry.site:5000"}}}
        await site.actions.apply_update(APPLY, await site.state(**mirrored))
        job = await site.guest.get(JOB.ref(NOW, "kube-system"))
        image = job["spec"]["template"]["spec"]["containers"][0]["image"]
        assert image.startswith("registry.site:5000/rancher/mirrored-pause:")

    on_a_site(story)


def test_without_its_node_its_pool_or_the_secrets_of_the_cluster_no_job_is_made() -> None:
    async def story(site: Site) -> None:
        await site.turn()
        known = await site.state()
        nowhere = replace(known, cluster=replace(known.cluster, pools=()))
        await site.turn(restart="certificates-0-1")  # another order than that of now
        over = await site.state(**ordered(RENEWAL))
        for state, action in (
            (over, APPLY),
            (await site.state(), APPLY),
            (known, replace(APPLY, node="gone")),
            (nowhere, APPLY),
            (replace(known, secrets=None), APPLY),
        ):
            with pytest.raises(StalePlan):
                await site.actions.apply_update(action, state)
        assert await site.left() == ([], [])

    on_a_site(story)


def test_former_jobs_go_with_their_secrets_and_the_present_one_and_one_that_runs_stay() -> None:
    async def story(site: Site) -> None:
        await site.turn()
        for name in (NOW, "over", "runs"):
            await site.add_job(name)
        await site.add_job("of-another", "uid-w2")
        seen = {"update_job": ObservedJob(NOW, "succeeded"), "former_jobs": (ObservedJob("runs", "running"),)}
        await site.actions.delete_former_jobs(
            do.DeleteFormerJobs("there are two", "w1", NOW), await site.state(changed=seen)
        )
        assert await site.left() == (["of-another", "runs", NOW], ["of-another", "runs", NOW])

    on_a_site(story)


# -- the end of a turn -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("config_hash", "revision"), [("hash", "hash"), ("", "unknown")])
@pytest.mark.parametrize("uncordons", [True, False])
def test_a_turn_that_is_done_leaves_the_node_as_it_was_and_the_machine_with_what_it_runs(
    uncordons: bool, config_hash: str, revision: str
) -> None:
    async def story(site: Site) -> None:
        await site.turn(config_hash=config_hash)
        await site.add_job(NOW)
        running = {"update_job": ObservedJob(NOW, "running")}
        await site.actions.finish_update(
            do.FinishUpdate("it is done", "w1", "w1", uncordons), await site.state(changed=running)
        )
        machine = await site.machine()
        assert (machine.version, machine.config_hash) == (NEW, config_hash)
        assert (machine.update, machine.restarted) == (None, "")
        assert (await site.revision(), await site.is_cordoned()) == (revision, not uncordons)
        assert await site.left() == ([], [])

    on_a_site(story)


def test_an_order_to_restart_that_was_followed_is_recorded() -> None:
    async def story(site: Site) -> None:
        await site.turn(restart="certificates-1-7")
        await site.actions.finish_update(
            do.FinishUpdate("it is done", "w1", "w1", uncordons=True), await site.state()
        )
        assert (await site.machine()).restarted == "certificates-1-7"

    on_a_site(story)


def test_a_machine_that_was_changed_meanwhile_keeps_its_turn() -> None:
    async def story(site: Site) -> None:
        await site.turn()
        before = await site.state()
        await site.api.patch(REF, {"metadata": {"labels": {"a": "b"}}})
        with pytest.raises(StalePlan):
            await site.actions.finish_update(
                do.FinishUpdate("it is done", "w1", "w1", uncordons=True), before
            )
        machine = await site.machine()
        assert (machine.version, machine.update) == (OLD, UPDATE)

    on_a_site(story)


@pytest.mark.parametrize(
    ("cordoned", "ready", "reachable", "stays"),
    [
        (True, True, True, False),
        (False, True, True, True),
        (True, False, True, True),
        (True, True, False, True),
    ],
)
def test_a_node_whose_turn_has_failed_takes_pods_again_where_it_did_before_and_is_ready(
    cordoned: bool, ready: bool, reachable: bool, stays: bool
) -> None:
    async def story(site: Site) -> None:
        update = await site.turn(cordoned=cordoned)
        node = a_machine("w1", WORKERS).node
        assert node is not None
        failed = replace(update, failure=UpdateFailure("Apply", "no"))
        guest = {} if reachable else {"guest": silent()}
        await site.actions.fail_update(
            do.FailUpdate("no", "w1", failed),
            await site.state(changed={"node": replace(node, ready=ready)}, **guest),
        )
        assert await site.is_cordoned() is stays
        assert (await site.machine()).update == failed

    on_a_site(story)


@pytest.mark.parametrize(
    ("job", "reachable", "secrets"),
    [
        (ObservedJob(NOW, "failed"), True, []),
        (ObservedJob(NOW, "failed"), False, [NOW]),
        (ObservedJob(NOW, "running"), True, [NOW]),
        (ObservedJob(NOW, "succeeded"), True, [NOW]),
        (None, True, [NOW]),
    ],
)
def test_a_job_that_has_failed_stays_with_its_log_and_its_secret_goes(
    job: ObservedJob | None, reachable: bool, secrets: list[str]
) -> None:
    async def story(site: Site) -> None:
        failed = replace(await site.turn(), failure=UpdateFailure("Apply", "no"))
        await site.add_job(NOW)
        guest = {} if reachable else {"guest": silent()}
        await site.actions.fail_update(
            do.FailUpdate("no", "w1", failed), await site.state(changed={"update_job": job}, **guest)
        )
        assert await site.left() == ([NOW], secrets)

    on_a_site(story)


def test_a_turn_that_is_dropped_leaves_the_node_with_what_it_had() -> None:
    async def story(site: Site) -> None:
        drop = do.DropUpdate("nothing differs any more", "w1", "w1", uncordons=True)
        with pytest.raises(StalePlan):
            await site.actions.drop_update(drop, await site.state())
        assert await site.is_cordoned()
        await site.turn(restart="certificates-1-7")
        await site.add_job(NOW)
        await site.actions.drop_update(drop, await site.state())
        machine = await site.machine()
        assert (machine.update, machine.restarted, machine.version) == (None, "", OLD)
        assert (await site.revision(), await site.is_cordoned()) == ("before", False)
        assert await site.left() == ([], [])

    on_a_site(story)


def test_a_job_that_runs_outlives_a_turn_that_is_dropped() -> None:
    async def story(site: Site) -> None:
        await site.turn()
        await site.add_job(NOW)
        running = {"update_job": ObservedJob(NOW, "running")}
        drop = do.DropUpdate("nothing differs any more", "w1", "w1", uncordons=False)
        await site.actions.drop_update(drop, await site.state(changed=running))
        assert await site.is_cordoned()
        assert await site.left() == ([NOW], [NOW])

    on_a_site(story)


# -- labels and taints -------------------------------------------------------------------------------------------


def test_a_node_gets_the_labels_and_taints_of_its_pool_and_keeps_those_of_others() -> None:
    async def story(site: Site) -> None:
        taints = [
            {"key": "theirs", "effect": "NoSchedule"},
            {"key": "old", "value": "1", "effect": "NoSchedule"},
            {"key": "old", "value": "1", "effect": "NoExecute"},
            {"key": "mine", "value": "1", "effect": "NoExecute"},
        ]
        await site.guest.patch(
            W1, {"metadata": {"labels": {"old": "1", "theirs": "1"}}, "spec": {"taints": taints}}
        )
        action = do.UpdateNode(
            "its pool asks for it",
            "w1",
            "w1",
            {"zone": "a", "old": None},
            ("mine=2:NoExecute", "bare:NoSchedule"),
            ("old=0:NoSchedule",),
        )
        await site.actions.update_node(action, await site.state())
        raw, machine = await site.node(), await site.machine()
        assert raw["metadata"]["labels"] == {"theirs": "1", "zone": "a"}
        assert raw["spec"]["taints"] == [
            {"key": "theirs", "effect": "NoSchedule"},
            {"key": "old", "value": "1", "effect": "NoExecute"},
            {"key": "mine", "value": "2", "effect": "NoExecute"},
            {"key": "bare", "effect": "NoSchedule"},
        ]
        assert (machine.labels, machine.taints) == ({"zone": "a"}, ("mine=2:NoExecute", "bare:NoSchedule"))

        site.connection.meanwhile = {"metadata": {"labels": {"theirs": "2"}}}
        with pytest.raises(StalePlan):
            await site.actions.update_node(action, await site.state())
        assert (await site.node())["metadata"]["labels"]["theirs"] == "2"

        without = do.UpdateNode(
            "its pool has none", "w1", "w1", {}, (), ("mine=2:NoExecute", "bare:NoSchedule")
        )
        await site.actions.update_node(without, await site.state())
        assert [one["key"] for one in (await site.node())["spec"]["taints"]] == ["theirs", "old"]
        none = do.UpdateNode("its pool has none", "w1", "w1", {}, (), ("theirs:NoSchedule", "old:NoExecute"))
        await site.actions.update_node(none, await site.state())
        assert "taints" not in (await site.node())["spec"]
        with pytest.raises(StalePlan):
            await site.actions.update_node(replace(action, node="gone"), await site.state())

    on_a_site(story)


def test_labels_that_a_restart_would_bring_back_are_recorded_before_the_node_loses_them() -> None:
    async def story(site: Site) -> None:
        await site.guest.patch(W1, {"metadata": {"labels": {"old": "x"}}})
        action = do.UpdateNode("its pool", "w1", "w1", {"old": None, "tier": "gold"}, (), (), {"old": "x"})
        with pytest.raises(StalePlan):
            await site.actions.update_node(action, await site.state())
        assert (await site.machine()).status["formerLabels"] == {"old": "x"}
        assert (await site.node())["metadata"]["labels"] == {"old": "x"}
        await site.actions.update_node(action, await site.state())
        assert (await site.node())["metadata"]["labels"] == {"tier": "gold"}

        again = do.UpdateNode("its pool", "w1", "w1", {"old": "y"}, (), ())
        with pytest.raises(StalePlan):
            await site.actions.update_node(again, await site.state())
        assert not (await site.machine()).status.get("formerLabels")

    on_a_site(story)


def test_taints_are_recorded_before_the_node_has_them() -> None:
    async def story(site: Site) -> None:
        taints = ("db=1:NoSchedule",)
        action = do.UpdateNode("its pool", "w1", "w1", {}, taints, (), {}, taints)
        with pytest.raises(StalePlan):
            await site.actions.update_node(action, await site.state())
        assert (await site.machine()).status["formerTaints"] == ["db=1:NoSchedule"]
        assert "formerLabels" not in (await site.machine()).status
        assert "taints" not in (await site.node())["spec"]

        await site.actions.update_node(action, await site.state())
        assert read_node(await site.node()).taints == {"db=1:NoSchedule"}
        assert (await site.machine()).taints == taints

    on_a_site(story)


def test_the_taints_of_a_node_are_those_of_its_pool_and_of_people() -> None:
    taints = [
        {"key": "db", "value": "1", "effect": "NoSchedule"},
        {"key": "bare", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
        {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
    ]

    assert read_node(new_object(NODE, "w1", spec={"taints": taints})).taints == {
        "db=1:NoSchedule",
        "bare:NoExecute",
    }


@pytest.mark.parametrize(
    ("change", "restart", "left"),
    [(SERVICE_RESTART, "", None), (LIVE, "", None), (SERVICE_RESTART, "1", {"old": "x"})],
)
def test_former_labels_and_taints_are_forgotten_once_a_job_has_written_the_file(
    change: str, restart: str, left: Any
) -> None:
    async def story(site: Site) -> None:
        former = {"formerLabels": {"old": "x"}, "formerTaints": ["old:NoSchedule"]}
        await site.api.patch(REF, {"status": former}, "status")
        await site.turn(change=change, step="Apply", restart=restart)
        await site.actions.finish_update(do.FinishUpdate("it runs", "w1", "w1", False), await site.state())
        status = (await site.machine()).status
        assert status.get("formerLabels") == left
        assert status.get("formerTaints") == (left and ["old:NoSchedule"])

    on_a_site(story)


def test_a_turn_for_the_server_token_writes_the_file_and_forgets_former_labels() -> None:
    token = {"rotateTokenPhase": "PostRotateRestart", "rotateTokenRun": {"generation": 1, "id": "token-1-7"}}

    async def story(site: Site) -> None:
        await site.api.patch(REF, {"status": {"formerLabels": {"old": "x"}}}, "status")
        await site.turn(step="Apply", restart="token-1-7")
        state = await site.state(**ordered(token))
        await site.actions.finish_update(do.FinishUpdate("it runs", "w1", "w1", False), state)
        assert not (await site.machine()).status.get("formerLabels")

    on_a_site(story)


# -- stalled rollouts --------------------------------------------------------------------------------------------

PROVIDER = DEPLOYMENT.ref("harvester-cloud-provider", "kube-system")


async def add_rollout(site: Site) -> tuple[Raw, Raw]:
    """A Deployment and its old pod."""
    labels = {"app": "ccm"}
    pod = {"containers": [{"name": "c", "image": "ccm:1"}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    deployment = new_object(DEPLOYMENT, PROVIDER.name, "kube-system", spec=spec)
    old = new_object(POD, "old", "kube-system", labels=labels, spec=pod)
    return await site.guest.create(DEPLOYMENT, deployment), await site.guest.create(POD, old)


def test_a_rollout_is_let_be_one_pod_short_unless_the_deployment_has_changed_meanwhile() -> None:
    async def story(site: Site) -> None:
        deployment, _ = await add_rollout(site)
        relax = do.RelaxRollout("it stalls", PROVIDER.name, resource_version_of(deployment))
        await site.actions.relax_rollout(relax, await site.state())
        strategy = (await site.guest.get(PROVIDER))["spec"]["strategy"]
        assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
        with pytest.raises(StalePlan):
            await site.actions.relax_rollout(relax, await site.state())
        with pytest.raises(StalePlan):
            await site.actions.relax_rollout(replace(relax, deployment="gone"), await site.state())

    on_a_site(story)


def test_the_deletion_of_an_old_pod_is_recorded_before_and_so_never_done_once_too_often() -> None:
    async def story(site: Site) -> None:
        deployment, pod = await add_rollout(site)
        version = resource_version_of(deployment)
        delete = do.DeleteStalledPod("it stalls", PROVIDER.name, version, "old", uid_of(pod), "2/1")
        await site.actions.delete_stalled_pod(replace(delete, uid="another"), await site.state())
        deployment = await site.guest.get(PROVIDER)
        assert annotations_of(deployment)[STALLED_ROLLOUT] == "2/1"
        assert [name_of(one) for one in await site.guest.list(POD, "kube-system")] == ["old"]
        with pytest.raises(StalePlan):  # of a plan that has been carried out
            await site.actions.delete_stalled_pod(delete, await site.state())
        assert [name_of(one) for one in await site.guest.list(POD, "kube-system")] == ["old"]

        present = replace(delete, resource_version=resource_version_of(deployment), record="2/2")
        await site.actions.delete_stalled_pod(present, await site.state())
        assert await site.guest.list(POD, "kube-system") == []
        present = replace(present, resource_version=resource_version_of(await site.guest.get(PROVIDER)))
        await site.actions.delete_stalled_pod(present, await site.state())  # it is gone

    on_a_site(story)


# -- the VM ------------------------------------------------------------------------------------------------------

LARGER = {"vmNamespace": "default", "cpuCount": "4", "imageName": "default/noble"}
RULES = {"option_rules": OptionRules(frozenset({"cpuCount"}), find_changes)}


def test_a_vm_is_stopped_and_started_by_the_credentials_that_are_recorded_for_it() -> None:
    async def story(site: Site) -> None:
        await site.turn(change=VM_RESTART)
        await site.actions.power_vm(do.PowerVM("it is edited", "w1", "off"), await site.state())
        await site.actions.power_vm(do.PowerVM("it is edited", "w1", "on"), await site.state())
        assert site.infrastructure.asked == [("w1", "off"), ("w1", "on")]
        assert sorted(set(site.consents)) == ["ns:cc fleet-default", "ns:driver fleet-default"]

    on_a_site(story)


def test_of_what_the_pool_asks_for_a_vm_is_given_what_a_restart_gives_it() -> None:
    async def story(site: Site) -> None:
        update = await site.turn(change=VM_RESTART, step="Stop")
        state = await site.state(options=LARGER, **RULES)
        await site.actions.edit_vm(do.EditVM("it is stopped", "w1", NEW), state)
        given = {"vmNamespace": "default", "cpuCount": "4", "imageName": "default/jammy"}
        machine = await site.machine()
        assert site.infrastructure.asked == [given]
        assert machine.options == given
        assert (machine.driver_config or {})["CPU"] == 4
        assert machine.update == replace(update, step="Start", step_since=NOON)
        assert sorted(site.consents) == ["ns:cc fleet-default", "ns:driver fleet-default"]

    on_a_site(story)


def test_an_edit_that_is_refused_is_recorded_as_the_next_step_and_changes_nothing() -> None:
    async def story(site: Site) -> None:
        update = await site.turn(change=VM_RESTART, step="Stop")
        site.infrastructure.refusal = MachineRefused([Problem("exceeded quota", "raise it")])
        state = await site.state(options=LARGER, **RULES)
        await site.actions.edit_vm(do.EditVM("it is stopped", "w1", NEW), state)
        machine = await site.machine()
        assert machine.options == OPTIONS
        assert machine.update is not None
        assert "exceeded quota" in machine.update.refused
        assert replace(machine.update, refused="") == replace(update, step="Start", step_since=NOON)

    on_a_site(story)


def test_without_the_options_of_its_pool_nothing_is_edited() -> None:
    async def story(site: Site) -> None:
        await site.turn(change=VM_RESTART, step="Stop")
        known = await site.state(options=LARGER, **RULES)
        poolless = replace(known, cluster=replace(known.cluster, pools=()))
        for state in (poolless, await site.state(options=None, **RULES)):
            with pytest.raises(StalePlan):
                await site.actions.edit_vm(do.EditVM("it is stopped", "w1", NEW), state)
        assert site.infrastructure.asked == []

    on_a_site(story)


NEW_KEYS = {"certificateRotationRun": {"generation": 1, "id": "certificates-1-7", "newKeys": True}}
SOME_KEYS = {"certificateRotationRun": NEW_KEYS["certificateRotationRun"] | {"services": ["kubelet"]}}
NEAR, FAR, NEXT = "2026-02-01T12:00:00Z", "2026-11-01T12:00:00Z", "2027-01-01T12:00:00Z"


@pytest.mark.parametrize(
    ("change", "roles", "status", "before", "after"),
    [
        (SERVICE_RESTART, WORKERS.roles, {}, FAR, NEXT),
        (SERVICE_RESTART, SERVER, {}, NEAR, NEXT),
        (SERVICE_RESTART, SERVER, {}, FAR, FAR),
        (VM_RESTART, SERVER, {}, NEAR, NEXT),
        (LIVE, SERVER, {}, NEAR, NEAR),
        (SERVICE_RESTART, SERVER, NEW_KEYS, FAR, NEXT),
        (SERVICE_RESTART, SERVER, SOME_KEYS, FAR, FAR),
        (SERVICE_RESTART, SERVER, RENEWAL, FAR, FAR),
    ],
)
def test_at_the_end_of_a_turn_it_is_recorded_how_long_its_certificates_are_valid(
    change: str, roles: Any, status: dict[str, Any], before: str, after: str
) -> None:
    async def story(site: Site) -> None:
        restart = "certificates-1-7" if status else ""
        await site.turn(change=change, restart=restart)
        await site.api.patch(REF, {"status": {"certificatesExpiryDate": before}}, "status")
        state = await site.state(**(ordered(status) if status else {}))
        (machine,) = state.machines
        state = replace(state, machines=(replace(machine, record=replace(machine.record, roles=roles)),))
        await site.actions.finish_update(do.FinishUpdate("it is done", "w1", "w1", uncordons=True), state)
        assert (await site.machine()).status["certificatesExpiryDate"] == after

    on_a_site(story)
