"""The whole program between two API servers in this process: a guest cluster and a Harvester."""

import asyncio
import base64
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.support.clock import NOON, LoopClock
from tests.support.cloud_provider import run

from windrow.core.formats.json import dumps
from windrow.core.logs import line_logger
from windrow.core.rng import Rng
from windrow.kubernetes.kubeconfig import render_kubeconfig
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import CONFIG_MAP, EVENT, LEASE, NAMESPACE, NODE, SERVICE

from .rig import BALANCER, LEASE_REF, SHUTDOWN, UNINITIALISED, VM, VMI, ZONE, Slipped, run_story, settled
from .services.rig import FaultyTransport


def test_a_node_is_initialised_once_its_address_is_confirmed():
    async def story(world):
        uid = await world.make_vm("w1")
        world.start()
        await world.join("w1", "192.168.1.5")
        await asyncio.sleep(60)
        waiting = (await world.taints("w1"), [line for line in world.lines if "192.168.1.5" in line])
        await world.report("w1", "192.168.1.5", "fe80::1")
        await asyncio.sleep(0.1)
        return uid, waiting, await world.node("w1"), await world.events()

    uid, (taints, lines), node, events = run_story(story)

    assert taints == [UNINITIALISED]
    assert len(lines) == 1
    assert 'provided node ip for node "w1" is not valid' in lines[0]
    assert "taints" not in node["spec"]
    assert node["spec"]["providerID"] == f"harvester://{uid}"
    assert node["metadata"]["labels"] == {
        "topology.kubernetes.io/zone": "z1",
        "failure-domain.beta.kubernetes.io/zone": "z1",
        "topology.kubernetes.io/region": "r1",
        "failure-domain.beta.kubernetes.io/region": "r1",
    }
    assert node["status"]["addresses"] == [
        {"type": "InternalIP", "address": "192.168.1.5"},
        {"type": "Hostname", "address": "w1"},
    ]
    assert events == [("w1", "Synced")]


def test_the_log_tells_in_plain_words_what_was_done_to_a_node_and_why():
    async def story(world):
        await settled(world, "w1")
        return world.said('node="w1"')

    said = run_story(story)

    assert (
        'info: taint node.cloudprovider.kubernetes.io/uninitialized removed because it runs in VM w1 node="w1"'
        in said
    )
    assert 'info: addresses set to 192.168.1.0, w1 because VM w1 reports them node="w1"' in said
    assert not [line for line in said if "EmitEvent" in line or "SetLabels" in line]


def test_a_guest_with_a_name_of_its_own_is_found_by_asking_it():
    async def story(world):
        uid = await world.make_vm("vm-7", "192.168.1.5")
        await world.make_vm("vm-8", "192.168.1.6", cluster="other")
        world.hostnames = {"vm-7": "", "vm-8": "db.example.org"}
        world.start()
        await world.join("db", "192.168.1.5")
        await asyncio.sleep(60)
        early = (await world.node("db"))["spec"].get("providerID")
        world.hostnames["vm-7"] = "db.example.org"
        await asyncio.sleep(60)
        asked = len(world.requests)
        await asyncio.sleep(600)
        return uid, early, (await world.node("db"))["spec"]["providerID"], len(world.requests) - asked

    uid, early, found, more = run_story(story)

    assert (early, found, more) == (None, f"harvester://{uid}", 0)


def test_guests_are_not_asked_for_their_names_where_that_is_switched_off():
    async def story(world):
        await world.make_vm("vm-7", "192.168.1.5")
        world.hostnames = {"vm-7": "db"}
        world.start("--disable-hostname-lookup=true")
        await world.join("db", "192.168.1.5")
        await asyncio.sleep(600)
        return (await world.node("db"))["spec"].get("providerID"), world.requests

    assert run_story(story) == (None, [])


def test_a_migrated_vm_takes_its_node_to_the_other_zone_without_a_taint():
    async def story(world):
        await world.make_vm("w1", "192.168.1.5")
        world.start()
        await world.join("w1", "192.168.1.5")
        await asyncio.sleep(10)
        await world.harvester.patch(VMI.ref("w1", "default"), {"metadata": {"annotations": {ZONE: "z2"}}})
        await asyncio.sleep(10)
        node = await world.node("w1")
        return node["metadata"]["labels"][ZONE], await world.taints("w1"), await world.events()

    assert run_story(story) == ("z2", [], [("w1", "Synced")])


def test_a_change_of_a_vm_reaches_both_of_two_nodes_that_run_in_it():
    async def story(world):
        uid = await world.make_vm("w1", "192.168.1.5")
        for name in ("w1", "w1-again"):
            await world.join(name, "192.168.1.5", uuid="u")
            await world.cluster.patch(NODE.ref(name), {"spec": {"providerID": f"harvester://{uid}"}})
        world.start()
        await asyncio.sleep(30)
        before = [(await world.labels(name))[ZONE] for name in ("w1", "w1-again")]
        await world.set_topology("w1", zone="z2")
        await asyncio.sleep(1)
        return before, [(await world.labels(name))[ZONE] for name in ("w1", "w1-again")]

    assert run_story(story) == (["z1", "z1"], ["z2", "z2"])


@pytest.mark.parametrize("away_s", [20, 600])
def test_two_seconds_after_harvester_is_back_nodes_and_services_are_as_they_should_be(away_s):
    async def story(world):
        cables = []

        def wrap(transport):
            cable = FaultyTransport(transport, "harvester", Counter())
            if transport.config.server.startswith("https://10.0.0.1"):
                cables.append(cable)
            return cable

        world.wrap = wrap
        await settled(world, "w1")
        for cable in cables:
            cable.cut()
        await world.make_vm("w2", "192.168.1.7")
        await world.join("w2", "192.168.1.7")
        spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
        await world.cluster.create(SERVICE, new_object(SERVICE, "web", "default", spec=spec))
        await asyncio.sleep(away_s)
        before = await world.taints("w2"), await world.harvester.list(BALANCER)
        for cable in cables:
            cable.mend()
        await asyncio.sleep(2)
        return before, await world.taints("w2"), len(await world.harvester.list(BALANCER))

    before, taints, balancers = run_story(story)

    assert before == ([UNINITIALISED], [])
    assert (taints, balancers) == ([], 1)


def test_a_node_whose_vm_is_gone_is_deleted_once_it_is_not_ready():
    async def story(world):
        await settled(world, "w1", "w2")
        await world.lose_vm("w1")
        await asyncio.sleep(60)
        while_ready = await world.node("w1")
        await world.be_ready("w1", False)
        await asyncio.sleep(5)
        return (
            while_ready["metadata"]["name"],
            [raw["metadata"]["name"] for raw in await world.cluster.list(NODE)],
            (
                "w1",
                "DeletingNode",
            )
            in await world.events(),
        )

    assert run_story(story) == ("w1", ["w2"], True)


def test_a_vm_made_anew_under_the_same_name_is_not_the_old_one():
    async def story(world):
        await settled(world, "w1", "w2")
        await world.lose_vm("w1")
        await world.make_vm("w1", "192.168.1.9")
        await world.be_ready("w1", False)
        await asyncio.sleep(5)
        deleted = [raw["metadata"]["name"] for raw in await world.cluster.list(NODE)]
        uid = (await world.harvester.get(VM.ref("w1", "default")))["metadata"]["uid"]
        await world.join("w1", "192.168.1.9")
        await asyncio.sleep(5)
        return deleted, (await world.node("w1"))["spec"]["providerID"] == f"harvester://{uid}"

    assert run_story(story) == (["w2"], True)


def test_without_the_right_to_delete_nodes_it_says_so_and_does_not_insist():
    async def may(caller, verb, target):
        return (verb, target.plural) != ("delete", "nodes")

    async def story(world):
        await settled(world, "w1", "w2")
        await world.lose_vm("w1")
        await world.be_ready("w1", False)
        await asyncio.sleep(1000)
        said = [line for line in world.lines if "forbidden" in line.lower()]
        told = [one for one in await world.cluster.list(EVENT) if one["reason"] == "DeletingNodeFailed"]
        return len(said), [(one["involvedObject"]["name"], one["message"]) for one in told]

    said, told = run_story(story, may)

    assert said == 1
    assert [name for name, _ in told] == ["w1"]
    assert told[0][1].startswith("Failed deleting node w1: its VM is gone")
    assert "add the verb delete on nodes to the ClusterRole of its service account" in told[0][1]
    assert "6443" not in told[0][1]


def test_a_harvester_that_cannot_be_asked_costs_no_node():
    async def story(world):
        await settled(world, "w1", "w2")
        world.host.tokens.clear()
        await world.lose_vm("w1")
        await world.be_ready("w1", False)
        await asyncio.sleep(3600)
        return len(await world.cluster.list(NODE)), any(
            "does not accept the token" in line for line in world.lines
        )

    assert run_story(story) == (2, True)


def test_a_harvester_that_knows_none_of_our_vms_is_the_wrong_one():
    async def story(world):
        await settled(world, "w1", "w2")
        for name in ("w1", "w2"):
            await world.lose_vm(name)
            await world.be_ready(name, False)
        await world.make_vm("of-another", "192.168.1.9", cluster="other")
        await asyncio.sleep(3600)
        return len(await world.cluster.list(NODE))

    assert run_story(story) == 2


def test_a_vm_that_is_off_is_marked_and_the_mark_goes_when_it_is_back():
    async def story(world):
        await settled(world, "w1", "w2")
        await world.harvester.delete(VMI.ref("w1", "default"))
        await world.be_ready("w1", False)
        await asyncio.sleep(5)
        off = await world.taints("w1")
        await world.be_ready("w1", True)
        await asyncio.sleep(5)
        return off, await world.taints("w1")

    assert run_story(story) == ([SHUTDOWN], [])


def test_once_all_is_well_nothing_is_asked_but_watches():
    async def story(world):
        await settled(world, "w1", "w2")
        world.count()
        await asyncio.sleep(600)
        return [request for request in world.counted if "/leases/" not in request.path]

    assert run_story(story) == []


def test_the_networks_of_the_guests_are_mapped():
    async def story(world):
        await settled(world, "w1")
        found = await world.cluster.get(CONFIG_MAP.ref("harvester-nad-mapping", "kube-system"))
        return found["data"]

    assert run_story(story) == {"interface-nad-mapping": '{"default/vlan1":"enp1s0"}'}


@pytest.mark.parametrize("data", [None, {"interface-nad-mapping": "{}"}, {"interface-nad-mapping": "spoilt"}])
def test_a_map_of_networks_that_is_overwritten_is_restored(data):
    ref = CONFIG_MAP.ref("harvester-nad-mapping", "kube-system")

    async def story(world):
        await settled(world, "w1")
        if data is None:
            await world.cluster.delete(ref)
        else:
            await world.cluster.patch(ref, {"data": data})
        await asyncio.sleep(5)
        mended = (await world.cluster.get(ref))["data"]
        world.count()
        await asyncio.sleep(600)
        return mended, [request for request in world.counted if "/leases/" not in request.path]

    assert run_story(story) == ({"interface-nad-mapping": '{"default/vlan1":"enp1s0"}'}, [])


@pytest.mark.parametrize("flag", ["--cluster-name=kubernetes", "--cluster-name=", "--disable-vmi-controller"])
def test_a_cluster_without_a_name_makes_no_map_of_networks(flag):
    async def story(world):
        await world.make_vm("w1", "192.168.1.5", cluster="kubernetes")
        world.start(flag)
        await world.join("w1", "192.168.1.5")
        await asyncio.sleep(60)
        maps = await world.cluster.list(CONFIG_MAP, "kube-system")
        return [raw["metadata"]["name"] for raw in maps if raw["metadata"]["name"] != "kube-root-ca.crt"]

    assert run_story(story) == []


def test_one_program_leads_and_the_next_takes_over_without_a_wait():
    async def story(world):
        first = world.start()
        world.start()
        await asyncio.sleep(30)
        holder = (await world.cluster.get(LEASE_REF))["spec"]["holderIdentity"]
        first.cancel()
        await asyncio.sleep(6)
        return holder.split("_")[0], (await world.cluster.get(LEASE_REF))["spec"]["holderIdentity"].split(
            "_"
        )[0]

    assert run_story(story) == ("pod-0", "pod-1")


def test_a_renewed_credential_is_used_without_a_restart_and_watches_go_on():
    async def story(world):
        await settled(world, "w1")
        world.count()
        world.renew("renewed")
        await asyncio.sleep(10)
        asked = [request.path for request in world.counted if "/leases/" not in request.path]
        world.host.tokens.pop("harvester-token")
        await world.make_vm("w2", "192.168.1.2")
        await world.join("w2", "192.168.1.2")
        await asyncio.sleep(1)
        return asked, await world.taints("w2"), world.said("reloaded the credential")

    assert run_story(story) == (
        [],
        [],
        [
            "info: reloaded the credential for Harvester: https://10.0.0.1:6443 (the token of user 'harvester')"
        ],
    )


def test_a_refused_request_has_the_credential_read_at_once():
    async def story(world):
        await world.make_vm("db-vm", "192.168.1.2")
        world.hostnames = {"db-vm": "db"}
        await settled(world, "w1")
        world.renew("renewed")
        world.host.tokens.pop("harvester-token")
        await world.join("db", "192.168.1.2")  # its VM is asked for its name
        await asyncio.sleep(1)
        return await world.taints("db"), world.said("does not accept")

    assert run_story(story) == ([], [])


def test_a_rejected_program_does_not_wait_on_once_there_is_a_new_credential():
    async def story(world):
        world.host.tokens.pop("harvester-token")
        await world.make_vm("w1", "192.168.1.1")
        await world.join("w1", "192.168.1.1")
        program = world.start()
        await asyncio.sleep(3600)
        before = await world.taints("w1")
        world.renew("renewed")
        await asyncio.sleep(6)
        return before, await world.taints("w1"), program.done(), world.said("restarting the controllers")

    assert run_story(story) == (
        [UNINITIALISED],
        [],
        False,
        ["info: restarting the controllers: Harvester has a new credential after one that was rejected"],
    )


def test_where_only_a_new_mount_shows_the_new_credential_the_program_ends_and_gives_the_lease_back():
    async def story(world):
        await settled(world, "w1")
        world.replaced.add("/cloud-config")
        await asyncio.sleep(60)
        (program,) = world.programs
        before = program.done()
        world.host.tokens.pop("harvester-token")
        await world.make_vm("db-vm", "192.168.1.2")
        world.hostnames = {"db-vm": "db"}
        await world.join("db", "192.168.1.2")  # its VM is asked for its name
        await asyncio.sleep(1)
        return (
            before,
            program.result(),
            world.said("the mount shows the old file"),
            (await world.cluster.get(LEASE_REF))["spec"]["holderIdentity"],
            world.lines[-1],
        )

    before, code, told, holder, last = run_story(story)

    assert (before, code, len(told), holder) == (False, 1, 1, "")
    assert "only a new mount shows the newer /cloud-config; exiting, so that the pod restarts" in last


def test_a_standby_ends_too_where_only_a_new_mount_shows_the_new_credential():
    async def story(world):
        held = {"holderIdentity": "another", "leaseDurationSeconds": 86400}
        await world.cluster.create(LEASE, new_object(LEASE, LEASE_REF.name, LEASE_REF.namespace, spec=held))
        program = world.start()
        await asyncio.sleep(60)
        before = program.done()
        world.replaced.add("/guest")
        world.guest.tokens.pop("guest-token")
        await asyncio.sleep(10)
        return before, program.done(), (await world.cluster.get(LEASE_REF))["spec"], world.lines[-1]

    before, after, lease, last = run_story(story)

    assert (before, after, lease["holderIdentity"]) == (False, True, "another")
    assert "only a new mount shows the newer /guest; exiting, so that the pod restarts" in last


def test_another_namespace_starts_the_work_anew_and_keeps_the_lead():
    async def story(world):
        program = world.start()
        await asyncio.sleep(30)
        before = (await world.cluster.get(LEASE_REF))["spec"]
        await world.harvester.create(NAMESPACE, new_object(NAMESPACE, "elsewhere"))
        await world.make_vm("w1", "192.168.1.1", namespace="elsewhere")
        world.renew("harvester-token", namespace="elsewhere")
        await world.join("w1", "192.168.1.1")
        await asyncio.sleep(15)
        after = (await world.cluster.get(LEASE_REF))["spec"]
        kept = [before[name] == after[name] for name in ("holderIdentity", "leaseTransitions", "acquireTime")]
        return kept, await world.taints("w1"), program.done()

    assert run_story(story) == ([True, True, True], [], False)


def test_a_cloud_config_that_slips_to_another_namespace_costs_no_service_its_address():
    async def story(world):
        slipped = Slipped(world)
        await slipped.settle()
        before = await slipped.announced()
        world.renew("harvester-token", namespace="other")
        await asyncio.sleep(60)
        return before, await slipped.announced(), await slipped.places(), world.said("holds none of the VMs")

    before, after, places, told = run_story(story)

    assert (before, after, places) == ("10.1.0.1", "10.1.0.1", ["default"])
    assert len(told) == 1
    assert "restart the pod" in told[0]


def test_a_service_that_is_deleted_while_the_cloud_config_slips_leaves_nothing():
    async def story(world):
        slipped = Slipped(world)
        await slipped.settle()
        world.renew("harvester-token", namespace="other")
        await asyncio.sleep(20)
        await world.cluster.delete(SERVICE.ref("web", "default"))
        await asyncio.sleep(20)
        return await slipped.places()

    assert run_story(story) == []


def test_a_place_that_holds_the_vm_of_one_node_is_ours_again():
    async def story(world):
        slipped = Slipped(world)
        await slipped.settle()
        uid = await world.make_vm("n2", "192.168.1.9", namespace="other")
        world.renew("harvester-token", namespace="other")
        await asyncio.sleep(20)
        early = world.said("watching VirtualMachines in namespace other")
        await world.join("n2")
        await world.cluster.patch(NODE.ref("n2"), {"spec": {"providerID": f"harvester://{uid}"}})
        await asyncio.sleep(90)
        return early, world.said("watching VirtualMachines in namespace other")

    early, late = run_story(story)

    assert (len(early), len(late)) == (0, 1)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (None, "--cloud-config /cloud-config: couldn't open cloud provider configuration"),
        ("", "can't init from an empty reader"),
        ("clusters: [", "the kubeconfig is not YAML"),
        ("a: b", "not a kubeconfig"),
    ],
)
def test_a_cloud_config_that_breaks_is_told_once_and_the_old_credential_goes_on(broken, words):
    async def story(world):
        await settled(world, "w1")
        kept = world.files["/cloud-config"]
        world.write("/cloud-config", broken)
        await asyncio.sleep(600)
        told = world.said("stays in use")
        await world.make_vm("w2", "192.168.1.2")
        await world.join("w2", "192.168.1.2")
        await asyncio.sleep(5)
        world.write("/cloud-config", kept)
        await asyncio.sleep(600)
        return told, await world.taints("w2"), world.said("reloaded the credential")

    told, taints, renewed = run_story(story)

    assert len(told) == 1
    assert words in told[0]
    assert (taints, renewed) == ([], [])


@pytest.mark.long  # a day of renewing the Lease
def test_a_credential_that_expires_soon_is_reported_ahead_with_a_hint():
    async def story(world):
        world.renew(a_token(NOON - timedelta(days=90), NOON + timedelta(days=7, minutes=30)))
        world.start()
        await asyncio.sleep(900)
        early = world.said("expires at")
        await asyncio.sleep(86400 + 7200)
        events = [
            raw["message"] for raw in await world.cluster.list(EVENT) if raw["reason"] == "CredentialExpiring"
        ]
        return early, world.said("expires at"), len(events)

    early, late, events = run_story(story)

    assert early == []
    assert "expires at 2026-01-08T12:30:00Z, in 7 days" in late[0]
    assert "without a restart" in late[0]
    assert (len(late), events) == (2, 2)


def a_token(began, ends):
    claims = dumps({"iat": began.timestamp(), "exp": ends.timestamp()})
    return f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.c2ln"


def test_flags_without_effect_are_named():
    async def story(world):
        world.start("--profiling=false", "--cluster-cidr=10.42.0.0/16")
        await asyncio.sleep(1)
        return world.said("without effect")

    assert run_story(story) == ["info: accepted without effect: --cluster-cidr, --profiling"]


def test_the_address_of_the_guest_can_be_said_by_itself():
    async def story(world):
        elsewhere = replace(world.access("10.0.0.2", "guest-token"), server="https://10.9.9.9:6443")
        world.files["/guest"] = render_kubeconfig(elsewhere, "guest")
        world.start("--master=https://10.0.0.2:6443")
        await asyncio.sleep(5)
        return (await world.cluster.get(LEASE_REF))["spec"]["holderIdentity"].split("_")[0]

    assert run_story(story) == "pod-0"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--nonsense"], "unknown flag: --nonsense"),
        ([], "--cloud-config is missing: can't init from an empty reader (io.Reader)"),
        (["--cloud-config=", "--kubeconfig=/guest"], "--cloud-config is missing"),
        (["--cloud-config=/nowhere"], "--cloud-config /nowhere: couldn't open"),
        (["foo", "--cloud-config=/c"], "does not take any arguments, got [foo]"),
        (["/usr/bin/harvester-cloud-provider", "foo"], "does not take any arguments, got [foo]"),
        (["harvester-cloud-provider", "harvester-cloud-provider"], "got [harvester-cloud-provider]"),
        (["harvester-cloud-provider", "--controllers=service"], '"service" is not in the list'),
    ],
)
async def test_a_bad_start_ends_with_one_and_says_why(argv, words):
    lines = []

    def read(path):
        raise FileNotFoundError(path)

    code = await run(
        argv,
        {},
        read,
        lambda access: None,
        LoopClock(),
        Rng(1),
        line_logger("harvester-cloud-provider", lines.append),
    )

    assert code == 1
    assert lines[0] == "error: FATAL: cloudprovider.harvesterhci.io failed to start"
    assert words in lines[1]


@pytest.mark.parametrize("argv", [[], ["--nonsense"], ["foo"]])
async def test_a_usage_error_shows_the_way_to_the_help(argv):
    lines = []

    await run(
        argv, {}, None, None, LoopClock(), Rng(1), line_logger("harvester-cloud-provider", lines.append)
    )

    assert lines[-1] == "error: Hint: every flag: harvester-cloud-provider --help"


@pytest.mark.parametrize(("namespace", "warnings"), [("", 1), ("default", 0)])
def test_a_cloud_config_without_a_namespace_is_warned_about(namespace, warnings):
    async def story(world):
        world.renew("harvester-token", namespace=namespace)
        world.start()
        await asyncio.sleep(1)
        return world.said("names no namespace"), world.said("watching VirtualMachines in namespace default")

    told, leads = run_story(story)

    assert (len(told), len(leads)) == (warnings, 1)
    assert all(line.startswith("warning: --cloud-config /cloud-config: ") for line in told)


def test_an_unexpected_error_ends_the_program_with_the_lease_given_back():
    async def story(world):
        class Full(Exception):
            pass

        def say(line):
            world.lines.append(line)
            if "reloaded the credential" in line:
                raise Full("no space left for this line")

        program = world.start(write=say)
        await asyncio.sleep(30)
        held = (await world.cluster.get(LEASE_REF))["spec"]["holderIdentity"]
        world.renew("renewed")
        with pytest.raises(ExceptionGroup):
            await program
        return held, (await world.cluster.get(LEASE_REF))["spec"]["holderIdentity"]

    held, left = run_story(story)

    assert held.startswith("pod-0_")
    assert left == ""


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["--help"], 0, "Accepted without effect"),
        (["--version"], 0, "harvester-cloud-provider (Windrow) v"),
        (["--nonsense", "--show-full-help-on-error"], 1, "Accepted without effect"),
    ],
)
async def test_help_and_version_need_no_cluster(argv, code, words):
    lines = []

    assert (
        await run(
            argv, {}, None, None, LoopClock(), Rng(1), line_logger("harvester-cloud-provider", lines.append)
        )
        == code
    )
    assert any(words in line for line in lines)


def test_a_node_that_is_gone_for_good_is_not_waited_for():
    async def story(world):
        await settled(world, "w1", "w2")
        world.lines.clear()
        await world.cluster.delete(NODE.ref("w1"))
        world.count()
        await asyncio.sleep(3600)
        return world.lines, [request for request in world.counted if "/leases/" not in request.path]

    assert run_story(story) == ([], [])


def test_a_node_is_announced_also_where_its_addresses_cannot_be_written_yet():
    refused = []

    async def may(caller, verb, target):
        if target.subresource == "status" and caller.username == "program" and not refused:
            refused.append(target)
            return False
        return True

    async def story(world):
        await world.make_vm("w1", "192.168.1.5")
        world.start()
        await world.join("w1", "192.168.1.5")
        await asyncio.sleep(600)
        return await world.events(), await world.addresses("w1")

    events, addresses = run_story(story, may)

    assert len(refused) == 1
    assert events == [("w1", "Synced")]
    assert addresses == ["InternalIP 192.168.1.5", "Hostname w1"]
