"""The real rancher-machine with the real Go driver and with ours, against the emulator.

The Go driver's runs hold the emulator to account, ours hold our plugin to account: both pass the same tests. The
programs are named by WINDROW_RANCHER_MACHINE and WINDROW_GO_NODE_DRIVER; what is not named is skipped.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conformance.node_driver_rig import (
    DOCKER_MACHINE,
    GO_DRIVER,
    IMAGE,
    NETWORK,
    PLAIN,
    RANCHER_MACHINE,
    STORAGE,
    CommandResult,
    HarvesterSite,
    MachineHost,
    a_docker,
    a_site,
    count_requests,
    our_program,
    real_program,
)
from tests.conformance.node_driver_versions import HEAD, GoVersion, version_of

from windrow.emulator import kinds
from windrow.emulator.faults import CONFLICT, DropReply, Fault, Refuse
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import PVC, SECRET

pytestmark = pytest.mark.timeout(180)

NAME = "c1-pool1-abcde-fghij"
IN_CLUSTER = (*PLAIN, "--harvester-cluster-name", "c1")
# The flags of a machine as Rancher's job writes them: every default explicit, sorted, values apart from their flags.
RANCHER: dict[str, str] = {
    "cluster-name": "c1",
    "cluster-type": "imported",
    "cpu-count": "2",
    "disk-info": json.dumps({"disks": [{"imageName": IMAGE, "size": 10, "bootOrder": 1}]}),
    "disk-size": "0",
    "memory-size": "4",
    "network-info": json.dumps({"interfaces": [{"networkName": NETWORK}]}),
    "reserved-memory-size": "-1",
    "ssh-port": "22",
    "ssh-user": "ubuntu",
    "user-data": base64.b64encode(b"#cloud-config\npackages:\n- vim\n").decode(),
    "vm-namespace": "default",
}
# Ours says "not found" of nothing but the machine's own VM: hosts take these words for the machine's end.
WORDS_FOR_A_MISSING_IMAGE = {
    "go": 'virtualmachineimages.harvesterhci.io \\"nothing\\" not found',
    "ours": "image default/nothing does not exist",
}
DRIVERS: dict[str, Callable[[], Path]] = {"go": lambda: real_program(GO_DRIVER), "ours": our_program}


@pytest.fixture(params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def desk(driver: str, tmp_path: Path) -> AsyncIterator[MachineHost]:
    """rancher-machine with the driver, and a Harvester of its own."""
    host, program = real_program(RANCHER_MACHINE), DRIVERS[driver]()
    async with a_site() as site:
        yield MachineHost(tmp_path / "desk", host, program, site)


def version(driver: str) -> GoVersion:
    """What the driver has; ours has all."""
    return version_of(real_program(GO_DRIVER)) if driver == "go" else HEAD


def skip_without(driver: str, flags: Sequence[str]) -> None:
    """Skip where the driver does not have all of the flags."""
    if not version(driver).has_flags(flags):
        pytest.skip(f"the Go driver {version(driver).name} lacks {' '.join(flags)}")


def credential(site: HarvesterSite) -> dict[str, str]:
    return {"HARVESTER_KUBECONFIG_CONTENT": site.kubeconfig}


def assert_succeeded(told: CommandResult) -> str:
    assert told.code == 0, told.all
    return told.out


def assert_refused(told: CommandResult, code: int) -> str:
    assert told.code == code, told.all
    return told.errors


async def test_a_machine_lives_as_rancher_and_people_let_it_live(desk: MachineHost, driver: str) -> None:
    api, calls = desk.site.harvester.api.local(), dict[str, Counter[str]]()

    async def do(command: str, *arguments: str, env: dict[str, str] | None = None) -> CommandResult:
        desk.site.forget()
        told = await desk.run(command, *arguments, NAME, env=env)
        calls.setdefault(command, count_requests(desk.site.calls()))
        return told

    desk.site.forget()
    flags = [word for name, value in RANCHER.items() for word in (f"--harvester-{name}", value)]
    flags = version(driver).known(flags)
    out = assert_succeeded(await desk.create(NAME, *flags))
    calls["create"] = count_requests(desk.site.calls())
    assert "Custom install script was sent via userdata, provisioning complete..." in out
    address = desk.config(NAME)["Driver"]["IPAddress"]
    assert address.startswith("192.168.50.")

    assert assert_succeeded(await do("status")).splitlines()[0] == "Running"
    assert assert_succeeded(await do("ip")).splitlines()[0] == address
    assert assert_succeeded(await do("url")).splitlines()[0] == f"tcp://{address}:2376"
    shown = json.loads(assert_succeeded(await do("inspect")).rpartition("}")[0] + "}")
    assert shown["DriverName"] == "harvester"
    assert shown["Driver"]["MachineName"] == NAME

    assert f'Machine "{NAME}" was stopped.' in assert_succeeded(await do("stop"))
    assert await api.find(kinds.VMI.ref(NAME, "default")) is None
    assert f'Machine "{NAME}" is already stopped.' in assert_refused(await do("stop"), 1)
    assert assert_succeeded(await do("status")).splitlines()[0] == "Stopped"
    stopped = await do("ip")
    assert stopped.code == 1
    assert "Host is not running" in stopped.all

    assert f'Machine "{NAME}" was started.' in assert_succeeded(await do("start"))
    before = await api.get(kinds.VMI.ref(NAME, "default"))
    assert_succeeded(await do("restart"))
    after = await api.get(kinds.VMI.ref(NAME, "default"))
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    assert f'Machine "{NAME}" was killed.' in assert_succeeded(await do("kill"))
    assert assert_succeeded(await do("status")).splitlines()[0] == "Stopped"

    assert assert_succeeded(await do("start"))
    assert assert_succeeded(await desk.run("ssh", NAME, "true")) is not None

    removed = assert_succeeded(await do("rm", "-y", "--update-config", env=credential(desk.site)))
    assert f"Successfully removed {NAME}" in removed
    assert not desk.knows(NAME)
    await desk.site.nothing_left()
    report(driver, calls)


def report(driver: str, calls: dict[str, Counter[str]]) -> None:
    """Print, under `pytest -s`, what each command requested from Harvester."""
    print(f"\nAPI calls, rancher-machine with {driver}:")
    for command, counts in calls.items():
        told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
        print(f"  {command}: {counts.total()} ({told})")


async def test_what_cannot_be_is_told_before_anything_is_made(desk: MachineHost, driver: str) -> None:
    missing = json.dumps({"disks": [{"imageName": "default/nothing", "size": 10}]})
    nics = json.dumps({"interfaces": [{"networkName": NETWORK}]})
    flags = ("--harvester-disk-info", missing, "--harvester-network-info", nics)

    errors = assert_refused(await desk.create("m-image-abcde-fghij", *flags), 3)

    assert "Error with pre-create check" in errors
    assert WORDS_FOR_A_MISSING_IMAGE[driver] in errors
    assert not desk.knows("m-image-abcde-fghij")
    assert not await desk.site.left_over()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ((), "must specify harvester image name"),
        (("--harvester-image-name", IMAGE), "must specify harvester disk size"),
        (
            ("--harvester-image-name", IMAGE, "--harvester-disk-size", "10"),
            "must specify harvester network name",
        ),
        ((*PLAIN, "--harvester-enable-secure-boot"), "enable secure boot requires enable EFI"),
        (
            (*PLAIN, "--harvester-key-pair-name", "keys"),
            "must specify the ssh private key path of the harvester key pair",
        ),
        (
            (*PLAIN, "--harvester-disk-info", '{"disks":[{"size":10}]}'),
            "must specify image name or storageClass name in harvester disk info",
        ),
        (
            (*PLAIN, "--harvester-disk-info", '{"disks":[{"imageName":"x"}]}'),
            "must specify disk size in harvester disk info",
        ),
        (
            (*PLAIN, "--harvester-network-info", '{"interfaces":[{}]}'),
            "must specify network name in harvester network info",
        ),
        ((*PLAIN, "--harvester-network-data", "config: []"), "missing section: version"),
        ((*PLAIN, "--harvester-network-data", "version: 1\nconfig: []"), "static gateway or dhcp is not configured"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)  # fmt: skip
async def test_flags_are_refused_in_the_same_words(
    desk: MachineHost, driver: str, flags: tuple[str, ...], text: str
) -> None:
    skip_without(driver, flags)
    errors = assert_refused(await desk.create(NAME, *flags), 1)
    assert f"error setting machine configuration from flags provided: {text}" in errors


async def test_a_flag_that_is_no_json_is_refused_by_its_name(desk: MachineHost, driver: str) -> None:
    skip_without(driver, flags := (*PLAIN, "--harvester-vgpu-info", "x"))
    errors = assert_refused(await desk.create(NAME, *flags), 1)

    assert "error setting machine configuration from flags provided: " in errors
    assert "vgpu" in errors.lower()
    assert not desk.site.calls()


async def test_a_machine_whose_vm_is_gone_is_not_found_and_can_be_removed(desk: MachineHost) -> None:
    assert_succeeded(await desk.create(NAME, *PLAIN))
    api = desk.site.harvester.api.local()
    await api.delete(kinds.VM.ref(NAME, "default"))
    await desk.site.until_gone(NAME)

    told = await desk.run("status", NAME)
    assert told.code == 4, told.all
    assert "Not Found" in told.all
    assert f"Successfully removed {NAME}" in assert_succeeded(await desk.run("rm", "-y", NAME))
    assert not desk.knows(NAME)


async def test_a_harvester_that_refuses_keeps_the_machine(desk: MachineHost) -> None:
    assert_succeeded(await desk.create(NAME, *PLAIN))
    fault = Fault(Refuse(403, "Forbidden", "not today"), frozenset({"get", "patch", "update", "delete"}))
    desk.site.harvester.faults.add(fault)

    errors = assert_refused(await desk.run("rm", "-y", NAME), 1)

    assert f'Error removing host "{NAME}": ' in errors
    assert "not today" in errors
    assert desk.knows(NAME)
    assert assert_refused(await desk.run("status", NAME), 1)

    desk.site.harvester.faults.end(fault)
    assert_succeeded(await desk.run("rm", "-y", NAME))
    await desk.site.nothing_left()


async def test_a_renewed_credential_removes_a_machine_of_the_old_one(desk: MachineHost, driver: str) -> None:
    if not version(driver).reloads_kubeconfig:
        pytest.skip(f"the Go driver {version(driver).name} keeps the kubeconfig that it stored")
    harvester, url = desk.site.harvester, desk.site.url
    old, new = harvester.new_token(), harvester.new_token()
    env = {"HARVESTER_KUBECONFIG_CONTENT": harvester.token_kubeconfig(old, url)}
    install = ("--custom-install-script", str(desk.folder / "install.sh"))
    assert_succeeded(await desk.run("create", "--driver", "harvester", *install, *PLAIN, NAME, env=env))
    harvester.credentials.revoke(old)

    assert_refused(await desk.run("rm", "-y", NAME), 1)
    assert desk.knows(NAME)
    env = {"HARVESTER_KUBECONFIG_CONTENT": harvester.token_kubeconfig(new, url)}
    assert (
        assert_succeeded(await desk.run("status", "--update-config", NAME, env=env)).splitlines()[0]
        == "Running"
    )
    assert_succeeded(await desk.run("rm", "-y", "--update-config", NAME, env=env))
    await desk.site.nothing_left()


async def test_a_harvester_behind_a_proxy_is_reached_by_its_virtual_address(desk: MachineHost) -> None:
    kubeconfig = desk.site.harvester.admin_kubeconfig(proxy_url=desk.site.proxy_url)
    assert "192.168.100.10" in kubeconfig
    behind = MachineHost(
        desk.folder / "behind", desk.host, desk.driver, replace(desk.site, kubeconfig=kubeconfig)
    )
    assert_succeeded(await behind.create(NAME, *PLAIN))
    assert_succeeded(await behind.run("rm", "-y", NAME))
    await desk.site.nothing_left()


async def test_ctrl_c_in_the_middle_leaves_what_rm_removes(desk: MachineHost) -> None:
    async with desk.ordered(NAME, *PLAIN) as host:
        os.killpg(host.pid, signal.SIGINT)
        await host.wait()
    assert_succeeded(await desk.run("rm", "-y", NAME))
    await desk.site.nothing_left()


async def test_a_name_that_is_taken_is_refused_and_its_vm_stays(desk: MachineHost, tmp_path: Path) -> None:
    assert_succeeded(await desk.create(NAME, *PLAIN))
    other = MachineHost(tmp_path / "other", desk.host, desk.driver, desk.site)

    errors = assert_refused(await other.create(NAME, *PLAIN), 3)

    assert f"machine {NAME} already exists in namespace default" in errors
    assert assert_succeeded(await desk.run("status", NAME)).splitlines()[0] == "Running"


async def test_docker_is_installed_over_ssh_where_there_is_no_script(desk: MachineHost) -> None:
    address = "192.168.50.20"  # the first that this network's DHCP gives away
    with a_docker(desk, NAME, address):
        told = await desk.create(NAME, *PLAIN, script=False)
        assert "Docker is up and running!" in assert_succeeded(told)
        assert f'DOCKER_HOST="tcp://{address}:2376"' in assert_succeeded(
            await desk.run("env", "--shell", "bash", NAME)
        )
    key = desk.folder / "machines" / "machines" / NAME / "id_rsa"
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.read_text().startswith("-----BEGIN RSA PRIVATE KEY-----")
    public = key.with_suffix(".pub").read_text().split()
    assert public[0] == "ssh-rsa"
    assert public[1] in await desk.site.document(NAME)
    # Only a stopped machine is listed here: `ls` would dial the Docker of others directly, past the emulated Harvester's proxy.
    assert_succeeded(await desk.run("stop", NAME))
    listed = assert_succeeded(await desk.run("ls")).splitlines()
    assert listed[1].split() == [NAME, "-", "harvester", "Stopped", "Unknown"]
    assert_succeeded(await desk.run("rm", "-y", NAME))
    await desk.site.nothing_left()


async def test_a_host_that_dies_mid_create_leaves_what_rm_removes_and_no_plugin(desk: MachineHost) -> None:
    async with desk.ordered(NAME, *PLAIN) as host:
        assert desk.plugins(), desk.log(NAME)
        host.kill()
        deadline = time.monotonic() + 15
        while desk.plugins():
            assert time.monotonic() < deadline, "a plugin outlives its host"
            await asyncio.sleep(0.2)

    assert desk.knows(NAME)
    assert_succeeded(await desk.run("rm", "-y", "--update-config", NAME, env=credential(desk.site)))
    await desk.site.nothing_left()


async def test_one_job_creates_and_another_removes_with_the_state_in_a_secret(
    desk: MachineHost, tmp_path: Path
) -> None:
    """As Rancher does it: nothing survives a job but the Secret with the host's state in it."""
    api = desk.site.harvester.api.local()
    state = new_object(SECRET, "m-machine-state", "kube-public")
    await api.create(SECRET, {**state, "type": "rke.cattle.io/machine-state"})
    kept = tmp_path / "kept"
    kept.write_text(desk.site.kubeconfig)
    job = (
        *("--kubeconfig", str(kept)),
        *("--secret-namespace", "kube-public", "--secret-name", "m-machine-state"),
    )
    install = ("--custom-install-script", str(desk.folder / "install.sh"))
    env = credential(desk.site)

    assert_succeeded(await desk.run(*job, "create", "--driver", "harvester", *install, *PLAIN, NAME, env=env))
    shutil.rmtree(desk.folder / "machines")
    assert "extractedConfig" in (await api.get(SECRET.ref("m-machine-state", "kube-public")))["data"]

    removed = assert_succeeded(await desk.run(*job, "rm", "-y", "--update-config", NAME, env=env))
    assert f"Successfully removed {NAME}" in removed
    await desk.site.nothing_left()


@pytest.mark.parametrize(
    "fault",
    [
        Fault(DropReply(), frozenset({"create"}), frozenset({"virtualmachines"}), times=1),
        Fault(Refuse(500, "InternalError"), frozenset({"create"}), frozenset({"secrets"}), times=1),
        Fault(Refuse(403, "Forbidden", "exceeded quota"), frozenset({"create"}), frozenset({"secrets"}), times=1),
        Fault(Refuse(500, "InternalError"), frozenset({"get"}), frozenset({"virtualmachineinstances"}), times=1),
        Fault(CONFLICT, frozenset({"update", "patch"}), frozenset({"virtualmachines"}), times=1),
        Fault(DropReply(), frozenset({"delete"}), frozenset({"virtualmachines"}), times=1),
    ],
    ids=lambda fault: f"{type(fault.effect).__name__}-{'-'.join([*sorted(fault.verbs), *sorted(fault.plurals)])}",
)  # fmt: skip
async def test_whatever_fails_on_the_way_rm_leaves_nothing(desk: MachineHost, fault: Fault) -> None:
    desk.site.harvester.faults.add(fault)
    long = json.dumps({"bootcmd": ["x" * 2100]})

    told = await desk.create(NAME, *PLAIN, "--harvester-user-data", long)
    assert told.code in (0, 1), told.all

    removed = await desk.run("rm", "-y", NAME)
    if removed.code:
        removed = await desk.run("rm", "-y", NAME)
    assert_succeeded(removed)
    await desk.site.nothing_left()
    assert desk.site.harvester.faults.times_injected(fault)


async def test_disks_of_the_guest_cluster_go_along_when_rancher_says_so(
    desk: MachineHost, driver: str
) -> None:
    """Rancher marks the VMs of a cluster that is deleted as a whole."""
    if not version(driver).removes_all_claims:
        pytest.skip(f"the Go driver {version(driver).name} does not know the mark")
    assert_succeeded(await desk.create(NAME, *PLAIN, "--harvester-cluster-name", "c1"))
    api, label = desk.site.harvester.api.local(), "guestcluster.harvesterhci.io/name"
    for name, cluster in (("pvc-ours", "c1"), ("pvc-theirs", "c2")):
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": STORAGE,
        }
        await api.create(PVC, new_object(PVC, name, "default", labels={label: cluster}, spec=spec))
    mark = {"harvesterhci.io/removeAllPersistentVolumeClaims": "true"}
    await api.patch(kinds.VM.ref(NAME, "default"), {"metadata": {"annotations": mark}})

    assert_succeeded(await desk.run("rm", "-y", NAME))

    await desk.site.only_left("persistentvolumeclaims/pvc-theirs")


async def test_a_vm_that_took_over_the_name_stays_with_ours_and_goes_with_the_go_driver(
    desk: MachineHost, driver: str
) -> None:
    assert_succeeded(await desk.create(NAME, *PLAIN))
    api, ref = desk.site.harvester.api.local(), kinds.VM.ref(NAME, "default")
    mine = await api.get(ref)
    await api.delete(ref)
    await desk.site.until_gone(NAME)
    spec = {**mine["spec"], "template": {**mine["spec"]["template"], "metadata": {}}}
    await api.create(kinds.VM, new_object(kinds.VM, NAME, "default", annotations={}, spec=spec))
    await desk.site.until_settled(NAME)

    told = await desk.run("rm", "-y", NAME)

    stays = await api.find(ref) is not None
    assert stays == (driver == "ours"), told.all


@pytest.mark.parametrize(("first", "second"), [("go", "ours"), ("ours", "go")])
async def test_machines_of_one_driver_are_the_others_after_an_exchange(
    tmp_path: Path, first: str, second: str
) -> None:
    host = real_program(RANCHER_MACHINE)
    async with a_site() as site:
        desk = MachineHost(tmp_path / "desk", host, DRIVERS[first](), site)
        assert_succeeded(await desk.create(NAME, *version("go").known(IN_CLUSTER)))
        before = desk.config(NAME)["Driver"]

        desk.exchange(DRIVERS[second]())

        assert assert_succeeded(await desk.run("status", NAME)).splitlines()[0] == "Running"
        assert assert_succeeded(await desk.run("ip", NAME)).splitlines()[0] == before["IPAddress"]
        assert_succeeded(await desk.run("stop", NAME))
        assert_succeeded(await desk.run("start", NAME))
        after = desk.config(NAME)["Driver"]
        assert {key: after[key] for key in before if key in after} == {
            key: value for key, value in before.items() if key in after
        }
        assert_succeeded(await desk.run("rm", "-y", "--update-config", NAME, env=credential(site)))
        await site.nothing_left()


# Who creates the machine, who stops and starts it, who removes it.
ORDERS = [order for order in itertools.product(("go", "ours"), repeat=3) if len(set(order)) > 1]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
async def test_a_machine_lives_on_through_any_order_of_two_drivers(
    tmp_path: Path, order: tuple[str, str, str]
) -> None:
    host = real_program(RANCHER_MACHINE)
    programs = {name: DRIVERS[name]() for name in ("go", "ours")}
    async with a_site() as site:
        desk = MachineHost(tmp_path / "desk", host, programs[order[0]], site)
        assert_succeeded(await desk.create(NAME, *version("go").known(IN_CLUSTER)))

        desk.exchange(programs[order[1]])
        assert_succeeded(await desk.run("stop", NAME))
        assert_succeeded(await desk.run("start", NAME))
        address = desk.config(NAME)["Driver"]["IPAddress"]

        desk.exchange(programs[order[2]])
        assert assert_succeeded(await desk.run("status", NAME)).splitlines()[0] == "Running"
        assert assert_succeeded(await desk.run("ip", NAME)).splitlines()[0] == address
        assert_succeeded(await desk.run("rm", "-y", "--update-config", NAME, env=credential(site)))
        await site.nothing_left()


async def test_the_host_of_docker_without_arguments_for_its_plugins_is_served_as_well(
    driver: str, tmp_path: Path
) -> None:
    """docker/machine, the older dialect. It would dial the machine's Docker past every proxy at the end of `create`,
    so the guest does not tell its system until then."""
    host = real_program(DOCKER_MACHINE)
    async with a_site() as site:
        desk = MachineHost(tmp_path / "desk", host, DRIVERS[driver](), site)
        silence = desk.folder / "home" / "no-system"
        silence.touch()
        assert "rror detecting OS" in assert_refused(await desk.create(NAME, *PLAIN, script=False), 1)
        silence.unlink()

        assert assert_succeeded(await desk.run("status", NAME)).splitlines()[0] == "Running"
        address = assert_succeeded(await desk.run("ip", NAME)).splitlines()[0]
        assert address.startswith("192.168.50.")
        assert assert_succeeded(await desk.run("url", NAME)).splitlines()[0] == f"tcp://{address}:2376"
        for command in ("stop", "start", "restart", "kill"):
            assert_succeeded(await desk.run(command, NAME))
        assert NAME in assert_succeeded(await desk.run("ls", "--filter", "state=Stopped"))
        assert_succeeded(await desk.run("rm", "-y", NAME))
        assert not desk.knows(NAME)
        await site.nothing_left()
        assert not desk.plugins()
