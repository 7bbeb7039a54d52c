"""`windrow driver` against a real management API with a real catalogue, over sockets; only the URLs are handed in."""

from __future__ import annotations

import asyncio
import io
import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.unit.drivers.files import HERE, a_driver, sha256

from windrow.apiserver.loopback import LoopbackClient
from windrow.app.clock import SystemClock
from windrow.cli import exit_codes
from windrow.cli.context import CliContext
from windrow.cli.main import run
from windrow.client.client import Client
from windrow.client.downloads import DownloadFailed
from windrow.core.rng import Rng
from windrow.drivers.api import CLUSTER, MACHINE, NODE_DRIVER, crds
from windrow.drivers.controller import NodeDriverController
from windrow.drivers.store import DriverStore
from windrow.kubernetes.resources import CRD, NAMESPACE
from windrow.protocols.dockermachine import Flag

Windrow = Callable[..., Any]
Manager = Any

URL = "https://drivers.example/docker-machine-driver-noop.tar.gz"
FILE = a_driver()


@dataclass
class Shop:
    """What URLs deliver, and whether drivers answer."""

    manager: Manager
    files: dict[str, bytes] = field(default_factory=lambda: {URL: FILE})
    answers: bool = True
    away: int = 0  # so many times the server is away
    hangs: bool = False
    asked: int = 0

    async def fetch(self, url: str, write: Callable[[bytes], None]) -> None:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.away:
            self.away -= 1
            raise DownloadFailed(f"{url} cannot be reached", "check the server", is_temporary=True)
        if url not in self.files:
            raise DownloadFailed(
                "drivers.example answered 404 Not Found", "correct the URL: there is no such file"
            )
        write(self.files[url])

    async def ask_flags(self, path: Path) -> tuple[Flag, ...]:
        if not self.answers:
            raise RuntimeError("it printed its usage")
        return (Flag("string", "noop-user-data", "what cloud-init gets", "NOOP_USER_DATA", ""),)

    def get(self, name: str) -> Any:
        return self.manager.do(lambda api: api.get(NODE_DRIVER.ref(name)))


@pytest.fixture
def shop(manager: Manager, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(manager)

    async def start(api: LoopbackClient) -> asyncio.Task[None]:
        for crd in crds():
            await api.create(CRD, crd)
        store = DriverStore(tmp_path / "state", HERE)
        catalogue = NodeDriverController(
            Client(api), store, made.fetch, made.ask_flags, SystemClock(), Rng(1), files_allowed=True
        )
        task = asyncio.get_running_loop().create_task(catalogue.run())
        await catalogue.wait_started()
        return task

    async def stop(api: LoopbackClient) -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    task = manager.do(start)
    yield made
    manager.do(stop)


@pytest.fixture
def added(windrow: Windrow, shop: Shop) -> Shop:
    answer = windrow("driver", "add", "noop", "--url", URL, "--checksum", sha256(FILE))
    assert answer.code == exit_codes.OK, answer.err
    return shop


# -- list and show -----------------------------------------------------------------------------------------------


def test_list_says_how_each_stands_within_80_columns(windrow: Windrow, added: Shop):
    lines = windrow("driver", "list").out.splitlines()

    assert lines == [
        "NAME       KIND             STATE   MESSAGE",
        "harvester  HarvesterConfig  active  Clusters can use HarvesterConfig",
        "noop       NoopConfig       active  Clusters can use NoopConfig",
    ]


def test_list_and_show_give_data_for_programs(windrow: Windrow, added: Shop):
    listed = json.loads(windrow("driver", "list", "-o", "json").out)
    assert (
        windrow("driver", "list", "-o", "name").out.splitlines()[-1] == "nodedriver.management.cattle.io/noop"
    )
    assert windrow("driver", "list", "-o", "jsonpath={.items[1].metadata.name}").out.strip() == "noop"
    assert windrow("driver", "list", "-o", "wide").out.startswith("NAME")
    assert windrow("driver", "list", "-o", "table").out == windrow("driver", "list").out
    shown = windrow("driver", "show", "noop", "-o", "yaml").out

    assert [raw["metadata"]["name"] for raw in listed["items"]] == ["harvester", "noop"]
    assert "configKind: NoopConfig" in shown


def test_show_tells_where_it_comes_from_and_each_condition(windrow: Windrow, added: Shop):
    lines = windrow("driver", "show", "noop").out.splitlines()

    assert lines == [
        "noop  active",
        "  Kind        NoopConfig",
        "  Driver      noop",
        f"  Source      {URL}",
        f"  SHA-256     {sha256(FILE)}",
        f"  Downloaded  from {URL}",
        "  Installed   driver noop from",
        f"              {URL}",
        "  Active      Clusters can use NoopConfig",
    ]
    assert all(len(line) <= 80 for line in lines)


def test_a_driver_that_is_not_there_is_said_with_what_to_do(windrow: Windrow, shop: Shop):
    for verb in ("show", "enable", "disable", "remove"):
        answer = windrow("driver", verb, "nope")
        assert answer.code == exit_codes.NOT_FOUND
        assert answer.err.splitlines() == [
            "NodeDriver 'nope' not found.",
            "→ List them: windrow driver list",
        ]


def test_a_management_api_without_a_catalogue_is_said(windrow: Windrow, manager: Manager):
    answer = windrow("driver", "list")

    assert answer.code == exit_codes.NOT_FOUND
    assert "does not have the kind NodeDriver" in answer.err


# -- add ---------------------------------------------------------------------------------------------------------


def test_add_stays_until_the_driver_is_active_and_tells_what_it_waits_for(windrow: Windrow, shop: Shop):
    answer = windrow("driver", "add", "noop", "--url", URL, "--checksum", f"sha256:{sha256(FILE).upper()}")

    assert answer.code == exit_codes.OK
    assert answer.out.splitlines() == ["NodeDriver noop created", "NodeDriver noop is active"]
    assert windrow("driver", "add", "noop", "--url", URL, "--checksum", sha256(FILE)).out.splitlines() == [
        "NodeDriver noop unchanged",
        "NodeDriver noop is active",
    ]


def test_add_takes_a_file_and_computes_its_checksum(windrow: Windrow, shop: Shop, tmp_path: Path):
    (tmp_path / "noop.tgz").write_bytes(FILE)

    assert windrow("driver", "add", "noop", "--file", "noop.tgz").code == exit_codes.OK
    assert shop.get("noop")["spec"]["checksum"] == sha256(FILE)
    wrong = windrow("driver", "add", "other", "--file", "noop.tgz", "--checksum", "0" * 64)
    assert wrong.code == exit_codes.REFUSED
    assert sha256(FILE) in wrong.err


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (("--url", URL), "--checksum is empty: drivers are only run after verification."),
        (
            ("--url", URL, "--checksum", "d" * 32),
            "--checksum is an MD5 digest: its collisions can be computed.",
        ),
        (
            ("--url", "http://x/y", "--checksum", "d" * 64),
            "--url has the scheme http, but only https is supported.",
        ),
        (
            ("--url", "file:///x", "--checksum", "d" * 64),
            "→ Name it with --file, for a manager that runs with --allow-file-urls.",
        ),
    ],
)
def test_what_the_manager_would_refuse_is_not_sent(
    windrow: Windrow, shop: Shop, argv: tuple[str, ...], sentence: str
):
    answer = windrow("driver", "add", "noop", *argv)

    assert answer.code == exit_codes.REFUSED
    assert sentence in answer.err
    assert "noop" not in windrow("driver", "list").out


def test_add_says_why_it_does_not_become_active(windrow: Windrow, shop: Shop):
    missing = windrow("driver", "add", "a", "--url", "https://drivers.example/nope", "--checksum", "d" * 64)
    wrong = windrow("driver", "add", "b", "--url", URL, "--checksum", "d" * 64)
    shop.answers = False
    mute = windrow("driver", "add", "c", "--url", URL, "--checksum", sha256(FILE))

    assert missing.code == wrong.code == mute.code == exit_codes.FAILED
    assert "404 Not Found" in missing.err
    assert f"hash does not match, got {sha256(FILE)}, expected {'d' * 64}" in wrong.err
    assert "cannot read the create flags" in mute.err
    listed = windrow("driver", "list").out
    assert listed.count("failed") == 3
    assert listed.splitlines()[-1] == "→ See the whole message: windrow driver show NAME"
    for answer, name in ((missing, "a"), (wrong, "b"), (mute, "c")):
        assert answer.err.splitlines()[-3:] == [
            f"→ See its conditions: windrow driver show {name}",
            "The NodeDriver was created.",
            f"→ Change it: windrow driver add {name} ... --replace; or remove it: windrow driver remove {name}",
        ]


def test_add_waits_for_a_server_that_is_away(windrow: Windrow, shop: Shop):
    shop.away = 1

    answer = windrow("driver", "add", "noop", "--url", URL, "--checksum", sha256(FILE))

    assert answer.code == exit_codes.OK, answer.err
    assert f"{URL} cannot be reached; check the server; the next attempt is at" in " ".join(
        answer.err.split()
    )
    assert shop.asked == 2


def test_add_does_not_wait_for_a_server_longer_than_it_is_told_to(windrow: Windrow, shop: Shop):
    shop.away = 100

    answer = windrow("driver", "add", "noop", "--url", URL, "--checksum", sha256(FILE), "--timeout", "1s")

    assert answer.code == exit_codes.TIMED_OUT
    assert f"Waited 1 s for NodeDriver noop: {URL} cannot be reached" in answer.err
    assert "The NodeDriver was created." in answer.err


class Impatient(io.StringIO):
    """A terminal at which Ctrl-C is pressed as soon as something is written there."""

    def write(self, text: str) -> int:
        if not self.tell():
            signal.raise_signal(signal.SIGINT)
        return super().write(text)


def test_an_interrupted_add_says_that_the_record_stays(windrow: Windrow, shop: Shop, tmp_path: Path):
    shop.hangs = True
    err = Impatient()
    context = CliContext({}, tmp_path, io.StringIO(), io.StringIO(), err, SystemClock().now)

    code = run(["driver", "add", "noop", "--url", URL, "--checksum", sha256(FILE)], context)

    assert code == exit_codes.INTERRUPTED
    assert err.getvalue().splitlines()[-5:] == [
        "The NodeDriver was created.",
        "→ Change it:",
        "  windrow driver add noop ... --replace;",
        "  or remove it: windrow driver remove noop",
        "Interrupted.",
    ]
    assert shop.get("noop")["spec"]["url"] == URL


def test_add_replaces_only_when_told_to(windrow: Windrow, added: Shop):
    added.files["https://mirror.example/x"] = second = a_driver(b"2")
    again = ("driver", "add", "noop", "--url", "https://mirror.example/x", "--checksum", sha256(second))

    refused = windrow(*again)
    assert refused.code == exit_codes.REFUSED
    assert "--replace" in refused.err
    replaced = windrow(*again, "--replace")
    assert replaced.out.splitlines() == ["NodeDriver noop changed", "NodeDriver noop is active"]
    assert added.get("noop")["status"]["appliedChecksum"] == sha256(second)
    builtin = windrow("driver", "add", "harvester", "--url", URL, "--checksum", sha256(FILE), "--replace")
    assert builtin.code == exit_codes.REFUSED


def test_add_returns_at_once_when_told_to(windrow: Windrow, shop: Shop):
    answer = windrow("driver", "add", "noop", "--url", URL, "--checksum", "d" * 64, "--no-wait")

    assert (answer.code, answer.out) == (exit_codes.OK, "NodeDriver noop created\n")


# -- enable, disable, remove -------------------------------------------------------------------------------------


def test_disable_and_enable(windrow: Windrow, added: Shop):
    off = windrow("driver", "disable", "noop")
    listed = windrow("driver", "list").out.splitlines()[-1]
    on = windrow("driver", "enable", "noop")

    assert off.err == on.err == ""
    assert off.out.splitlines() == ["NodeDriver noop changed", "NodeDriver noop is not active"]
    assert "inactive" in listed
    assert "Clusters cannot use it" in listed
    assert on.out.splitlines() == ["NodeDriver noop changed", "NodeDriver noop is active"]


def test_disabling_the_built_in_driver_says_for_how_long(windrow: Windrow, shop: Shop):
    answer = windrow("driver", "disable", "harvester")

    assert answer.code == exit_codes.OK
    assert "the manager enables it again when it restarts" in answer.err


def test_remove_stays_until_it_is_gone(windrow: Windrow, added: Shop):
    answer = windrow("driver", "remove", "noop")

    assert answer.code == exit_codes.OK
    assert answer.out.splitlines() == ["NodeDriver noop is being removed", "NodeDriver noop is gone"]
    assert answer.err == ""
    assert "noop" not in windrow("driver", "list").out


def test_a_driver_that_a_cluster_needs_is_not_removed(windrow: Windrow, added: Shop):
    async def make_cluster(api: LoopbackClient) -> None:
        await api.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}})
        pools = [{"name": "a", "machineConfigRef": {"kind": "NoopConfig", "name": "x"}}]
        raw = {
            "apiVersion": "provisioning.cattle.io/v1",
            "kind": "Cluster",
            "metadata": {"name": "orchard", "namespace": "fleet"},
            "spec": {"rkeConfig": {"machinePools": pools}},
        }
        await api.create(CLUSTER, raw)

    added.manager.do(make_cluster)

    answer = windrow("driver", "remove", "noop")

    assert answer.code == exit_codes.REFUSED
    assert "NoopConfig is used by fleet/orchard." in answer.err
    assert "deletionTimestamp" not in added.get("noop")["metadata"]


def test_a_driver_whose_machines_are_still_there_is_not_removed(windrow: Windrow, added: Shop):
    async def make_machine(api: LoopbackClient) -> None:
        await api.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fleet"}})
        spec = {"clusterName": "orchard", "clusterUID": "c", "pool": "a", "roles": ["worker"], "options": {}}
        raw = {
            "apiVersion": MACHINE.api_version,
            "kind": "Machine",
            "metadata": {"name": "orchard-a-1", "namespace": "fleet"},
            "spec": {**spec, "credential": "fleet:cc", "version": "v1.34.7+rke2r1", "driver": "noop"},
        }
        await api.create(MACHINE, raw)

    added.manager.do(make_machine)

    answer = windrow("driver", "remove", "noop")

    assert answer.code == exit_codes.REFUSED
    assert "Driver noop created fleet/orchard-a-1." in answer.err
    assert "deletionTimestamp" not in added.get("noop")["metadata"]


def test_the_built_in_driver_is_not_removed(windrow: Windrow, shop: Shop):
    answer = windrow("driver", "remove", "harvester")

    assert answer.code == exit_codes.REFUSED
    assert "→ Disable it: windrow driver disable harvester" in answer.err


def test_waiting_ends_with_what_was_waited_for(windrow: Windrow, manager: Manager):
    async def without_catalogue(api: LoopbackClient) -> None:
        for crd in crds():
            await api.create(CRD, crd)

    manager.do(without_catalogue)

    answer = windrow("driver", "add", "noop", "--url", URL, "--checksum", sha256(FILE), "--timeout", "1s")

    assert answer.code == exit_codes.TIMED_OUT
    assert "the manager has not observed it yet" in answer.err


# -- what it is for ----------------------------------------------------------------------------------------------

ORCHARD = """
apiVersion: v1
kind: Namespace
metadata: {name: fleet-default}
---
apiVersion: provisioning.cattle.io/v1
kind: Cluster
metadata: {name: orchard, namespace: fleet-default}
spec:
  kubernetesVersion: v1.34.7+rke2r1
  cloudCredentialSecretName: fleet-default:cc-noop
  rkeConfig:
    machinePools:
      - name: servers
        quantity: 1
        etcdRole: true
        controlPlaneRole: true
        workerRole: true
        machineConfigRef: {kind: NoopConfig, name: small}
---
apiVersion: rke-machine-config.cattle.io/v1
kind: NoopConfig
metadata: {name: small, namespace: fleet-default}
userData: hello
"""
CREDENTIAL = """
---
apiVersion: v1
kind: Secret
metadata: {name: cc-noop, namespace: fleet-default}
stringData: {noopcredentialConfig-password: x}
"""


def test_a_cluster_of_another_driver_s_kind_can_be_checked_and_applied(
    windrow: Windrow, added: Shop, tmp_path: Path
):
    (tmp_path / "orchard.yaml").write_text(ORCHARD)
    (tmp_path / "whole.yaml").write_text(ORCHARD + CREDENTIAL)

    without = windrow("check", "-f", "orchard.yaml")
    whole = windrow("check", "-f", "whole.yaml")
    applied = windrow("apply", "-f", "whole.yaml")
    afterwards = windrow("check", "-f", "orchard.yaml")

    assert without.code == exit_codes.REFUSED
    assert "credential Secret fleet-default/cc-noop cannot be read" in " ".join(without.out.split())
    assert whole.code == exit_codes.OK, whole.out
    assert (
        whole.out.splitlines()
        == afterwards.out.splitlines()
        == [
            "fleet-default/orchard  no problem in what was checked",
            "Compared with the support matrix of 2026-08-21:",
            "fits     RKE2 v1.34.7+rke2r1 is of a line that gets new releases: v1.33 to v1.36",
            "Not checked: NoopConfig (pool servers); its machines are created by another",
            "driver.",
        ]
    )
    assert applied.code == exit_codes.OK, applied.err
    assert applied.out.splitlines()[2:] == [
        "NoopConfig fleet-default/small created",
        "Cluster fleet-default/orchard created",
    ]


def test_a_cluster_of_a_kind_that_no_driver_gives_now_is_not_sent(
    windrow: Windrow, added: Shop, tmp_path: Path
):
    (tmp_path / "orchard.yaml").write_text(ORCHARD)
    windrow("driver", "disable", "noop")
    off = windrow("apply", "-f", "orchard.yaml")
    windrow("driver", "remove", "noop")
    gone = windrow("apply", "-f", "orchard.yaml")

    assert off.code == gone.code == exit_codes.REFUSED
    assert "NodeDriver noop, which provides that kind, is not active" in " ".join(off.err.split())
    assert "windrow driver enable noop" in off.err
    assert "no NodeDriver provides that kind" in " ".join(gone.err.split())
    assert "Nothing was changed." in gone.err


def test_a_node_driver_can_be_applied_from_a_manifest(windrow: Windrow, shop: Shop, tmp_path: Path):
    (tmp_path / "driver.yaml").write_text(
        "apiVersion: management.cattle.io/v3\nkind: NodeDriver\nmetadata: {name: noop}\n"
        f"spec: {{displayName: noop, active: true, url: '{URL}', checksum: {sha256(FILE)}}}\n"
    )

    assert windrow("apply", "-f", "driver.yaml").out == "NodeDriver noop created\n"
    assert windrow("driver", "enable", "noop").out.splitlines()[-1] == "NodeDriver noop is active"
