"""Machines through a driver that knows nothing of Windrow: whatever speaks docker-machine can be used."""

from __future__ import annotations

import asyncio
import base64
import fcntl
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.machines.binaries import a_binary, living, noop_driver

from windrow.app.clock import SystemClock
from windrow.client.transport import Transport
from windrow.core.rng import Rng
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.machines.plugin.machines import PluginMachines
from windrow.machines.plugin.poller import PollIntervals
from windrow.machines.plugin.process.client import Timeouts
from windrow.machines.port import (
    DriverConfig,
    InfrastructureUnknown,
    MachineRefused,
    MachineSpec,
    MachineStatus,
    Power,
    ReplaceUserDataUnsupported,
    initial_driver_config,
)
from windrow.protocols import dockermachine as wire

CREDENTIAL = "cattle-global-data:cc-noop"
SILENT = "cattle-global-data:cc-silent"
TOKEN = "t0ken-of-the-day"
DOCUMENT = "#cloud-config\nwrite_files:\n- content: 'token: s3cret-of-the-cluster'\n"
FAST = PollIntervals(
    transitional=timedelta(seconds=0.2),
    steady=timedelta(seconds=0.4),
    unknown=timedelta(seconds=0.3),
    create_accept_s=5.0,
    other_accept_s=5.0,
)


def a_spec(name: str = "m-1", uid: str = "uid-1", **options: Any) -> MachineSpec:
    return MachineSpec(name, uid, "c1", "cluster-1", CREDENTIAL, options, DOCUMENT, driver="noop")


class Rig:
    """The infrastructure of the noop driver (a JSON file), and a plugin host."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "world.json"
        self.change(machines={}, made=[])
        self.token = TOKEN
        self.extra_fields: dict[str, str] = {}  # further fields of the credential
        self.binary: Path | None = noop_driver(folder)
        self.machines = self.new_host()

    def new_host(self, pace: PollIntervals = FAST, state: str = "state", at_once: int = 8) -> PluginMachines:
        async def no_kubeconfig(credential: str) -> str:
            raise AssertionError("a foreign driver has no kubeconfig")

        async def fields(driver: str, credential: str) -> Mapping[str, str]:
            if credential == SILENT:
                return {"token": "silent"}
            assert (driver, credential) == ("noop", CREDENTIAL)
            if not self.token:
                raise LookupError("there is no such Secret")
            return {"token": self.token, **self.extra_fields}

        return PluginMachines(
            lambda driver: self.binary if driver == "noop" else None,
            no_kubeconfig,
            fields,
            self.folder / state,
            SystemClock(),
            Rng(1),
            env={"PATH": os.environ["PATH"], "NOOP_WORLD": str(self.path)},
            connect=no_connection,
            max_processes=at_once,
            intervals=pace,
            timeouts=Timeouts(close=1.0),
        )

    def read(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.path.read_text())
        return state

    def change(self, **change: Any) -> None:
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = self.read() if self.path.exists() else {}
            temporary = self.path.with_suffix(".new")
            temporary.write_text(json.dumps({**state, **change}))
            temporary.replace(self.path)

    def vms(self) -> list[str]:
        return [machine["config"]["MachineName"] for machine in self.read()["machines"].values()]

    def only(self) -> dict[str, Any]:
        (machine,) = self.read()["machines"].values()
        return dict(machine)

    def processes(self) -> set[int]:
        return living(self.folder)


@asynccontextmanager
async def running(machines: PluginMachines) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(machines.run())
        yield
        task.cancel()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    rig = Rig(tmp_path)
    async with running(rig.machines):
        yield rig
    assert rig.processes() == set()


async def wait_for_status(
    machines: PluginMachines, wanted: Callable[[MachineStatus], bool], uid: str = "uid-1"
) -> MachineStatus:
    async with asyncio.timeout(20):
        async for _, status in machines.statuses().changes():
            if status is not None and status.machine_uid == uid and wanted(status):
                return status
    raise AssertionError("the statuses ended")


async def create_running(rig: Rig, spec: MachineSpec | None = None) -> DriverConfig:
    config = await rig.machines.ensure(spec or a_spec(), None)
    await wait_for_status(rig.machines, lambda s: bool(s.addresses))
    return config


async def test_a_machine_is_created_with_the_user_data_and_reported(rig: Rig) -> None:
    await create_running(rig, a_spec(region="south", size="4", spot=True, tag=["x"]))

    machine = rig.only()
    assert machine["document"] == DOCUMENT
    config = machine["config"]
    assert (config["Region"], config["Size"], config["Spot"], config["Tags"]) == ("south", 4, True, ["x"])
    assert (config["MachineName"], config["Token"]) == ("m-1", TOKEN)
    assert (await wait_for_status(rig.machines, lambda s: s.state == "running")).addresses == (
        "198.51.100.7",
    )


async def test_unset_flags_have_their_defaults(rig: Rig) -> None:
    await create_running(rig)

    config = rig.only()["config"]
    assert (config["Region"], config["Size"], config["Spot"], config["Tags"]) == (
        "north",
        2,
        False,
        ["a", "b"],
    )


async def test_the_config_identifies_the_machine_and_has_no_secret(rig: Rig) -> None:
    config = await create_running(rig)
    kept = (rig.folder / "state" / "uid-1" / "machine.json").read_text()

    for text in (json.dumps(dict(config)), kept):
        assert TOKEN not in text
        assert "dDBrZW4tb2YtdGhlLWRheQ" not in text  # the same in base64
        assert "s3cret" not in text
        assert str(rig.folder) not in text
    assert config["WindrowDriver"] == "noop"
    assert config["WindrowMachineUID"] == "uid-1"
    assert config["WindrowVMUID"]
    assert config["InstanceId"] == "i-0"


async def test_user_data_in_a_driver_config_is_not_recorded(rig: Rig) -> None:
    rig.binary = a_binary(
        rig.folder,
        "noop",
        """
        import base64, pathlib
        from tests.unit.machines import noop_driver
        set_flags = noop_driver.Noop.set_flags
        def keep(self, value):
            set_flags(self, value)
            document = pathlib.Path(self.config["UserDataFile"]).read_bytes()
            self.config |= {"Text": document.decode(), "Encoded": base64.b64encode(document).decode()}
        noop_driver.Noop.set_flags = keep
        noop_driver.main()
        """,
    )
    config = await create_running(rig)

    assert rig.only()["config"]["Text"] == DOCUMENT
    for text in (json.dumps(dict(config)), (rig.folder / "state" / "uid-1" / "machine.json").read_text()):
        assert "s3cret" not in text
        assert base64.b64encode(DOCUMENT.encode()).decode()[:40] not in text
    await rig.machines.power(config, Power.OFF)


async def test_the_user_data_file_is_private_and_deleted_after_create(rig: Rig) -> None:
    rig.change(delay=1.5)
    path = rig.folder / "state" / "uid-1" / "user-data"
    await rig.machines.ensure(a_spec(), None)
    assert path.stat().st_mode & 0o777 == 0o600

    await wait_for_status(rig.machines, lambda s: s.state == "running")
    for _ in range(50):
        if not path.exists():
            break
        await asyncio.sleep(0.1)
    assert not path.exists()


async def test_user_data_files_of_a_killed_host_are_removed_at_the_next_start(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    left = [tmp_path / "state" / "uid-7" / "user-data", tmp_path / "state" / "checks" / "x" / "user-data"]
    for path in left:
        path.parent.mkdir(parents=True)
        path.write_text(DOCUMENT)
    async with running(rig.machines):
        await rig.machines.check([a_spec()])
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize("moment", [0.02, 0.15, 0.3, 0.45, 0.6, 0.9, 1.3])
async def test_a_host_that_stops_at_any_moment_leaves_no_process_and_loses_no_machine(
    tmp_path: Path, moment: float
) -> None:
    rig = Rig(tmp_path)
    rig.change(delay=0.5)
    ordering: asyncio.Task[DriverConfig] | None = None
    async with running(rig.machines):
        ordering = asyncio.create_task(rig.machines.ensure(a_spec(), None))
        await asyncio.sleep(moment)
    await asyncio.wait({ordering}, timeout=0.1)
    ordering.cancel()
    await asyncio.wait({ordering})
    assert rig.processes() == set()

    again = rig.machines = rig.new_host()
    async with running(again):
        await again.ensure(a_spec(), None)
        await wait_for_status(again, lambda s: bool(s.addresses))
        assert rig.vms() == ["m-1"]
        await again.remove(initial_driver_config(a_spec()), frozenset())
        await wait_for_status(again, lambda s: s.presence == "missing")
    assert rig.vms() == []


@pytest.mark.parametrize("delay", [0, 20])
async def test_a_host_that_stops_learns_the_id_of_a_machine_from_a_driver_that_takes_its_time(
    tmp_path: Path, delay: float
) -> None:
    """Without its id such a machine is never found again. The host stops while the driver creates, or tells what it made."""
    rig = Rig(tmp_path)
    rig.change(delay=delay, slow=1.3)
    async with running(rig.machines):
        ordering = asyncio.create_task(rig.machines.ensure(a_spec(), None))
        while not rig.vms():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.wait({ordering}, timeout=0.1)
    ordering.cancel()
    await asyncio.wait({ordering})
    rig.change(slow=0)

    again = rig.machines = rig.new_host()
    async with running(again):
        await again.ensure(a_spec(), None)
        assert rig.vms() == ["m-1"]


async def test_a_host_that_stops_waits_for_the_id_of_a_machine_that_is_being_made_at_that_moment(
    tmp_path: Path,
) -> None:
    """The driver has asked for the machine and knows no id yet: killed now it would leave one that nothing records."""
    rig = Rig(tmp_path)
    rig.binary = a_binary(
        tmp_path,
        "noop",
        f"""
        import pathlib, time
        from tests.unit.machines import noop_driver
        create = noop_driver.Noop.create
        def ask(self, _):
            pathlib.Path({str(tmp_path / "asked")!r}).touch()
            while not (pathlib.Path({str(tmp_path / "answer")!r})).exists():
                time.sleep(0.02)
            self.config["InstanceId"] = "i-0"
            time.sleep(60)
        def create_or_ask(self, _):
            return create(self, _) if self.path.with_name("answer").exists() else ask(self, _)
        noop_driver.Noop.create = create_or_ask
        noop_driver.main()
        """,
    )

    async def make_it_after_a_while() -> None:
        await asyncio.sleep(0.4)
        config = {"MachineName": "m-1", "InstanceId": "i-0"}
        machine = {"config": config, "ip": "198.51.100.7", "runs_at": 0, "state": wire.RUNNING}
        rig.change(machines={"i-0": machine}, made=["m-1"])
        (tmp_path / "answer").touch()

    async with running(rig.machines):
        ordering = asyncio.create_task(rig.machines.ensure(a_spec(), None))
        while not (tmp_path / "asked").exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        made = asyncio.create_task(make_it_after_a_while())
    await asyncio.wait({ordering}, timeout=0.1)
    ordering.cancel()
    await asyncio.wait({ordering})
    await made

    again = rig.machines = rig.new_host()
    async with running(again):
        await again.ensure(a_spec(), None)
        assert rig.vms() == ["m-1"]


async def test_processes_that_a_plugin_left_end_with_the_host(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.binary = a_binary(
        tmp_path,
        "noop",
        f"""
        import os, subprocess
        child = subprocess.Popen(["/bin/sleep", "300"], start_new_session=True, stdout=subprocess.DEVNULL, stderr=2)
        open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
        from tests.unit.machines.noop_driver import main
        main()
        """,
    )
    async with running(rig.machines):
        await rig.machines.check([a_spec()])
        child = Path("/proc") / (tmp_path / "child").read_text()
        assert child.exists()
    for _ in range(50):
        if not child.exists() or ") Z " in (child / "stat").read_text():
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError("it lives")


async def test_a_create_is_accepted_while_the_call_still_runs(rig: Rig) -> None:
    rig.change(delay=3)
    config = await rig.machines.ensure(a_spec(), None)

    assert (await wait_for_status(rig.machines, lambda s: s.presence == "present")).state == "starting"
    assert await rig.machines.ensure(a_spec(), config) == config
    assert rig.read()["made"] == ["m-1"]


async def test_a_create_that_shows_nothing_in_time_goes_on(rig: Rig) -> None:
    rig.binary = a_binary(
        rig.folder,
        "noop",
        """
        import time
        from tests.unit.machines import noop_driver
        create = noop_driver.Noop.create
        noop_driver.Noop.create = lambda self, _: (time.sleep(1), create(self, _))[1]
        noop_driver.main()
        """,
    )
    hasty = rig.new_host(PollIntervals(FAST.transitional, FAST.steady, FAST.unknown, create_accept_s=0.5))
    async with running(hasty):
        with pytest.raises(InfrastructureUnknown, match="is creating machine m-1, which is not visible yet"):
            await hasty.ensure(a_spec(), None)
        await asyncio.sleep(1.5)
        assert (await hasty.ensure(a_spec(), None))["WindrowVMUID"]
    assert rig.read()["made"] == ["m-1"]


async def test_problems_of_options_are_reported_by_name_and_nothing_is_created(rig: Rig) -> None:
    problems = await rig.machines.check([a_spec(size="many", colour="red", spot="perhaps"), a_spec("m-2")])

    assert {problem.field for problem in problems} == {"size", "colour", "spot"}
    assert "node driver noop has no option colour" in " ".join(map(str, problems))
    assert "region, size, spot, tag, token, userdata" in " ".join(map(str, problems))
    assert rig.read()["made"] == []


async def test_a_drivers_own_refusal_is_a_refusal(rig: Rig) -> None:
    (problem,) = await rig.machines.check([a_spec(size=13)])
    assert "size 13 is unlucky" in problem.message
    with pytest.raises(MachineRefused, match="size 13 is unlucky"):
        await rig.machines.ensure(a_spec(size=13), None)


async def test_a_wrong_credential_leaves_everything_unknown(rig: Rig) -> None:
    config = await create_running(rig)
    rig.token = "wrong"
    status = await wait_for_status(rig.machines, lambda s: s.presence == "unknown")
    assert "credential Secret cattle-global-data/cc-noop" in status.because
    assert "401" in status.because
    for order in (
        rig.machines.remove(config, frozenset()),
        rig.machines.check([a_spec("m-2", "uid-2")]),
        rig.machines.ensure(a_spec("m-2", "uid-2"), None),
    ):
        with pytest.raises(InfrastructureUnknown, match=CREDENTIAL.replace(":", "/")):
            await order
    rig.token = TOKEN
    assert (await wait_for_status(rig.machines, lambda s: s.presence == "present")).state == "running"


async def test_a_machine_that_cannot_be_polled_during_create_is_unknown(rig: Rig) -> None:
    rig.change(delay=4)
    await rig.machines.ensure(a_spec(), None)
    rig.change(broken="503 Service Unavailable")
    assert "503" in (await wait_for_status(rig.machines, lambda s: s.presence == "unknown")).because
    rig.change(broken="")
    await wait_for_status(rig.machines, lambda s: s.presence == "present")


async def test_a_rotated_credential_is_used_at_once(rig: Rig) -> None:
    config = await create_running(rig)
    rig.token = "t0ken-of-the-morrow"
    await rig.machines.power(config, Power.OFF)
    assert rig.only()["state"] == wire.STOPPED


async def test_a_deleted_credential_is_reported(rig: Rig) -> None:
    rig.token = ""
    with pytest.raises(
        InfrastructureUnknown, match="credential Secret cattle-global-data/cc-noop cannot be read"
    ):
        await rig.machines.ensure(a_spec(), None)


async def test_a_driver_that_is_not_installed_is_reported(rig: Rig) -> None:
    rig.binary = None
    with pytest.raises(InfrastructureUnknown, match="noop is not installed"):
        await rig.machines.plan(a_spec())
    with pytest.raises(InfrastructureUnknown, match="noop is not installed"):
        await rig.machines.ensure(a_spec(), None)


async def test_a_driver_without_user_data_is_refused_by_name(rig: Rig) -> None:
    rig.binary = a_binary(
        rig.folder,
        "noop",
        """
        from tests.unit.machines import noop_driver
        noop_driver.FLAGS = noop_driver.FLAGS[:-1]
        noop_driver.main()
        """,
    )
    with pytest.raises(MachineRefused, match=r"noop has no flag for user data.*SSH provisioning"):
        await rig.machines.ensure(a_spec(), None)


async def test_only_a_message_that_names_the_machine_makes_it_missing(rig: Rig) -> None:
    await create_running(rig)
    rig.change(broken="the token is valid, the account was not found")
    assert "not found" in (await wait_for_status(rig.machines, lambda s: s.presence == "unknown")).because

    rig.change(broken="", machines={})
    assert "m-1" in (await wait_for_status(rig.machines, lambda s: s.presence == "missing")).because


async def test_a_machine_is_stopped_and_started(rig: Rig) -> None:
    config = await create_running(rig)
    for _ in range(2):
        await rig.machines.power(config, Power.OFF)
    assert (await wait_for_status(rig.machines, lambda s: s.state == "stopped")).addresses == ()
    await rig.machines.power(config, Power.ON)
    await wait_for_status(rig.machines, lambda s: s.state == "running")
    await rig.machines.power(config, Power.RESTART)
    await wait_for_status(rig.machines, lambda s: s.state == "running")


async def test_power_on_a_machine_that_does_not_exist_is_refused(rig: Rig) -> None:
    config = await create_running(rig)
    rig.change(machines={})
    with pytest.raises(MachineRefused, match="m-1 not found"):
        await rig.machines.power(config, Power.ON)


async def test_a_removed_machine_has_no_state_directory(rig: Rig) -> None:
    config = await create_running(rig)
    await rig.machines.remove(config, frozenset())
    await wait_for_status(rig.machines, lambda s: s.presence == "missing")
    await rig.machines.remove(config, frozenset())

    assert rig.vms() == []
    assert not (rig.folder / "state" / "uid-1" / "machine.json").exists()


async def test_a_machine_whose_create_never_started_is_not_removed(rig: Rig) -> None:
    await create_running(rig)
    foreign = initial_driver_config(a_spec("m-1", "uid-2"))
    await rig.machines.remove(foreign, frozenset())
    await wait_for_status(rig.machines, lambda s: s.presence == "missing", "uid-2")
    assert rig.vms() == ["m-1"]


async def test_a_machine_being_created_is_removed_afterwards(rig: Rig) -> None:
    rig.change(delay=1.5)
    config = await rig.machines.ensure(a_spec(), None)
    await rig.machines.remove(config, frozenset())
    await wait_for_status(rig.machines, lambda s: s.presence == "missing")
    assert rig.vms() == []


async def test_a_host_that_died_during_create_adopts_a_running_machine(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.change(delay=60)
    async with running(rig.machines):
        await rig.machines.ensure(a_spec(), None)
    assert rig.processes() == set()

    rig.change(delay=0)
    after = rig.machines = rig.new_host()
    async with running(after):
        config = await after.ensure(a_spec(), initial_driver_config(a_spec()))
        assert config["InstanceId"] == "i-0"
        assert rig.read()["made"] == ["m-1"]
        await after.remove(initial_driver_config(a_spec()), frozenset())
        await wait_for_status(after, lambda s: s.presence == "missing")
    assert rig.vms() == []


async def test_a_partial_machine_that_does_not_run_is_removed_and_created_again(rig: Rig) -> None:
    rig.change(stillborn=True)
    with pytest.raises(MachineRefused, match="no capacity"):
        await rig.machines.ensure(a_spec(), None)
    rig.change(stillborn=False)
    await rig.machines.ensure(a_spec(), None)
    await wait_for_status(rig.machines, lambda s: s.state == "running")
    assert rig.vms() == ["m-1"]


async def test_a_refused_create_that_left_nothing_counts_as_never_started(rig: Rig) -> None:
    rig.change(refuses="no quota for another machine")
    with pytest.raises(MachineRefused, match="no quota"):
        await rig.machines.ensure(a_spec(), None)
    kept = json.loads((rig.folder / "state" / "uid-1" / "machine.json").read_text())
    assert kept["createStarted"] is False

    # What takes the name now is not this machine's.
    rig.change(refuses="", machines={"": {"config": {"MachineName": "m-1"}, "state": wire.RUNNING}})
    await rig.machines.remove(kept["config"], frozenset())
    await wait_for_status(rig.machines, lambda s: s.presence == "missing")
    assert rig.vms() == ["m-1"]


async def test_a_machine_that_has_the_name_already_is_not_the_one_whose_create_was_refused(rig: Rig) -> None:
    """Its driver finds machines by name, so that it would find that one."""
    taken = {"config": {"MachineName": "m-1"}, "state": wire.RUNNING, "ip": "198.51.100.8", "runs_at": 0}
    rig.change(refuses="machine m-1 already exists", by_name=True, machines={"i-9": taken})
    with pytest.raises(MachineRefused, match="already exists"):
        await rig.machines.ensure(a_spec(), None)
    kept = json.loads((rig.folder / "state" / "uid-1" / "machine.json").read_text())

    await rig.machines.remove(kept["config"], frozenset())

    await wait_for_status(rig.machines, lambda s: s.presence == "missing")
    assert rig.vms() == ["m-1"]


async def test_a_plan_holds_what_the_driver_needs_and_no_secret(rig: Rig) -> None:
    planned = await rig.machines.plan(a_spec(region="south"))
    assert (planned["Region"], planned["MachineName"]) == ("south", "m-1")
    assert not planned.get("WindrowVMUID")
    assert TOKEN not in json.dumps(dict(planned))
    assert rig.read()["made"] == []


async def test_a_machine_planned_here_and_not_started_may_be_created_and_removed(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with running(rig.machines):
        planned = await rig.machines.plan(a_spec())
        other = await rig.machines.plan(a_spec("m-2", "uid-2"))
    rig.machines = rig.new_host()
    async with running(rig.machines):
        await rig.machines.ensure(a_spec(), planned)
        assert rig.vms() == ["m-1"]
        await rig.machines.remove(other, frozenset())
        await wait_for_status(rig.machines, lambda s: s.presence == "missing", "uid-2")
        await rig.machines.remove(other, frozenset())


async def test_a_create_that_another_node_may_have_started_is_neither_missing_nor_repeated(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    rig.change(delay=60)
    async with running(rig.machines):
        planned = await rig.machines.plan(a_spec())
        await rig.machines.ensure(a_spec(), planned)
    elsewhere = rig.new_host(state="other")
    async with running(elsewhere):
        for order in (elsewhere.ensure(a_spec(), planned), elsewhere.remove(planned, frozenset())):
            with pytest.raises(
                InfrastructureUnknown, match=r"cannot determine whether .* m-1.* search m-1 in the account"
            ):
                await order
        # Its removal was requested and failed; "not found" must not count as removed now.
        status = await wait_for_status(elsewhere, lambda s: s.presence != "present")
        assert status.presence == "unknown"
        assert "search m-1 in the account" in status.because
    assert rig.read()["made"] == ["m-1"]
    assert rig.vms() == ["m-1"]


async def test_a_create_of_another_node_is_adopted_where_the_driver_finds_names(
    tmp_path: Path,
) -> None:
    rig = Rig(tmp_path)
    rig.change(by_name=True)
    async with running(rig.machines):
        planned = await rig.machines.plan(a_spec())
        await rig.machines.ensure(a_spec(), planned)
        planned_two = await rig.machines.plan(a_spec("m-2", "uid-2"))
        await rig.machines.ensure(a_spec("m-2", "uid-2"), planned_two)
    elsewhere = rig.new_host(state="other")
    async with running(elsewhere):
        assert (await elsewhere.ensure(a_spec(), planned))["WindrowVMUID"]
        assert rig.read()["made"] == ["m-1", "m-2"]
        await elsewhere.remove(planned_two, frozenset())
        await wait_for_status(elsewhere, lambda s: s.presence == "missing", "uid-2")
    assert rig.vms() == ["m-1"]


async def test_a_stopped_machine_that_another_node_made_is_adopted_and_not_removed(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.change(by_name=True)
    async with running(rig.machines):
        planned = await rig.machines.plan(a_spec())
        await rig.machines.ensure(a_spec(), planned)
    # The plan is of a restored state, so it may be of long ago: a person has stopped the machine since.
    machines = {key: {**one, "state": wire.STOPPED} for key, one in rig.read()["machines"].items()}
    rig.change(machines=machines)
    elsewhere = rig.new_host(state="other")
    async with running(elsewhere):
        assert (await elsewhere.ensure(a_spec(), planned))["WindrowVMUID"]
        await wait_for_status(elsewhere, lambda s: s.state == "stopped")
    assert rig.read()["made"] == ["m-1"]
    assert rig.vms() == ["m-1"]


@pytest.mark.parametrize("kept", ["", "{", '{"createStarted": true}', '{"config": {}, "createStarted": 1}'])
async def test_an_unreadable_state_file_proves_nothing(tmp_path: Path, kept: str) -> None:
    rig = Rig(tmp_path)
    async with running(rig.machines):
        planned = await rig.machines.plan(a_spec())
        await rig.machines.ensure(a_spec(), planned)
    (tmp_path / "state" / "uid-1" / "machine.json").write_text(kept)
    again = rig.new_host()
    async with running(again):
        with pytest.raises(InfrastructureUnknown, match="m-1"):
            await again.remove(planned, frozenset())
    assert rig.vms() == ["m-1"]


async def test_the_state_file_is_on_disk_before_create_is_called(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def spy(number: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{number}"))
        assert rig.read()["made"] == []
        sync(number)

    planned = await rig.machines.plan(a_spec())
    monkeypatch.setattr(os, "fsync", spy)
    rig.change(refuses="no quota for another machine")
    with pytest.raises(MachineRefused):
        await rig.machines.ensure(a_spec(), planned)
    place = rig.folder / "state" / "uid-1"
    assert {f"{place}/machine.json.new", str(place), str(place.parent)} <= set(synced)


async def test_a_credential_of_another_account_proves_no_absence(rig: Rig) -> None:
    config = await create_running(rig)
    kept = rig.read()["machines"]
    rig.token = "t0ken-of-another-account"
    rig.change(machines={})

    status = await wait_for_status(rig.machines, lambda s: s.presence != "present")
    assert status.presence == "unknown"
    assert f"noopcredentialConfig-windrowSameAccountAs: {config['WindrowAccount']}" in status.because
    for order in (rig.machines.remove(config, frozenset()), rig.machines.power(config, Power.ON)):
        with pytest.raises(InfrastructureUnknown, match="perhaps to another account"):
            await order

    rig.token = TOKEN
    rig.change(machines=kept)
    await wait_for_status(rig.machines, lambda s: s.presence == "present")
    await rig.machines.remove(config, frozenset())
    assert rig.vms() == []


async def test_a_credential_may_declare_the_same_account(rig: Rig) -> None:
    config = await create_running(rig)
    rig.token = "t0ken-of-the-morrow"
    rig.extra_fields = {"windrowSameAccountAs": f"x, {config['WindrowAccount']}"}
    rig.change(machines={})
    assert (await wait_for_status(rig.machines, lambda s: s.presence != "present")).presence == "missing"
    await rig.machines.remove(config, frozenset())


async def test_a_machine_found_with_a_new_credential_proves_its_account(rig: Rig) -> None:
    config = await create_running(rig)
    rig.token = "t0ken-of-the-morrow"
    note = rig.folder / "state" / "uid-1" / "machine.json"
    for _ in range(400):
        if json.loads(note.read_text())["config"]["WindrowAccount"] != config["WindrowAccount"]:
            break
        await asyncio.sleep(0.05)
    rig.change(machines={})
    assert (await wait_for_status(rig.machines, lambda s: s.presence != "present")).presence == "missing"


async def test_a_poll_that_raises_leaves_no_old_status(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await create_running(rig)

    async def broken(*_: Any) -> Any:
        raise RuntimeError("the poll is broken")

    monkeypatch.setattr("windrow.machines.plugin.status_pool.StatusPluginPool.poll", broken)
    status = await wait_for_status(rig.machines, lambda s: s.presence == "unknown")
    assert "RuntimeError: the poll is broken" in status.because


async def test_a_tracked_machine_is_reported_after_a_restart(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with running(rig.machines):
        config = await create_running(rig)
    again = rig.new_host()
    async with running(again):
        again.track(config)
        assert (await wait_for_status(again, lambda s: s.presence == "present")).addresses == (
            "198.51.100.7",
        )


async def test_a_driver_that_cannot_replace_user_data_leaves_the_machine_unscrubbed(rig: Rig) -> None:
    config = await create_running(rig)
    with pytest.raises(ReplaceUserDataUnsupported, match="m-1 stays there, secrets included"):
        await rig.machines.replace_user_data(config, "#cloud-config\n")


async def test_the_drivers_output_is_logged_without_its_secrets(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await create_running(rig)
    assert "(m-1) checking with token …" in caplog.messages
    assert TOKEN not in caplog.text


async def test_no_more_plugins_run_at_once_than_allowed(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    async with running(rig.machines):
        memories = [await rig.machines.ensure(a_spec(f"m-{n}", f"uid-{n}"), None) for n in range(6)]
        for n in range(6):
            await wait_for_status(rig.machines, lambda s: s.state == "running", f"uid-{n}")
    narrow = PluginMachines(
        lambda _: rig.binary,
        _never,
        _token,
        rig.folder / "state",
        SystemClock(),
        Rng(1),
        env={"PATH": os.environ["PATH"], "NOOP_WORLD": str(rig.path)},
        connect=no_connection,
        max_processes=2,
        intervals=FAST,
    )
    async with running(narrow):
        for config in memories:
            narrow.track(config)
        most = 0
        for _ in range(30):
            most = max(most, len(rig.processes()))
            await asyncio.sleep(0.03)
        for n in range(6):
            await wait_for_status(narrow, lambda s: s.state == "running", f"uid-{n}")
    assert most <= 2


async def test_a_credential_that_blocks_holds_up_no_other(rig: Rig) -> None:
    silent = [replace(a_spec(f"s-{n}", f"silent-{n}"), credential=SILENT) for n in range(10)]
    waiting = [asyncio.create_task(rig.machines.check([spec])) for spec in silent]
    waiting += [asyncio.create_task(rig.machines.ensure(spec, None)) for spec in silent[:3]]
    await asyncio.sleep(1)

    async with asyncio.timeout(15):
        assert await rig.machines.check([a_spec()]) == []
        config = await create_running(rig)
        await rig.machines.remove(config, frozenset())
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)


async def test_no_more_machines_are_created_at_once_than_allowed(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.change(delay=2)
    rig.machines = rig.new_host(at_once=1)
    async with running(rig.machines):
        specs = [a_spec(f"m-{n}", f"uid-{n}") for n in range(6)]
        orders = [asyncio.create_task(rig.machines.ensure(spec, None)) for spec in specs]
        most = 0
        while len(rig.vms()) < 6:  # a slow computer may end an order before its machine is accepted
            most = max(most, len(rig.processes()))
            await asyncio.sleep(0.03)
        await asyncio.gather(*orders, return_exceptions=True)
        assert most <= 4 + 1  # one more looks at them


async def _never(credential: str) -> str:
    raise AssertionError


async def _token(driver: str, credential: str) -> Mapping[str, str]:
    return {"token": TOKEN}


def no_connection(access: ClientConfig) -> Transport:
    raise AssertionError("a foreign driver needs no connection to a Harvester")
