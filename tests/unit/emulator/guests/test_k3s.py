"""K3s in the guests: how it is started, where its data are, who may join, what its Nodes look like."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.clock import run_driven

from windrow.core.formats.json import loads
from windrow.emulator.guest_cluster.distribution.distribution import BadSettings, Settings
from windrow.emulator.guest_cluster.distribution.k3s import K3S
from windrow.emulator.guest_cluster.distribution.settings import check_settings, read_settings
from windrow.emulator.guest_os.delays import GuestDelays
from windrow.emulator.guest_os.hardware import Disk, Hardware
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.kubernetes import requests
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import annotations_of, labels_of, name_of, nested
from windrow.kubernetes.resources import NODE, SECRET

from .k3s_fixture import FIRST, render_script, the_cluster
from .testbed import Kubectl, MachineTestbed, a_testbed, condition

UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"


def settings_of(
    role: Any, text: str = "", arguments: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> Settings:
    async def read() -> Settings:
        hardware = Hardware("default", "m", "uid", "uid", "", "", (), Disk())
        guest = GuestOS(hardware, MachineTestbed().offline_host("m"), GuestDelays(), lambda work, name: None)
        guest.write("/etc/rancher/k3s/config.yaml", text.encode())
        guest.write("/etc/k3s.yaml", b"node-name: elsewhere\n")
        settings = read_settings(guest, K3S, role, arguments, env or {})
        check_settings(guest, settings)
        return settings

    return run_driven(read())


# -- settings


@pytest.mark.parametrize(
    ("role", "text", "arguments", "words"),
    [
        ("agent", "cni: calico", (), "flag provided but not defined: -cni"),
        ("agent", "disable: traefik", (), "flag provided but not defined: -disable"),
        ("server", "", ("--cni=calico",), "flag provided but not defined: -cni"),
        ("server", "", ("--token",), "flag needs an argument: -token"),
        ("agent", "", ("--cluster-init",), "flag provided but not defined: -cluster-init"),
        ("agent", "token: x", (), "--server is required"),
        ("server", "server: https://a:6443", (), "K3S_TOKEN is required to join a cluster"),
        ("server", "flannel-backend: calico", (), "unknown flannel backend 'calico'"),
        ("server", "https-listen-port: abc", (), "invalid value"),
        ("server", "disable-etcd: true", (), "--server is required with --disable-etcd"),
        (
            "server",
            "cluster-cidr: 10.42.0.0/16, fd00:42::/56",
            (),
            "invalid cluster-cidr  fd00:42::/56: invalid CIDR address:  fd00:42::/56",
        ),
        ("server", "service-cidr: ['10.43.0.0/16 ']", (), "invalid service-cidr 10.43.0.0/16 : invalid CIDR"),
        ("server", "cluster-dns: ' 10.43.0.10'", (), "invalid cluster-dns address  10.43.0.10"),
        ("server", "disable-kube-proxy: ture", (), 'invalid boolean value "ture" for -disable-kube-proxy'),
        ("server", "protect-kernel-defaults: true", (), "invalid kernel flag"),
    ],
)
def test_settings_that_k3s_refuses(role: str, text: str, arguments: tuple[str, ...], words: str):
    with pytest.raises(BadSettings) as refusal:
        settings_of(role, text, arguments)

    assert words in str(refusal.value)


def test_a_server_skips_keys_that_are_no_flags_and_says_so():
    """`disable-local-storage` is in tutorials; K3s has it as a value of `disable`."""
    settings = settings_of("server", "cni: calico\ndisable-local-storage: true\ncluster-domain: lab\n")

    assert settings.flags == {"cluster-domain": ("lab",)}
    assert settings.warnings == (
        "Unknown flag --cni found in config.yaml, skipping",
        "Unknown flag --disable-local-storage found in config.yaml, skipping",
    )


def test_switches_take_no_value_and_short_flags_and_variables_are_read():
    settings = settings_of(
        "server",
        "tls-san: [a]\n",
        ("--cluster-init", "--disable", "traefik", "--disable=servicelb", "--tls-san", "b", "-t", "secret"),
        {"K3S_TOKEN": "other", "K3S_NODE_NAME": "named", "K3S_CONFIG_FILE": ""},
    )

    assert settings.is_true("cluster-init")
    assert settings.list("disable") == ("traefik", "servicelb")
    assert settings.list("tls-san") == ("a", "b")
    assert settings.text("token") == "secret"
    assert settings.text("node-name") == "named"
    assert settings.critical()["disable-service-lb"] == "true"


def test_the_configuration_file_may_be_named_by_a_variable():
    settings = settings_of("server", "node-name: here\n", env={"K3S_CONFIG_FILE": "/etc/k3s.yaml"})

    assert settings.text("node-name") == "elsewhere"


# -- clusters


async def are_ready(kubectl: Kubectl, *names: str) -> bool:
    try:
        return await kubectl.ready() >= set(names)
    except AssertionError:  # the supervisor answers on the port before the API does
        return False


def test_servers_and_a_worker_join_through_the_port_of_the_api():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = the_cluster()
            kubectl = Kubectl(testbed, cluster)
            testbed.power_on("one", cluster.first())
            await testbed.sleep(1)
            testbed.power_on("two", cluster.server("two"))
            testbed.power_on("three", cluster.server("three", **{"node-external-ip": "192.0.2.3"}))
            testbed.power_on("four", cluster.worker("four"))

            await testbed.wait_for(lambda: are_ready(kubectl, "one", "two", "three", "four"))
            await testbed.sleep(20)

            for name in ("one", "two", "three"):
                assert condition(await kubectl.node(name), "EtcdIsVoter") == "True"
            three, four = await kubectl.node("three"), await kubectl.node("four")
            assert annotations_of(three)["etcd.k3s.cattle.io/node-name"].startswith("three-")
            assert annotations_of(three)["k3s.io/external-ip"] == "192.0.2.3"
            assert {"type": "ExternalIP", "address": "192.0.2.3"} in nested(three, "status", "addresses")
            assert labels_of(three)["node-role.kubernetes.io/etcd"] == "true"
            assert labels_of(three)["node-role.kubernetes.io/control-plane"] == "true"
            assert four["spec"]["providerID"] == "k3s://four"
            assert labels_of(four)["node.kubernetes.io/instance-type"] == "k3s"
            assert nested(four, "status", "nodeInfo", "kubeletVersion") == "v1.35.1+k3s1"
            secrets = {name_of(raw) for raw in await kubectl.list(SECRET, "kube-system")}
            assert {f"{name}.node-password.k3s" for name in ("one", "four")} <= secrets
            assert {port for _, port in testbed.network.listeners()} == {6443, 80, 443}, "and Traefik"

            remove = {"metadata": {"annotations": {"etcd.k3s.cattle.io/remove": "true"}}}
            await kubectl.patch(NODE.ref("three"), remove)
            await testbed.sleep(5)

            removed = annotations_of(await kubectl.node("three"))["etcd.k3s.cattle.io/removed-node-name"]
            assert removed.startswith("three-")

    run_driven(scenario())


def test_the_shared_port_serves_joining_machines_before_the_api():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = the_cluster()
            testbed.power_on("one", cluster.first())
            await testbed.wait_for(lambda: testbed.network.find("10.0.0.11", 6443))
            door = testbed.network.find("10.0.0.11", 6443)
            assert door is not None
            peer = Peer(cluster.admin[0])

            assert (await door.send(requests.Request("GET", "/cacerts"), peer)).body == cluster.server_ca[
                0
            ].encode()
            assert (await door.send(requests.Request("GET", "/ping"), peer)).body == b"pong"
            early = await door.send(requests.list_(NODE), peer)
            assert early.status == 503
            assert loads(early.body)["message"] == "apiserver not ready"

            kubectl = Kubectl(testbed, cluster)
            await testbed.wait_for(lambda: door_serves(kubectl))

    async def door_serves(kubectl: Kubectl) -> bool:
        door = kubectl.testbed.network.find("10.0.0.11", 6443)
        assert door is not None
        return (await door.send(requests.list_(NODE), Peer(kubectl.cluster.admin[0]))).status == 200

    run_driven(scenario())


def test_a_single_server_keeps_its_data_in_sqlite_and_cluster_init_converts_it():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = the_cluster()
            kubectl = Kubectl(testbed, cluster)
            testbed.power_on("one", cluster.first(**{"cluster-init": False}))
            await testbed.wait_for(lambda: are_ready(kubectl, "one"))
            before = await kubectl.node("one")
            assert condition(before, "EtcdIsVoter") == ""
            assert "node-role.kubernetes.io/etcd" not in labels_of(before)

            two = testbed.power_on("two", cluster.server("two"))
            await testbed.wait_for(lambda: two.logged("starting kubernetes: preparing server: etcd disabled"))

            disk = testbed.disks["one"]
            disk.files["/etc/rancher/k3s/config.yaml"].content += b"cluster-init: true\n"
            disk.files["/etc/rancher/k3s/config.yaml"].content = disk.files[
                "/etc/rancher/k3s/config.yaml"
            ].content.replace(b"cluster-init: false\n", b"")
            await testbed.cut_power("one")
            testbed.power_on("one")
            await testbed.wait_for(lambda: are_ready(kubectl, "two"))

            after = await kubectl.node("one")
            assert after["metadata"]["uid"] == before["metadata"]["uid"]
            assert condition(after, "EtcdIsVoter") == "True"
            assert testbed.hosts["one"].logged("Migrating content from sqlite to etcd")

    run_driven(scenario())


def test_etcd_and_control_plane_may_be_apart():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = the_cluster()
            kubectl = Kubectl(testbed, cluster, "10.0.0.12")
            etcd_only = {f"disable-{one}": True for one in ("apiserver", "controller-manager", "scheduler")}
            testbed.power_on("one", cluster.first(**etcd_only))
            await testbed.sleep(1)
            testbed.power_on("two", cluster.server("two", **{"disable-etcd": True}))
            await testbed.sleep(1)
            testbed.power_on("three", cluster.worker("three"))

            await testbed.wait_for(lambda: are_ready(kubectl, "three"))
            await testbed.sleep(20)

            one, two = await kubectl.node("one"), await kubectl.node("two")
            assert "node-role.kubernetes.io/control-plane" not in labels_of(one)
            assert labels_of(one)["node-role.kubernetes.io/etcd"] == "true"
            assert condition(one, "EtcdIsVoter") == "True"
            assert "node-role.kubernetes.io/etcd" not in labels_of(two)
            door = testbed.network.find("10.0.0.11", 6443)
            assert door is not None
            reply = await door.send(requests.list_(NODE), Peer(cluster.admin[0]))
            assert (reply.status, loads(reply.body)["message"]) == (503, "apiserver disabled")

    run_driven(scenario())


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"flannel-backend": "host-gw"}, "flannel-backend (host-gw here, vxlan there)"),
        ({"disable": ["servicelb"]}, "disable-service-lb (true here, false there)"),
        ({"cluster-domain": "edge.local"}, "cluster-domain"),
        ({"agent-token": "other"}, "agent-token"),
        ({"token": "K10" + "0" * 64 + "::server:s3rver"}, "token CA hash does not match"),
    ],
)
def test_a_server_that_differs_does_not_join(more: dict[str, Any], words: str):
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = the_cluster()
            testbed.power_on("one", cluster.first())
            await testbed.sleep(1)
            two = testbed.power_on("two", cluster.server("two", **more))

            await testbed.wait_for(lambda: two.logged(words))

    run_driven(scenario())


def test_without_its_own_cloud_controller_a_node_waits_for_another():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = the_cluster()
            kubectl = Kubectl(testbed, cluster)
            external = {"kubelet-arg": ["cloud-provider=external"]}
            testbed.power_on("one", cluster.first(**{"disable-cloud-controller": True, **external}))
            await testbed.sleep(1)
            testbed.power_on("two", cluster.worker("two", **external))
            await testbed.sleep(1)
            testbed.power_on("three", cluster.worker("three"))
            await testbed.wait_for(lambda: are_ready(kubectl, "two", "three"))
            await testbed.sleep(2)

            two, three = await kubectl.node("two"), await kubectl.node("three")
            assert [one["key"] for one in two["spec"]["taints"]] == [UNINITIALIZED]
            assert nested(two, "status", "addresses") == [{"type": "Hostname", "address": "two"}]
            assert "providerID" not in three["spec"]
            assert {"type": "InternalIP", "address": "10.0.0.13"} in nested(three, "status", "addresses")

    run_driven(scenario())


# -- the install script


def test_a_cluster_by_the_quick_start_of_k3s():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            one = testbed.power_on(
                "one", render_script("one", ["curl -sfL https://get.k3s.io | sh -s - server --cluster-init"])
            )
            files = testbed.disks["one"].files
            await testbed.wait_for(lambda: "/var/lib/rancher/k3s/server/node-token" in files)
            token = files["/var/lib/rancher/k3s/server/node-token"].content.decode().strip()
            joins = "curl -sfL https://get.k3s.io |"
            testbed.power_on("two", render_script("two", [f"{joins} K3S_URL={FIRST} K3S_TOKEN={token} sh -"]))
            three = f"{joins} K3S_TOKEN={token} sh -s - server --server {FIRST}"
            testbed.power_on("three", render_script("three", [three]))

            await testbed.wait_for(lambda: one.logged("node three with cloud provider"))
            await testbed.wait_for(lambda: one.logged("node two with cloud provider"))

            environment = testbed.disks["two"].files["/etc/systemd/system/k3s-agent.service.env"]
            assert environment.mode == 0o600
            assert token in environment.content.decode()
            assert files["/usr/local/bin/k3s"].mode == 0o755
            assert "/usr/local/bin/kubectl" in files

    run_driven(scenario())


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("K3S_URL=https://10.0.0.9:6443 sh -", "K3S_TOKEN or K3S_TOKEN_FILE is not defined"),
        ("K3S_URL=http://10.0.0.9:6443 sh -s - agent", "Only https:// URLs are supported for K3S_URL"),
        ("INSTALL_K3S_VERSION=v1.35.1 sh -", "no K3s release is called 'v1.35.1'"),
        ("INSTALL_K3S_VERSION=v1.35.1+rke2r1 sh -", "no K3s release is called"),
        ("INSTALL_K3S_CHANNEL=newest sh -", "no release channel is called 'newest'"),
        ("INSTALL_K3S_SKIP_DOWNLOAD=true sh -", "Executable k3s binary not found at /usr/local/bin/k3s"),
        ("INSTALL_K3S_NAME='a b' sh -", "Invalid characters for system name: k3s-a b"),
        ("sh -s - server --cni calico", "flag provided but not defined: -cni"),
    ],
)
def test_what_the_install_script_refuses(command: str, words: str):
    async def scenario() -> None:
        async with a_testbed() as testbed:
            script = f"curl -sfL https://get.k3s.io | {command}"
            host = testbed.power_on("one", render_script("one", [script]))

            await testbed.wait_for(lambda: host.logged(words), within=120)

    run_driven(scenario())


def test_the_script_starts_nothing_when_told_so_and_a_second_run_changes_nothing():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            script = "curl -sfL https://get.k3s.io |"
            host = testbed.power_on(
                "one",
                render_script(
                    "one",
                    [
                        f"{script} INSTALL_K3S_SKIP_START=true INSTALL_K3S_EXEC='server --disable traefik' sh -",
                        "systemctl is-active k3s || echo not started",
                        "systemctl is-enabled k3s && echo enabled",
                        f"{script} INSTALL_K3S_EXEC='server --disable traefik' sh -",
                    ],
                ),
            )
            await testbed.wait_for(lambda: host.logged("No change detected so skipping service start"))

            assert host.logged("not started")
            assert host.logged("enabled")
            unit = testbed.disks["one"].files["/etc/systemd/system/k3s.service"].content.decode()
            assert "Type=notify" in unit
            assert "ExecStart=/usr/local/bin/k3s server --disable traefik" in unit

    run_driven(scenario())


def test_an_air_gapped_machine_installs_a_binary_that_is_in_place():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            release = "https://github.com/k3s-io/k3s/releases/download/v1.34.3%2Bk3s1"
            host = testbed.power_on(
                "one",
                render_script(
                    "one",
                    [
                        f"curl -sfLo /usr/local/bin/k3s {release}/k3s",
                        "chmod 755 /usr/local/bin/k3s",
                        f"curl -sfLo /tmp/sums {release}/sha256sum-amd64.txt",
                        'test "$(sha256sum /usr/local/bin/k3s | cut -d" " -f1)" = "$(cut -d" " -f1 /tmp/sums)" && echo same',
                        "curl -sfL https://get.k3s.io -o install.sh",
                        "INSTALL_K3S_SKIP_DOWNLOAD=true INSTALL_K3S_EXEC=server sh install.sh",
                    ],
                ),
            )
            await testbed.wait_for(lambda: host.logged("Kube API server is now running"))

            assert host.logged("same")
            assert host.logged("Starting k3s server v1.34.3+k3s1")

    run_driven(scenario())


# -- data on the disk


def test_the_data_are_encrypted_with_the_token_and_another_one_ends_the_start():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = the_cluster()
            kubectl = Kubectl(testbed, cluster)
            host = testbed.power_on("one", cluster.first())
            await testbed.wait_for(lambda: are_ready(kubectl, "one"))
            arguments = annotations_of(await kubectl.node("one"))["k3s.io/node-args"]
            assert arguments.startswith('["server",')
            assert cluster.server_password not in arguments

            file = testbed.disks["one"].files["/etc/rancher/k3s/config.yaml"]
            file.content = file.content.replace(b"s3rver", b"forgotten")
            await testbed.cut_power("one")
            testbed.power_on("one")

            await testbed.wait_for(lambda: host.logged("already found and encrypted with different token"))

    run_driven(scenario())


def test_the_uninstall_script_leaves_a_machine_that_starts_anew():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            install = "curl -sfL https://get.k3s.io | sh -s - server --cluster-init --disable traefik"
            uninstall = "/usr/local/bin/k3s-uninstall.sh"
            commands = [
                install,
                uninstall,
                "test -x /usr/local/bin/k3s || echo gone",
                install,
                "kubectl get cm -A",
            ]
            host = testbed.power_on("one", render_script("one", commands))
            await testbed.wait_for(lambda: host.logged("cloud-init: finished"))

            assert host.logged("gone")
            assert sum("Managed etcd cluster initializing" in line for line in host.lines) == 2

    run_driven(scenario())


def test_the_script_with_a_newer_version_restarts_the_service_with_its_data():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            script = "curl -sfL https://get.k3s.io |"
            flags = "sh -s - server --cluster-init --disable traefik"
            commands = [
                f"{script} INSTALL_K3S_CHANNEL=v1.33 {flags}",
                f"{script} INSTALL_K3S_VERSION=v1.34.3+k3s1 {flags}",
                "until kubectl get node one; do sleep 2; done",
                "kubectl version",
            ]
            host = testbed.power_on("one", render_script("one", commands))
            await testbed.wait_for(lambda: host.logged("cloud-init: finished"))

            assert host.logged("Starting k3s server v1.33.")
            assert host.logged("Server Version: v1.34.3+k3s1")
            assert sum("Managed etcd cluster initializing" in line for line in host.lines) == 1

    run_driven(scenario())


def test_a_server_without_an_agent_has_no_node():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = the_cluster()
            kubectl = Kubectl(testbed, cluster)
            testbed.power_on("one", cluster.first(**{"disable-agent": True}))
            await testbed.sleep(1)
            testbed.power_on("two", cluster.worker("two"))
            await testbed.wait_for(lambda: are_ready(kubectl, "two"))

            assert {name_of(raw) for raw in await kubectl.list(NODE)} == {"two"}

    run_driven(scenario())


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("curl -sfL https://get.k3s.io | sh -s server --cluster-init", ("server", "--cluster-init")),
        ("wget -qO- https://get.k3s.io | sh -s - --disable=traefik", ("server", "--disable=traefik")),
        (
            "curl -sfL https://rancher-mirror.rancher.cn/k3s/k3s-install.sh | INSTALL_K3S_MIRROR=cn sh -",
            ("server",),
        ),
        (
            "export INSTALL_K3S_EXEC='server --tls-san a'; curl -sfL https://get.k3s.io | sh -s - --tls-san b",
            ("server", "--tls-san", "a", "--tls-san", "b"),
        ),
        ("curl -sfL https://get.k3s.io -o i.sh && chmod +x i.sh && sh ./i.sh server", ("server",)),
    ],
)
def test_the_ways_in_which_tutorials_call_the_script(command: str, words: tuple[str, ...]):
    async def scenario() -> None:
        async with a_testbed() as testbed:
            host = testbed.power_on("one", render_script("one", [command]))
            await testbed.wait_for(lambda: host.logged("Starting k3s server"), within=120)

            unit = testbed.disks["one"].files["/etc/systemd/system/k3s.service"].content.decode()
            assert f"ExecStart=/usr/local/bin/k3s {' '.join(words)}\n" in unit

    run_driven(scenario())
