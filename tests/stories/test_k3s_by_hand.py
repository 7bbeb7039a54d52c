"""Clusters made by hand on Harvester, as Harvester's documentation has it: machines whose user data holds what `windrow addon`
prints. K3s by its install script and HelmCharts among the manifests, RKE2 by its own key for the cloud provider."""

from __future__ import annotations

import posixpath
from datetime import timedelta

import pytest
from tests.support.clock import run_driven

from windrow.app.addon.account import AddonAccount
from windrow.app.addon.output import Target, render_output
from windrow.app.addon.run import grant
from windrow.app.guest_programs import guest_programs
from windrow.client.client import Client
from windrow.client.in_process import InProcessTransport
from windrow.core.formats.yaml import dump, dump_all, load
from windrow.emulator.guest_os.machine import machine_factory
from windrow.emulator.harvester import Harvester
from windrow.kubernetes.kubeconfig import parse_kubeconfig
from windrow.kubernetes.objects import Raw, nested, new_object
from windrow.kubernetes.resources import DEPLOYMENT, SECRET, SERVICE, ApiResource

from .harvester_rig import a_harvester, boot

HELM_CHART = ApiResource("helm.cattle.io", "v1", "HelmChart", "helmcharts")
RKE2 = "/var/lib/rancher/rke2"
RKE2_CONFIG = f"{RKE2}/etc/config-files/cloud-provider-config"
K3S = "/var/lib/rancher/k3s"
INSTALL = "curl -sfL https://get.k3s.io | K3S_TOKEN=s3cret sh -s -"
EXTERNAL = "--kubelet-arg=cloud-provider=external"
SERVER = f"server --disable servicelb,traefik,local-storage --disable-cloud-controller {EXTERNAL}"


async def run_addon(
    harvester: Harvester, name: str, target: Target, *, cluster_wide: bool = False
) -> list[Raw]:
    """`windrow addon NAME default --TARGET` as Harvester's administrator: the entries of its user data."""
    access = parse_kubeconfig(harvester.admin_kubeconfig())
    client = Client(InProcessTransport(access, harvester.network.find, harvester.clock.base))
    account = AddonAccount(name, "default", cluster_wide=cluster_wide)
    granted = await grant(client, account, harvester.clock.base, "local", lambda action: None)
    text = render_output(granted.kubeconfig, target)
    _, _, user_data = text.partition("########## cloud-init user data ############\n")
    return list(load(user_data)["write_files"])


def a_document(hostname: str, commands: list[str], files: dict[str, str], addon: list[Raw]) -> str:
    entries = [{"path": path, "content": text, "permissions": "0600"} for path, text in files.items()]
    entries += addon
    return "#cloud-config\n" + dump(
        {
            "hostname": hostname,
            "packages": ["qemu-guest-agent"],
            "write_files": entries,
            "runcmd": ["systemctl enable --now qemu-guest-agent", *commands],
        }
    )


def charts() -> str:
    values = {"global": {"cattle": {"clusterName": "mine"}}}
    found = [
        new_object(
            HELM_CHART,
            name,
            "kube-system",
            spec={
                "targetNamespace": "kube-system",
                "bootstrap": name == "harvester-cloud-provider",
                "repo": "https://charts.harvesterhci.io/",
                "chart": name,
                "version": version,
                "helmVersion": "v3",
                "valuesContent": dump(chart_values),
            },
        )
        for name, version, chart_values in (
            ("harvester-cloud-provider", "0.2.12", values),
            ("harvester-csi-driver", "0.1.25", {"cloudConfig": {"hostPath": posixpath.dirname(RKE2_CONFIG)}}),
        )
    ]
    return dump_all(found)


def a_web_service() -> str:
    labels = {"app": "web"}
    pod: Raw = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "nginx"}]}}
    return dump_all(
        [
            new_object(
                DEPLOYMENT, "web", "default", spec={"selector": {"matchLabels": labels}, "template": pod}
            ),
            new_object(
                SERVICE,
                "web",
                "default",
                annotations={"cloudprovider.harvesterhci.io/ipam": "dhcp"},
                spec={"type": "LoadBalancer", "selector": labels, "ports": [{"port": 80}]},
            ),
        ]
    )


def console(harvester: Harvester, name: str) -> str:
    return "\n".join(harvester.console("default", name))


async def start(harvester: Harvester, name: str, user_data: str) -> str:
    """Boot a machine as Harvester's UI makes one, with its user data in a Secret; its address."""
    secret = {"metadata": {"name": f"{name}-init"}, "stringData": {"userdata": user_data}}
    await harvester.api.local().create(SECRET, secret, "default")
    vmi = await boot(harvester, name=name, secret=f"{name}-init")
    return str(nested(vmi, "status", "interfaces", 0, "ipAddress"))


async def until(harvester: Harvester, name: str, words: str) -> None:
    clock = harvester.clock.base
    end = clock.now() + timedelta(minutes=10)
    while words not in console(harvester, name):
        assert clock.now() < end, f"{words!r} is not on the console:\n{console(harvester, name)}"
        await clock.sleep_until(clock.now() + timedelta(seconds=1))


def k3s_server(addon: list[Raw]) -> str:
    """The user data of machine `one`, which shows on its console what became of the cluster."""
    manifests = {f"{K3S}/server/manifests/harvester.yaml": charts(), "/root/web.yaml": a_web_service()}
    look = "sudo k3s kubectl get nodes -o"
    commands = [
        f"{INSTALL} {SERVER} --cluster-init",
        "kubectl apply -f /root/web.yaml",
        "until kubectl get node two; do sleep 5; done",
        "kubectl wait --for=condition=Ready node/one node/two --timeout=300s",
        "sleep 10",
        f"{look} yaml | grep -E 'providerID|InternalIP'",
        f"{look} wide",
        "kubectl get storageclasses",
        "kubectl get svc web -o yaml | grep -E ' ip: '",
    ]
    return a_document("one", commands, manifests, addon)


def k3s_agent(addon: list[Raw], server: str) -> str:
    """The user data of machine `two`, which joins through the address of `one`."""
    command = (
        f"curl -sfL https://get.k3s.io | K3S_URL=https://{server}:6443 K3S_TOKEN=s3cret sh -s - {EXTERNAL}"
    )
    return a_document("two", [command], {}, addon)


def require_cloud_provider(shown: str) -> None:
    """What the console of `one` must show in the end."""
    assert shown.count("providerID: harvester://") == 2
    assert "one   Ready   control-plane,etcd,master   v1.34.3+k3s1" in shown
    assert "node/two condition met" in shown
    assert "two   Ready   <none>   v1.34.3+k3s1" in shown
    assert "cloud-init: harvester\n" in shown, "the StorageClass of the CSI driver"
    assert "local-path" not in shown
    assert "ip: 192.168.50." in shown, "the address of the load balancer"
    assert "not simulated: kubectl" not in shown


def test_a_k3s_cluster_by_hand_gets_harvesters_cloud_provider_by_helm_charts():
    async def story() -> None:
        async with a_harvester(machine=machine_factory(guest_programs())) as harvester:
            addon = await run_addon(harvester, "mine", "k3s")
            address = await start(harvester, "one", k3s_server(addon))
            await start(harvester, "two", k3s_agent(addon, address))

            await until(harvester, "one", "cloud-init: finished")

            require_cloud_provider(console(harvester, "one"))

    run_driven(story())


@pytest.mark.long
def test_an_rke2_cluster_by_hand_gets_its_bundled_cloud_provider():
    config = dump(
        {"cloud-provider-name": "harvester", "cloud-provider-config": RKE2_CONFIG, "token": "s3cret"}
    )

    async def story() -> None:
        async with a_harvester(machine=machine_factory(guest_programs())) as harvester:
            addon = await run_addon(harvester, "mine", "rke2")
            commands = ["curl -sfL https://get.rke2.io | sh -", "systemctl enable --now rke2-server.service"]
            files = {
                "/etc/rancher/rke2/config.yaml": config,
                f"{RKE2}/server/manifests/web.yaml": a_web_service(),
            }
            await start(harvester, "one", a_document("one", commands, files, addon))

            await until(harvester, "one", "taint node.cloudprovider.kubernetes.io/uninitialized removed")
            await until(harvester, "one", 'is in use service="default/web"')

    run_driven(story())
