"""What goes wrong with virtual machines on Harvester, and how it shows (reference 05 §2.5 F–K)."""

from __future__ import annotations

from tests.support.clock import run_driven

from windrow.emulator import kinds
from windrow.emulator.faults import AgentFault, Faults
from windrow.emulator.preload import Image
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.objects import annotations_of, labels_of, nested, new_object, uid_of
from windrow.kubernetes.resources import EVENT, NODE, PVC, SECRET

from .harvester_rig import (
    a_harvester,
    a_vm,
    boot,
    eventually,
    has_address,
    is_gone,
    order,
    post,
    shows,
    vm_ref,
    vmi_ref,
)


def test_a_machine_whose_cloud_init_secret_is_missing_waits_for_it():
    async def story():
        async with a_harvester() as harvester:
            await post(harvester, secret="m-1-cloudinit")
            await harvester.clock.sleep(300)
            waiting = await eventually(harvester, vmi_ref(), lambda vmi: vmi is not None)
            assert nested(waiting, "status", "phase") == "Scheduling"
            await eventually(harvester, vm_ref(), shows("Starting"))

            secret = new_object(
                SECRET, "m-1-cloudinit", "default", stringData={"userdata": "#cloud-config\n"}
            )
            await harvester.api.local().create(SECRET, secret)

            await eventually(harvester, vmi_ref(), has_address)

    run_driven(story())


def test_a_machine_of_an_unknown_image_waits_for_a_claim_that_never_comes():
    async def story():
        async with a_harvester() as harvester:
            await post(harvester, image="default/nowhere")
            await eventually(harvester, vm_ref(), shows("ErrorPvcNotFound"))
            await harvester.clock.sleep(600)
            await eventually(harvester, vm_ref(), shows("ErrorPvcNotFound"))
            assert await harvester.api.local().list(PVC) == []

    run_driven(story())


def test_a_machine_waits_for_its_image_to_be_imported():
    async def story():
        async with a_harvester() as harvester:
            await harvester.preload(images=[Image("default/late", import_outcome="")])
            image = await eventually(
                harvester,
                kinds.IMAGE.ref("late", "default"),
                lambda raw: bool(nested(raw, "status", "storageClassName")),
            )
            assert image["status"]["progress"] < 100
            await post(harvester, image="default/late", storage_class=image["status"]["storageClassName"])
            await eventually(harvester, vm_ref(), shows("ErrorUnschedulable"))

            await eventually(harvester, vmi_ref(), has_address)

            image = await harvester.api.local().get(kinds.IMAGE.ref("late", "default"))
            assert image["status"]["progress"] == 100
            assert find_condition(image["status"]["conditions"], "Imported").status == "True"

    run_driven(story())


def test_an_import_that_fails_is_tried_again_and_given_up():
    async def story():
        async with a_harvester() as harvester:
            await harvester.preload(images=[Image("default/bad", import_outcome="fails")])

            def gave_up(raw):
                found = find_condition(nested(raw, "status", "conditions"), "RetryLimitExceeded")
                return found is not None and found.status == "True"

            image = await eventually(harvester, kinds.IMAGE.ref("bad", "default"), gave_up)
            assert image["status"]["failed"] == 4
            assert find_condition(image["status"]["conditions"], "Imported").status == "False"

    run_driven(story())


def test_a_machine_too_big_for_the_hosts_waits_and_starts_when_there_is_room():
    async def story():
        async with a_harvester() as harvester:
            for place in range(3):
                await boot(harvester, name=f"big-{place}", memory="150Gi")
            await post(harvester, memory="150Gi")

            def says_why(vm):
                found = find_condition(nested(vm, "status", "conditions"), "PodScheduled")
                return found is not None and found.message.startswith(
                    "0/3 nodes are available: 3 Insufficient memory."
                )

            stuck = await eventually(harvester, vm_ref(), says_why)
            assert shows("ErrorUnschedulable")(stuck)

            await harvester.api.local().delete(vm_ref("big-1"), propagation="Foreground")

            await eventually(harvester, vmi_ref(), has_address)

    run_driven(story())


def test_machines_of_one_driver_spread_over_the_hosts():
    async def story():
        async with a_harvester() as harvester:
            found = [await boot(harvester, name=f"m-{place}") for place in range(3)]
            return sorted(vmi["status"]["nodeName"] for vmi in found)

    assert run_driven(story()) == ["host-1", "host-2", "host-3"]


def test_a_machine_over_its_namespaces_quota_is_quietly_halted():
    async def story():
        async with a_harvester() as harvester:
            quota = new_object(
                kinds.QUOTA,
                "default-abcde",
                "default",
                labels={"resourcequota.management.cattle.io/default-resource-quota": "true"},
                spec={"hard": {"limits.cpu": "3"}},
            )
            await harvester.api.local().create(kinds.QUOTA, quota)
            await boot(harvester)

            await post(harvester, name="m-2")
            halted = await eventually(
                harvester, vm_ref("m-2"), lambda vm: nested(vm, "spec", "runStrategy") == "Halted"
            )

            text = "cpu insufficient resources due to resource quota"
            assert text == annotations_of(halted)["harvesterhci.io/insufficient-resource-quota"]
            assert await harvester.api.local().find(vmi_ref("m-2")) is None
            events = await harvester.api.local().list(EVENT, "default")
            assert f"Set runStrategy to Halted: {text}" in [event["message"] for event in events]
            assert await order(harvester, "start", "m-2") == 500

    run_driven(story())


def test_a_lost_host_costs_four_minutes_and_the_machine_comes_back_elsewhere():
    async def story():
        async with a_harvester() as harvester:
            first = await boot(harvester)
            host = first["status"]["nodeName"]
            began = harvester.clock.now()

            harvester.fail_host(host)
            await eventually(harvester, vmi_ref(), lambda vmi: nested(vmi, "status", "phase") == "Running")
            await eventually(harvester, vm_ref(), lambda vm: not nested(vm, "status", "ready"))
            node = await harvester.api.local().get(NODE.ref(host))
            assert find_condition(node["status"]["conditions"], "Ready").status == "Unknown"
            second = await eventually(
                harvester, vmi_ref(), lambda vmi: vmi is not None and uid_of(vmi) != uid_of(first)
            )
            lost = (harvester.clock.now() - began).total_seconds()
            second = await eventually(harvester, vmi_ref(), has_address)
            assert 235 < lost < 260
            assert second["status"]["nodeName"] != host
            assert (
                first["status"]["interfaces"][0]["ipAddress"]
                == second["status"]["interfaces"][0]["ipAddress"]
            )
            node = await harvester.api.local().get(NODE.ref(host))
            taints = [taint["key"] for taint in node["spec"]["taints"]]
            assert "node.kubernetes.io/out-of-service" in taints
            assert find_condition(node["status"]["conditions"], "Drained").reason == "HarvesterNodeIsDrained"

            harvester.recover_host(host)
            healthy = await eventually(
                harvester, NODE.ref(host), lambda raw: not nested(raw, "spec", "taints", default=[])
            )
            assert find_condition(healthy["status"]["conditions"], "Drained") is None

    run_driven(story())


def test_a_host_that_returns_soon_starts_its_machines_again_itself():
    async def story():
        async with a_harvester() as harvester:
            first = await boot(harvester)
            harvester.fail_host(first["status"]["nodeName"])
            await harvester.clock.sleep(30)
            harvester.recover_host(first["status"]["nodeName"])

            await eventually(
                harvester,
                vmi_ref(),
                lambda vmi: has_address(vmi) and uid_of(vmi) != uid_of(first),
                within_s=120,
            )

    run_driven(story())


def test_a_machine_on_a_dead_host_hangs_in_deletion_until_the_host_is_cleared():
    async def story():
        async with a_harvester() as harvester:
            first = await boot(harvester)
            harvester.fail_host(first["status"]["nodeName"])
            await harvester.api.local().delete(vm_ref(), propagation="Foreground")
            await harvester.clock.sleep(200)
            await eventually(harvester, vm_ref(), shows("Terminating"))

            await eventually(harvester, vm_ref(), is_gone)

    run_driven(story())


def test_zones_reach_the_instances_of_the_node_driver_alone():
    async def story():
        async with a_harvester() as harvester:
            ours = await boot(harvester)
            theirs = await boot(harvester, name="m-2", labels={"harvesterhci.io/creator": "harvester"})
            return annotations_of(ours), annotations_of(theirs)

    ours, theirs = run_driven(story())
    assert ours["topology.kubernetes.io/zone"] == "zone-1"
    assert ours["topology.kubernetes.io/region"] == "eu-west"
    assert "topology.kubernetes.io/zone" not in theirs


def test_a_label_on_the_template_shows_on_a_running_instance_and_one_on_the_vm_does_not():
    async def story():
        async with a_harvester() as harvester:
            await boot(harvester)
            change = {
                "metadata": {"labels": {"on": "vm"}},
                "spec": {"template": {"metadata": {"labels": {"below": "template"}}}},
            }
            await harvester.api.local().patch(vm_ref(), change)
            vmi = await eventually(harvester, vmi_ref(), lambda raw: "below" in labels_of(raw))
            assert "on" not in labels_of(vmi)
            assert vmi["status"]["nodeName"] == labels_of(vmi)["kubevirt.io/nodeName"]

    run_driven(story())


def test_without_an_agent_a_running_machine_shows_no_address():
    async def story():
        async with a_harvester(faults=Faults(agents=[AgentFault(kind="absent")])) as harvester:
            await post(harvester)
            await eventually(harvester, vm_ref(), shows("Running"))
            await harvester.clock.sleep(600)
            vmi = await harvester.api.local().get(vmi_ref())
            assert vmi["status"]["interfaces"][0]["infoSource"] == "domain, multus-status"
            assert not has_address(vmi)
            assert find_condition(vmi["status"]["conditions"], "AgentConnected") is None

    run_driven(story())


def test_a_deaf_machine_is_destroyed_after_its_grace():
    async def story():
        async with a_harvester(faults=Faults(unresponsive=["default/*"])) as harvester:
            await boot(harvester)
            began = harvester.clock.now()
            await harvester.api.local().delete(vm_ref(), propagation="Foreground")
            await eventually(harvester, vm_ref(), is_gone)
            return (harvester.clock.now() - began).total_seconds()

    assert 120 < run_driven(story()) < 130


def test_a_machine_may_come_back_with_another_address():
    async def story():
        async with a_harvester() as harvester:
            first = await boot(harvester)
            harvester.renew_lease("default", "m-1")
            await order(harvester, "restart")
            second = await eventually(
                harvester, vmi_ref(), lambda vmi: has_address(vmi) and uid_of(vmi) != uid_of(first)
            )
            return [vmi["status"]["interfaces"][0]["ipAddress"] for vmi in (first, second)]

    first, second = run_driven(story())
    assert first != second


def test_an_address_may_be_lost_for_a_while():
    async def story():
        async with a_harvester() as harvester:
            before = await boot(harvester)
            harvester.silence_agent("default", "m-1", 60)
            await eventually(harvester, vmi_ref(), lambda vmi: not has_address(vmi))
            after = await eventually(harvester, vmi_ref(), has_address)
            assert before["status"]["interfaces"] == after["status"]["interfaces"]
            assert uid_of(before) == uid_of(after)

    run_driven(story())


def test_a_finalizer_cut_by_hand_leaves_no_machine_running():
    async def story():
        async with a_harvester() as harvester:
            line = harvester.api.local()
            await boot(harvester)
            await line.patch(vm_ref(), {"spec": {"runStrategy": "Halted"}})
            await line.patch(vmi_ref(), {"metadata": {"finalizers": None}})
            await eventually(harvester, vmi_ref(), is_gone)
            await harvester.clock.sleep(1)
            return harvester.hypervisor.running_machines()

    assert run_driven(story()) == []


def test_an_agent_may_be_late_or_lie():
    async def story():
        faults = Faults(
            agents=[AgentFault("default/late", "late", late_s=300), AgentFault("default/liar", "lying")]
        )
        async with a_harvester(faults=faults) as harvester:
            began = harvester.clock.now()
            liar = await boot(harvester, name="liar")
            assert liar["status"]["interfaces"][0]["ipAddress"] == "169.254.7.7"
            await boot(harvester, name="late")
            assert (harvester.clock.now() - began).total_seconds() > 300

    run_driven(story())


def test_a_vm_whose_update_fails_validation_hangs_in_terminating():
    async def story():
        async with a_harvester() as harvester:
            line = harvester.api.local()
            await boot(harvester)
            # Behind the webhook's back, as a restored backup can: a second VM that mounts the same claim.
            twin = a_vm("m-2", storage_class="harvester-longhorn")
            twin["spec"]["template"]["spec"]["volumes"][1]["persistentVolumeClaim"]["claimName"] = (
                "m-1-disk-0-abcde"
            )
            twin["spec"]["runStrategy"] = "Halted"
            hooks, harvester.api.admission[:] = list(harvester.api.admission), []
            checks, harvester.api.validation[:] = list(harvester.api.validation), []
            await line.create(kinds.VM, twin)
            harvester.api.admission[:], harvester.api.validation[:] = hooks, checks

            await line.delete(vm_ref(), propagation="Foreground")
            await harvester.clock.sleep(900)

            hanging = await line.get(vm_ref())
            assert hanging["metadata"]["deletionTimestamp"]
            assert await line.find(vmi_ref()) is None
            assert any("is already used by other VM" in note for note in harvester.log)

    run_driven(story())


def test_a_host_enters_maintenance_mode_when_its_machines_have_moved_and_leaves_it_again():
    async def story():
        async with a_harvester() as harvester:
            first = await boot(harvester)
            asked = {"harvesterhci.io/maintain-mode-strategy": "ShutdownAndRestartAfterDisable"}
            await boot(harvester, name="m-2", labels=asked)
            host = first["status"]["nodeName"]
            other = await harvester.api.local().get(vmi_ref("m-2"))
            host_2 = other["status"]["nodeName"]

            await harvester.begin_maintenance(host)

            def status(wanted):
                return lambda node: annotations_of(node).get("harvesterhci.io/maintain-status") == wanted

            node = await eventually(harvester, NODE.ref(host), status("completed"))
            assert node["spec"]["unschedulable"] is True
            assert "harvesterhci.io/drain-requested" not in annotations_of(node)
            moved = await harvester.api.local().get(vmi_ref())
            assert uid_of(moved) == uid_of(first)
            assert moved["status"]["nodeName"] != host
            await harvester.begin_maintenance(host_2)  # one at a time
            refused = await eventually(
                harvester,
                NODE.ref(host_2),
                lambda raw: "harvesterhci.io/drain-requested" not in annotations_of(raw),
            )
            assert "unschedulable" not in refused["spec"]
            assert "another controlplane is already in maintenance mode" in harvester.log[-1]
            await harvester.end_maintenance(host)
            await harvester.begin_maintenance(host_2)
            await eventually(harvester, NODE.ref(host_2), status("completed"))
            await eventually(harvester, vmi_ref("m-2"), is_gone)
            await eventually(harvester, vm_ref("m-2"), shows("Stopped"))
            await harvester.end_maintenance(host_2)
            await eventually(harvester, vm_ref("m-2"), shows("Running"))
            node = await harvester.api.local().get(NODE.ref(host_2))
            assert "unschedulable" not in node["spec"]

    run_driven(story())


def test_the_power_of_a_host_is_cut_and_given_by_an_annotation():
    async def story():
        async with a_harvester() as harvester:
            line = harvester.api.local()

            def is_ready(wanted):
                return lambda node: find_condition(node["status"]["conditions"], "Ready").status == wanted

            for value, status in (("off", "Unknown"), (None, "True"), ("off", "Unknown"), ("on", "True")):
                power = {"metadata": {"annotations": {"emulator.windrow.io/power": value}}}
                await line.patch(NODE.ref("host-1"), power)
                await eventually(harvester, NODE.ref("host-1"), is_ready(status))
            assert harvester.hosts.has_power("host-1")

    run_driven(story())
