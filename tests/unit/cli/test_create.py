"""`windrow create cluster`: flags or answers become a manifest, and nothing is written before the last answer."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import Manager, Windrow
from tests.unit.cli.test_commands import Typist, with_credential

from windrow.apiserver.loopback import LoopbackClient
from windrow.app.harvester.new_cluster import DEFAULT_VERSIONS, NewCluster, guess_user, render_manifest
from windrow.cli import exit_codes, main
from windrow.cli.context import CliContext
from windrow.clusters.api.kinds import CLUSTER, HARVESTER_CONFIG
from windrow.core.formats import yaml
from windrow.demo.manifests import shipped
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import NAMESPACE

FLAGS = ("--credential", "fleet-default:cc", "--image", "default/noble", "--network", "default/vlan-50")
PROD = CLUSTER.ref("prod", "fleet-default")


@pytest.fixture
def site(windrow: Windrow, manager: Manager, tmp_path: Path) -> Manager:
    """A management API with a credential, which leads to the API itself; it has no images."""
    manager.do(lambda api: api.create(NAMESPACE, new_object(NAMESPACE, "fleet-default")))
    with_credential(manager, tmp_path)
    return manager


class Answers(io.StringIO):
    """What a person types at a terminal."""

    def isatty(self) -> bool:
        return True


def at_terminal(tmp_path: Path, stdin: io.StringIO, *argv: str) -> tuple[int, str]:
    out = io.StringIO()
    context = CliContext({}, tmp_path, stdin, out, out, lambda: datetime.now(UTC), terminal=True)
    return main.run(["create", "cluster", "prod", "-n", "fleet-default", *argv], context), out.getvalue()


def clusters(manager: Manager) -> list[str]:
    async def names(api: LoopbackClient) -> list[str]:
        found = [*await api.list(CLUSTER), *await api.list(HARVESTER_CONFIG)]
        return [raw["metadata"]["name"] for raw in found]

    return manager.do(names)  # type: ignore[no-any-return]


def test_a_dry_run_prints_the_manifest_and_needs_no_server(windrow: Windrow):
    answer = windrow("create", "cluster", "prod", *FLAGS, "--dry-run")

    assert answer.code == exit_codes.OK
    *configs, cluster = yaml.load_all(answer.out)
    pools = {one["name"]: one["quantity"] for one in cluster["spec"]["rkeConfig"]["machinePools"]}
    assert pools == {"servers": 3, "workers": 2}
    assert [one["sshUser"] for one in configs] == ["ubuntu", "ubuntu"]
    assert cluster["metadata"]["namespace"] == "fleet-default"


@pytest.mark.parametrize("distribution", ["rke2", "k3s"])
@pytest.mark.parametrize(("servers", "workers"), [(1, 0), (3, 2)])
def test_the_manifest_passes_windrow_check(windrow: Windrow, distribution: str, servers: int, workers: int):
    flags = (*FLAGS, "--distribution", distribution, "--servers", str(servers))
    manifest = windrow("create", "cluster", "prod", *flags, "--dry-run").out

    answer = windrow("check", "-f", "-", stdin=manifest)

    assert answer.code == exit_codes.OK, answer.out
    assert "no problem" in answer.out
    assert ("name: workers" in manifest) is bool(workers)
    assert ("workerRole: true\n      drain" in manifest) or workers


def test_the_releases_are_those_of_the_demo():
    for distribution, version in DEFAULT_VERSIONS.items():
        (cluster,) = [raw for raw in shipped(distribution) if raw["kind"] == "Cluster"]
        assert cluster["spec"]["kubernetesVersion"] == version


@pytest.mark.parametrize(
    ("image", "user"), [("default/noble-server", "ubuntu"), ("a/Leap-15", "opensuse"), ("a/image-x7k2p", "")]
)
def test_the_user_of_an_image_is_known_by_its_name_or_asked_for(image: str, user: str):
    assert guess_user(image) == user


def test_an_ip_pool_makes_the_endpoint_a_load_balancer():
    *_, cluster = render_manifest(NewCluster("a", "b", "c:d", "e/f", "g/h", "u", endpoint_pool="endpoints"))

    assert cluster["metadata"]["annotations"] == {
        "windrow.io/endpoint-mode": "loadBalancer",
        "windrow.io/endpoint-ip-pool": "endpoints",
    }


def test_without_a_terminal_each_flag_that_is_missing_is_named_at_once(windrow: Windrow, site: Any):
    answer = windrow("create", "cluster", "prod", "--image", "a/b")

    assert answer.code in (exit_codes.USAGE, exit_codes.NOT_FOUND)
    none = windrow("create", "cluster", "prod", *FLAGS[:2], *FLAGS[4:], "--image", "a/image-1")
    assert none.code == exit_codes.USAGE
    assert "--ssh-user" in none.err
    assert clusters(site) == []


@pytest.mark.parametrize(
    "flags",
    [("--cpu", "0"), ("--memory", "ten"), ("--workers", "-1"), ("-o", "yaml"), ("--servers", "99999")],
)
def test_what_is_no_number_and_what_has_no_effect_is_refused(windrow: Windrow, flags: tuple[str, ...]):
    assert windrow("create", "cluster", "prod", *FLAGS, *flags).code == exit_codes.USAGE


def test_a_name_that_no_cluster_can_have_is_refused_before_anything_is_printed(windrow: Windrow):
    answer = windrow("create", "cluster", "Prod_1", *FLAGS, "--dry-run")

    assert (answer.code, answer.out) == (exit_codes.REFUSED, "")


def test_it_is_created_as_apply_creates_it_and_not_twice(windrow: Windrow, site: Any):
    first = windrow("create", "cluster", "prod", "-n", "fleet-default", *FLAGS)
    second = windrow("create", "cluster", "prod", "-n", "fleet-default", *FLAGS)

    assert first.code == exit_codes.OK, first.err
    assert first.out.splitlines()[-1] == "Cluster fleet-default/prod created"
    assert (second.code, second.out) == (exit_codes.REFUSED, "")
    assert "exists already" in second.err
    assert set(clusters(site)) == {"prod", "nc-prod-servers", "nc-prod-workers"}


def test_at_a_terminal_it_says_what_it_creates_and_asks(site: Any, tmp_path: Path):
    code, told = at_terminal(tmp_path, Answers("1\nn\n"), *FLAGS)

    assert code == exit_codes.FAILED
    assert "This creates Cluster fleet-default/prod (v1.34.7+rke2r1): 1 servers." in told
    assert "Nothing was created." in told
    assert clusters(site) == []
    assert at_terminal(tmp_path, Answers("\ny\n"), *FLAGS)[0] == exit_codes.OK


def test_ctrl_c_at_any_question_leaves_nothing_behind(site: Any, tmp_path: Path):
    code, _ = at_terminal(tmp_path, Typist(), *FLAGS)
    assert code == exit_codes.INTERRUPTED
    code, _ = at_terminal(tmp_path, Typist(), *FLAGS, "--servers", "3")
    assert code == exit_codes.INTERRUPTED
    assert clusters(site) == []


def test_a_wrong_answer_is_asked_again_and_the_end_of_the_input_ends_it(site: Any, tmp_path: Path):
    code, told = at_terminal(tmp_path, Answers("7\nx\x1b[2J\n"), *FLAGS)

    assert code == exit_codes.FAILED
    assert told.count("is none of them") == 2
    assert "\x1b" not in told
    assert clusters(site) == []
