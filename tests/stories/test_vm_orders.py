"""Orders to virtual machines, and who may give them (reference 05 §2.5 G, §2.7, §6)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.support.clock import run_driven

from windrow.client.in_process import InProcessTransport
from windrow.core.formats.json import loads
from windrow.emulator import kinds
from windrow.emulator.faults import CONFLICT, ExpireWatch, Fault, Reset, Slow
from windrow.emulator.kit.inventory import inventory
from windrow.emulator.preload import PLACEHOLDER_KEY
from windrow.kubernetes import requests
from windrow.kubernetes.errors import (
    Conflict,
    Expired,
    Forbidden,
    KubeError,
    OutcomeUnknown,
    Unauthorized,
    error_for,
    error_from_status,
)
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.objects import annotations_of, labels_of, nested, new_object, uid_of
from windrow.kubernetes.resources import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    NODE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
)

from .harvester_rig import (
    NAMESPACE,
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

WRAPPED = 'Operation cannot be fulfilled on virtualmachine.kubevirt.io "m-1": '


async def refusal(harvester, verb, **options):
    reply = await harvester.api.local().send(
        requests.put_subresource(kinds.VM_SUBRESOURCES.ref("m-1", NAMESPACE), verb, options or None)
    )
    body = loads(reply.body)
    return reply.status, body["message"].removeprefix(WRAPPED)


@pytest.mark.parametrize(
    ("strategy", "running", "verb", "wanted"),
    [
        ("RerunOnFailure", True, "start", (409, "VM is already running")),
        ("Halted", False, "stop", (409, "VM is not running")),
        ("Halted", False, "restart", (409, "RunStategy Halted does not support manual restart requests")),
        ("Manual", False, "restart", (409, "VM is not running: Halted")),
        ("Once", False, "restart", (409, "RunStategy Once does not support manual restart requests")),
        ("Manual", False, "migrate", (404, 'virtualmachineinstance.kubevirt.io "m-1" not found')),
    ],
)
def test_orders_that_make_no_sense_are_refused_in_kubevirts_words(strategy, running, verb, wanted):
    async def story():
        async with a_harvester() as harvester:
            await (boot if running else post)(harvester, strategy=strategy)
            await harvester.clock.sleep(5)
            return await refusal(harvester, verb)

    assert wanted == run_driven(story())


def test_an_unknown_machine_is_not_found():
    async def story():
        async with a_harvester() as harvester:
            return await refusal(harvester, "start")

    assert run_driven(story()) == (404, 'virtualmachine.kubevirt.io "m-1" not found')


def test_a_second_order_while_one_is_under_way_is_refused():
    async def story():
        async with a_harvester() as harvester:
            await boot(harvester)
            assert await order(harvester, "stop") == 202
            return await refusal(harvester, "stop")

    status, text = run_driven(story())
    assert (status, "unable to complete request: stop/start already underway" in text) == (500, True)


def test_stop_under_always_halts_and_start_brings_the_strategy_back():
    async def story():
        async with a_harvester() as harvester:
            await boot(harvester, strategy="Always")
            assert await order(harvester, "stop") == 202
            await eventually(harvester, vmi_ref(), is_gone)
            halted = await eventually(harvester, vm_ref(), shows("Stopped"))
            assert halted["spec"]["runStrategy"] == "Halted"

            assert await order(harvester, "start") == 202
            started = await eventually(harvester, vm_ref(), shows("Running"))
            assert started["spec"]["runStrategy"] == "Always"

    run_driven(story())


def test_a_manual_machine_starts_on_order_only():
    async def story():
        async with a_harvester() as harvester:
            await post(harvester, strategy="Manual")
            await harvester.clock.sleep(600)
            await eventually(harvester, vm_ref(), shows("Stopped"))
            assert await order(harvester, "start") == 202
            await eventually(harvester, vmi_ref(), has_address)

    run_driven(story())


def test_a_migrated_machine_keeps_its_uid_and_changes_its_zone():
    async def story():
        async with a_harvester() as harvester:
            before = await boot(harvester)
            assert await order(harvester, "migrate") == 202
            await eventually(harvester, vm_ref(), shows("Migrating"))
            await eventually(
                harvester, vmi_ref(), lambda vmi: nested(vmi, "status", "migrationState", "completed")
            )
            await eventually(harvester, vm_ref(), shows("Running"))
            (done,) = await harvester.api.local().list(kinds.MIGRATION)
            after = await harvester.api.local().get(vmi_ref())
            boots = harvester.console("default", "m-1")
            return before, after, done, boots

    before, after, done, boots = run_driven(story())
    assert uid_of(before) == uid_of(after)
    assert before["status"]["nodeName"] != after["status"]["nodeName"]
    assert labels_of(after)["kubevirt.io/nodeName"] == after["status"]["nodeName"]
    zone = "topology.kubernetes.io/zone"
    assert annotations_of(before)[zone] != annotations_of(after)[zone]
    assert "harvesterhci.io/migrationState" not in annotations_of(after)
    assert done["status"]["phase"] == "Succeeded"
    assert len(boots) == 2, "the guest noticed"


def test_a_second_migration_waits_for_the_first_to_end():
    async def story():
        async with a_harvester() as harvester:
            line = harvester.api.local()
            await boot(harvester)
            await order(harvester, "migrate")
            await eventually(harvester, vm_ref(), shows("Migrating"))
            again = new_object(kinds.MIGRATION, "again", NAMESPACE, spec={"vmiName": "m-1"})
            with pytest.raises(KubeError, match="in-flight migration detected") as refusal:
                await line.create(kinds.MIGRATION, again)
            assert refusal.value.status == 400
            await eventually(harvester, vm_ref(), shows("Running"))
            assert await line.create(kinds.MIGRATION, again)

    run_driven(story())


def test_a_template_version_names_a_key_pair_that_exists():
    async def story():
        async with a_harvester() as harvester:
            line = harvester.api.local()
            await line.create(kinds.TEMPLATE, new_object(kinds.TEMPLATE, "web", NAMESPACE, spec={}))
            key = {"publicKey": PLACEHOLDER_KEY}
            await line.create(kinds.KEY_PAIR, new_object(kinds.KEY_PAIR, "key", NAMESPACE, spec=key))
            await harvester.clock.sleep(1)
            spec = {"templateId": f"{NAMESPACE}/web", "keyPairIds": [f"{NAMESPACE}/key"], "vm": a_vm("web")}
            version = new_object(kinds.TEMPLATE_VERSION, "web-1", NAMESPACE, spec=spec)
            assert await line.create(kinds.TEMPLATE_VERSION, version)

    run_driven(story())


def test_an_aborted_migration_leaves_the_machine_where_it_was():
    async def story():
        async with a_harvester() as harvester:
            line = harvester.api.local()
            before = await boot(harvester)
            await order(harvester, "migrate")
            await eventually(harvester, vm_ref(), shows("Migrating"))
            (running,) = await line.list(kinds.MIGRATION)
            ref = kinds.MIGRATION.ref(running["metadata"]["name"], NAMESPACE)
            await line.delete(ref)
            await eventually(harvester, ref, is_gone)
            await harvester.clock.sleep(60)
            after = await line.get(vmi_ref())
            assert after["status"]["nodeName"] == before["status"]["nodeName"]
            assert after["status"]["migrationState"]["failed"] is True

    run_driven(story())


def test_guest_os_info_is_plain_text_until_the_agent_connects():
    async def story():
        async with a_harvester() as harvester:
            await post(harvester)
            await eventually(harvester, vm_ref(), shows("Running"))
            asked = requests.Request(
                "GET", kinds.VMI_SUBRESOURCES.ref("m-1", NAMESPACE).path + "/guestosinfo"
            )
            early = await harvester.api.local().send(asked)
            await eventually(harvester, vmi_ref(), has_address)
            late = await harvester.api.local().send(asked)
            return early, late

    early, late = run_driven(story())
    assert (
        early.status,
        early.content_type,
        early.body,
    ) == (500, "text/plain", b"VMI does not have guest agent connected")
    assert loads(late.body)["hostname"] == "m-1"


# --- credentials ------------------------------------------------------------------------------------------------


def test_a_guest_credential_made_of_five_objects_may_do_what_its_roles_say():
    async def story():
        async with a_harvester() as harvester:
            line = harvester.api.local()
            before = await inventory(harvester.api)
            await _make_guest_credential(line)
            secret = await eventually(
                harvester, SECRET.ref("c1-token", NAMESPACE), lambda raw: bool(nested(raw, "data", "token"))
            )
            assert nested(secret, "data", "ca.crt")
            made = {kind for kind, _, _ in await inventory(harvester.api) - before}
            assert made == {"ServiceAccount", "Secret", "RoleBinding", "ClusterRoleBinding"}

            guest = harvester.api.local(
                "system:serviceaccount:default:c1",
                ("system:serviceaccounts", "system:serviceaccounts:default"),
            )
            await boot(harvester)
            assert await guest.list(kinds.VM, NAMESPACE)
            assert await guest.get(vmi_ref())
            with pytest.raises(Forbidden):
                await guest.list(NODE)
            with pytest.raises(Forbidden):
                await guest.list(kinds.VM, "kube-system")
            with pytest.raises(Forbidden):
                await guest.delete(vm_ref())
            with pytest.raises(Forbidden):
                await guest.list(SECRET, NAMESPACE)

    run_driven(story())


async def _make_guest_credential(line):
    subject = [{"kind": "ServiceAccount", "name": "c1", "namespace": NAMESPACE}]
    await line.create(SERVICE_ACCOUNT, new_object(SERVICE_ACCOUNT, "c1", NAMESPACE))
    token = new_object(
        SECRET,
        "c1-token",
        NAMESPACE,
        annotations={"kubernetes.io/service-account.name": "c1"},
        type="kubernetes.io/service-account-token",
    )
    await line.create(SECRET, token)
    for kind, role in ((ROLE_BINDING, "cloudprovider"), (CLUSTER_ROLE_BINDING, "csi-driver")):
        reference = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": f"harvesterhci.io:{role}",
        }
        await line.create(
            kind, new_object(kind, "default-c1", NAMESPACE, roleRef=reference, subjects=subject)
        )


def test_someone_who_may_not_read_an_image_may_not_boot_from_it():
    async def story():
        async with a_harvester(version="v1.9.0") as harvester:
            line = harvester.api.local()
            rules = [{"apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"], "verbs": ["*"]}]
            await line.create(CLUSTER_ROLE, new_object(CLUSTER_ROLE, "vms", rules=rules))
            await line.create(
                CLUSTER_ROLE_BINDING,
                new_object(
                    CLUSTER_ROLE_BINDING,
                    "eve",
                    roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "vms"},
                    subjects=[{"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}],
                ),
            )
            image = await line.get(kinds.IMAGE.ref("jammy", NAMESPACE))
            reply = await harvester.api.local("eve", ()).send(
                requests.create(
                    kinds.VM, a_vm(image="default/jammy", storage_class=image["status"]["storageClassName"])
                )
            )
            return error_for(reply)

    error = run_driven(story())
    assert error.status == 422
    assert error.message.endswith('user "eve" is not allowed to access image default/jammy')


# --- fault injection --------------------------------------------------------------------------------------------------


def _through_door(harvester, token):
    access = parse_kubeconfig(harvester.token_kubeconfig(token))
    return InProcessTransport(access, harvester.network.find, harvester.clock.base)


def test_a_token_that_expires_is_refused_from_then_on():
    async def story():
        async with a_harvester() as harvester:
            token = harvester.new_token(expires=harvester.clock.now() + timedelta(seconds=60))
            line = _through_door(harvester, token)
            assert (await line.send(requests.list_(NODE))).status == 200
            await harvester.clock.sleep(61)
            return error_for(await line.send(requests.list_(NODE)))

    assert isinstance(run_driven(story()), Unauthorized)


def test_faults_befall_clients_and_never_the_cluster_itself():
    async def story():
        async with a_harvester() as harvester:
            line = _through_door(harvester, harvester.new_token())
            broken = harvester.faults.add(Fault(Reset()))
            await boot(harvester)  # by the cluster's own hand, which the door does not touch
            with pytest.raises(OutcomeUnknown):
                await line.send(requests.list_(NODE))
            harvester.faults.end(broken)
            assert (await line.send(requests.list_(NODE))).status == 200
            return harvester.faults.times_injected(broken)

    assert run_driven(story()) == 1


def test_every_third_update_conflicts_and_reads_are_slow():
    async def story():
        async with a_harvester() as harvester:
            line = _through_door(harvester, harvester.new_token())
            harvester.faults.add(Fault(CONFLICT, frozenset({"patch"}), every=3))
            harvester.faults.add(Fault(Slow(2.0), frozenset({"get"})))
            await harvester.api.local().create(CONFIG_MAP, new_object(CONFIG_MAP, "c", NAMESPACE))
            change = requests.merge_patch(
                CONFIG_MAP.ref("c", NAMESPACE), {"metadata": {"labels": {"a": "b"}}}
            )
            answers = [error_for(await line.send(change)) for _ in range(6)]
            began = harvester.clock.now()
            await line.send(requests.get(CONFIG_MAP.ref("c", NAMESPACE)))
            return [isinstance(error, Conflict) for error in answers], (
                harvester.clock.now() - began
            ).total_seconds()

    conflicts, waited = run_driven(story())
    assert conflicts == [False, False, True] * 2
    assert waited == 2.0


def test_a_watch_whose_history_is_forgotten_says_410_and_ends():
    async def story():
        async with a_harvester() as harvester:
            line = _through_door(harvester, harvester.new_token())
            harvester.faults.add(Fault(ExpireWatch(), frozenset({"watch"}), times=1))
            async with line.stream(requests.watch(kinds.VM, version="1")) as events:
                return [event async for event in events]

    (event,) = run_driven(story())
    assert event.type == "ERROR"
    assert isinstance(error_from_status(event.object), Expired)
