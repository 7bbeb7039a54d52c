"""NodeDrivers from their birth to their end, over the management API."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.drivers.files import DRIVER, a_tar_gz, an_elf, sha256

from windrow.apiserver.admission import AdmissionRequest
from windrow.client.downloads import DownloadFailed
from windrow.drivers.kinds import CLUSTER, MACHINE, NODE_DRIVER
from windrow.drivers.lookup import find_driver, find_refusal
from windrow.kubernetes.errors import Invalid, NotFound, ServerError
from windrow.kubernetes.objects import Raw, nested, new_object
from windrow.kubernetes.resources import CRD, EVENT
from windrow.protocols.dockermachine import Flag

from .shops import FIRST, FLAGS, NOOP_CONFIG, SECOND, URL, shop, told

# -- birth -------------------------------------------------------------------------------------------------------


def test_a_driver_added_by_url_becomes_active_and_gives_a_kind_that_objects_can_have(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            await room.add()
            await room.wait()

            raw = await room.get()
            assert await room.standing() == {
                "Downloaded": ("True", "Downloaded"),
                "Installed": ("True", "Installed"),
                "Active": ("True", "Active"),
                "Inactive": ("False", "Active"),
            }
            assert raw["status"]["appliedURL"] == URL
            assert raw["status"]["appliedChecksum"] == sha256(FIRST)
            assert raw["status"]["driverName"] == "noop"
            assert raw["status"]["configKind"] == "NoopConfig"
            made = await room.client.create(NOOP_CONFIG, new_object(NOOP_CONFIG, "small", "fleet-default"))
            assert made["cpuCount"] == "2"
            assert room.files() == room.files_of(FIRST)
            assert room.catalogue is not None
            path = room.catalogue.find_binary("noop")
            assert path is not None
            assert path.name == DRIVER
            assert path.stat().st_mode & 0o777 == 0o755
            assert find_refusal("NoopConfig", room.catalogue.drivers) is None

    told(story)


def test_nothing_is_run_whose_checksum_does_not_match(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            await room.add(checksum=sha256(SECOND))
            await room.wait()

            said = await room.condition("Downloaded")
            assert (said.status, said.reason) == ("False", "ChecksumMismatch")
            assert said.message.startswith(
                f"hash does not match, got {sha256(FIRST)}, expected {sha256(SECOND)}"
            )
            assert "the next attempt is at 2026-01-01T12:00:" in said.message
            assert room.files() == []
            assert room.asked == []
            assert (await room.condition("Active")).message == said.message

    told(story)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"checksum": "d" * 32}, "spec.checksum is an MD5 digest"),
        ({"checksum": "d" * 40}, "spec.checksum is a SHA-1 digest"),
        ({"checksum": "d" * 128}, "spec.checksum is a SHA-512 digest"),
        ({"url": "http://drivers.example/x.tar.gz"}, "drivers come over https only"),
        ({"url": "file:///x.tar.gz"}, "drivers from files are not allowed here"),
        ({"url": "local://"}, "a driver inside Rancher's own image"),
    ],
)
def test_what_may_not_be_fetched_is_refused_with_the_reason(
    tmp_path: Path, spec: dict[str, str], sentence: str
):
    async def story() -> None:
        async with shop(tmp_path) as room:
            await room.add(**spec)
            await room.wait()

            assert sentence in (await room.condition("Downloaded")).message
            assert await room.standing() == {
                "Downloaded": ("False", "Refused"),
                "Installed": ("Unknown", "NotDownloaded"),
                "Active": ("False", "Refused"),
                "Inactive": ("False", "Refused"),
            }
            assert room.fetched == []

    told(story)


def test_a_file_is_taken_where_files_are_allowed(tmp_path: Path):
    async def story() -> None:
        (tmp_path / "a driver.tar.gz").write_bytes(FIRST)
        async with shop(tmp_path / "state", files_allowed=True) as room:
            await room.add(url=f"file://{tmp_path}/a%20driver.tar.gz", checksum=sha256(FIRST))
            await room.wait()

            assert (await room.condition()).status == "True"

    told(story)


def test_a_server_that_is_away_is_asked_again_later_and_later_and_the_condition_says_when(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            room.shelves[URL] = DownloadFailed("drivers.example cannot be reached", "check the network")
            await room.add(checksum=sha256(FIRST))
            await room.wait(60)
            first = (await room.condition("Downloaded")).message
            tries = len(room.fetched)
            await room.wait(3600)
            later = len(room.fetched)
            room.shelves[URL] = FIRST
            await room.wait(700)

            assert first.startswith(
                "drivers.example cannot be reached; check the network; the next attempt is at "
            )
            assert 3 <= tries <= 5
            assert later - tries <= 10
            assert (await room.condition()).status == "True"

    told(story)


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (
            PermissionError(13, "Permission denied"),
            "may not be run; put the state directory on a file system",
        ),
        (OSError(8, "Exec format error"), "is no program for this system"),
        (
            RuntimeError("it printed usage instead"),
            "could not be asked for its create flags: it printed usage",
        ),
        ((Flag("string", "noop", "", "", ""),), "is not of the form DRIVER-NAME"),
    ],
)
def test_a_driver_that_cannot_be_asked_is_told_with_the_cure(
    tmp_path: Path, answer: tuple[Flag, ...] | Exception, sentence: str
):
    async def story() -> None:
        async with shop(tmp_path) as room:
            room.answer = answer
            await room.add()
            await room.wait()

            assert sentence in (await room.condition("Installed")).message
            assert (await room.condition("Downloaded")).status == "True"
            assert (await room.condition("Active")).status == "False"
            assert room.catalogue is not None
            assert room.catalogue.find_binary("noop") is None

    told(story)


def test_a_driver_that_does_not_answer_is_given_ten_seconds(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            room.answers_after = 1e6
            await room.add()
            await room.wait(9)
            before = (await room.condition("Installed")).status
            await room.wait(3)

            assert before == "Unknown"
            assert "gave no answer within 10 s" in (await room.condition("Installed")).message

    told(story)


# -- change ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["changed", "disabled", "deleted"])
def test_a_download_that_nobody_waits_for_any_more_is_ended(tmp_path: Path, what: str):
    async def story() -> None:
        async with shop(tmp_path) as room:
            room.takes_s = 1e6
            await room.add()
            await room.wait(60)
            during = await room.standing()
            room.takes_s = 0.5
            match what:
                case "changed":
                    room.shelves["https://mirror.example/noop"] = SECOND
                    await room.change(url="https://mirror.example/noop", checksum=sha256(SECOND))
                case "disabled":
                    await room.change(active=False)
                case _:
                    await room.client.delete(NODE_DRIVER.ref("noop"))
            await room.wait()

            assert during["Downloaded"] == ("Unknown", "Downloading")
            match what:
                case "changed":
                    assert (await room.condition()).reason == "Active"
                    assert room.files() == room.files_of(SECOND)
                case "disabled":
                    assert (await room.condition()).reason == "Deactivated"
                    assert room.files() == []
                case _:
                    with pytest.raises(NotFound):
                        await room.get()
                    assert room.files() == []

    told(story)


def test_a_changed_url_is_downloaded_again(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            await room.add()
            await room.wait()
            room.shelves["https://mirror.example/noop.tar.gz"] = FIRST
            await room.change(url="https://mirror.example/noop.tar.gz")
            await room.wait()

            assert room.fetched == [URL, "https://mirror.example/noop.tar.gz"]
            assert (await room.get())["status"]["appliedURL"] == "https://mirror.example/noop.tar.gz"
            assert (await room.condition()).status == "True"

    told(story)


def test_the_driver_in_use_stays_until_the_next_one_has_answered(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            await room.add()
            await room.wait()
            room.shelves[URL] = SECOND
            room.answer = RuntimeError("it crashed")
            await room.change(checksum=sha256(SECOND))
            await room.wait(6)
            assert room.catalogue is not None
            during = room.catalogue.find_binary("noop")
            said = await room.condition()
            room.answer = FLAGS
            await room.wait(700)
            after = room.catalogue.find_binary("noop")

            assert (said.status, said.reason) == ("True", "OlderInUse")
            assert "until then the driver from" in said.message
            assert during is not None
            assert during.parent.name == sha256(FIRST)
            assert after is not None
            assert after.parent.name == sha256(SECOND)
            assert room.files() == room.files_of(SECOND)

    told(story)


def test_a_new_file_with_another_driver_in_it_does_not_take_the_place_of_the_one_in_use(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            await room.add()
            await room.wait()
            room.shelves[URL] = other = a_tar_gz(("docker-machine-driver-other", an_elf()))
            await room.change(checksum=sha256(other))
            await room.wait()

            said = await room.condition()
            assert (said.status, said.reason) == ("True", "OlderInUse")
            assert "the file holds the driver other, and this object gave noop" in said.message
            assert room.catalogue is not None
            assert room.catalogue.find_binary("noop") is not None

    told(story)


def test_deactivated_its_kind_stays_and_its_use_is_refused_with_a_sentence(tmp_path: Path):
    async def story() -> None:
        changes: list[str] = []
        async with shop(tmp_path, heard=changes.append) as room:
            await room.add()
            await room.wait()
            await room.change(active=False)
            await room.wait()
            assert room.catalogue is not None
            refusal = find_refusal("NoopConfig", room.catalogue.drivers)
            off = await room.standing()
            kind = await room.client.list(NOOP_CONFIG)
            binary = room.catalogue.find_binary("noop")
            await room.change(active=True)
            await room.wait()

            assert str(refusal) == (
                "the node driver noop, which gives that kind, is not active; "
                "activate it: windrow driver enable noop"
            )
            assert off["Active"] == ("False", "Deactivated")
            assert off["Inactive"] == ("True", "Deactivated")
            assert kind == []
            assert binary is not None
            assert find_refusal("NoopConfig", room.catalogue.drivers) is None
            assert (await room.standing())["Inactive"] == ("False", "Active")
            assert len(room.fetched) == len(room.asked) == 1
            assert changes == ["HarvesterConfig", "NoopConfig", "NoopConfig", "NoopConfig"]

    told(story)


def test_a_driver_that_is_not_active_is_not_fetched_unless_its_kind_is_wanted(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            await room.add(active=False)
            await room.wait()
            quiet = list(room.fetched)
            await room.change(addCloudCredential=True)
            await room.wait()

            assert quiet == []
            assert room.fetched == [URL]
            assert (await room.standing())["Installed"] == ("True", "Installed")
            assert (await room.standing())["Active"] == ("False", "Deactivated")

    told(story)


def test_a_program_that_was_changed_on_disk_is_not_handed_out_and_fetched_anew_at_the_next_start(
    tmp_path: Path,
):
    async def story() -> None:
        async with shop(tmp_path) as room:
            await room.add()
            await room.wait()
            assert room.catalogue is not None
            path = room.catalogue.find_binary("noop")
            assert path is not None
            path.write_bytes(path.read_bytes()[:-1] + b"x")

            assert room.catalogue.find_binary("noop") is None
            await room.stop()
            again = room.start()
            await again.wait_started()
            await room.wait()
            assert again.find_binary("noop") == path
            assert len(room.fetched) == 2

    told(story)


def test_of_two_objects_with_the_same_driver_the_older_one_has_it(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            await room.add()
            await room.wait()
            await room.add("another")
            await room.wait()
            refused = await room.condition("Installed", "another")
            first = await room.condition()
            await room.client.delete(NODE_DRIVER.ref("noop"))
            await room.wait()

            assert refused.reason == "NameTaken"
            assert "which NodeDriver noop gives already" in refused.message
            assert first.status == "True"
            assert (await room.condition("Active", "another")).status == "True"

    told(story)


def test_the_go_drivers_file_does_not_take_the_name_of_the_built_in_one(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            room.shelves[URL] = a_tar_gz(("docker-machine-driver-harvester", an_elf()))
            await room.add("go")
            await room.wait()

            assert (
                "which NodeDriver harvester gives already"
                in (await room.condition("Installed", "go")).message
            )
            assert room.asked == []

    told(story)


def test_where_harvester_is_not_built_in_another_one_may_be_it_and_the_managers_definition_stays(
    tmp_path: Path,
):
    async def story() -> None:
        async with shop(tmp_path, built_ins=()) as room:
            room.shelves[URL] = a_tar_gz(("docker-machine-driver-harvester", an_elf()))
            ref = CRD.ref("harvesterconfigs.rke-machine-config.cattle.io")
            before = (await room.client.get(ref))["metadata"]["resourceVersion"]
            await room.add("harvester")
            await room.wait()

            assert room.catalogue is not None
            assert find_refusal("HarvesterConfig", room.catalogue.drivers) is None
            assert room.catalogue.find_binary("harvester") is not None
            await room.client.delete(NODE_DRIVER.ref("harvester"))
            await room.wait()
            assert (await room.client.get(ref))["metadata"]["resourceVersion"] == before

    told(story)


def test_annotations_that_say_more_about_its_fields_change_its_kind_at_once(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            await room.add()
            await room.wait()
            change = {"annotations": {"defaults": "cpuCount:4", "passwordFields": "userData"}}
            await room.client.patch(NODE_DRIVER.ref("noop"), {"metadata": change})
            await room.wait()

            made = await room.client.create(NOOP_CONFIG, new_object(NOOP_CONFIG, "small", "fleet-default"))
            assert made["cpuCount"] == "4"
            assert (len(room.fetched), len(room.asked)) == (1, 2)
            assert (await room.condition()).status == "True"

    told(story)


def test_a_driver_that_is_made_anew_is_tried_anew(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            room.answer = (Flag("string", "noop-kind", "", "", ""),)
            await room.add()
            await room.wait()
            refused = await room.condition()
            room.answer = FLAGS
            await room.client.delete(NODE_DRIVER.ref("noop"))
            await room.wait(0.01)
            await room.add()
            await room.wait()

            assert refused.reason == "SchemaRefused"
            assert (await room.condition()).status == "True"

    told(story)


# -- the built-in one --------------------------------------------------------------------------------------------


def test_the_built_in_driver_is_present_at_start_and_usable(tmp_path: Path):
    async def story() -> None:
        program = tmp_path / "ours"
        async with shop(tmp_path, programs={"harvester": program}) as room:
            assert room.catalogue is not None
            assert find_refusal("HarvesterConfig", room.catalogue.drivers) is None
            await room.wait()

            spec = (await room.get("harvester"))["spec"]
            assert (spec["url"], spec["checksum"], spec["builtin"], spec["active"]) == (
                "local://",
                "",
                True,
                True,
            )
            assert (await room.condition("Active", "harvester")).status == "True"
            assert room.catalogue is not None
            driver = find_driver("HarvesterConfig", room.catalogue.drivers)
            assert driver is not None
            assert (driver.driver_name, driver.built_in_kind) == ("harvester", "HarvesterConfig")
            assert find_refusal("HarvesterConfig", room.catalogue.drivers) is None
            assert room.catalogue.find_binary("harvester") == program
            assert room.fetched == []

    told(story)


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
        async with shop(tmp_path) as room:
            before = (await room.get("harvester"))["spec"]
            await room.change("harvester", **changed, description="stays")
            await room.wait()
            off = await room.condition("Active", "harvester")
            assert room.catalogue is not None
            refusal = find_refusal("HarvesterConfig", room.catalogue.drivers)
            await room.stop()
            again = room.start()
            await again.wait_started()
            await room.wait()

            assert (off.status, off.reason) == ("False", "Deactivated")
            assert refusal is not None
            assert (await room.get("harvester"))["spec"] == {**before, "description": "stays"}
            assert find_refusal("HarvesterConfig", again.drivers) is None
            assert room.fetched == []

    told(story)


def test_a_built_in_driver_that_was_deleted_is_back_after_the_next_start(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            await room.client.delete(NODE_DRIVER.ref("harvester"))
            await room.wait()
            await room.stop()
            await room.start().wait_started()
            await room.wait()

            assert (await room.condition("Active", "harvester")).status == "True"

    told(story)


# -- the end -----------------------------------------------------------------------------------------------------


def test_a_removed_driver_takes_its_files_and_its_kind_along(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            await room.add()
            await room.wait()
            await room.client.delete(NODE_DRIVER.ref("noop"))
            await room.wait()

            assert room.files() == []
            with pytest.raises(NotFound):
                await room.get()
            with pytest.raises(NotFound):
                await room.client.get(CRD.ref(NOOP_CONFIG.group_resource))

    told(story)


def test_a_kind_of_which_objects_exist_stays_when_its_driver_goes(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            await room.add()
            await room.wait()
            await room.client.create(NOOP_CONFIG, new_object(NOOP_CONFIG, "small", "fleet-default"))
            await room.client.delete(NODE_DRIVER.ref("noop"))
            await room.wait()
            left = await room.client.list(NOOP_CONFIG)
            gone = room.files()
            await room.add()
            await room.wait()

            assert len(left) == 1
            assert gone == []
            assert (await room.condition()).status == "True"

    told(story)


def test_a_kind_goes_with_a_driver_that_never_came_to_say_that_it_gives_it(tmp_path: Path):
    async def story() -> None:
        async def refuse(operation: AdmissionRequest) -> None:
            if operation.kind == NODE_DRIVER and nested(operation.object or {}, "status", "configKind"):
                raise ServerError("the API server has a bad day", status=500)

        async with shop(tmp_path) as room:
            room.api.admission.append(refuse)
            await room.add()
            await room.wait()
            defined = await room.client.find(CRD.ref(NOOP_CONFIG.group_resource))
            await room.client.delete(NODE_DRIVER.ref("noop"))
            await room.wait()

            assert defined is not None
            assert await room.client.find(NODE_DRIVER.ref("noop")) is None
            assert await room.client.find(CRD.ref(NOOP_CONFIG.group_resource)) is None
            assert room.files() == []

    told(story)


def a_cluster(kind: str) -> Raw:
    pool = {"name": "a", "quantity": 1, "machineConfigRef": {"kind": kind, "name": "small"}}
    spec = {"kubernetesVersion": "v1.34.7+rke2r1", "rkeConfig": {"machinePools": [pool]}}
    return new_object(CLUSTER, "orchard", "fleet-default", spec=spec)


def test_a_driver_whose_kind_a_cluster_names_is_not_removed_before_the_cluster(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            await room.add()
            await room.wait()
            await room.client.create(CLUSTER, a_cluster("NoopConfig"))
            await room.client.delete(NODE_DRIVER.ref("noop"))
            await room.wait(600)
            held = await room.condition()
            files = room.files()
            assert room.catalogue is not None
            binary = room.catalogue.find_binary("noop")
            await room.client.delete(CLUSTER.ref("orchard", "fleet-default"))
            await room.wait()

            assert (held.status, held.reason) == ("False", "InUse")
            assert held.message.startswith(
                "NoopConfig is used by Cluster fleet-default/orchard; delete it first"
            )
            assert files == room.files_of(FIRST)
            assert binary is not None
            assert room.files() == []

    told(story)


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
        async with shop(tmp_path) as room:
            await room.add()
            await room.wait()
            await room.client.create(MACHINE, a_machine("noop"))
            await room.client.create(MACHINE, a_machine("harvester"))
            await room.client.create(CLUSTER, a_cluster("HarvesterConfig"))  # its pool has moved to that kind
            await room.client.delete(NODE_DRIVER.ref("noop"))
            await room.wait(600)
            held = await room.condition()
            assert room.catalogue is not None
            binary = room.catalogue.find_binary("noop")
            await room.client.delete(MACHINE.ref("orchard-a-noop", "fleet-default"))
            await room.wait()

            assert (held.status, held.reason) == ("False", "InUse")
            assert held.message.startswith(
                "the driver noop has made Machine fleet-default/orchard-a-noop; wait"
            )
            assert binary is not None
            assert room.files() == []

    told(story)


# -- what people are told ----------------------------------------------------------------------------------------


def test_condition_and_event_use_the_same_sentence_and_say_it_once(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            room.shelves[URL] = DownloadFailed("drivers.example cannot be reached", "check the network")
            await room.add(checksum=sha256(FIRST))
            await room.wait(300)

            events = [raw for raw in await room.client.list(EVENT) if raw["involvedObject"]["name"] == "noop"]
            (failed,) = [raw for raw in events if raw["reason"] == "DownloadFailed"]
            assert sorted(raw["reason"] for raw in events) == ["DownloadFailed", "Downloading"]
            assert [raw["count"] for raw in events] == [1, 1]
            assert failed["message"] == "drivers.example cannot be reached; check the network"
            assert failed["type"] == "Warning"
            assert (await room.condition()).message.startswith(failed["message"])

    told(story)


def test_once_all_is_well_nothing_is_asked_but_watches(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            await room.add()
            await room.wait()
            before = (await room.get())["metadata"]["resourceVersion"]
            await room.wait(3600)

            assert (await room.get())["metadata"]["resourceVersion"] == before
            assert len(room.fetched) == len(room.asked) == 1

    told(story)


def test_a_name_that_rancher_would_not_take_is_refused_by_the_api(tmp_path: Path):
    async def story() -> None:
        async with shop(tmp_path) as room:
            with pytest.raises(Invalid, match="displayName"):
                await room.add("noop", displayName="n" * 58)

    told(story)
