"""NodeDrivers from creation to deletion, over the management API."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.drivers.files import DRIVER, a_tar_gz, an_elf, sha256

from windrow.apiserver.admission import AdmissionRequest
from windrow.client.downloads import DownloadFailed
from windrow.drivers.api import CLUSTER, MACHINE, NODE_DRIVER, find_driver, find_refusal
from windrow.kubernetes.errors import Invalid, NotFound, ServerError
from windrow.kubernetes.objects import Raw, nested, new_object
from windrow.kubernetes.resources import CRD, EVENT
from windrow.protocols.dockermachine import Flag

from .node_driver_rig import FIRST, FLAGS, NOOP_CONFIG, SECOND, URL, NodeDriverRig, node_driver_rig, run_story

# -- creation -------------------------------------------------------------------------------------------------------


def test_a_driver_added_by_url_becomes_active_and_gives_a_kind_that_objects_can_have(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            await rig.add()
            await rig.wait()

            raw = await rig.get()
            assert await rig.conditions() == {
                "Downloaded": ("True", "Downloaded"),
                "Installed": ("True", "Installed"),
                "Active": ("True", "Active"),
                "Inactive": ("False", "Active"),
            }
            assert raw["status"]["appliedURL"] == URL
            assert raw["status"]["appliedChecksum"] == sha256(FIRST)
            assert raw["status"]["driverName"] == "noop"
            assert raw["status"]["configKind"] == "NoopConfig"
            made = await rig.client.create(NOOP_CONFIG, new_object(NOOP_CONFIG, "small", "fleet-default"))
            assert made["cpuCount"] == "2"
            assert rig.files() == rig.files_of(FIRST)
            assert rig.controller is not None
            path = rig.controller.find_binary("noop")
            assert path is not None
            assert path.name == DRIVER
            assert path.stat().st_mode & 0o777 == 0o755
            assert find_refusal("NoopConfig", rig.controller.drivers) is None

    run_story(story)


def test_nothing_is_run_whose_checksum_does_not_match(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            await rig.add(checksum=sha256(SECOND))
            await rig.wait()

            condition = await rig.condition("Downloaded")
            assert (condition.status, condition.reason) == ("False", "ChecksumMismatch")
            assert condition.message.startswith(
                f"hash does not match, got {sha256(FIRST)}, expected {sha256(SECOND)}"
            )
            assert "the next attempt is at 2026-01-01T12:00:" in condition.message
            assert rig.files() == []
            assert rig.probed == []
            assert (await rig.condition("Active")).message == condition.message

    run_story(story)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"checksum": "d" * 32}, "spec.checksum is an MD5 digest"),
        ({"checksum": "d" * 40}, "spec.checksum is a SHA-1 digest"),
        ({"checksum": "d" * 128}, "spec.checksum is a SHA-512 digest"),
        ({"url": "http://drivers.example/x.tar.gz"}, "only https is supported"),
        ({"url": "file:///x.tar.gz"}, "spec.url is a file URL, which is not allowed here"),
        ({"url": "local://"}, "a driver inside Rancher's own image"),
    ],
)
def test_what_may_not_be_fetched_is_refused_with_the_reason(
    tmp_path: Path, spec: dict[str, str], sentence: str
):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            await rig.add(**spec)
            await rig.wait()

            assert sentence in (await rig.condition("Downloaded")).message
            assert await rig.conditions() == {
                "Downloaded": ("False", "InvalidSpec"),
                "Installed": ("Unknown", "NotDownloaded"),
                "Active": ("False", "InvalidSpec"),
                "Inactive": ("False", "InvalidSpec"),
            }
            assert rig.fetched == []

    run_story(story)


def test_a_file_url_is_installed_where_files_are_allowed(tmp_path: Path):
    async def story() -> None:
        (tmp_path / "a driver.tar.gz").write_bytes(FIRST)
        async with node_driver_rig(tmp_path / "state", files_allowed=True) as rig:
            await rig.add(url=f"file://{tmp_path}/a%20driver.tar.gz", checksum=sha256(FIRST))
            await rig.wait()

            assert (await rig.condition()).status == "True"

    run_story(story)


@pytest.mark.parametrize("jump_s", [-3600, 3600])
def test_a_download_is_retried_in_time_though_the_clock_is_set(tmp_path: Path, jump_s: int):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            rig.files_by_url[URL] = DownloadFailed("drivers.example cannot be reached", "check the network")
            await rig.add(checksum=sha256(FIRST))
            await rig.wait(20)
            tries = len(rig.fetched)
            rig.clock.set_wall(timedelta(seconds=jump_s))
            await rig.wait(100)

            assert tries >= 2
            assert 1 <= len(rig.fetched) - tries <= 3

    run_story(story)


def test_an_unreachable_server_is_retried_with_backoff_and_the_condition_has_the_time(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            rig.files_by_url[URL] = DownloadFailed("drivers.example cannot be reached", "check the network")
            await rig.add(checksum=sha256(FIRST))
            await rig.wait(60)
            first = (await rig.condition("Downloaded")).message
            tries = len(rig.fetched)
            await rig.wait(3600)
            later = len(rig.fetched)
            rig.files_by_url[URL] = FIRST
            await rig.wait(700)

            assert first.startswith(
                "drivers.example cannot be reached; check the network; the next attempt is at "
            )
            assert 3 <= tries <= 5
            assert later - tries <= 10
            assert (await rig.condition()).status == "True"

    run_story(story)


@pytest.mark.parametrize(
    ("probe_result", "sentence"),
    [
        (
            PermissionError(13, "Permission denied"),
            "is not executable; put the state directory on a file system",
        ),
        (OSError(8, "Exec format error"), "is no executable for this system"),
        (
            RuntimeError("it printed usage instead"),
            "cannot read the create flags of docker-machine-driver-noop: it printed usage",
        ),
        ((Flag("string", "noop", "", "", ""),), "is not of the form DRIVER-NAME"),
    ],
)
def test_a_driver_that_cannot_be_probed_is_reported_with_a_hint(
    tmp_path: Path, probe_result: tuple[Flag, ...] | Exception, sentence: str
):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            rig.probe_result = probe_result
            await rig.add()
            await rig.wait()

            assert sentence in (await rig.condition("Installed")).message
            assert (await rig.condition("Downloaded")).status == "True"
            assert (await rig.condition("Active")).status == "False"
            assert rig.controller is not None
            assert rig.controller.find_binary("noop") is None

    run_story(story)


def test_a_driver_that_does_not_answer_is_given_ten_seconds(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            rig.probe_s = 1e6
            await rig.add()
            await rig.wait(9)
            before = (await rig.condition("Installed")).status
            await rig.wait(3)

            assert before == "Unknown"
            assert "did not answer within 10 s" in (await rig.condition("Installed")).message

    run_story(story)


# -- change ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["changed", "disabled", "deleted"])
def test_a_download_whose_spec_changed_is_cancelled(tmp_path: Path, what: str):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            rig.download_s = 1e6
            await rig.add()
            await rig.wait(60)
            during = await rig.conditions()
            rig.download_s = 0.5
            match what:
                case "changed":
                    rig.files_by_url["https://mirror.example/noop"] = SECOND
                    await rig.change(url="https://mirror.example/noop", checksum=sha256(SECOND))
                case "disabled":
                    await rig.change(active=False)
                case _:
                    await rig.client.delete(NODE_DRIVER.ref("noop"))
            await rig.wait()

            assert during["Downloaded"] == ("Unknown", "Downloading")
            match what:
                case "changed":
                    assert (await rig.condition()).reason == "Active"
                    assert rig.files() == rig.files_of(SECOND)
                case "disabled":
                    assert (await rig.condition()).reason == "Deactivated"
                    assert rig.files() == []
                case _:
                    with pytest.raises(NotFound):
                        await rig.get()
                    assert rig.files() == []

    run_story(story)


def test_a_changed_url_is_downloaded_again(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            await rig.add()
            await rig.wait()
            rig.files_by_url["https://mirror.example/noop.tar.gz"] = FIRST
            await rig.change(url="https://mirror.example/noop.tar.gz")
            await rig.wait()

            assert rig.fetched == [URL, "https://mirror.example/noop.tar.gz"]
            assert (await rig.get())["status"]["appliedURL"] == "https://mirror.example/noop.tar.gz"
            assert (await rig.condition()).status == "True"

    run_story(story)


def test_the_driver_in_use_stays_until_the_next_one_has_answered(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            await rig.add()
            await rig.wait()
            rig.files_by_url[URL] = SECOND
            rig.probe_result = RuntimeError("it crashed")
            await rig.change(checksum=sha256(SECOND))
            await rig.wait(6)
            assert rig.controller is not None
            during = rig.controller.find_binary("noop")
            condition = await rig.condition()
            rig.probe_result = FLAGS
            await rig.wait(700)
            after = rig.controller.find_binary("noop")

            assert (condition.status, condition.reason) == ("True", "UpdateFailed")
            assert "; the driver from" in condition.message
            assert during is not None
            assert during.parent.name == sha256(FIRST)
            assert after is not None
            assert after.parent.name == sha256(SECOND)
            assert rig.files() == rig.files_of(SECOND)

    run_story(story)


def test_a_new_file_with_another_driver_does_not_replace_the_one_in_use(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            await rig.add()
            await rig.wait()
            rig.files_by_url[URL] = other = a_tar_gz(("docker-machine-driver-other", an_elf()))
            await rig.change(checksum=sha256(other))
            await rig.wait()

            condition = await rig.condition()
            assert (condition.status, condition.reason) == ("True", "UpdateFailed")
            assert (
                "the file contains driver other, and this NodeDriver provided noop before"
                in condition.message
            )
            assert rig.controller is not None
            assert rig.controller.find_binary("noop") is not None

    run_story(story)


def test_deactivated_its_kind_stays_and_its_use_is_refused_with_a_sentence(tmp_path: Path):
    async def story() -> None:
        changes: list[str] = []
        async with node_driver_rig(tmp_path, on_kind_changed=changes.append) as rig:
            await rig.add()
            await rig.wait()
            await rig.change(active=False)
            await rig.wait()
            assert rig.controller is not None
            refusal = find_refusal("NoopConfig", rig.controller.drivers)
            off = await rig.conditions()
            kind = await rig.client.list(NOOP_CONFIG)
            binary = rig.controller.find_binary("noop")
            await rig.change(active=True)
            await rig.wait()

            assert str(refusal) == (
                "NodeDriver noop, which provides that kind, is not active; "
                "activate it: windrow driver enable noop"
            )
            assert off["Active"] == ("False", "Deactivated")
            assert off["Inactive"] == ("True", "Deactivated")
            assert kind == []
            assert binary is not None
            assert find_refusal("NoopConfig", rig.controller.drivers) is None
            assert (await rig.conditions())["Inactive"] == ("False", "Active")
            assert len(rig.fetched) == len(rig.probed) == 1
            assert changes == ["HarvesterConfig", "NoopConfig", "NoopConfig", "NoopConfig"]

    run_story(story)


def test_a_driver_that_is_not_active_is_not_fetched_unless_its_kind_is_wanted(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            await rig.add(active=False)
            await rig.wait()
            quiet = list(rig.fetched)
            await rig.change(addCloudCredential=True)
            await rig.wait()

            assert quiet == []
            assert rig.fetched == [URL]
            assert (await rig.conditions())["Installed"] == ("True", "Installed")
            assert (await rig.conditions())["Active"] == ("False", "Deactivated")

    run_story(story)


def test_a_binary_that_was_changed_on_disk_is_not_used_and_downloaded_again_at_the_next_start(
    tmp_path: Path,
):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            await rig.add()
            await rig.wait()
            assert rig.controller is not None
            path = rig.controller.find_binary("noop")
            assert path is not None
            path.write_bytes(path.read_bytes()[:-1] + b"x")

            assert rig.controller.find_binary("noop") is None
            await rig.stop()
            again = rig.start()
            await again.wait_started()
            await rig.wait()
            assert again.find_binary("noop") == path
            assert len(rig.fetched) == 2

    run_story(story)


def test_of_two_objects_with_the_same_driver_the_older_one_has_it(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            await rig.add()
            await rig.wait()
            await rig.add("another")
            await rig.wait()
            refused = await rig.condition("Installed", "another")
            first = await rig.condition()
            await rig.client.delete(NODE_DRIVER.ref("noop"))
            await rig.wait()

            assert refused.reason == "NameConflict"
            assert "which NodeDriver noop provides already" in refused.message
            assert first.status == "True"
            assert (await rig.condition("Active", "another")).status == "True"

    run_story(story)


def test_the_go_drivers_file_does_not_replace_the_built_in_driver(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            rig.files_by_url[URL] = a_tar_gz(("docker-machine-driver-harvester", an_elf()))
            await rig.add("go")
            await rig.wait()

            assert (
                "which NodeDriver harvester provides already"
                in (await rig.condition("Installed", "go")).message
            )
            assert rig.probed == []

    run_story(story)


def test_where_harvester_is_not_built_in_another_one_may_be_it_and_the_managers_definition_stays(
    tmp_path: Path,
):
    async def story() -> None:
        async with node_driver_rig(tmp_path, built_ins=()) as rig:
            rig.files_by_url[URL] = a_tar_gz(("docker-machine-driver-harvester", an_elf()))
            ref = CRD.ref("harvesterconfigs.rke-machine-config.cattle.io")
            before = (await rig.client.get(ref))["metadata"]["resourceVersion"]
            await rig.add("harvester")
            await rig.wait()

            assert rig.controller is not None
            assert find_refusal("HarvesterConfig", rig.controller.drivers) is None
            assert rig.controller.find_binary("harvester") is not None
            await rig.client.delete(NODE_DRIVER.ref("harvester"))
            await rig.wait()
            assert (await rig.client.get(ref))["metadata"]["resourceVersion"] == before

    run_story(story)


def test_changed_field_annotations_change_the_crd_at_once(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            await rig.add()
            await rig.wait()
            change = {"annotations": {"defaults": "cpuCount:4", "passwordFields": "userData"}}
            await rig.client.patch(NODE_DRIVER.ref("noop"), {"metadata": change})
            await rig.wait()

            made = await rig.client.create(NOOP_CONFIG, new_object(NOOP_CONFIG, "small", "fleet-default"))
            assert made["cpuCount"] == "4"
            assert (len(rig.fetched), len(rig.probed)) == (1, 2)
            assert (await rig.condition()).status == "True"

    run_story(story)


def test_a_recreated_driver_is_retried_at_once(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            rig.probe_result = (Flag("string", "noop-kind", "", "", ""),)
            await rig.add()
            await rig.wait()
            refused = await rig.condition()
            rig.probe_result = FLAGS
            await rig.client.delete(NODE_DRIVER.ref("noop"))
            await rig.wait(0.01)
            await rig.add()
            await rig.wait()

            assert refused.reason == "InvalidCreateFlags"
            assert (await rig.condition()).status == "True"

    run_story(story)


# -- the built-in one --------------------------------------------------------------------------------------------


def test_the_built_in_driver_is_present_at_start_and_usable(tmp_path: Path):
    async def story() -> None:
        program = tmp_path / "ours"
        async with node_driver_rig(tmp_path, programs={"harvester": program}) as rig:
            assert rig.controller is not None
            assert find_refusal("HarvesterConfig", rig.controller.drivers) is None
            await rig.wait()

            spec = (await rig.get("harvester"))["spec"]
            assert (spec["url"], spec["checksum"], spec["builtin"], spec["active"]) == (
                "local://",
                "",
                True,
                True,
            )
            assert (await rig.condition("Active", "harvester")).status == "True"
            assert rig.controller is not None
            driver = find_driver("HarvesterConfig", rig.controller.drivers)
            assert driver is not None
            assert (driver.driver_name, driver.built_in_kind) == ("harvester", "HarvesterConfig")
            assert find_refusal("HarvesterConfig", rig.controller.drivers) is None
            assert rig.controller.find_binary("harvester") == program
            assert rig.fetched == []

    run_story(story)


def test_changes_to_the_built_in_driver_last_until_the_next_start(tmp_path: Path):
    changed = {
        "url": URL,
        "checksum": "d" * 64,
        "builtin": False,
        "active": False,
        "displayName": "mine",
        "addCloudCredential": True,
        "whitelistDomains": ["drivers.example"],
    }

    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            before = (await rig.get("harvester"))["spec"]
            await rig.change("harvester", **changed, description="stays")
            await rig.wait()
            off = await rig.condition("Active", "harvester")
            assert rig.controller is not None
            refusal = find_refusal("HarvesterConfig", rig.controller.drivers)
            await rig.stop()
            again = rig.start()
            await again.wait_started()
            await rig.wait()

            assert (off.status, off.reason) == ("False", "Deactivated")
            assert refusal is not None
            assert (await rig.get("harvester"))["spec"] == {**before, "description": "stays"}
            assert find_refusal("HarvesterConfig", again.drivers) is None
            assert rig.fetched == []

    run_story(story)


def test_a_built_in_driver_that_was_deleted_is_back_after_the_next_start(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            await rig.client.delete(NODE_DRIVER.ref("harvester"))
            await rig.wait()
            await rig.stop()
            await rig.start().wait_started()
            await rig.wait()

            assert (await rig.condition("Active", "harvester")).status == "True"

    run_story(story)


# -- the end -----------------------------------------------------------------------------------------------------


def test_a_deleted_driver_loses_its_files_and_its_crd(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            await rig.add()
            await rig.wait()
            await rig.client.delete(NODE_DRIVER.ref("noop"))
            await rig.wait()

            assert rig.files() == []
            with pytest.raises(NotFound):
                await rig.get()
            with pytest.raises(NotFound):
                await rig.client.get(CRD.ref(NOOP_CONFIG.group_resource))

    run_story(story)


def test_a_kind_of_which_objects_exist_stays_when_its_driver_goes(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            await rig.add()
            await rig.wait()
            await rig.client.create(NOOP_CONFIG, new_object(NOOP_CONFIG, "small", "fleet-default"))
            await rig.client.delete(NODE_DRIVER.ref("noop"))
            await rig.wait()
            left = await rig.client.list(NOOP_CONFIG)
            gone = rig.files()
            await rig.add()
            await rig.wait()

            assert len(left) == 1
            assert gone == []
            assert (await rig.condition()).status == "True"

    run_story(story)


def test_the_crd_of_a_driver_deleted_before_its_status_was_written_is_deleted(tmp_path: Path):
    async def story() -> None:
        async def refuse(operation: AdmissionRequest) -> None:
            if operation.kind == NODE_DRIVER and nested(operation.object or {}, "status", "configKind"):
                raise ServerError("the API server has a bad day", status=500)

        async with node_driver_rig(tmp_path) as rig:
            rig.api.admission.append(refuse)
            await rig.add()
            await rig.wait()
            defined = await rig.client.find(CRD.ref(NOOP_CONFIG.group_resource))
            await rig.client.delete(NODE_DRIVER.ref("noop"))
            await rig.wait()

            assert defined is not None
            assert await rig.client.find(NODE_DRIVER.ref("noop")) is None
            assert await rig.client.find(CRD.ref(NOOP_CONFIG.group_resource)) is None
            assert rig.files() == []

    run_story(story)


def a_cluster(kind: str) -> Raw:
    pool = {"name": "a", "quantity": 1, "machineConfigRef": {"kind": kind, "name": "small"}}
    spec = {"kubernetesVersion": "v1.34.7+rke2r1", "rkeConfig": {"machinePools": [pool]}}
    return new_object(CLUSTER, "orchard", "fleet-default", spec=spec)


def test_a_driver_whose_kind_a_cluster_names_is_not_removed_before_the_cluster(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            await rig.add()
            await rig.wait()
            await rig.client.create(CLUSTER, a_cluster("NoopConfig"))
            await rig.client.delete(NODE_DRIVER.ref("noop"))
            await rig.wait(600)
            held = await rig.condition()
            files = rig.files()
            assert rig.controller is not None
            binary = rig.controller.find_binary("noop")
            await rig.client.delete(CLUSTER.ref("orchard", "fleet-default"))
            await rig.wait()

            assert (held.status, held.reason) == ("False", "InUse")
            assert held.message.startswith(
                "NoopConfig is used by Clusters fleet-default/orchard; delete these Clusters first"
            )
            assert files == rig.files_of(FIRST)
            assert binary is not None
            assert rig.files() == []

    run_story(story)


def a_machine(driver: str) -> Raw:
    spec = {
        "clusterName": "orchard",
        "clusterUID": "c-1",
        "pool": "a",
        "roles": ["worker"],
        "options": {},
        "driver": driver,
        "credential": "cattle-global-data:cc-noop",
        "version": "v1.34.7+rke2r1",
    }
    return new_object(MACHINE, f"orchard-a-{driver}", "fleet-default", spec=spec)


def test_a_driver_whose_machines_are_left_is_not_removed_before_them(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            await rig.add()
            await rig.wait()
            await rig.client.create(MACHINE, a_machine("noop"))
            await rig.client.create(MACHINE, a_machine("harvester"))
            await rig.client.create(CLUSTER, a_cluster("HarvesterConfig"))  # its pool has moved to that kind
            await rig.client.delete(NODE_DRIVER.ref("noop"))
            await rig.wait(600)
            held = await rig.condition()
            assert rig.controller is not None
            binary = rig.controller.find_binary("noop")
            await rig.client.delete(MACHINE.ref("orchard-a-noop", "fleet-default"))
            await rig.wait()

            assert (held.status, held.reason) == ("False", "InUse")
            assert held.message.startswith("driver noop has Machines fleet-default/orchard-a-noop; wait")
            assert binary is not None
            assert rig.files() == []

    run_story(story)


# -- what people are told ----------------------------------------------------------------------------------------


def test_condition_and_event_have_the_same_message_and_repeat_none(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            rig.files_by_url[URL] = DownloadFailed("drivers.example cannot be reached", "check the network")
            await rig.add(checksum=sha256(FIRST))
            await rig.wait(300)

            events = [raw for raw in await rig.client.list(EVENT) if raw["involvedObject"]["name"] == "noop"]
            (failed,) = [raw for raw in events if raw["reason"] == "DownloadFailed"]
            assert sorted(raw["reason"] for raw in events) == ["DownloadFailed", "Downloading"]
            assert [raw["count"] for raw in events] == [1, 1]
            assert failed["message"] == "drivers.example cannot be reached; check the network"
            assert failed["type"] == "Warning"
            assert (await rig.condition()).message.startswith(failed["message"])

    run_story(story)


def test_once_all_is_well_nothing_is_asked_but_watches(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            await rig.add()
            await rig.wait()
            before = (await rig.get())["metadata"]["resourceVersion"]
            await rig.wait(3600)

            assert (await rig.get())["metadata"]["resourceVersion"] == before
            assert len(rig.fetched) == len(rig.probed) == 1

    run_story(story)


def test_a_name_that_is_invalid_for_rancher_is_refused_by_the_api(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            with pytest.raises(Invalid, match="displayName"):
                await rig.add("noop", displayName="n" * 58)

    run_story(story)


# -- another program in the place of the built-in one ------------------------------------------------------------------

GO_URL = "https://drivers.example/docker-machine-driver-harvester-amd64.tar.gz"
GO_DRIVER = a_tar_gz(("docker-machine-driver-harvester", an_elf()))
GO_FLAGS = (Flag("string", "harvester-kubeconfig-content", "the kubeconfig", "", ""),)


async def applied(rig: NodeDriverRig) -> tuple[str | None, str | None]:
    status = (await rig.get("harvester"))["status"]
    return status.get("appliedURL"), status.get("appliedChecksum")


async def override(rig: NodeDriverRig, file: bytes = GO_DRIVER, **spec: Any) -> None:
    rig.files_by_url[GO_URL], rig.probe_result = file, GO_FLAGS
    await rig.change("harvester", **{"url": GO_URL, "checksum": sha256(file), **spec})


def test_another_program_takes_the_place_of_the_built_in_driver_until_the_next_start(tmp_path: Path):
    async def story() -> None:
        program, told = tmp_path / "ours", list[str]()
        options: dict[str, Any] = {"programs": {"harvester": program}, "on_override": told.append}
        async with node_driver_rig(tmp_path, **options) as rig:
            await rig.wait()
            rig.download_s = 10
            await override(rig)
            await rig.wait()
            first, controller = rig.controller, rig.controller
            assert first is not None
            downloading = await rig.condition("Downloaded", "harvester")
            pending = await applied(rig), first.find_binary("harvester"), told.copy()
            active = await rig.condition("Active", "harvester")
            await rig.wait(20)

            assert pending == (("local://", None), program, [])
            assert (downloading.status, downloading.reason) == ("Unknown", "Downloading")
            assert "Windrow's own driver stays in use until then" in active.message
            assert rig.fetched == [GO_URL]
            assert await applied(rig) == (GO_URL, sha256(GO_DRIVER))
            found = first.find_binary("harvester")
            assert found is not None
            assert found.read_bytes() == an_elf()
            assert first.is_overridden("harvester")
            assert told == ["harvester"]
            assert (await rig.condition("Active", "harvester")).status == "True"
            assert find_refusal("HarvesterConfig", first.drivers) is None

            await rig.stop()
            controller = rig.start(**options)
            await controller.wait_started()
            assert controller.find_binary("harvester") == program
            await rig.wait()

            assert (await rig.get("harvester"))["spec"]["url"] == "local://"
            assert await applied(rig) == ("local://", None)
            assert (await rig.condition("Downloaded", "harvester")).reason == "BuiltIn"
            assert controller.find_binary("harvester") == program
            assert rig.files() == []

    run_story(story)


@pytest.mark.parametrize(
    ("file", "spec", "type", "reason"),
    [
        (GO_DRIVER, {"checksum": "0" * 64}, "Downloaded", "ChecksumMismatch"),
        (GO_DRIVER, {"checksum": ""}, "Downloaded", "InvalidSpec"),
        (GO_DRIVER, {"url": "http://drivers.example/d.tar.gz"}, "Downloaded", "InvalidSpec"),
        (FIRST, {}, "Installed", "NameConflict"),
    ],
    ids=["checksum", "no-checksum", "http", "another-driver"],
)
def test_a_program_that_cannot_take_its_place_leaves_windrows_own_in_use(
    tmp_path: Path, file: bytes, spec: dict[str, Any], type: str, reason: str
):
    async def story() -> None:
        async with node_driver_rig(tmp_path, programs={"harvester": tmp_path / "ours"}) as rig:
            await override(rig, file, **spec)
            await rig.wait()

            found = await rig.condition(type, "harvester")
            assert (found.status, found.reason) == ("False", reason)
            active = await rig.condition("Active", "harvester")
            assert (active.status, active.reason) == ("True", "UpdateFailed")
            assert "Windrow's own driver stays in use" in active.message
            assert (await applied(rig))[1] is None
            assert rig.controller is not None
            assert rig.controller.find_binary("harvester") == tmp_path / "ours"
            assert not rig.controller.is_overridden("harvester")

    run_story(story)


def test_a_program_of_the_right_name_without_harvesters_flags_is_no_driver_for_it(tmp_path: Path):
    async def story() -> None:
        async with node_driver_rig(tmp_path) as rig:
            await override(rig)
            rig.probe_result = FLAGS
            await rig.wait()

            found = await rig.condition("Installed", "harvester")
            assert (found.status, found.reason) == ("False", "InvalidCreateFlags")
            assert "has no create flag harvester-kubeconfig-content" in found.message

    run_story(story)


def test_the_built_in_driver_is_back_at_once_when_its_url_is(tmp_path: Path):
    async def story() -> None:
        told: list[str] = []
        async with node_driver_rig(tmp_path, on_override=told.append) as rig:
            await override(rig)
            await rig.wait()
            assert rig.controller is not None
            assert rig.controller.is_overridden("harvester")
            await rig.change("harvester", url="local://", checksum="")
            await rig.wait()

            assert not rig.controller.is_overridden("harvester")
            assert rig.controller.find_binary("harvester") is None
            assert await applied(rig) == ("local://", None)
            assert rig.files() == []
            assert told == ["harvester", "harvester"]
            conditions = await rig.conditions("harvester")
            assert conditions["Installed"] == ("True", "BuiltIn")

    run_story(story)
