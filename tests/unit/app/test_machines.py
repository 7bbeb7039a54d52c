"""The manager's machinery: which drivers it knows, and what plugins get to see."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.clock import LoopClock

from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.clock import SystemClock
from windrow.app.embedded import install_crds, management_api
from windrow.app.loop import running
from windrow.app.machines import (
    MachineBackend,
    PluginSettings,
    driver_for_kind,
    full_backend,
    read_credential_fields,
    sandbox_notice,
    sandbox_of_downloaded,
)
from windrow.client.client import Client
from windrow.core.rng import Rng
from windrow.drivers.api import NODE_DRIVER, NodeDriver, find_driver
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import SECRET
from windrow.machines.plugin.launcher import may_always_write
from windrow.machines.plugin.process.sandbox import Sandbox, describe_sandbox
from windrow.machines.port import Problem


async def no_credential(name: str) -> str:
    raise NotFound(f"no Secret {name}", status=404)


def no_dial(access: ClientConfig) -> None:
    raise AssertionError("no credential is read here")


@asynccontextmanager
async def started(state: Path) -> AsyncIterator[tuple[Client, MachineBackend]]:
    clock, rng = SystemClock(), Rng(1)
    api = management_api(MemoryStore(), clock, rng)
    client = Client(api.local())
    async with running(api.run):
        await install_crds(client)
        host = PluginSettings(state, allow_file_urls=True)
        made = full_backend(
            client,
            no_credential,
            no_dial,  # type: ignore[arg-type]
            clock,
            rng,
            host,
            lambda kind: None,
            may_always_write,
        )
        async with made.running():
            yield client, made


async def test_the_built_in_driver_is_known_before_the_manager_starts(tmp_path: Path) -> None:
    async with started(tmp_path) as (_, machinery):
        assert machinery.driver_for_kind("HarvesterConfig") == "harvester"
        refused = machinery.driver_for_kind("NoopConfig")
        assert isinstance(refused, Problem)
        assert "windrow driver add" in refused.hint


async def test_a_deleted_record_of_the_built_in_driver_stops_no_cluster(tmp_path: Path) -> None:
    async with started(tmp_path) as (client, machinery):
        await client.patch(NODE_DRIVER.ref("harvester"), {"metadata": {"finalizers": None}})
        await client.delete(NODE_DRIVER.ref("harvester"))
        assert machinery.drivers is not None
        async with asyncio.timeout(10):
            while find_driver("HarvesterConfig", machinery.drivers.drivers) is not None:  # noqa: ASYNC110 - these changes are not signalled
                await asyncio.sleep(0.01)

        assert machinery.driver_for_kind("HarvesterConfig") == "harvester"


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
async def test_what_a_driver_leaves_when_its_flags_are_read_is_killed(tmp_path: Path) -> None:
    left = f"300.{os.getpid()}{time.monotonic_ns()}"
    program = a_driver_that_leaves(left, tmp_path)
    checksum = hashlib.sha256(program.read_bytes()).hexdigest()
    spec = {"active": True, "url": f"file://{program}", "checksum": checksum}
    async with started(tmp_path / "state") as (client, _):
        await client.create(NODE_DRIVER, new_object(NODE_DRIVER, "left", spec=spec))
        status: Any = {}
        async with asyncio.timeout(20):
            while "ProbeFailed" not in str(status):
                await asyncio.sleep(0.05)
                status = (await client.get(NODE_DRIVER.ref("left"))).get("status")

        assert processes(left) == []


def a_driver_that_leaves(argument: str, folder: Path) -> Path:
    """A program that ends at once, and leaves `sleep ARGUMENT` in a session of its own, with an empty environment."""
    source, program = folder / "left.c", folder / "docker-machine-driver-left"
    source.write_text(
        "#include <unistd.h>\n"
        "int main(void) {\n"
        '  char *args[] = {"sleep", "' + argument + '", 0}, *none[] = {0};\n'
        '  if (fork() == 0) { setsid(); close(1); close(2); execve("/bin/sleep", args, none); }\n'
        "  return 0;\n"
        "}\n"
    )
    subprocess.run(["cc", "-o", program, source], check=True, capture_output=True)
    return program


def processes(argument: str) -> list[int]:
    """Those that run with it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if argument.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def test_plugins_see_no_kubeconfig_and_no_driver_s_variables_of_ours() -> None:
    env = {
        "PATH": "/bin",
        "KUBECONFIG": "/k",
        "HARVESTER_KUBECONFIG_CONTENT": "x",
        "HTTPS_PROXY": "http://p:1",
    }

    assert PluginSettings(Path(), env).plugin_env == {"PATH": "/bin", "HTTPS_PROXY": "http://p:1"}


async def test_the_fields_of_a_foreign_credential_are_those_that_bear_its_driver_s_name() -> None:
    api = management_api(MemoryStore(), LoopClock(), Rng(1))
    client = Client(api.local())
    data = {"noopcredentialConfig-token": "s3cret", "othercredentialConfig-token": "not this one"}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    async with running(api.run):
        await install_crds(client)
        await client.create(
            SECRET, {"metadata": {"name": "cc", "namespace": "fleet-default"}, "data": encoded}
        )

        assert await read_credential_fields(client, "noop", "fleet-default:cc") == {"token": "s3cret"}
        with pytest.raises(NotFound, match="vspherecredentialConfig-"):
            await read_credential_fields(client, "vsphere", "fleet-default:cc")


def a_driver(**fields: Any) -> NodeDriver:
    status = {"driverName": "noop", "configKind": "NoopConfig"}
    made = {"name": "nd-1", "uid": "u", "url": "", "checksum": "", "active": True, "status": status, **fields}
    return NodeDriver(**made)


def test_a_kind_is_its_driver_s_by_the_driver_s_own_name():
    assert driver_for_kind("NoopConfig", [a_driver()]) == "noop"


def test_a_kind_whose_driver_is_switched_off_is_refused_with_the_command_that_helps():
    found = driver_for_kind("NoopConfig", [a_driver(active=False)])

    assert isinstance(found, Problem)
    assert str(found) == (
        "NodeDriver nd-1, which provides that kind, is not active; activate it: windrow driver enable nd-1"
    )


def test_a_kind_of_no_driver_and_of_one_that_is_going_is_refused():
    for drivers in ([], [a_driver(is_deleting=True)]):
        found = driver_for_kind("NoopConfig", drivers)
        assert isinstance(found, Problem)
        assert found.message == "no NodeDriver provides that kind"


def test_harvester_s_kind_is_given_also_where_no_record_says_so():
    assert driver_for_kind("HarvesterConfig", [a_driver()]) == "harvester"


def test_harvester_s_kind_can_be_switched_off():
    off = a_driver(name="harvester", built_in_kind="HarvesterConfig", active=False, status={})

    assert isinstance(driver_for_kind("HarvesterConfig", [off]), Problem)


def test_a_downloaded_driver_runs_in_a_sandbox_and_the_operator_s_own_does_not(tmp_path: Path):
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    settings = PluginSettings(
        tmp_path, {"SSL_CERT_FILE": str(bundle), "SSL_CERT_DIR": "/absent:/also-absent"}
    )
    downloaded = tmp_path / "drivers" / "sha256" / "0f" / "docker-machine-driver-noop"
    find = sandbox_of_downloaded(settings)

    assert find(Path("/usr/local/bin/docker-machine-driver-harvester")) is None
    assert find(downloaded) == (Sandbox((downloaded, bundle)) if describe_sandbox() else None)


def test_the_start_of_a_manager_says_what_downloaded_drivers_run_in():
    said = sandbox_notice()

    assert ("run in a sandbox (Landlock ABI" in said) == bool(describe_sandbox())
    assert ("run without a sandbox" in said) == (not describe_sandbox())
