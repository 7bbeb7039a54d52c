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
from windrow.core.rng import Rng
from windrow.machines.plugin.machines import PluginMachines, PollIntervals
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


class Country:
    """The noop driver's world, and the host that works in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "world.json"
        self.change(machines={}, made=[])
        self.token = TOKEN
        self.said: dict[str, str] = {}  # further fields of the credential
        self.binary: Path | None = noop_driver(folder)
        self.machines = self.a_host()

    def a_host(self, pace: PollIntervals = FAST, state: str = "state", at_once: int = 8) -> PluginMachines:
        async def no_kubeconfig(credential: str) -> str:
            raise AssertionError("a foreign driver has no kubeconfig")

        async def fields(driver: str, credential: str) -> Mapping[str, str]:
            if credential == SILENT:
                return {"token": "silent"}
            assert (driver, credential) == ("noop", CREDENTIAL)
            if not self.token:
                raise LookupError("there is no such Secret")
            return {"token": self.token, **self.said}

        return PluginMachines(
            lambda driver: self.binary if driver == "noop" else None,
            no_kubeconfig,
            fields,
            self.folder / state,
            SystemClock(),
            Rng(1),
            env={"PATH": os.environ["PATH"], "NOOP_WORLD": str(self.path)},
            max_processes=at_once,
            intervals=pace,
            timeouts=Timeouts(close=1.0),
        )

    def read(self) -> dict[str, Any]:
        world: dict[str, Any] = json.loads(self.path.read_text())
        return world

    def change(self, **change: Any) -> None:
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            world = self.read() if self.path.exists() else {}
            self.path.write_text(json.dumps({**world, **change}))

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
async def country(tmp_path: Path) -> AsyncIterator[Country]:
    made = Country(tmp_path)
    async with running(made.machines):
        yield made
    assert made.processes() == set()


async def seen(
    machines: PluginMachines, wanted: Callable[[MachineStatus], bool], uid: str = "uid-1"
) -> MachineStatus:
    async with asyncio.timeout(20):
        async for _, sighting in machines.statuses().changes():
            if sighting is not None and sighting.machine_uid == uid and wanted(sighting):
                return sighting
    raise AssertionError("the sightings ended")


async def born(country: Country, spec: MachineSpec | None = None) -> DriverConfig:
    memory = await country.machines.ensure(spec or a_spec(), None)
    await seen(country.machines, lambda s: bool(s.addresses))
    return memory


async def test_a_machine_is_created_with_the_user_data_and_reported(country: Country) -> None:
    await born(country, a_spec(region="south", size="4", spot=True, tag=["x"]))

    machine = country.only()
    assert machine["document"] == DOCUMENT
    config = machine["config"]
    assert (config["Region"], config["Size"], config["Spot"], config["Tags"]) == ("south", 4, True, ["x"])
    assert (config["MachineName"], config["Token"]) == ("m-1", TOKEN)
    assert (await seen(country.machines, lambda s: s.state == "running")).addresses == ("198.51.100.7",)


async def test_unset_flags_have_their_defaults(country: Country) -> None:
    await born(country)

    config = country.only()["config"]
    assert (config["Region"], config["Size"], config["Spot"], config["Tags"]) == (
        "north",
        2,
        False,
        ["a", "b"],
    )


async def test_the_config_identifies_the_machine_and_has_no_secret(country: Country) -> None:
    memory = await born(country)
    kept = (country.folder / "state" / "uid-1" / "memory.json").read_text()

    for text in (json.dumps(dict(memory)), kept):
        assert TOKEN not in text
        assert "dDBrZW4tb2YtdGhlLWRheQ" not in text  # the same in base64
        assert "s3cret" not in text
        assert str(country.folder) not in text
    assert memory["WindrowDriver"] == "noop"
    assert memory["WindrowMachineUID"] == "uid-1"
    assert memory["WindrowVMUID"]
    assert memory["InstanceId"] == "i-0"


async def test_user_data_in_a_driver_config_is_not_recorded(country: Country) -> None:
    country.binary = a_binary(
        country.folder,
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
    memory = await born(country)

    assert country.only()["config"]["Text"] == DOCUMENT
    for text in (json.dumps(dict(memory)), (country.folder / "state" / "uid-1" / "memory.json").read_text()):
        assert "s3cret" not in text
        assert base64.b64encode(DOCUMENT.encode()).decode()[:40] not in text
    await country.machines.power(memory, Power.OFF)


async def test_the_user_data_file_is_private_and_deleted_after_create(country: Country) -> None:
    country.change(delay=1.5)
    path = country.folder / "state" / "uid-1" / "user-data"
    await country.machines.ensure(a_spec(), None)
    assert path.stat().st_mode & 0o777 == 0o600

    await seen(country.machines, lambda s: s.state == "running")
    for _ in range(50):
        if not path.exists():
            break
        await asyncio.sleep(0.1)
    assert not path.exists()


async def test_user_data_files_of_a_killed_host_are_removed_at_the_next_start(tmp_path: Path) -> None:
    country = Country(tmp_path)
    left = [tmp_path / "state" / "uid-7" / "user-data", tmp_path / "state" / "checks" / "x" / "user-data"]
    for path in left:
        path.parent.mkdir(parents=True)
        path.write_text(DOCUMENT)
    async with running(country.machines):
        await country.machines.check([a_spec()])
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize("moment", [0.02, 0.15, 0.3, 0.45, 0.6, 0.9, 1.3])
async def test_a_host_that_stops_at_any_moment_leaves_no_process_and_loses_no_machine(
    tmp_path: Path, moment: float
) -> None:
    country = Country(tmp_path)
    country.change(delay=0.5)
    ordering: asyncio.Task[DriverConfig] | None = None
    async with running(country.machines):
        ordering = asyncio.create_task(country.machines.ensure(a_spec(), None))
        await asyncio.sleep(moment)
    await asyncio.wait({ordering}, timeout=0.1)
    ordering.cancel()
    await asyncio.wait({ordering})
    assert country.processes() == set()

    again = country.machines = country.a_host()
    async with running(again):
        await again.ensure(a_spec(), None)
        await seen(again, lambda s: bool(s.addresses))
        assert country.vms() == ["m-1"]
        await again.remove(initial_driver_config(a_spec()), frozenset())
        await seen(again, lambda s: s.presence == "missing")
    assert country.vms() == []


async def test_processes_that_a_plugin_left_end_with_the_host(tmp_path: Path) -> None:
    country = Country(tmp_path)
    country.binary = a_binary(
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
    async with running(country.machines):
        await country.machines.check([a_spec()])
        child = Path("/proc") / (tmp_path / "child").read_text()
        assert child.exists()
    for _ in range(50):
        if not child.exists() or ") Z " in (child / "stat").read_text():
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError("it lives")


async def test_a_create_is_accepted_while_the_call_still_runs(country: Country) -> None:
    country.change(delay=3)
    memory = await country.machines.ensure(a_spec(), None)

    assert (await seen(country.machines, lambda s: s.presence == "present")).state == "starting"
    assert await country.machines.ensure(a_spec(), memory) == memory
    assert country.read()["made"] == ["m-1"]


async def test_a_create_that_shows_nothing_in_time_goes_on(country: Country) -> None:
    country.binary = a_binary(
        country.folder,
        "noop",
        """
        import time
        from tests.unit.machines import noop_driver
        create = noop_driver.Noop.create
        noop_driver.Noop.create = lambda self, _: (time.sleep(1), create(self, _))[1]
        noop_driver.main()
        """,
    )
    hasty = country.a_host(PollIntervals(FAST.transitional, FAST.steady, FAST.unknown, create_accept_s=0.5))
    async with running(hasty):
        with pytest.raises(InfrastructureUnknown, match="is making m-1, which does not show yet"):
            await hasty.ensure(a_spec(), None)
        await asyncio.sleep(1.5)
        assert (await hasty.ensure(a_spec(), None))["WindrowVMUID"]
    assert country.read()["made"] == ["m-1"]


async def test_problems_of_options_are_reported_by_name_and_nothing_is_created(country: Country) -> None:
    problems = await country.machines.check(
        [a_spec(size="many", colour="red", spot="perhaps"), a_spec("m-2")]
    )

    assert {problem.field for problem in problems} == {"size", "colour", "spot"}
    assert "colour is no option of node driver noop" in " ".join(map(str, problems))
    assert "region, size, spot, tag, token, userdata" in " ".join(map(str, problems))
    assert country.read()["made"] == []


async def test_a_drivers_own_refusal_is_a_refusal(country: Country) -> None:
    (problem,) = await country.machines.check([a_spec(size=13)])
    assert "size 13 is unlucky" in problem.message
    with pytest.raises(MachineRefused, match="size 13 is unlucky"):
        await country.machines.ensure(a_spec(size=13), None)


async def test_a_wrong_credential_leaves_everything_unknown(country: Country) -> None:
    memory = await born(country)
    country.token = "wrong"
    sighting = await seen(country.machines, lambda s: s.presence == "unknown")
    assert CREDENTIAL in sighting.because
    assert "401" in sighting.because
    for order in (
        country.machines.remove(memory, frozenset()),
        country.machines.check([a_spec("m-2", "uid-2")]),
        country.machines.ensure(a_spec("m-2", "uid-2"), None),
    ):
        with pytest.raises(InfrastructureUnknown, match=CREDENTIAL):
            await order
    country.token = TOKEN
    assert (await seen(country.machines, lambda s: s.presence == "present")).state == "running"


async def test_a_machine_that_cannot_be_polled_during_create_is_unknown(country: Country) -> None:
    country.change(delay=4)
    await country.machines.ensure(a_spec(), None)
    country.change(broken="503 Service Unavailable")
    assert "503" in (await seen(country.machines, lambda s: s.presence == "unknown")).because
    country.change(broken="")
    await seen(country.machines, lambda s: s.presence == "present")


async def test_a_rotated_credential_is_used_at_once(country: Country) -> None:
    memory = await born(country)
    country.token = "t0ken-of-the-morrow"
    await country.machines.power(memory, Power.OFF)
    assert country.only()["state"] == wire.STOPPED


async def test_a_deleted_credential_is_reported(country: Country) -> None:
    country.token = ""
    with pytest.raises(InfrastructureUnknown, match=f"{CREDENTIAL} cannot be read"):
        await country.machines.ensure(a_spec(), None)


async def test_a_driver_that_is_not_installed_is_reported(country: Country) -> None:
    country.binary = None
    with pytest.raises(InfrastructureUnknown, match="noop is not installed"):
        await country.machines.plan(a_spec())
    with pytest.raises(InfrastructureUnknown, match="noop is not installed"):
        await country.machines.ensure(a_spec(), None)


async def test_a_driver_without_user_data_is_refused_by_name(country: Country) -> None:
    country.binary = a_binary(
        country.folder,
        "noop",
        """
        from tests.unit.machines import noop_driver
        noop_driver.FLAGS = noop_driver.FLAGS[:-1]
        noop_driver.main()
        """,
    )
    with pytest.raises(MachineRefused, match=r"noop has no flag for user data.*SSH provisioning"):
        await country.machines.ensure(a_spec(), None)


async def test_only_a_message_that_names_the_machine_makes_it_missing(country: Country) -> None:
    await born(country)
    country.change(broken="the token is valid, the account was not found")
    assert "not found" in (await seen(country.machines, lambda s: s.presence == "unknown")).because

    country.change(broken="", machines={})
    assert "m-1" in (await seen(country.machines, lambda s: s.presence == "missing")).because


async def test_a_machine_is_stopped_and_started(country: Country) -> None:
    memory = await born(country)
    for _ in range(2):
        await country.machines.power(memory, Power.OFF)
    assert (await seen(country.machines, lambda s: s.state == "stopped")).addresses == ()
    await country.machines.power(memory, Power.ON)
    await seen(country.machines, lambda s: s.state == "running")


async def test_power_on_a_machine_that_does_not_exist_is_refused(country: Country) -> None:
    memory = await born(country)
    country.change(machines={})
    with pytest.raises(MachineRefused, match="m-1 is not there"):
        await country.machines.power(memory, Power.ON)


async def test_a_removed_machine_has_no_state_directory(country: Country) -> None:
    memory = await born(country)
    await country.machines.remove(memory, frozenset())
    await seen(country.machines, lambda s: s.presence == "missing")
    await country.machines.remove(memory, frozenset())

    assert country.vms() == []
    assert not (country.folder / "state" / "uid-1" / "memory.json").exists()


async def test_a_machine_whose_create_never_started_is_not_removed(country: Country) -> None:
    await born(country)
    stranger = initial_driver_config(a_spec("m-1", "uid-2"))
    await country.machines.remove(stranger, frozenset())
    await seen(country.machines, lambda s: s.presence == "missing", "uid-2")
    assert country.vms() == ["m-1"]


async def test_a_machine_being_created_is_removed_afterwards(country: Country) -> None:
    country.change(delay=1.5)
    memory = await country.machines.ensure(a_spec(), None)
    await country.machines.remove(memory, frozenset())
    await seen(country.machines, lambda s: s.presence == "missing")
    assert country.vms() == []


async def test_a_host_that_died_during_create_adopts_a_running_machine(tmp_path: Path) -> None:
    country = Country(tmp_path)
    country.change(delay=60)
    async with running(country.machines):
        await country.machines.ensure(a_spec(), None)
    assert country.processes() == set()

    country.change(delay=0)
    after = country.machines = country.a_host()
    async with running(after):
        memory = await after.ensure(a_spec(), initial_driver_config(a_spec()))
        assert memory["InstanceId"] == "i-0"
        assert country.read()["made"] == ["m-1"]
        await after.remove(initial_driver_config(a_spec()), frozenset())
        await seen(after, lambda s: s.presence == "missing")
    assert country.vms() == []


async def test_a_partial_machine_that_does_not_run_is_removed_and_created_again(country: Country) -> None:
    country.change(stillborn=True)
    with pytest.raises(MachineRefused, match="no capacity"):
        await country.machines.ensure(a_spec(), None)
    country.change(stillborn=False)
    await country.machines.ensure(a_spec(), None)
    await seen(country.machines, lambda s: s.state == "running")
    assert country.vms() == ["m-1"]


async def test_a_refused_create_that_left_nothing_counts_as_never_started(country: Country) -> None:
    country.change(refuses=True)
    with pytest.raises(MachineRefused, match="no quota"):
        await country.machines.ensure(a_spec(), None)
    kept = json.loads((country.folder / "state" / "uid-1" / "memory.json").read_text())
    assert kept["begun"] is False

    # What takes the name now is not this machine's.
    country.change(refuses=False, machines={"": {"config": {"MachineName": "m-1"}, "state": wire.RUNNING}})
    await country.machines.remove(kept["memory"], frozenset())
    await seen(country.machines, lambda s: s.presence == "missing")
    assert country.vms() == ["m-1"]


async def test_a_plan_holds_what_the_driver_needs_and_no_secret(country: Country) -> None:
    planned = await country.machines.plan(a_spec(region="south"))
    assert (planned["Region"], planned["MachineName"]) == ("south", "m-1")
    assert not planned.get("WindrowVMUID")
    assert TOKEN not in json.dumps(dict(planned))
    assert country.read()["made"] == []


async def test_a_machine_planned_here_and_not_started_may_be_created_and_removed(tmp_path: Path) -> None:
    country = Country(tmp_path)
    async with running(country.machines):
        planned = await country.machines.plan(a_spec())
        other = await country.machines.plan(a_spec("m-2", "uid-2"))
    country.machines = country.a_host()
    async with running(country.machines):
        await country.machines.ensure(a_spec(), planned)
        assert country.vms() == ["m-1"]
        await country.machines.remove(other, frozenset())
        await seen(country.machines, lambda s: s.presence == "missing", "uid-2")
        await country.machines.remove(other, frozenset())


async def test_a_create_that_another_node_may_have_started_is_neither_missing_nor_repeated(
    tmp_path: Path,
) -> None:
    country = Country(tmp_path)
    country.change(delay=60)
    async with running(country.machines):
        planned = await country.machines.plan(a_spec())
        await country.machines.ensure(a_spec(), planned)
    elsewhere = country.a_host(state="other")
    async with running(elsewhere):
        for order in (elsewhere.ensure(a_spec(), planned), elsewhere.remove(planned, frozenset())):
            with pytest.raises(
                InfrastructureUnknown, match=r"not known whether .* m-1.* look for m-1 in the account"
            ):
                await order
        # Its removal was ordered and could not be; whoever looks at it now must not take "not found" for its end.
        sighting = await seen(elsewhere, lambda s: s.presence != "present")
        assert sighting.presence == "unknown"
        assert "look for m-1 in the account" in sighting.because
    assert country.read()["made"] == ["m-1"]
    assert country.vms() == ["m-1"]


async def test_a_create_of_another_node_is_adopted_where_the_driver_finds_names(
    tmp_path: Path,
) -> None:
    country = Country(tmp_path)
    country.change(by_name=True)
    async with running(country.machines):
        planned = await country.machines.plan(a_spec())
        await country.machines.ensure(a_spec(), planned)
        planned_two = await country.machines.plan(a_spec("m-2", "uid-2"))
        await country.machines.ensure(a_spec("m-2", "uid-2"), planned_two)
    elsewhere = country.a_host(state="other")
    async with running(elsewhere):
        assert (await elsewhere.ensure(a_spec(), planned))["WindrowVMUID"]
        assert country.read()["made"] == ["m-1", "m-2"]
        await elsewhere.remove(planned_two, frozenset())
        await seen(elsewhere, lambda s: s.presence == "missing", "uid-2")
    assert country.vms() == ["m-1"]


@pytest.mark.parametrize("kept", ["", "{", '{"begun": true}', '{"memory": {}, "begun": 1}'])
async def test_an_unreadable_state_file_proves_nothing(tmp_path: Path, kept: str) -> None:
    country = Country(tmp_path)
    async with running(country.machines):
        planned = await country.machines.plan(a_spec())
        await country.machines.ensure(a_spec(), planned)
    (tmp_path / "state" / "uid-1" / "memory.json").write_text(kept)
    again = country.a_host()
    async with running(again):
        with pytest.raises(InfrastructureUnknown, match="m-1"):
            await again.remove(planned, frozenset())
    assert country.vms() == ["m-1"]


async def test_the_state_file_is_on_disk_before_create_is_called(
    country: Country, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    sync = os.fsync

    def spy(number: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{number}"))
        assert country.read()["made"] == []
        sync(number)

    planned = await country.machines.plan(a_spec())
    monkeypatch.setattr(os, "fsync", spy)
    country.change(refuses=True)
    with pytest.raises(MachineRefused):
        await country.machines.ensure(a_spec(), planned)
    place = country.folder / "state" / "uid-1"
    assert {f"{place}/memory.json.new", str(place), str(place.parent)} <= set(synced)


async def test_a_credential_of_another_account_proves_no_absence(country: Country) -> None:
    memory = await born(country)
    kept = country.read()["machines"]
    country.token = "t0ken-of-another-account"
    country.change(machines={})

    sighting = await seen(country.machines, lambda s: s.presence != "present")
    assert sighting.presence == "unknown"
    assert f"noopcredentialConfig-windrowSameAccountAs: {memory['WindrowAccount']}" in sighting.because
    for order in (country.machines.remove(memory, frozenset()), country.machines.power(memory, Power.ON)):
        with pytest.raises(InfrastructureUnknown, match="perhaps to another account"):
            await order

    country.token = TOKEN
    country.change(machines=kept)
    await seen(country.machines, lambda s: s.presence == "present")
    await country.machines.remove(memory, frozenset())
    assert country.vms() == []


async def test_a_credential_may_declare_the_same_account(country: Country) -> None:
    memory = await born(country)
    country.token = "t0ken-of-the-morrow"
    country.said = {"windrowSameAccountAs": f"x, {memory['WindrowAccount']}"}
    country.change(machines={})
    assert (await seen(country.machines, lambda s: s.presence != "present")).presence == "missing"
    await country.machines.remove(memory, frozenset())


async def test_a_machine_found_with_a_new_credential_proves_its_account(country: Country) -> None:
    memory = await born(country)
    country.token = "t0ken-of-the-morrow"
    note = country.folder / "state" / "uid-1" / "memory.json"
    for _ in range(400):
        if json.loads(note.read_text())["memory"]["WindrowAccount"] != memory["WindrowAccount"]:
            break
        await asyncio.sleep(0.05)
    country.change(machines={})
    assert (await seen(country.machines, lambda s: s.presence != "present")).presence == "missing"


async def test_a_poll_that_raises_leaves_no_old_status(
    country: Country, monkeypatch: pytest.MonkeyPatch
) -> None:
    await born(country)

    async def broken(*_: Any) -> Any:
        raise RuntimeError("the spyglass is broken")

    monkeypatch.setattr("windrow.machines.plugin.status_pool.StatusPluginPool.poll", broken)
    sighting = await seen(country.machines, lambda s: s.presence == "unknown")
    assert "RuntimeError: the spyglass is broken" in sighting.because


async def test_a_tracked_machine_is_reported_after_a_restart(tmp_path: Path) -> None:
    country = Country(tmp_path)
    async with running(country.machines):
        memory = await born(country)
    again = country.a_host()
    async with running(again):
        again.track(memory)
        assert (await seen(again, lambda s: s.presence == "present")).addresses == ("198.51.100.7",)


async def test_a_driver_that_cannot_replace_user_data_leaves_the_machine_unscrubbed(country: Country) -> None:
    memory = await born(country)
    with pytest.raises(ReplaceUserDataUnsupported, match="m-1 stays there, secrets included"):
        await country.machines.replace_user_data(memory, "#cloud-config\n")


async def test_the_drivers_output_is_logged_without_its_secrets(
    country: Country, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await born(country)
    assert "(m-1) checking with token …" in caplog.messages
    assert TOKEN not in caplog.text


async def test_no_more_plugins_run_at_once_than_allowed(tmp_path: Path) -> None:
    country = Country(tmp_path)
    async with running(country.machines):
        memories = [await country.machines.ensure(a_spec(f"m-{n}", f"uid-{n}"), None) for n in range(6)]
        for n in range(6):
            await seen(country.machines, lambda s: s.state == "running", f"uid-{n}")
    narrow = PluginMachines(
        lambda _: country.binary,
        _never,
        _token,
        country.folder / "state",
        SystemClock(),
        Rng(1),
        env={"PATH": os.environ["PATH"], "NOOP_WORLD": str(country.path)},
        max_processes=2,
        intervals=FAST,
    )
    async with running(narrow):
        for memory in memories:
            narrow.track(memory)
        most = 0
        for _ in range(30):
            most = max(most, len(country.processes()))
            await asyncio.sleep(0.03)
        for n in range(6):
            await seen(narrow, lambda s: s.state == "running", f"uid-{n}")
    assert most <= 2


async def test_a_credential_that_blocks_holds_up_no_other(country: Country) -> None:
    silent = [replace(a_spec(f"s-{n}", f"silent-{n}"), credential=SILENT) for n in range(10)]
    waiting = [asyncio.create_task(country.machines.check([spec])) for spec in silent]
    waiting += [asyncio.create_task(country.machines.ensure(spec, None)) for spec in silent[:3]]
    await asyncio.sleep(1)

    async with asyncio.timeout(15):
        assert await country.machines.check([a_spec()]) == []
        memory = await born(country)
        await country.machines.remove(memory, frozenset())
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)


async def test_no_more_machines_are_created_at_once_than_allowed(tmp_path: Path) -> None:
    country = Country(tmp_path)
    country.change(delay=2)
    country.machines = country.a_host(at_once=1)
    async with running(country.machines):
        specs = [a_spec(f"m-{n}", f"uid-{n}") for n in range(6)]
        orders = [asyncio.create_task(country.machines.ensure(spec, None)) for spec in specs]
        most = 0
        while not all(order.done() for order in orders):
            most = max(most, len(country.processes()))
            await asyncio.wait(orders, timeout=0.03)
        assert most <= 4 + 1  # one more looks at them
        assert len(country.vms()) == 6


async def _never(credential: str) -> str:
    raise AssertionError


async def _token(driver: str, credential: str) -> Mapping[str, str]:
    return {"token": TOKEN}
