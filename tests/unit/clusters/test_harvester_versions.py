"""What a Harvester says about versions, asked again while clusters run on it, and what of them does not fit any more."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.unit.clusters.builders import SERVER, a_cluster, a_pool

from windrow.bootstrap.support_matrix.matrix import shipped_matrix
from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.status import RecordedStatus
from windrow.clusters.sources.credentials import CredentialProber
from windrow.clusters.versions import compare_later_versions
from windrow.core.formats.json import dumps
from windrow.harvester.supported_charts import HarvesterVersions, read_versions
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.requests import Reply, Request
from windrow.machines.port import Problem

CC = "ns:cc"
REFUSAL = Reply(403, dumps({"kind": "Status", "reason": "Forbidden", "code": 403, "message": "no right"}))
FAILURE = Reply(500, dumps({"kind": "Status", "code": 500}))


class AskedHarvester:
    """A Harvester whose two settings may be read, and how often its version was."""

    def __init__(self) -> None:
        self.uid, self.asked = "uid-1", 0
        self.settings: Reply | str = "v1.8.2"
        self.is_up = True

    async def send(self, request: Request) -> Reply:
        if not self.is_up:
            return FAILURE
        if request.path.endswith("/kube-system"):
            return Reply(200, dumps({"metadata": {"name": "kube-system", "uid": self.uid}}))
        self.asked += request.path.endswith("/server-version")
        if isinstance(self.settings, Reply):
            return self.settings
        version = self.settings if request.path.endswith("/server-version") else ""
        return Reply(200, dumps({"metadata": {"name": request.path.rpartition("/")[2]}, "value": version}))

    def stream(self, request: Request) -> Any:
        raise AssertionError("nothing is watched")

    async def aclose(self) -> None:
        pass


class Asking:
    """A prober of one credential, beside the Harvester that it leads to."""

    def __init__(self) -> None:
        self.harvester, self.changes = AskedHarvester(), 0
        self.prober = CredentialProber(
            lambda credential: ClientConfig("https://10.0.0.1:6443", token="t"),
            lambda config: self.harvester,
            LoopClock(),
            self._on_change,
        )

    def _on_change(self, credential: str) -> None:
        self.changes += 1

    @property
    def release(self) -> str | None:
        found = self.prober.find_versions(CC)
        return found.release if found else None


def asking(story: Any) -> None:
    async def main() -> None:
        rig = Asking()
        with suppress(asyncio.CancelledError):
            async with asyncio.TaskGroup() as group:
                rig.prober.watch(group, CLUSTER.ref("prod", "fleet-default"), [CC])
                await asyncio.sleep(1)
                await story(rig)
                rig.prober.watch(group, CLUSTER.ref("prod", "fleet-default"), [])
                assert rig.prober.find_versions(CC) is None

    run_driven(main())


def test_a_harvester_is_asked_for_its_versions_once_something_wants_them() -> None:
    async def story(rig: Asking) -> None:
        await asyncio.sleep(700)
        assert (rig.harvester.asked, rig.release, rig.changes) == (0, None, 1)

        for _ in range(2):
            rig.prober.request_versions(CC)
        rig.prober.request_versions("ns:other")
        await asyncio.sleep(1)
        assert (rig.harvester.asked, rig.release, rig.changes) == (1, "v1.8.2", 2)

        rig.prober.request_versions(CC)  # as each reconcile does
        await asyncio.sleep(1)
        assert (rig.harvester.asked, rig.release) == (1, "v1.8.2")

    asking(story)


def test_it_is_asked_again_every_ten_minutes_and_another_answer_is_a_change() -> None:
    async def story(rig: Asking) -> None:
        rig.prober.request_versions(CC)
        await asyncio.sleep(1)
        rig.harvester.settings = "v1.9.0"

        await asyncio.sleep(9 * 60)
        assert (rig.harvester.asked, rig.release, rig.changes) == (1, "v1.8.2", 2)
        await asyncio.sleep(2 * 60)
        assert (rig.harvester.asked, rig.release, rig.changes) == (2, "v1.9.0", 3)

    asking(story)


@pytest.mark.parametrize("event", ["it failed", "another Harvester"])
def test_after_a_failure_and_on_another_harvester_it_is_asked_at_once(event: str) -> None:
    async def story(rig: Asking) -> None:
        rig.prober.request_versions(CC)
        await asyncio.sleep(1)
        rig.harvester.settings = "v1.9.0"
        if event == "it failed":
            rig.harvester.is_up = False
            await asyncio.sleep(70)
            assert rig.release == "v1.8.2"
            rig.harvester.is_up = True
        else:
            rig.harvester.uid = "uid-2"
        await asyncio.sleep(70)
        assert (rig.harvester.asked, rig.release) == (2, "v1.9.0")

    asking(story)


def test_what_is_known_stays_where_the_settings_cannot_be_read_and_the_credential_is_not_at_fault() -> None:
    async def story(rig: Asking) -> None:
        rig.harvester.settings = FAILURE
        rig.prober.request_versions(CC)
        await asyncio.sleep(130)
        assert (rig.release, rig.prober.find_failure(CC)) == (None, None)
        assert rig.harvester.asked >= 3  # with each probe, until there is an answer

        rig.harvester.settings = REFUSAL
        await asyncio.sleep(70)
        found = rig.prober.find_versions(CC)
        assert found is not None
        assert (found.release, found.unread) == ("", "no right")

    asking(story)


@pytest.mark.parametrize("value", [5, ["v1.8"], {"v": 1}, True])
def test_a_release_that_is_no_text_is_not_known(value: Any) -> None:
    found = read_versions({"value": value}, {"value": value})

    assert (found.release, dict(found.ranges)) == ("", {})
    assert "empty or does not exist" in found.unread


OLD, NEW = "v1.30.6+rke2r1", "v1.34.7+rke2r1"


def later(running: str, wanted: str, harvester: str, problems: tuple[Problem, ...] = ()) -> list[str]:
    config = {"cloud-provider-name": "harvester"}
    cluster = a_cluster(
        a_pool("servers", 3, SERVER),
        version_wish=wanted,
        recorded=RecordedStatus(initialized=True, version=running),
        cloud_provider="harvester",
        global_config=config,
    )
    found = compare_later_versions(cluster, problems, shipped_matrix(), HarvesterVersions(harvester))
    return [f"{one.severity}: {one.message}" for one in found]


def test_the_version_that_runs_and_the_one_that_is_wanted_are_compared() -> None:
    assert later(NEW, NEW, "v1.8.2") == []
    (older,) = [one for one in later(OLD, NEW, "v1.8.2") if "gets no new releases" in one]
    assert OLD in older
    (wanted,) = [one for one in later(NEW, "v1.21.1+rke2r1", "v1.8.2") if one.startswith("error")]
    assert "v1.21.1+rke2r1 brings neither" in wanted
    (newer,) = later(NEW, "v1.99.0+rke2r1", "v1.8.2")
    assert newer.startswith("warning")
    assert "newer than what the support matrix" in newer


def test_a_later_harvester_is_compared_with_what_runs() -> None:
    found = later(NEW, NEW, "v1.10.0")

    assert len(found) == 1
    assert "Harvester v1.10.0 is newer than what the support matrix" in found[0]
    assert any("wants Harvester" in one and one.startswith("error") for one in later(NEW, NEW, "v1.1.2"))


def test_a_wanted_version_that_cannot_be_read_leaves_the_comparison_of_the_one_that_runs() -> None:
    unread = Problem("no version", "write one", "spec.kubernetesVersion", "error")

    assert any(OLD in one for one in later(OLD, "nonsense", "v1.8.2", (unread,)))
    assert not any("nonsense" in one for one in later(OLD, "nonsense", "v1.8.2", (unread,)))
