"""A Harvester cluster in one process: its API, its control plane, its hosts, its rack.

    harvester = Harvester(clock, chance, machine_factory=...)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(harvester.run())
        await harvester.ready.wait()
        await harvester.stock(images=["default/ubuntu"], networks=["default/vlan50"])

In-process clients go through `rack` (the VIP's door, faults included) or, as the cluster's own hand, `api.local()`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from windrow.apiserver.calls import Caller, Target
from windrow.apiserver.server import ApiServer
from windrow.apiserver.store import Store
from windrow.apiserver.stores.memory import MemoryStore
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.emulator import definitions, kinds, names
from windrow.emulator.admission.webhooks import Webhooks
from windrow.emulator.controller import Controller, Reconcile
from windrow.emulator.credentials import Credentials
from windrow.emulator.delays import Delays, Pace
from windrow.emulator.faults import Faults, FaultyDoor
from windrow.emulator.hand import Hand
from windrow.emulator.hosts import Hosts, HostSpec, default_hosts, render_node
from windrow.emulator.images import Images
from windrow.emulator.key_pairs import KeyPairs
from windrow.emulator.load_balancers.controllers import LoadBalancerControllers
from windrow.emulator.mirror import Mirror
from windrow.emulator.networks import Segments
from windrow.emulator.power import MachineFactory, Power
from windrow.emulator.rack import Rack
from windrow.emulator.recorder import Recorder
from windrow.emulator.stock import Image, KeyPair, Lans, Network, render_stock
from windrow.emulator.system import render_storage_class, system_objects
from windrow.emulator.vms.instances.context import InstanceContext
from windrow.emulator.vms.instances.controller import InstanceController
from windrow.emulator.vms.instances.launcher_pods import LauncherPods
from windrow.emulator.vms.instances.migrations import MigrationController
from windrow.emulator.vms.readings import claims_of, phase_of
from windrow.emulator.vms.subresources import VmSubresources
from windrow.emulator.vms.virtual_machines import VM_FINALIZERS, VmController
from windrow.emulator.volumes import Volumes
from windrow.emulator.world import FOLLOWED, Key, World, claims_held, claims_in, key_of, macs_in
from windrow.kubernetes.objects import Raw, namespace_of, nested, new_object, uid_of
from windrow.kubernetes.resources import NODE, STORAGE_CLASS, ApiResource

VERSION = "v1.8.2"
VIP = "192.168.100.10"
PORT = 6443
NOTES = 1000  # of what went wrong inside the control plane, the last are kept
AGENT = ("system:serviceaccount:harvester-system:harvester", ("system:masters",))


class Harvester:
    """One simulated Harvester cluster. Nothing happens before `run`; `ready` is set once it answers sensibly."""

    def __init__(
        self,
        clock: Clock,
        rng: Rng,
        *,
        machine_factory: MachineFactory,
        speed: float = 1.0,
        version: str = VERSION,
        delays: Delays | None = None,
        faults: Faults | None = None,
        hosts: Iterable[HostSpec] | None = None,
        vip: str = VIP,
        store: Store | None = None,
    ) -> None:
        self.version, self.vip = version, vip
        self.faults = faults or Faults()
        self.rack = Rack()
        self.ready = asyncio.Event()
        self.log: deque[str] = deque(maxlen=NOTES)
        self.delays = delays or Delays()
        self.pace = Pace(clock, speed)
        self._rng = rng
        self._host_specs = tuple(default_hosts() if hosts is None else hosts)
        self._lans = Lans()
        self.api = ApiServer(store or MemoryStore(), clock, rng, name="harvester", authorize="rbac")
        self.credentials = Credentials(clock, vip, lambda: self.api.tokens)
        self.api.tls = self.credentials.identity
        self.api.root_ca = self.credentials.server_ca.certificate
        for raw in definitions.crds():
            self.api.install_crd(raw)
        self.door = FaultyDoor(self.api, self.faults, self.pace, rng)
        self.rack.open(vip, PORT, self.door)
        self._hand = Hand(self.api.local(*AGENT))
        self._mirrors = {name: Mirror(self._hand, kind) for name, kind in FOLLOWED}
        self.world = World(
            **self._mirrors,
            by_claim=self._mirrors["vms"].index(claims_in),
            by_mac=self._mirrors["vms"].index(macs_in),
            users=self._mirrors["instances"].index(claims_held),
        )
        self.segments = Segments(self._mirrors["networks"], self._is_wanted, self._is_reserved)
        self.power = Power(machine_factory, self.pace, rng, self.rack, self.segments, self.faults)
        self.hosts = Hosts(self._hand, self.pace, self.delays)
        self.balancers = LoadBalancerControllers(
            self._hand,
            self.world,
            self._mirrors["instances"],
            self.rack,
            self.segments,
            self.pace,
            self.delays,
            version,
            self.log.append,
        )
        self._controllers = self._make_controllers()
        self.api.admission.append(Webhooks(self.world, rng, self._may_read).admit)
        self.api.admission.append(self.balancers.admit)
        self.api.actions.update(VmSubresources(self._hand, self.power).handlers())
        self.api.action_versions[kinds.VM_ORDERS.group] = ("v1", "v1alpha3")

    # --- use ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Everything the cluster does, until cancelled."""
        await self._install()
        async with asyncio.TaskGroup() as tasks:
            for work in (self.api.run, self.power.run, *(mirror.run for mirror in self._mirrors.values())):
                tasks.create_task(work())
            for mirror in self._mirrors.values():
                await mirror.synced.wait()
            for controller in self._controllers.values():
                tasks.create_task(controller.run(), name=f"controller {controller.name}")
            self.ready.set()
            tasks.create_task(self.balancers.run(), name="load balancers")

    async def stock(
        self,
        *,
        images: Iterable[Image | str] = (),
        networks: Iterable[Network | str] = (),
        namespaces: Iterable[str] = (),
        storage_classes: Iterable[str] = (),
        key_pairs: Iterable[KeyPair | str] = (),
    ) -> None:
        """Put these on the shelves. What is there already stays as it is. Returns when images that are meant to be
        there already can be used."""
        await self.ready.wait()
        for name in storage_classes:
            await self._hand.ensure(STORAGE_CLASS, render_storage_class(name))
        wanted = render_stock(
            images=images, networks=networks, namespaces=namespaces, key_pairs=key_pairs, lans=self._lans
        )
        for kind, raw in wanted:
            await self._hand.ensure(kind, raw)
        for kind, raw in wanted:
            if (
                kind == kinds.IMAGE
                and raw["metadata"]["annotations"].get("emulator.windrow.io/import") == "done"
            ):
                await self._settled(
                    "images", key_of(raw), lambda found: nested(found, "status", "progress") == 100
                )
            if kind == kinds.KEY_PAIR:
                await self._settled(
                    "key_pairs", key_of(raw), lambda found: bool(nested(found, "status", "conditions"))
                )

    def admin_kubeconfig(self, server: str = "", proxy_url: str = "") -> str:
        """The administrator's kubeconfig; `server` is the VIP unless said otherwise."""
        return self.credentials.admin_kubeconfig(server or self.url, proxy_url)

    def token_kubeconfig(self, token: str, server: str = "", proxy_url: str = "") -> str:
        return self.credentials.token_kubeconfig(token, server or self.url, proxy_url)

    def new_token(self, expires: datetime | None = None) -> str:
        """An administrator's bearer token, as Rancher hands out; `credentials.revoke` ends it."""
        return self.credentials.new_token(expires=expires)

    @property
    def url(self) -> str:
        """The API's address inside the rack."""
        return f"https://{self.vip}:{PORT}"

    def console(self, namespace: str, name: str) -> list[str]:
        """What the machine printed on its serial console, the last lines of all its boots."""
        return self.power.consoles.read(namespace, name)

    def silence_agent(self, namespace: str, name: str, seconds: float) -> None:
        """The machine's guest agent is not heard for a while; its addresses vanish meanwhile."""
        vmi = self.world.instances.get((namespace, name))
        if vmi is not None:
            self.power.silence(uid_of(vmi), seconds)

    def change_lease(self, namespace: str, name: str) -> None:
        """The machine's leases end: the next time it asks, DHCP gives it other addresses."""
        vm = self.world.vms.get((namespace, name))
        macs = [mac for _, mac in macs_in(vm)] if vm is not None else []
        for mac in (*macs, *self.power.made_by((namespace, name))):
            for server in self.segments.servers().values():
                server.forget(mac)

    async def set_quota(self, namespace: str, **hard: str) -> None:
        """Give the namespace a Rancher quota, such as `limits_cpu="4"`; replaces the one there."""
        limits = {name.replace("_", ".", 1): text for name, text in hard.items()}
        raw = new_object(kinds.QUOTA, "default-quota", namespace, labels={names.DEFAULT_QUOTA: "true"})
        await self._hand.ensure(kinds.QUOTA, raw)
        ref = kinds.QUOTA.ref("default-quota", namespace)
        await self._hand.change(ref, lambda found: found.update(spec={"hard": limits}))

    def lose_host(self, name: str) -> None:
        """The host loses power, and every machine on it. May be repeated."""
        self.hosts.lose(name)

    def return_host(self, name: str) -> None:
        """The host is back. May be repeated."""
        self.hosts.restore(name)

    # --- composition --------------------------------------------------------------------------------------------

    async def _install(self) -> None:
        for kind, raw in system_objects(self.version, self.vip):
            await self._hand.ensure(kind, raw)
        deployed = {"phase": "Deployed", "observedKubeVirtVersion": "1.7.0"}
        kubevirt = kinds.KUBEVIRT.ref("kubevirt", names.SYSTEM_NAMESPACE)
        await self._hand.change(kubevirt, lambda raw: raw.update(status=deployed), "status")
        for host in self._host_specs:
            await self._hand.ensure(NODE, render_node(host, self.pace.now()))

    async def _settled(self, name: str, key: Key, holds: Callable[[Raw], bool]) -> None:
        kind = {"images": kinds.IMAGE, "key_pairs": kinds.KEY_PAIR}[name]
        ref = kind.ref(key[1], key[0])
        while not holds(await self._hand.get(ref)):
            await self.pace.pause(0.05)

    def _is_wanted(self, mac: str) -> bool:
        """Whether some VM still has the address; leases of others may be taken back."""
        return ("", mac) in self.world.by_mac or self.power.knows(mac)

    def _is_reserved(self, address: str) -> bool:
        """Whether an IPPool has the address: who makes a pool takes its range out of his DHCP server's."""
        return self.balancers.is_in_pool(address)

    async def _may_read(self, caller: Caller, kind: ApiResource, key: Key) -> bool:
        target = Target(kind.path(*key), kind.group, kind.version, kind.plural, key[0], key[1])
        return await self.api.allows(caller, "get", target)

    def _make_controllers(self) -> dict[str, Controller]:
        hand, pace, delays = self._hand, self.pace, self.delays
        recorder = Recorder(hand, pace.clock, self._rng)
        room = self.balancers
        machines = VmController(
            hand,
            self.world,
            pace,
            delays,
            self._rng,
            recorder,
            room.on_vm_removed,
            tuple(
                one for one in VM_FINALIZERS if room.deletes_with_guest_cluster or one != names.LB_FINALIZER
            ),
        )
        control = InstanceContext(
            hand,
            self.world,
            pace,
            delays,
            self._rng,
            recorder,
            self.hosts,
            self.power,
            LauncherPods(hand),
        )
        instances = self._instances = InstanceController(control)
        reconciles: dict[str, Reconcile] = {
            "vms": machines.reconcile,
            "instances": instances.reconcile,
            "claims": Volumes(hand, self.world, pace, delays, self.power.shred).reconcile,
            "images": Images(hand, pace, delays).reconcile,
            "nodes": self.hosts.reconcile,
            "key_pairs": KeyPairs(hand, pace.clock).reconcile,
            "migrations": MigrationController(hand, pace, delays, recorder, instances).reconcile,
        }
        self._mirrors["key_pairs"] = Mirror(hand, kinds.KEY_PAIR)
        self._mirrors["migrations"] = Mirror(hand, kinds.MIGRATION)
        made = {
            name: Controller(name, reconcile, pace.clock, self.log.append)
            for name, reconcile in reconciles.items()
        }
        for name, controller in made.items():
            self._mirrors[name].listen(lambda raw, add=controller.add: add(key_of(raw)))  # type: ignore[misc]
        self._connect(made)
        return made

    def _connect(self, made: dict[str, Controller]) -> None:
        """Which change of one kind is news for another."""
        instances, vms, claims = made["instances"], made["vms"], made["claims"]
        migrations = made["migrations"]
        self.power.news = instances.add

        def instance_changed(vmi: Raw) -> None:
            vms.add(key_of(vmi))
            for key in self._mirrors["migrations"]:
                migrations.add(key)
            for claim in claims_of(vmi.get("spec") or {}):
                claims.add((namespace_of(vmi), claim))
            if phase_of(vmi) in ("Succeeded", "Failed") or nested(vmi, "metadata", "deletionTimestamp"):
                waiting_instances(vmi)  # its host has room again

        def waiting_instances(_: Any) -> None:
            for key in self._instances.waiting:
                instances.add(key)

        def claim_changed(claim: Raw) -> None:
            for key in self.world.by_claim.get(key_of(claim), ()):
                instances.add(key)
                vms.add(key)

        def image_changed(image: Raw) -> None:
            for key, claim in self.world.claims.items():
                if nested(claim, "status", "phase") != "Bound":
                    claims.add(key)
            for key, vm in self.world.vms.items():
                if not nested(vm, "status", "ready"):
                    vms.add(key)

        def host_changed(name: str) -> None:
            made["nodes"].add(("", name))
            for key in self.world.instances:
                instances.add(key)

        self._mirrors["vms"].listen(lambda vm: instances.add(key_of(vm)))
        self._mirrors["instances"].listen(instance_changed)
        self._mirrors["claims"].listen(claim_changed)
        self._mirrors["classes"].listen(image_changed)
        self._mirrors["images"].listen(image_changed)
        self._mirrors["secrets"].listen(waiting_instances)
        self._mirrors["nodes"].listen(lambda node: host_changed(node["metadata"]["name"]))
        self._mirrors["quotas"].listen(image_changed)
        self._mirrors["networks"].listen(waiting_instances)
        self.hosts.listen(host_changed)


__all__ = ["VERSION", "VIP", "Harvester"]
