"""A guest cluster, a Harvester of objects that nothing acts on, and the whole program between them."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from tests.support.clock import NOON, LoopClock, run_driven
from tests.support.cloud_provider import run

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.client.in_process import InProcessTransport
from windrow.core import pki
from windrow.core.clock import format_time
from windrow.core.formats.json import dumps
from windrow.core.logs import line_logger
from windrow.core.rng import Rng
from windrow.kubernetes.handler import TlsIdentity
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.requests import Reply
from windrow.kubernetes.resources import EVENT, LEASE, NAMESPACE, NODE, SERVICE, ApiResource

VM = ApiResource("kubevirt.io", "v1", "VirtualMachine", "virtualmachines")
VMI = ApiResource("kubevirt.io", "v1", "VirtualMachineInstance", "virtualmachineinstances")
BALANCER = ApiResource("loadbalancer.harvesterhci.io", "v1beta1", "LoadBalancer", "loadbalancers")
UNINITIALISED = "node.cloudprovider.kubernetes.io/uninitialized"
SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown"
ZONE = "topology.kubernetes.io/zone"
ZONE_BETA = "failure-domain.beta.kubernetes.io/zone"
REGION_BETA = "failure-domain.beta.kubernetes.io/region"
LEASE_REF = LEASE.ref("cloud-controller-manager", "kube-system")
CA = pki.new_ca("both", NOON, 10)
CHAIN, KEY = pki.issue_certificate(
    *CA,
    common_name="server",
    server=True,
    ips=["10.0.0.1", "10.0.0.2"],
    now=NOON,
    lifetime=timedelta(days=10),
)


def definition(kind):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.group_resource},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()},
            "versions": [
                {
                    "name": kind.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


class Rig:
    """Harvester at 10.0.0.1, the guest cluster at 10.0.0.2, and the program between them."""

    def __init__(self, may=None):
        self.clock = LoopClock()
        self.lines = []
        self.doors = {}
        self.requests = []
        self.hostnames = {}
        self.host = self._server("10.0.0.1", "harvester-token")
        self.guest = self._server("10.0.0.2", "guest-token", may)
        for kind in (VM, VMI, BALANCER):
            self.host.install_crd(definition(kind))
        actions = "virtualmachineinstances.subresources.kubevirt.io"
        self.host.subresource_handlers[(actions, "guestosinfo")] = self._guest_os_info
        self.harvester, self.cluster = self.host.local(), self.guest.local()
        self.files = {
            "/cloud-config": render_kubeconfig(self.access("10.0.0.1", "harvester-token"), "harvester"),
            "/guest": render_kubeconfig(self.access("10.0.0.2", "guest-token"), "guest"),
        }
        self.programs = []
        # What stands between the program and a server.
        self.wrap = lambda transport: transport
        # Files of which a mount shows what was there before.
        self.replaced = set()

    def _server(self, address, token, may=None):
        tls = TlsIdentity(CHAIN, KEY)
        server = ApiServer(MemoryStore(), self.clock, Rng(address), name=address, tls=tls, authorize=may)
        server.tokens[token] = ("program", (), None)
        self.doors[address] = server
        return server

    def access(self, address, token):
        return ClientConfig(f"https://{address}:6443", ca=CA[0], token=token, namespace="default")

    async def _guest_os_info(self, request, ref, caller):
        self.requests.append(request)
        return Reply(200, dumps({"hostname": self.hostnames.get(ref.name, "")}))

    def find(self, host, port):
        return self.doors.get(host)

    def start(self, *more, write=None, metrics=None):
        argv = ["--cloud-config=/cloud-config", "--cluster-name=demo", *more]
        env = {"KUBECONFIG": "/guest", "HOSTNAME": f"pod-{len(self.programs)}"}
        dial = lambda access: self.wrap(InProcessTransport(access, self.find, self.clock))  # noqa: E731
        rng = Rng(len(self.programs))
        program = run(
            argv,
            env,
            self.read,
            dial,
            self.clock,
            rng,
            line_logger("harvester-cloud-provider", write or self.lines.append),
            metrics=metrics,
            is_replaced=self.replaced.__contains__,
        )
        self.programs.append(asyncio.create_task(program))
        return self.programs[-1]

    def read(self, path):
        if path not in self.files:
            raise FileNotFoundError(path)
        return self.files[path]

    def another_harvester(self):
        """A new one, with the same credential."""
        other = ApiServer(MemoryStore(), self.clock, Rng("other"), name="other", tls=TlsIdentity(CHAIN, KEY))
        other.tokens.update(self.host.tokens)
        for kind in (VM, VMI, BALANCER):
            other.install_crd(definition(kind))
        return other

    async def stop(self):
        for program in self.programs:
            program.cancel()
        await asyncio.gather(*self.programs, return_exceptions=True)

    def write(self, path, text):
        if text is None:
            del self.files[path]
        else:
            self.files[path] = text

    def renew(self, token, namespace="default"):
        """Harvester knows another token, and the cloud config holds it."""
        self.host.tokens[token] = ("program", (), None)
        access = replace(self.access("10.0.0.1", token), namespace=namespace)
        self.write("/cloud-config", render_kubeconfig(access, "harvester"))

    def said(self, words):
        return [line for line in self.lines if words in line]

    def count(self):
        """From now on, requests are in `counted`."""
        self.counted = []
        for door in (self.host, self.guest):
            _count(door, self.counted)

    # --- the host side ------------------------------------------------------------------------------------------------

    async def make_vm(self, name, *addresses, cluster="demo", zone="z1", namespace="default", uuid=""):
        labels = {"guestcluster.harvesterhci.io/name": cluster} if cluster else None
        vm = await self.harvester.create(VM, new_object(VM, name, namespace, labels=labels, spec={}))
        vmi = new_object(
            VMI,
            name,
            namespace,
            labels=labels,
            annotations={ZONE: zone, "topology.kubernetes.io/region": "r1"},
            spec={
                "networks": [{"name": "nic-1", "multus": {"networkName": "default/vlan1"}}],
                "domain": {"firmware": {"uuid": uuid}} if uuid else {},
            },
            status={"phase": "Running", "conditions": [{"type": "AgentConnected", "status": "True"}]},
        )
        await self.harvester.create(VMI, vmi)
        if addresses:
            await self.report(name, *addresses, namespace=namespace)
        return vm["metadata"]["uid"]

    async def report(self, name, *addresses, namespace="default"):
        interface = {"name": "nic-1", "interfaceName": "enp1s0", "ipAddresses": list(addresses)}
        await self.harvester.patch(VMI.ref(name, namespace), {"status": {"interfaces": [interface]}})

    async def set_topology(self, name, *, zone, region="r1"):
        """What Harvester writes on the instance; None where its host has none."""
        annotations = {ZONE: zone, "topology.kubernetes.io/region": region}
        await self.harvester.patch(VMI.ref(name, "default"), {"metadata": {"annotations": annotations}})

    async def lose_vm(self, name):
        for kind in (VMI, VM):
            await self.harvester.delete(kind.ref(name, "default"))

    # --- the guest side -----------------------------------------------------------------------------------------------

    async def join(self, name, address="", *, ready=True, uuid=""):
        annotations = {"alpha.kubernetes.io/provided-node-ip": address} if address else None
        taint = {"key": UNINITIALISED, "value": "true", "effect": "NoSchedule"}
        node = new_object(NODE, name, annotations=annotations, spec={"taints": [taint]})
        await self.cluster.create(NODE, node)
        if uuid:
            await self.cluster.patch(NODE.ref(name), {"status": {"nodeInfo": {"systemUUID": uuid}}}, "status")
        await self.be_ready(name, ready)

    async def be_ready(self, name, ready=True, *, heard=False):
        """`heard`: its kubelet says when it was alive, namely now."""
        condition = {"type": "Ready", "status": "True" if ready else "Unknown"}
        if heard:
            condition["lastHeartbeatTime"] = format_time(self.clock.now())
        await self.cluster.patch(NODE.ref(name), {"status": {"conditions": [condition]}}, "status")

    async def node(self, name):
        return await self.cluster.get(NODE.ref(name))

    async def labels(self, name):
        return (await self.node(name))["metadata"].get("labels") or {}

    async def addresses(self, name):
        found = (await self.node(name))["status"].get("addresses") or ()
        return [f"{one['type']} {one['address']}" for one in found]

    async def taints(self, name):
        return [taint["key"] for taint in (await self.node(name))["spec"].get("taints") or ()]

    async def events(self):
        return [(raw["involvedObject"]["name"], raw["reason"]) for raw in await self.cluster.list(EVENT)]


def run_story(story, may=None):
    """Run `story(world)`; in the guest cluster the program may do what `may` allows."""

    async def whole():
        world = Rig(may)
        try:
            return await story(world)
        finally:
            await world.stop()

    return run_driven(whole())


async def settled(world, *names):
    """Nodes that are initialised and Ready."""
    for number, name in enumerate(names):
        await world.make_vm(name, f"192.168.1.{number}")
        await world.join(name, f"192.168.1.{number}")
    world.start()
    await asyncio.sleep(30)


class Slipped:
    """A cluster with a node and a service, whose cloud config comes to name another namespace."""

    def __init__(self, world):
        self.world = world

    async def settle(self):
        world = self.world
        await world.harvester.create(NAMESPACE, new_object(NAMESPACE, "other"))
        await world.cluster.create(
            SERVICE, new_object(SERVICE, "kubernetes", "default", spec={"ports": [{"port": 443}]})
        )
        spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
        await world.cluster.create(SERVICE, new_object(SERVICE, "web", "default", spec=spec))
        await settled(world, "n1")
        (made,) = await world.harvester.list(BALANCER)
        given = {"status": {"allocatedAddress": {"ip": "10.1.0.1", "ipPool": "p"}}}
        await world.harvester.patch(BALANCER.ref(made["metadata"]["name"], "default"), given)
        await asyncio.sleep(5)

    async def places(self):
        return [raw["metadata"]["namespace"] for raw in await self.world.harvester.list(BALANCER)]

    async def announced(self):
        raw = await self.world.cluster.get(SERVICE.ref("web", "default"))
        return raw["metadata"]["annotations"].get("kube-vip.io/loadbalancerIPs")


def _count(door, counted):
    send = door.send

    async def counting(request, peer):
        counted.append(request)
        return await send(request, peer)

    door.send = counting
