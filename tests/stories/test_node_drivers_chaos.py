"""Users, servers, programs, the API and the process itself do as they like for a while; then all is well again.

At any time: nothing is run but what matches a checksum in a spec. In the end, once every server delivers and
every program answers: each driver is as it is asked for, and the disk holds exactly the files of those that are.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.support.seeds import sampled
from tests.unit.drivers.files import a_driver, sha256

from windrow.apiserver.admission import AdmissionRequest
from windrow.client.downloads import DownloadFailed
from windrow.core.rng import Rng
from windrow.drivers.api import NODE_DRIVER, find_refusal
from windrow.drivers.controller import NodeDriverController
from windrow.kubernetes.errors import AlreadyExists, NotFound, ServerError
from windrow.kubernetes.objects import is_deleting, name_of, nested
from windrow.kubernetes.resources import CRD

from .node_driver_rig import FLAGS, NodeDriverRig, node_driver_rig, run_story

NAMES = ("apple", "pear", "plum")
VERSIONS = (b"1", b"2", b"3")
STEPS = 40


def a_file(name: str, version: bytes) -> bytes:
    return a_driver(version, f"docker-machine-driver-{name}")


def an_url(name: str, mirror: int) -> str:
    return f"https://mirror{mirror}.example/{name}.tar.gz"


FILES = {sha256(a_file(name, version)): a_file(name, version) for name in NAMES for version in VERSIONS}


@dataclass
class Weather:
    """What goes wrong, by rng, until it clears up."""

    rig: NodeDriverRig
    rng: Rng
    bad: bool = True
    wished: dict[str, tuple[str, str]] = field(default_factory=dict)  # URL and checksum by NodeDriver

    def is_foul(self, one_in: int) -> bool:
        return self.bad and self.rng.below(one_in) == 0

    async def fetch(self, url: str, write: Any) -> None:
        await asyncio.sleep(self.rng.uniform(0.1, 20))
        if self.is_foul(4):
            raise DownloadFailed("the server is away", "wait")
        name = url.rpartition("/")[2].removesuffix(".tar.gz")
        found = next((FILES[sum] for where, sum in self.wished.values() if where == url), a_file(name, b"1"))
        if self.is_foul(4):
            found = a_file(name, b"another")
        for place in range(0, len(found), 60):
            if self.is_foul(40):
                raise ConnectionResetError(104, "Connection reset by peer")
            write(found[place : place + 60])

    async def read_flags(self, path: Path) -> Any:
        digest = path.parent.name
        assert digest in FILES, "a binary was run that no spec names"
        assert path.read_bytes() == _program(digest)  # noqa: ASYNC240
        await asyncio.sleep(self.rng.uniform(0.1, 15 if self.bad else 1))
        if self.is_foul(4):
            raise RuntimeError("it crashed")
        return FLAGS

    async def refuse(self, operation: AdmissionRequest) -> None:
        if operation.verb != "delete" and self.is_foul(15):
            raise ServerError("the API server has a bad day", status=500)


def _program(digest: str) -> bytes:
    import io
    import tarfile

    with tarfile.open(fileobj=io.BytesIO(FILES[digest])) as archive:
        content = archive.extractfile(archive.getmembers()[0])
        assert content is not None
        return content.read()


async def do_something(weather: Weather) -> None:
    """One thing that people or machines do."""
    rig, rng = weather.rig, weather.rng
    name = NAMES[rng.below(len(NAMES))]
    version = VERSIONS[rng.below(len(VERSIONS))]
    url, checksum = an_url(name, rng.below(2)), sha256(a_file(name, version))
    try:
        match rng.below(8):
            case 0 | 1 | 2:
                await rig.add(name, url, checksum)
                weather.wished[name] = url, checksum
            case 3:
                await rig.change(name, url=url, checksum=checksum)
                weather.wished[name] = url, checksum
            case 4:
                await rig.change(name, active=bool(rng.below(2)))
            case 5:
                await rig.client.delete(NODE_DRIVER.ref(name))
            case 6:
                await rig.stop()
                start(weather)
            case 7:
                touch_a_file(rig, rng)
    except (NotFound, AlreadyExists, ServerError):
        pass


def touch_a_file(rig: NodeDriverRig, rng: Rng) -> None:
    found = [path for path in (rig.state / "drivers").rglob("*") if path.is_file()]
    if found:
        path = found[rng.below(len(found))]
        path.write_bytes(path.read_bytes()[:-1] + b"?")


def start(weather: Weather) -> NodeDriverController:
    return weather.rig.start(fetch=weather.fetch, read_flags=weather.read_flags)


async def all_is_well(weather: Weather) -> None:
    rig = weather.rig
    controller = rig.controller
    assert controller is not None
    files: list[str] = []
    for raw in await rig.client.list(NODE_DRIVER):
        if nested(raw, "spec", "builtin"):
            continue
        name = name_of(raw)
        assert not is_deleting(raw), name
        active = await rig.condition("Active", name)
        assert active.status == ("True" if raw["spec"]["active"] else "False"), (name, active)
        assert active.reason in ("Active", "Deactivated"), (name, active)
        if not raw["spec"]["active"]:
            continue
        assert raw["status"]["appliedURL"] == raw["spec"]["url"]
        assert raw["status"]["appliedChecksum"] == raw["spec"]["checksum"]
        kind = raw["status"]["configKind"]
        assert find_refusal(kind, controller.drivers) is None
        path = controller.find_binary(name)
        assert path is not None
        assert path.read_bytes() == _program(raw["spec"]["checksum"])
        files += rig.files_of(FILES[raw["spec"]["checksum"]], name=path.name)
    drivers = await rig.client.list(NODE_DRIVER)
    named = {
        nested(raw, *path)
        for raw in drivers
        for path in (("spec", "checksum"), ("status", "appliedChecksum"))
    }
    assert set(files) <= set(rig.files())
    assert {path.split("/")[1] for path in rig.files()} <= named
    assert not [path for path in rig.files() if path.endswith(".partial")]
    ours = {f"{name}configs.rke-machine-config.cattle.io": name for name in NAMES}
    defined = {ours[name_of(raw)] for raw in await rig.client.list(CRD) if name_of(raw) in ours}
    assert defined <= {name_of(raw) for raw in drivers}


@pytest.mark.parametrize("seed", sampled(range(25), 6))
def test_after_any_weather_each_driver_is_as_it_is_asked_for(seed: int, tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path, start=False) as rig:
            weather = Weather(rig, Rng(seed))
            rig.api.admission.append(weather.refuse)
            start(weather)
            for _ in range(STEPS):
                await do_something(weather)
                await rig.wait(weather.rng.uniform(0, 30))
            weather.bad = False
            await rig.stop()
            start(weather)
            await rig.wait(2000)
            await all_is_well(weather)

    run_story(story)
