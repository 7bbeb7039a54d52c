"""Sessions of docker-machine's hosts with the real plugin process, call by call, against an emulated Harvester."""

from __future__ import annotations

import base64
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.plugin_commands import NAME, DriverHost
from tests.e2e.plugin_host import Gone, Plugin, Said, a_plugin, read_address, start
from tests.e2e.plugin_site import Site, a_site

from windrow.core.formats.json import dumps, loads
from windrow.emulator import kinds
from windrow.emulator.faults import (
    INTERNAL_ERROR,
    TOO_MANY_REQUESTS,
    AgentFault,
    CutWatch,
    DropReply,
    Effect,
    ExpireWatch,
    Refuse,
    Reset,
    Slow,
    denied,
)
from windrow.kubernetes.kubeconfig import parse_kubeconfig, render_kubeconfig
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import SECRET
from windrow.nodedriver.harvester_location import ANY_HARVESTER
from windrow.plugin.watchdog import GRACE_S
from windrow.protocols import dockermachine as wire
from windrow.protocols.gob import Interface, Type
from windrow.protocols.netrpc import CONNECT_REQUEST, CONNECTED

ROOT = Path(__file__).parents[2]

# `make test` tries some of each enumeration, `make test-long` all; tests/stories/test_node_drivers_crashes.py and
# tests/unit/nodedriver/test_operations.py go through all of them without processes.
later = pytest.mark.long

OPEN = ["GetVersion", "SetConfigRaw", "GetMachineName"]
NEW = [*OPEN, "GetMachineName", "DriverName"]


@pytest.fixture
def site() -> Iterator[Site]:
    with a_site() as made:
        yield made


@pytest.fixture
def driver_host(site: Site, tmp_path: Path) -> DriverHost:
    return DriverHost(site, tmp_path)


# --- whole lives -------------------------------------------------------------------------------------------------------


def test_a_machine_lives_its_life_under_rancher_machine(driver_host: DriverHost, site: Site):
    before = site.inventory()

    driver_host.create()
    temp, plugin = driver_host.calls
    assert temp == [*NEW, "GetCreateFlags", "Close"]
    states = [call for call in plugin if call == "GetState"]
    assert [call for call in plugin if call != "GetState"] == [
        *NEW,
        *["GetCreateFlags"] * 3,
        "SetConfigFromFlags",
        "PreCreateCheck",
        "GetConfigRaw",
        "Create",
        "GetConfigRaw",
        *["DriverName"] * 3,
        "GetCreateFlags",
        "GetConfigRaw",
        "Close",
    ]
    assert len(states) == 1  # Create returned, so it runs

    address = driver_host.saved["IPAddress"]
    assert driver_host.status() == "Running"
    assert driver_host.ip() == address
    assert driver_host.list() == ("Running", f"tcp://{address}:2376")

    with driver_host.plugin() as plugin, pytest.raises(Said, match=r"^IPv6 address is not set$"):
        plugin.call("GetIPv6")  # hosts since 2025 ask for it, where GetIP fails

    driver_host.order("Stop", wire.STOPPED)
    assert driver_host.status() == "Stopped"
    assert driver_host.list() == ("Stopped", "")
    driver_host.order("Start", wire.RUNNING)
    driver_host.order("Restart", wire.RUNNING, looks=2)
    driver_host.order("Kill", wire.STOPPED)
    driver_host.order("Start", wire.RUNNING)

    driver_host.remove(update_config=True)
    site.settles_to(before)
    with pytest.raises(Said, match=f'"{NAME}" not found'):
        driver_host.status()
    driver_host.remove()  # a second rm finds nothing, and is content


def test_a_machine_lives_its_life_under_docker_machine(driver_host: DriverHost, site: Site):
    driver_host.argv = ()
    before = site.inventory()

    driver_host.create(docker=True)
    driver_host.order("Stop", wire.STOPPED)
    driver_host.remove()

    site.settles_to(before)


def test_a_host_that_asks_for_the_old_service_is_served(site: Site):
    with a_plugin() as plugin:
        plugin.service = wire.LEGACY_SERVICE
        assert plugin.call("GetVersion") == 1
        assert plugin.call("DriverName") == "harvester"
        plugin.service = "Other"
        with pytest.raises(Said, match=r"^rpc: can't find service Other\.GetVersion$"):
            plugin.call("GetVersion")
        plugin.service = wire.SERVICE
        plugin.close()


def test_rancher_s_flag_query_is_answered_and_leaves_nothing_behind():
    """Only GetCreateFlags, no Close, no heartbeat; then Rancher waits for the process."""
    with a_plugin() as plugin:
        assert len(wire.read_flags(plugin.call("GetCreateFlags"))) == 32
        plugin.vanish()
        assert plugin.process.wait(3) == 0


def test_rancher_s_check_runs_the_plugin_without_a_token():
    process = start(token="")
    out, err = process.communicate(timeout=5)

    assert (process.returncode, out) == (1, b"")
    assert err.decode().splitlines() == [
        "This is a Docker Machine plugin binary.",
        "Plugin binaries are not intended to be invoked directly.",
        "Please use this plugin through the main 'docker-machine' binary.",
        "(API version: 1)",
    ]


# --- budgets -----------------------------------------------------------------------------------------------------------


def test_a_creation_takes_six_calls_and_a_removal_three(driver_host: DriverHost, site: Site):
    with driver_host.plugin(driver_host.first_config(), new=True) as plugin:
        driver_host.prepare(plugin)
        plugin.call("Create")
        driver_host.save(plugin)
        plugin.close()
    assert site.calls() == [
        "GET virtualmachines",
        "GET virtualmachineimages",
        "GET network-attachment-definitions",
        "POST virtualmachines",
        "POST secrets",
        "WATCH virtualmachineinstances",
    ]

    site.forget()
    driver_host.remove()
    assert site.calls() == ["PATCH virtualmachines", "DELETE virtualmachines", "WATCH virtualmachines"]


# --- what is kept and made -----------------------------------------------------------------------------------------------


def test_the_machine_s_uid_is_saved_before_anything_is_made_and_kept(driver_host: DriverHost, site: Site):
    driver_host.create()

    before, after, last = driver_host.saves
    assert before["WindrowMachineUID"]
    assert not before["WindrowVMUID"]
    assert after["WindrowMachineUID"] == before["WindrowMachineUID"]
    vm = site.find(kinds.VM.ref(NAME, "default"))
    assert after["WindrowVMUID"] == vm["metadata"]["uid"]
    assert last == after


def test_key_files_are_made_and_are_for_their_owner_alone(site: Site, tmp_path: Path):
    driver_host = DriverHost(site, tmp_path, has_key=False)
    driver_host.create()

    place = driver_host.folder / "machines" / NAME
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}
    assert modes == {"id_rsa": 0o600, "id_rsa.pub": 0o600}
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    public = (place / "id_rsa.pub").read_text()
    assert driver_host.saved["SSHPublicKey"] == public
    with driver_host.plugin() as plugin:
        assert plugin.call("GetSSHKeyPath") == str(place / "id_rsa")
        assert plugin.call("GetSSHUsername") == "ubuntu"
        assert plugin.call("GetSSHPort") == 22
        assert plugin.call("GetSSHHostname") == driver_host.saved["IPAddress"]


def test_a_kubeconfig_on_the_command_line_renews_the_stored_one(driver_host: DriverHost, site: Site):
    driver_host.create()
    token = site.harvester.new_token()
    fresh = site.harvester.token_kubeconfig(token, *addresses(site))
    driver_host.saved["KubeConfigContent"] = fresh
    site.harvester.credentials.revoke(token)
    with pytest.raises(Said, match="does not accept the token"):
        driver_host.status()

    driver_host.argv = [
        "rancher-machine",
        "rm",
        "--update-config",
        "--harvester-kubeconfig-content",
        site.kubeconfig,
        NAME,
    ]
    driver_host.remove(update_config=True)
    assert not site.has_vm(NAME)


def test_a_kubeconfig_in_the_environment_renews_the_stored_one(driver_host: DriverHost, site: Site):
    driver_host.create()
    driver_host.saved["KubeConfigContent"] = "broken"
    driver_host.env = {"HARVESTER_KUBECONFIG_CONTENT": site.kubeconfig}

    assert driver_host.status() == "Running"


def test_a_document_is_replaced_where_the_machine_reads_it(driver_host: DriverHost, site: Site):
    driver_host.create()
    with driver_host.plugin() as plugin:
        assert wire.REPLACE_USER_DATA in plugin.call(wire.LIST_EXTENSIONS).split()
        assert plugin.call(wire.REPLACE_USER_DATA, b'#cloud-config\nruncmd: ["true"]\n') == b""
        plugin.close()

    document = base64.b64decode(site.secret(NAME)["data"]["userdata"]).decode()
    assert "install.sh" not in document
    assert '"true"' in document


# --- what goes wrong -----------------------------------------------------------------------------------------------------


def test_heartbeats_and_questions_are_answered_while_a_creation_goes_on(driver_host: DriverHost, site: Site):
    with driver_host.plugin(driver_host.first_config(), new=True) as plugin:
        driver_host.prepare(plugin)
        slow = site.fault(Slow(150), verbs=frozenset({"create"}), plurals=frozenset({"virtualmachines"}))
        creating = plugin.begin("Create")
        wait_until(lambda: "POST virtualmachines" in site.calls())
        for _ in range(5):
            plugin.call("Heartbeat", within=60)
            plugin.call("GetMachineName", within=60)
            plugin.call("GetConfigRaw", within=60)
            with pytest.raises(Said, match="not found"):
                plugin.call("GetState", within=60)
        assert not plugin.is_answered(creating)
        site.end(slow)
        plugin.result(creating)
        assert plugin.call("GetState") == wire.RUNNING


def test_what_is_made_is_on_record_while_a_creation_still_waits(driver_host: DriverHost, site: Site):
    site.harvester.faults.agents.append(AgentFault())
    with driver_host.plugin(driver_host.first_config(), new=True) as plugin:
        driver_host.prepare(plugin)
        creating = plugin.begin("Create")
        wait_until(lambda: loads(plugin.call("GetConfigRaw"))["WindrowVMUID"])
        assert not plugin.is_answered(creating)
        uid = loads(plugin.call("GetConfigRaw"))["WindrowVMUID"]
    assert uid == site.find(kinds.VM.ref(NAME, "default"))["metadata"]["uid"]


def test_two_orders_do_not_race(driver_host: DriverHost, site: Site):
    with driver_host.plugin(driver_host.first_config(), new=True) as plugin:
        driver_host.prepare(plugin)
        slow = site.fault(Slow(60), verbs=frozenset({"create"}))
        creating = plugin.begin("Create")
        removing = plugin.begin("Remove")
        plugin.result(creating)
        plugin.result(removing)
        site.end(slow)
    assert not site.has_vm(NAME)


@pytest.mark.parametrize(
    ("plural", "fault"),
    [
        pytest.param("virtualmachines", DropReply(), id="VM, answer lost"),
        pytest.param("virtualmachines", INTERNAL_ERROR, id="VM, 500", marks=later),
        pytest.param("virtualmachines", Refuse(503, retry_after_s=0), id="VM, 503", marks=later),
        pytest.param("secrets", DropReply(), id="Secret, answer lost", marks=later),
        pytest.param("secrets", INTERNAL_ERROR, id="Secret, 500"),
        pytest.param("secrets", Refuse(503, retry_after_s=0), id="Secret, 503", marks=later),
    ],
)
def test_a_harvester_that_stumbles_once_at_a_write_leaves_one_machine(
    driver_host: DriverHost, site: Site, plural: str, fault: DropReply | Refuse
):
    before = site.inventory()
    with driver_host.plugin(driver_host.first_config(), new=True) as plugin:
        driver_host.prepare(plugin)
        site.fault(fault, verbs=frozenset({"create"}), plurals=frozenset({plural}), times=1)
        create_in_two(plugin)
        driver_host.save(plugin)
        plugin.close()

    assert [item for item in site.inventory() - before if item[0] == "VirtualMachine"] == [
        ("VirtualMachine", "default", NAME)
    ]
    assert site.secret(NAME)
    driver_host.remove()
    site.settles_to(before)


def create_in_two(plugin: Plugin) -> None:
    """Create; if that fails, once more."""
    try:
        plugin.call("Create")
    except Said as said:
        assert "not found" not in str(said)  # noqa: PT017 - it need not fail
        plugin.call("Create")


@pytest.mark.parametrize(
    "effect",
    [
        pytest.param(CutWatch(1), id="ends", marks=later),
        pytest.param(CutWatch(0, clean=False), id="breaks"),
        pytest.param(ExpireWatch(), id="forgets", marks=later),
        pytest.param(TOO_MANY_REQUESTS, id="throttled", marks=later),
        pytest.param(INTERNAL_ERROR, id="500", marks=later),
        pytest.param(Refuse(403, "Forbidden", "no watches"), id="forbidden"),
    ],
)
def test_a_watch_that_fails_costs_a_creation_some_time_and_nothing_else(
    driver_host: DriverHost, site: Site, effect: Effect
):
    before = site.inventory()
    site.fault(effect, verbs=frozenset({"watch"}), times=1)
    driver_host.create()

    assert driver_host.saved["IPAddress"]
    driver_host.remove()
    site.settles_to(before)


def test_a_refused_machine_leaves_nothing_and_says_why(driver_host: DriverHost, site: Site):
    before = site.inventory()
    site.fault(
        denied("no more machines here"), verbs=frozenset({"create"}), plurals=frozenset({"virtualmachines"})
    )
    with driver_host.plugin(driver_host.first_config(), new=True) as plugin:
        driver_host.prepare(plugin)
        with pytest.raises(Said, match="no more machines here"):
            plugin.call("Create")

    assert site.inventory() == before


def test_a_harvester_that_cannot_be_reached_is_no_machine_that_is_gone(driver_host: DriverHost, site: Site):
    driver_host.create()
    driver_host.saved["KubeConfigContent"] = site.harvester.admin_kubeconfig("https://127.0.0.1:1", "")

    with driver_host.plugin() as plugin:
        for method in ("GetState", "Remove"):
            with pytest.raises(Said, match=r"https://127\.0\.0\.1:1 ") as said:
                plugin.call(method)
            assert "not found" not in str(said.value).lower()
    assert site.has_vm(NAME)


def test_a_kubeconfig_that_leads_to_another_harvester_does_not_end_the_machine(
    driver_host: DriverHost, site: Site
):
    driver_host.create()
    with a_site() as other:
        driver_host.saved["KubeConfigContent"] = other.kubeconfig
        with pytest.raises(Said, match="its VM may still run there"):
            driver_host.remove()
        with pytest.raises(Said, match=r"^(?!.*not found).*its VM may still run there"):
            driver_host.status()
        assert site.has_vm(NAME)

        driver_host.env = {ANY_HARVESTER: "1"}
        driver_host.remove()  # the way on for those who know better


def test_without_a_kubeconfig_nothing_is_guessed(driver_host: DriverHost, site: Site, tmp_path: Path):
    driver_host.create()
    driver_host.saved["KubeConfigContent"] = ""
    file = tmp_path / "config"
    file.write_text(site.kubeconfig)
    driver_host.env = {"KUBECONFIG": str(file), "HOME": str(tmp_path)}
    with pytest.raises(Said, match="WINDROW_DRIVER_KUBECONFIG"):
        driver_host.status()

    driver_host.env = {"WINDROW_DRIVER_KUBECONFIG": str(file)}
    assert driver_host.status() == "Running"


def test_another_owners_machine_of_that_name_is_left_alone(driver_host: DriverHost, site: Site):
    other = DriverHost(site, driver_host.folder / "other")
    other.create()
    vm = site.find(kinds.VM.ref(NAME, "default"))

    with driver_host.plugin(driver_host.first_config(), new=True) as plugin:
        with pytest.raises(Said, match=f"^machine {NAME} already exists in namespace default"):
            driver_host.prepare(plugin)
        driver_host.save(plugin)
        for method in ("Create", "Stop", "Kill", "Restart"):
            with pytest.raises(Said):
                plugin.call(method)
        plugin.call("Remove")

    assert site.find(kinds.VM.ref(NAME, "default"))["metadata"]["uid"] == vm["metadata"]["uid"]
    assert other.status() == "Running"


def test_a_server_that_is_not_verified_is_told_of(driver_host: DriverHost, site: Site):
    driver_host.create()
    access = parse_kubeconfig(site.kubeconfig)
    driver_host.saved["KubeConfigContent"] = render_kubeconfig(replace(access, ca="", insecure=True), "x")
    with driver_host.plugin() as plugin:
        for _ in range(2):
            assert plugin.call("GetState") == wire.RUNNING
        wait_until(lambda: plugin.out)
        assert [line for line in plugin.out if "is NOT verified" in line] == plugin.out[:1]


def test_no_secret_is_told(driver_host: DriverHost, site: Site):
    token = site.harvester.new_token()
    driver_host.flags = {
        "harvester-kubeconfig-content": site.harvester.token_kubeconfig(token, *addresses(site)),
        "harvester-ssh-password": "s3cret-password",
    }
    said = []
    with driver_host.plugin(driver_host.first_config(), new=True) as plugin:
        driver_host.prepare(plugin)
        site.fault(denied(f"bad {token} s3cret-password"), verbs=frozenset({"create"}))
        try:
            plugin.call("Create")
        except Said as error:
            said.append(str(error))
        plugin.close()
    told = "\n".join([*said, *plugin.out, *plugin.err])

    assert "bad" in told
    assert token not in told
    assert "s3cret-password" not in told


# --- hosts that end --------------------------------------------------------------------------------------------------------


def test_a_silent_host_is_outlived_by_ten_seconds_at_most(driver_host: DriverHost, site: Site):
    """Never dialled, dialled and silent, silent in the middle of Create; a beating one lives on."""
    began = time.monotonic()
    never = start()
    read_address(never)
    with (
        driver_host.plugin(driver_host.first_config(), new=True) as making,
        a_plugin() as silent,
        a_plugin() as beating,
    ):
        beating.beat()
        driver_host.prepare(making)
        slow = site.fault(Slow(3000), verbs=frozenset({"create"}))
        making.begin("Create")
        making.fall_silent()

        for process in (never, silent.process, making.process):
            assert process.wait(60) == 1
            assert time.monotonic() - began > 9.5
        assert beating.call("GetVersion") == 1
        assert beating.close() == 0
        site.end(slow)
    never.communicate()


def test_an_end_by_signal_is_at_once(driver_host: DriverHost):
    with a_plugin() as plugin:
        plugin.process.terminate()
        assert plugin.process.wait(60) == -15
    with a_plugin() as plugin:
        plugin.process.send_signal(2)
        assert plugin.process.wait(60) == -2


def test_close_ends_at_once_and_well(driver_host: DriverHost, site: Site):
    with driver_host.plugin(driver_host.first_config(), new=True) as plugin:
        driver_host.prepare(plugin)
        slow = site.fault(Slow(300), verbs=frozenset({"create"}))
        plugin.begin("Create")
        assert plugin.close() == 0  # the creation goes on for five minutes
        site.end(slow)


def test_a_host_that_reads_nothing_more_does_not_end_a_creation(driver_host: DriverHost, site: Site):
    """Its pipes are closed, and a line is to be said."""
    with driver_host.plugin(driver_host.first_config(), new=True) as plugin:
        driver_host.prepare(plugin)
        assert plugin.process.stdout is not None
        os.close(plugin.process.stdout.fileno())
        plugin.call("Create")
        assert plugin.call("GetState") == wire.RUNNING


def wait_until(holds: Callable[[], object], within: float = 60) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def addresses(site: Site) -> tuple[str, str]:
    """Server and proxy as the administrator's kubeconfig has them."""
    access = parse_kubeconfig(site.kubeconfig)
    return access.server, access.proxy_url


STEPS = ["opened", "flags set", "checked", "saved", *(f"request {number}" for number in range(6)), "created"]
SAMPLE = ("saved", "request 4", "created")


def some_now(steps: Sequence[str]) -> list[Any]:
    return [pytest.param(step, marks=() if step in SAMPLE else later) for step in steps]


def die_in_creation(driver_host: DriverHost, step: str) -> Plugin:
    """A host that creates a machine and is killed at `step`; its plugin has ended."""
    with driver_host.plugin(driver_host.first_config(), new=True) as plugin:
        requests = step.partition("request ")[2]
        if requests:
            with driver_host.site.halt_at(int(requests)) as reached:
                try:
                    # The saves that the host comes to by itself are kept.
                    options = driver_host.options(plugin, driver_host.script())
                    plugin.call("SetConfigFromFlags", options)
                    checking = plugin.begin("PreCreateCheck")
                    if int(requests) >= 3:
                        plugin.result(checking)
                        driver_host.save(plugin)
                        plugin.begin("Create")
                    assert reached.wait(10)
                finally:
                    plugin.vanish()
                assert plugin.process.wait(3) in (0, 1)
            return plugin
        if step != "opened":
            plugin.call("SetConfigFromFlags", driver_host.options(plugin, driver_host.script()))
        if step in ("checked", "saved", "created"):
            plugin.call("PreCreateCheck")
        if step in ("saved", "created"):
            driver_host.save(plugin)
        if step == "created":
            plugin.call("Create")
        plugin.vanish()
        assert plugin.process.wait(3) == 0
    return plugin


@pytest.mark.parametrize("step", some_now(STEPS))
def test_a_host_that_dies_while_creating_leaves_nothing_that_rm_does_not_find(
    driver_host: DriverHost, site: Site, step: str
):
    before = site.inventory()

    die_in_creation(driver_host, step)

    if driver_host.saves:
        driver_host.remove()
    site.settles_to(before)


def test_a_host_that_is_killed_leaves_no_process(site: Site, tmp_path: Path):
    """The real thing: SIGKILL, so that pipes and connection end with the process that held them."""
    before = site.inventory()
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "kubeconfig").write_text(site.kubeconfig)
    command = [sys.executable, "-m", "tests.e2e.dying_host", str(folder)]
    with site.halt_at(4) as reached, subprocess.Popen(command, cwd=ROOT) as host:
        assert reached.wait(20)
        host.kill()
        pid = int((folder / "plugin.pid").read_text())
        wait_until(lambda: is_gone(pid), within=3)

    assert site.has_vm(NAME)
    driver_host = DriverHost(site, tmp_path, saves=[loads((folder / "config.json").read_bytes())])
    driver_host.remove()
    site.settles_to(before)


def is_gone(pid: int) -> bool:
    """Ended, and perhaps not waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("step", some_now(STEPS[3:]))
def test_what_a_dead_host_had_begun_is_finished_by_the_next(driver_host: DriverHost, site: Site, step: str):
    before = site.inventory()
    die_in_creation(driver_host, step)
    if not driver_host.saves:
        return  # then no machine is on any record

    driver_host.saved["CloudConfig"] = driver_host.script()
    with driver_host.plugin() as plugin:
        plugin.call("PreCreateCheck")
        plugin.call("Create")
        driver_host.save(plugin)
        assert plugin.call("GetState") == wire.RUNNING
        plugin.close()
    assert {item for item in site.inventory() - before if item[0] in ("VirtualMachine", "Secret")} == {
        ("VirtualMachine", "default", NAME),
        ("Secret", "default", f"{NAME}-cloudinit"),
    }
    driver_host.remove()
    site.settles_to(before)


@pytest.mark.parametrize(
    ("number", "effect", "next_"),
    [
        pytest.param(0, Reset(), "create", marks=later),
        pytest.param(2, Reset(), "create", marks=later),
        pytest.param(3, Reset(), "create", marks=later),
        pytest.param(3, Reset(), "remove", marks=later),
        pytest.param(3, DropReply(), "create"),
        pytest.param(3, DropReply(), "remove", marks=later),
        pytest.param(4, Reset(), "create", marks=later),
        pytest.param(4, Reset(), "remove", marks=later),
        pytest.param(4, DropReply(), "create", marks=later),
        pytest.param(4, DropReply(), "remove"),
    ],
)
def test_a_harvester_that_dies_during_a_creation_is_cleared_up_after(
    driver_host: DriverHost, site: Site, number: int, effect: Effect, next_: str
):
    """From request `number` on nothing is answered, and what was sent was carried out or not."""
    before = site.inventory()
    with driver_host.plugin(driver_host.first_config(), new=True) as plugin:
        plugin.call("SetConfigFromFlags", driver_host.options(plugin, driver_host.script()))
        count = iter(range(1_000_000))
        dead = site.fault(effect, where=lambda request: next(count) >= number)
        with pytest.raises(Said, match="did not answer") as said:
            check_and_create(driver_host, plugin)
        assert "not found" not in str(said.value).lower()
        site.end(dead)

        driver_host.save(plugin)
        if next_ == "create":
            plugin.call("Create")
            assert plugin.call("GetState") == wire.RUNNING
        plugin.call("Remove")
        assert plugin.close() == 0
    site.settles_to(before)


def check_and_create(driver_host: DriverHost, plugin: Plugin) -> None:
    plugin.call("PreCreateCheck")
    driver_host.save(plugin)
    plugin.call("Create")


@pytest.mark.parametrize("request_", [pytest.param(0, marks=later), 1, pytest.param(2, marks=later)])
def test_a_host_that_dies_while_removing_is_helped_by_the_next(
    driver_host: DriverHost, site: Site, request_: int
):
    before = site.inventory()
    driver_host.create()

    with driver_host.plugin() as plugin, site.halt_at(request_) as reached:
        plugin.begin("Remove")
        assert reached.wait(10)
        plugin.vanish()
        assert plugin.process.wait(3) in (0, 1)

    driver_host.remove()
    site.settles_to(before)


# --- bad input -------------------------------------------------------------------------------------------------------------


def test_nonsense_ends_its_connection_and_no_other(driver_host: DriverHost, site: Site):
    nonsense = [
        b"GET / HTTP/1.0\r\n\r\n",
        b"\x16\x03\x01" + b"\0" * 100,
        b"CONNECT /_goRPC_ HTTP/1.0\n\n" + b"\xff" * 64,
        b"CONNECT /_goRPC_ HTTP/1.0\n\n" + bytes.fromhex("f8" + "ff" * 8),
        b"CONNECT /_goRPC_ HTTP/1.0\n\n" + bytes.fromhex("fc7fffffff") + b"x" * 1000,
        b"x" * 100_000,
    ]
    with driver_host.plugin(driver_host.first_config(), new=True) as plugin:
        for noise in nonsense:
            with socket.create_connection(plugin.address, timeout=5) as other:
                try:
                    other.sendall(noise)
                    other.shutdown(socket.SHUT_WR)
                    while other.recv(65536):
                        pass
                except OSError as error:  # the plugin has closed first: reset, broken pipe or not connected
                    assert not isinstance(error, TimeoutError)  # noqa: PT017 - but it must close
            assert plugin.call("GetMachineName") == NAME
        assert plugin.close() == 0


def test_a_connection_without_a_call_is_not_a_host_that_has_left():
    process = start()
    address = read_address(process)
    with socket.create_connection(address) as knock:
        knock.sendall(CONNECT_REQUEST)
        assert knock.recv(100) == CONNECTED
    time.sleep(3 * GRACE_S)

    plugin = Plugin(process, address)
    assert plugin.call("GetVersion") == 1
    assert plugin.close() == 0
    process.communicate()


@pytest.mark.parametrize(
    ("method", "kind", "value", "said"),
    [
        ("SetConfigRaw", wire.BYTES, b"{", r"^error unmarshalling driver config JSON: "),
        ("SetConfigRaw", wire.BYTES, dumps({"CPU": "two"}), "cannot unmarshal string into Go struct field"),
        ("SetConfigRaw", wire.STRING, "x", "wrong type"),
        ("SetConfigRaw", wire.EMPTY, {}, "wrong type"),
        ("SetConfigFromFlags", wire.EMPTY, {}, "wrong type"),
        ("SetConfigFromFlags", wire.INTERFACE, None, "no RPCFlags"),
        ("SetConfigFromFlags", wire.INTERFACE, Interface("string", "x"), "no RPCFlags"),
        (
            "SetConfigFromFlags",
            wire.INTERFACE,
            wire.write_options({"harvester-cpu-count": "two"}),
            "flag harvester-cpu-count has the value 'two'",
        ),
        ("Upgrade", wire.EMPTY, {}, r"^rpc: can't find method RPCServerDriver\.Upgrade$"),
        ("Create", wire.STRING, "x", "kubeconfig"),
    ],
)
def test_a_wrong_call_is_answered_and_the_connection_stays(method: str, kind: Type, value: Any, said: str):
    with a_plugin() as plugin:
        with pytest.raises(Said, match=said):
            plugin.result(plugin.begin_as(method, kind, value))
        assert plugin.call("GetVersion") == 1
        assert plugin.close() == 0


def test_a_message_beyond_the_limit_ends_the_connection(driver_host: DriverHost):
    with a_plugin() as plugin:
        plugin.call("GetVersion")
        with pytest.raises(Gone):
            plugin.call("SetConfigRaw", b" " * (wire.DEFAULT_LIMITS.size + 1))
        assert plugin.process.wait(3) == 0


def test_a_vm_that_the_go_driver_made_is_known_by_its_labels(driver_host: DriverHost, site: Site):
    """A configuration that the Go driver wrote: no keys of ours."""
    driver_host.create()
    vm = site.find(kinds.VM.ref(NAME, "default"))
    ours = {"windrow.io/machine-uid": None, "windrow.io/cluster-uid": None}
    site.do(
        site.harvester.api.local().patch(kinds.VM.ref(NAME, "default"), {"metadata": {"annotations": ours}})
    )
    assert vm["metadata"]["labels"]["harvesterhci.io/creator"] == "docker-machine-driver-harvester"
    for key in [key for key in driver_host.saved if key.startswith("Windrow")]:
        del driver_host.saved[key]

    assert driver_host.status() == "Running"
    driver_host.remove()
    assert not site.has_vm(NAME)


def test_a_secret_of_another_owner_is_not_taken(driver_host: DriverHost, site: Site):
    foreign = new_object(SECRET, f"{NAME}-cloudinit", "default", data={})
    site.do(site.harvester.api.local().create(SECRET, foreign))
    before = site.inventory()
    with driver_host.plugin(driver_host.first_config(), new=True) as plugin:
        driver_host.prepare(plugin)
        with pytest.raises(Said, match="is not this machine's"):
            plugin.call("Create")
    site.settles_to(before)
