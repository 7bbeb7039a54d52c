from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from tests.support.clock import NOON

from windrow.cloudprovider.connection.cluster_connection import ClusterConnection
from windrow.cloudprovider.connection.sources import guest_source, host_source
from windrow.cloudprovider.metrics import Metrics
from windrow.cloudprovider.options import Options
from windrow.core.logs import line_logger
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, render_kubeconfig
from windrow.kubernetes.requests import Reply, Request

HOST = ClientConfig("https://h:6443", token="first", user="harvester")
GET = Request("GET", "/version")
PEM = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"


class Clock:
    def now(self):
        return NOON

    def monotonic(self):
        return timedelta()


class Server:
    """Every server: knows tokens. `dialled` is who came."""

    def __init__(self):
        self.tokens = {"first", "second"}
        self.dialled = []
        self.refuses = ""

    def dial(self, access):
        if self.refuses:
            raise BadKubeconfig(self.refuses, "use a token")
        self.dialled.append(access)
        return Dialled(self, access)


class Dialled:
    def __init__(self, server, access):
        self.server, self.access = server, access

    async def send(self, request):
        return Reply(200 if self.access.token in self.server.tokens else 401)


class Site:
    """A way to a host whose kubeconfig is a file of `folder`."""

    def __init__(self, folder: Path, access=HOST, file="cloud-config"):
        self.folder, self.path = folder, folder / file
        self.server, self.metrics = Server(), Metrics()
        self.said, self.moves, self.stuck, self.replaced = [], [], [], set()
        self.write(access)

    def write(self, access):
        self.path.write_text(access if isinstance(access, str) else render_kubeconfig(access, "harvester"))

    def open(self):
        options = Options(cloud_config=str(self.path))
        read = lambda path: Path(path).read_text()  # noqa: E731
        log, replaced = line_logger("harvester-cloud-provider", self.said.append), self.replaced.__contains__
        way = ClusterConnection(
            "host", host_source(options), self.server.dial, read, Clock(), log, self.metrics, replaced
        )
        way.on_changed, way.on_restart_needed = self.moves.append, self.stuck.append
        return way

    def reloads(self, result):
        return self.metrics.value("windrow_credential_reloads_total", cluster="host", result=result)


async def look_twice(way):
    """As in ten seconds: whether either look brought something new."""
    return any([await way.reload() for _ in range(2)])


async def test_a_file_that_says_the_same_is_not_dialled_again(tmp_path):
    site = Site(tmp_path)
    way = site.open()
    site.write(site.path.read_text() + "# a comment\n")

    assert not await look_twice(way)
    assert (len(site.server.dialled), site.said, site.moves) == (1, [], [])


async def test_a_new_token_is_used_from_the_next_look_on(tmp_path):
    site = Site(tmp_path)
    way = site.open()
    site.server.tokens.discard("first")
    site.write(replace(HOST, token="second"))

    assert await look_twice(way)
    assert (await way.transport.send(GET)).status == 200
    assert (site.moves, site.reloads("success")) == ([], 1)


async def test_a_mounted_secret_changes_by_a_swap_of_links(tmp_path):
    def write(name, access):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cloud-config").write_text(render_kubeconfig(access, "harvester"))

    write("..2026_01", HOST)
    (tmp_path / "..data").symlink_to("..2026_01")
    (tmp_path / "cloud-config").symlink_to("..data/cloud-config")
    way = Site(tmp_path).open()
    write("..2026_02", replace(HOST, token="second"))
    (tmp_path / "..data_tmp").symlink_to("..2026_02")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")

    assert await look_twice(way)
    assert way.config.token == "second"


async def test_files_that_the_kubeconfig_names_are_followed_too(tmp_path):
    named = render_kubeconfig(HOST, "harvester").replace(
        "server: https://h:6443", "server: https://h:6443\n    certificate-authority: ca.crt"
    )
    (tmp_path / "ca.crt").write_text(PEM)
    site = Site(tmp_path, named)
    way = site.open()
    (tmp_path / "ca.crt").write_text(PEM + PEM)

    assert await look_twice(way)
    assert way.config.ca == PEM + PEM


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"server": "https://other:6443"},
            "the server of Harvester changed from https://h:6443 to https://other:6443",
        ),
        ({"namespace": "elsewhere"}, "the namespace of the VMs changed from 'default' to 'elsewhere'"),
    ],
)
async def test_another_server_or_namespace_is_another_world(tmp_path, change, words):
    site = Site(tmp_path)
    way = site.open()
    site.write(replace(HOST, **change))
    await look_twice(way)

    assert [words in why for why in site.moves] == [True]


async def test_a_namespace_that_is_said_instead_of_implied_changes_nothing(tmp_path):
    site = Site(tmp_path)
    way = site.open()
    site.write(replace(HOST, namespace="default"))

    assert await look_twice(way)
    assert (way.namespace, site.moves) == ("default", [])


async def test_a_refusal_has_the_files_looked_at_at_once(tmp_path):
    site = Site(tmp_path)
    way = site.open()
    site.server.tokens.discard("first")
    site.write(replace(HOST, token="second"))

    assert (await way.transport.send(GET)).status == 200
    assert site.moves == []


async def test_after_a_refusal_that_stayed_one_the_new_credential_is_a_new_beginning(tmp_path):
    site = Site(tmp_path)
    way = site.open()
    site.server.tokens.discard("first")
    assert (await way.transport.send(GET)).status == 401
    site.write(replace(HOST, token="second"))
    await look_twice(way)
    site.write(replace(HOST, token="first"))
    await look_twice(way)

    assert site.moves == ["Harvester has a new credential after one that was rejected"]


async def test_a_mount_of_one_file_that_was_replaced_is_told_and_left_when_the_credential_is_refused(
    tmp_path,
):
    site = Site(tmp_path)
    way = site.open()
    site.replaced.add(str(site.path))
    for _ in range(3):
        await look_twice(way)
    told, early = list(site.said), list(site.stuck)
    site.server.tokens.discard("first")
    await way.transport.send(GET)

    assert len(told) == 1
    assert "the mount shows the old file" in told[0]
    assert (early, len(site.stuck)) == ([], 1)


async def test_a_file_that_breaks_is_told_once_and_heals_quietly(tmp_path):
    site = Site(tmp_path)
    way = site.open()
    site.write("clusters: [")
    site.server.tokens.discard("first")
    looks = [await look_twice(way) for _ in range(3)]
    site.path.unlink()
    looks += [await look_twice(way) for _ in range(3)]
    site.write(HOST)
    looks.append(await look_twice(way))

    assert not any(looks)
    assert ["not YAML" in said for said in site.said] == [True, False]
    assert "couldn't open cloud provider configuration" in site.said[1]
    assert site.reloads("failure") == 2


async def test_a_way_that_cannot_be_dialled_is_not_taken(tmp_path):
    site = Site(tmp_path)
    way = site.open()
    site.server.refuses = "no programs here"
    site.write(replace(HOST, token="second"))

    assert not await look_twice(way)
    assert way.config == HOST
    assert "no programs here" in site.said[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "can't init from an empty reader"),
        ("a: b", "not a kubeconfig"),
        (
            render_kubeconfig(HOST, "x").replace("current-context: x", "current-context: y"),
            "no context named 'y'",
        ),
        (render_kubeconfig(HOST, "x").replace("cluster: x", "cluster: z"), "no cluster named 'z'"),
        (render_kubeconfig(HOST, "x").replace("user: x", "user: z"), "no user named 'z'"),
    ],
)
def test_a_cloud_config_that_is_none_ends_the_start_with_its_cure(tmp_path, text, words):
    with pytest.raises(BadKubeconfig) as caught:
        Site(tmp_path, text).open()

    assert words in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "a: b",
        "a: [\n  b: {\n",
        render_kubeconfig(HOST, "x").replace("current-context: x", "current-context: y"),
        render_kubeconfig(replace(HOST, server="nowhere"), "x"),
    ],
)
@pytest.mark.parametrize(
    ("source", "title"),
    [
        (host_source(Options(cloud_config="/f/host")), "--cloud-config /f/host: "),
        (guest_source(Options(kubeconfig="/f/guest"), {}), "--kubeconfig /f/guest: "),
        (guest_source(Options(), {"KUBECONFIG": "/f/env"}), "$KUBECONFIG /f/env: "),
    ],
    ids=["host", "guest", "environment"],
)
def test_every_fault_of_a_kubeconfig_names_the_file_and_its_flag_on_one_line(source, title, text):
    fault = fault_of(source, {} if text is None else {title.split()[1].rstrip(":"): text})

    assert fault.startswith(title)
    assert "\n" not in fault


def test_a_certificate_that_the_kubeconfig_names_and_that_cannot_be_read_is_a_fault_of_the_kubeconfig():
    config = render_kubeconfig(HOST, "x").replace(
        "server: https://h:6443", "server: https://h:6443\n    certificate-authority: ca.crt"
    )

    fault = fault_of(
        host_source(Options(cloud_config="/f/host")),
        {"/f/host": config, "/f/ca.crt": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")},
    )

    assert fault.startswith("--cloud-config /f/host: certificate-authority names ca.crt: ")


def test_without_any_kubeconfig_for_the_guest_the_flag_is_named():
    fault = fault_of(guest_source(Options(), {}), {})

    assert fault.startswith("the guest cluster, without --kubeconfig: ")
    assert fault.endswith("name a kubeconfig for the guest cluster: --kubeconfig=FILE")


def fault_of(source, files):
    """What is said of this source, where these are all files; one may be the error that its reading ends with."""

    def read(path):
        if path not in files:
            raise FileNotFoundError(2, "No such file or directory", path)
        if isinstance(files[path], Exception):
            raise files[path]
        return files[path]

    with pytest.raises(BadKubeconfig) as caught, source.naming_source():
        source.read(read)
    return str(caught.value)


def test_a_rancher_url_with_a_path_is_a_server(tmp_path):
    access = replace(HOST, server="https://rancher.example.org/k8s/clusters/c-m-abc", insecure=True)

    assert Site(tmp_path, access).open().config.server == access.server


def test_in_a_pod_the_guest_is_the_services_account():
    files = {"ca.crt": PEM, "token": "t"}
    env = {"KUBERNETES_SERVICE_HOST": "10.43.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    access = guest_source(Options(), env).read(lambda path: files[path.rpartition("/")[2]])

    assert (access.server, access.token) == ("https://10.43.0.1:443", "")
    assert access.token_file.endswith("/token")


@pytest.mark.parametrize(
    ("options", "server"),
    [
        (Options(kubeconfig="/a"), "https://a"),
        (Options(), "https://b"),
        (Options(kubeconfig="/a", master="https://m"), "https://m"),
        (Options(master="https://m"), "https://m"),
    ],
)
def test_flags_come_before_the_environment(options, server):
    files = {name: render_kubeconfig(ClientConfig(f"https:/{name}", token="t"), "g") for name in ("/a", "/b")}

    assert guest_source(options, {"KUBECONFIG": "/b"}).read(files.__getitem__).server == server


@pytest.mark.parametrize("access", [HOST, replace(HOST, ca=PEM, certificate=PEM, key=PEM, namespace="prod")])
async def test_no_beginning_of_a_file_is_taken_while_it_is_written(tmp_path, access):
    site = Site(tmp_path, replace(access, namespace="before"))
    way = site.open()
    whole = render_kubeconfig(access, "harvester")
    for length in range(len(whole)):
        site.write(whole[:length])
        assert not await way.reload()
    site.write(whole)

    assert await look_twice(way)
    assert (way.config.token, way.config.namespace) == (access.token, access.namespace)


@pytest.mark.parametrize(
    ("access", "words"),
    [
        (replace(HOST, token=""), "no token and no client certificate"),
        (replace(HOST, ca=PEM[:-10]), "(certificate-authority) is cut off"),
        (replace(HOST, ca=PEM + PEM[:40]), "(certificate-authority) is cut off"),
        (replace(HOST, ca=PEM.replace("MA==", "MA=")), "(certificate-authority) is cut off"),
        (replace(HOST, certificate=PEM, key=PEM[:-3]), "(client-key) is cut off"),
        (
            render_kubeconfig(replace(HOST, token="second"), "x").replace("current-context: x\n", ""),
            "no current-context any more",
        ),
    ],
)
async def test_half_a_file_is_not_taken_however_long_it_stays(tmp_path, access, words):
    site = Site(tmp_path)
    way = site.open()
    site.write(access)
    looks = [await way.reload() for _ in range(5)]

    assert not any(looks)
    assert [words in line for line in site.said] == [True]
    assert way.config == HOST


async def doubt(transport, namespace):
    return f"{namespace} is not ours"


@pytest.mark.parametrize(
    "change",
    [{"server": "https://other:6443"}, {"namespace": "elsewhere"}, {"namespace": "e", "token": "second"}],
)
async def test_a_place_that_may_not_be_ours_is_not_gone_to_and_told_once(tmp_path, change):
    site = Site(tmp_path)
    way = site.open()
    way.validate = doubt
    site.write(replace(HOST, **change))
    looks = [await way.reload() for _ in range(10)]

    assert not any(looks)
    assert (way.config, site.moves, len(site.said), site.reloads("failure")) == (HOST, [], 1, 1)
    assert f"{change.get('namespace', 'default')} is not ours" in site.said[0]


async def test_a_401_uses_no_namespace_that_was_not_validated(tmp_path):
    site = Site(tmp_path)
    way = site.open()
    way.validate = doubt
    site.server.tokens.discard("first")
    site.write(replace(HOST, token="second", namespace="elsewhere"))

    assert (await way.transport.send(GET)).status == 401
    assert not await look_twice(way)


async def test_a_file_that_changes_while_it_is_validated_is_not_taken(tmp_path):
    site = Site(tmp_path)
    way = site.open()

    async def correct(transport, namespace):
        site.write(HOST)
        return ""

    way.validate = correct
    site.write(replace(HOST, namespace="elsewhere"))

    assert not await look_twice(way)
    assert (way.namespace, site.moves) == ("default", [])


async def test_a_move_tells_what_stays_behind(tmp_path):
    site = Site(tmp_path)
    way = site.open()
    site.write(replace(HOST, namespace="elsewhere"))
    await look_twice(way)

    assert "LoadBalancers that were created there are not deleted" in site.moves[0]
