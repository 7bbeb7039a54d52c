"""Harvester: a simulated Harvester cluster in one process: API, control plane, hosts, network.

    harvester = Harvester(clock, rng, machine_factory=...)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(harvester.run())
        await harvester.ready.wait()
        await harvester.preload(images=["default/ubuntu"], networks=["default/vlan50"])

In-process clients go through `network` (the VIP, faults included) or, as the cluster's own controllers do, `api.local()`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from windrow.apiserver.admission import AdmissionRequest
from windrow.apiserver.request.info import RequestInfo, UserInfo
from windrow.apiserver.server import ApiServer
from windrow.apiserver.services.allocation import ServiceAllocator, ServiceRanges
from windrow.apiserver.storage.memory import MemoryStore
from windrow.apiserver.storage.port import Store
from windrow.core.clock import Clock, format_time
from windrow.core.rng import Rng
from windrow.emulator import definitions, kinds, names
from windrow.emulator.admission.webhooks import Webhooks
from windrow.emulator.credentials import Credentials
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.external_balancers import ExternalBalancers
from windrow.emulator.faults import FaultInjector, Faults
from windrow.emulator.host.hypervisor import Hypervisor, MachineFactory
from windrow.emulator.host.images import IMPORT_OUTCOME, ImageController
from windrow.emulator.host.keypairs import KeyPairController
from windrow.emulator.host.longhorn_scheduling import SCHEDULING_ERROR, ReplicaScheduler
from windrow.emulator.host.maintenance import MaintenanceController, concerns
from windrow.emulator.host.network_labels import NetworkController
from windrow.emulator.host.networks import Vlans
from windrow.emulator.host.nodes import HostController, HostSpec, add_to_hosts, default_hosts, render_node
from windrow.emulator.host.persistent_volumes import LONGHORN_NAMESPACE, PersistentVolumeController
from windrow.emulator.host.remote_backups import RemoteBackupController, RemoteRestoreController
from windrow.emulator.host.shared_volumes import SERVICE_OF, FileSystemController, is_shared
from windrow.emulator.host.snapshots import SnapshotController
from windrow.emulator.host.upgrades import UpgradeController
from windrow.emulator.host.volumes import ClaimController
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.controller import Controller, Reconcile
from windrow.emulator.kit.edits import annotate
from windrow.emulator.kit.events import EventRecorder
from windrow.emulator.kit.informer import WATCH_TIMEOUT_S, Informer, LazyInformer
from windrow.emulator.kit.listers import (
    BACKUP_KINDS,
    LAZY_KINDS,
    WATCHED_KINDS,
    Key,
    Listers,
    claims_of_vm,
    claims_of_vmi,
    key_of,
    macs_of_vm,
    volume_of_attachment,
)
from windrow.emulator.kit.network import Network
from windrow.emulator.kit.step_timers import StepTimers
from windrow.emulator.kit.vm_readings import FINAL, claims_in_use, phase_of
from windrow.emulator.load_balancers.controllers import LoadBalancerControllers
from windrow.emulator.preload import Image, KeyPair, LanAllocator, VmNetwork, render_ip_pool, render_preload
from windrow.emulator.quantities import parse_quantity
from windrow.emulator.release import Release
from windrow.emulator.site import DEFAULT_VERSION
from windrow.emulator.system import component_objects, deployment_status, render_storage_class, system_objects
from windrow.emulator.vms.claim_quotas import QuotaController, QuotaPlugin
from windrow.emulator.vms.instances.context import InstanceContext
from windrow.emulator.vms.instances.controller import InstanceController
from windrow.emulator.vms.instances.hardware import list_secrets
from windrow.emulator.vms.instances.migrations import MigrationController
from windrow.emulator.vms.subresources import VmSubresources
from windrow.emulator.vms.virtual_machines import VM_FINALIZERS, VmController
from windrow.emulator.vms.vm_backups import RESTORED_BY, VmBackupController, VmRestoreController
from windrow.kubernetes.objects import (
    Raw,
    annotations_of,
    is_deleting,
    labels_of,
    name_of,
    namespace_of,
    nested,
    uid_of,
)
from windrow.kubernetes.resources import DEPLOYMENT, NODE, STORAGE_CLASS, ApiResource, ObjectRef, ref_of

VIP = "192.168.100.10"
PORT = 6443
SERVICE_RANGES = ServiceRanges(("10.53.0.0/16",))  # Harvester's own choice for its hosts' cluster
MAX_LOG_LINES = 1000  # errors of the control plane's controllers
AGENT = ("system:serviceaccount:harvester-system:harvester", ("system:masters",))


class Harvester:
    """One simulated Harvester cluster. Nothing happens before `run`; `ready` is set once its caches have synced."""

    def __init__(
        self,
        clock: Clock,
        rng: Rng,
        *,
        machine_factory: MachineFactory,
        time_scale: float = 1.0,
        delays: Delays | None = None,
        faults: Faults | None = None,
        version: str = DEFAULT_VERSION,
        hosts: Iterable[HostSpec] | None = None,
        vip: str = VIP,
        store: Store | None = None,
    ) -> None:
        self.version, self.vip = version, vip
        self.release = Release.of(version)
        self.faults = faults or Faults()
        self.network = Network()
        self.ready = asyncio.Event()
        self.log: deque[str] = deque(maxlen=MAX_LOG_LINES)
        self.external_balancers = ExternalBalancers(self.network, self.log.append)
        self.delays = delays or Delays()
        self.clock = ScaledClock(clock, time_scale)
        self._rng = rng
        self._host_specs = tuple(default_hosts() if hosts is None else hosts)
        self._lans = LanAllocator()
        self.api = ApiServer(store or MemoryStore(), clock, rng, name="harvester", authorize="rbac")
        self.api.context.validating_hooks.append(ServiceAllocator(self.api.context, SERVICE_RANGES).admit)
        self.credentials = Credentials(clock, vip, lambda: self.api.tokens)
        self.api.tls = self.credentials.identity
        self.api.root_ca = self.credentials.server_ca.certificate
        for raw in definitions.crds():
            self.api.install_crd(raw)
        self.api.install_crd(definitions.upgrade(), Rng("upgrades"))
        own_draws = Rng("vm-backups")
        for raw in definitions.vm_backup_crds():
            self.api.install_crd(raw, own_draws)
        self.handler = FaultInjector(self.api, self.faults, self.clock, rng)
        self.network.listen(vip, PORT, self.handler)
        self._client = AdminClient(self.api.local(*AGENT))
        self._informers = {name: Informer(self._client, kind) for name, kind in WATCHED_KINDS}
        self._informers |= {
            name: Informer(self._client, kind, WATCH_TIMEOUT_S) for name, kind in BACKUP_KINDS
        }
        self._lazy_informers = {
            kind: LazyInformer(self._client, kind, WATCH_TIMEOUT_S) for _, kind in LAZY_KINDS
        }
        self._informers |= {name: self._lazy_informers[kind] for name, kind in LAZY_KINDS}
        self.listers = Listers(
            **self._informers,
            vms_by_claim=self._informers["vms"].add_index(claims_of_vm),
            vms_by_mac=self._informers["vms"].add_index(macs_of_vm),
            vmis_by_claim=self._informers["instances"].add_index(claims_of_vmi),
            attachments_by_volume=self._informers["attachments"].add_index(volume_of_attachment),
        )
        self.vlans = Vlans(
            self._informers["networks"],
            self._is_mac_in_use,
            self._is_reserved,
        )
        self.hypervisor = Hypervisor(machine_factory, self.clock, rng, self.network, self.vlans, self.faults)
        self.hosts = HostController(self._client, self.clock, self.delays, self.release)
        self.maintenance = MaintenanceController(self._client, self.listers, self.log.append)
        self.load_balancers = LoadBalancerControllers(
            self._client,
            self.listers,
            self._informers["instances"],
            self.network,
            self.vlans,
            self.clock,
            self.delays,
            version,
            self.log.append,
        )
        self._controllers = self._make_controllers()
        webhooks = Webhooks(self.listers, rng, self._may_read, self.release)
        self.api.admission.extend((webhooks.mutate, self.load_balancers.webhooks.mutate))
        self.api.validation.extend(
            (
                webhooks.validate,
                self.load_balancers.webhooks.validate,
                QuotaPlugin(self._client, self.listers).admit,
                self._begin_watch,
            )
        )
        self.api.subresource_handlers.update(
            VmSubresources(self._client, self.hypervisor, self.release).handlers()
        )
        self.api.subresource_versions[kinds.VM_SUBRESOURCES.group] = ("v1", "v1alpha3")

    # --- use ----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Run the API server and all controllers until cancelled."""
        await self._install()
        async with asyncio.TaskGroup() as tasks:
            for work in (
                self.api.run,
                self.hypervisor.run,
                *(informer.run for informer in self._informers.values()),
            ):
                tasks.create_task(work())
            for informer in self._informers.values():
                await informer.has_synced.wait()
            for controller in self._controllers.values():
                tasks.create_task(controller.run(), name=f"controller {controller.name}")
            self.ready.set()
            tasks.create_task(self.load_balancers.run(), name="load balancers")

    async def preload(
        self,
        *,
        images: Iterable[Image | str] = (),
        networks: Iterable[VmNetwork | str] = (),
        namespaces: Iterable[str] = (),
        storage_classes: Iterable[str] = (),
        key_pairs: Iterable[KeyPair | str] = (),
        devices: Iterable[str] = (),
        cpu_models: Iterable[str] = (),
        ip_pools: Iterable[str] = (),
    ) -> None:
        """Create these objects; existing ones are not changed. Hosts get the devices and CPU models that none has. Returns when images with import outcome `done` are
        ready and key pairs are validated."""
        await self.ready.wait()
        await add_to_hosts(
            self._client, [host.name for host in self._host_specs], set(devices), set(cpu_models)
        )
        for name in storage_classes:
            await self._client.ensure(STORAGE_CLASS, render_storage_class(name))
        known = [name_of(raw) for raw in await self._client.list(kinds.IP_POOL)]
        for place, name in enumerate((one for one in ip_pools if one not in known), len(known)):
            await self._client.ensure(kinds.IP_POOL, render_ip_pool(name, place))
        wanted = render_preload(
            images=images, networks=networks, namespaces=namespaces, key_pairs=key_pairs, lans=self._lans
        )
        for kind, raw in wanted:
            await self._client.ensure(kind, raw)
        for kind, raw in wanted:
            ref = ref_of(kind, raw)
            if kind == kinds.IMAGE and annotations_of(raw).get(IMPORT_OUTCOME) == "done":
                await self._wait_until(ref, lambda found: nested(found, "status", "progress") == 100)
            if kind == kinds.KEY_PAIR:
                await self._wait_until(ref, lambda found: bool(nested(found, "status", "conditions")))

    def admin_kubeconfig(self, server: str = "", proxy_url: str = "") -> str:
        """The administrator's kubeconfig; `server` is the VIP by default."""
        return self.credentials.admin_kubeconfig(server or self.url, proxy_url)

    def token_kubeconfig(self, token: str, server: str = "", proxy_url: str = "") -> str:
        return self.credentials.token_kubeconfig(token, server or self.url, proxy_url)

    def new_token(self, expires: datetime | None = None) -> str:
        """An administrator's bearer token, as Rancher issues; `credentials.revoke` revokes it."""
        return self.credentials.new_token(expires=expires)

    @property
    def url(self) -> str:
        """The API's address in the simulated network."""
        return f"https://{self.vip}:{PORT}"

    def console(self, namespace: str, name: str) -> list[str]:
        """The last lines of a VM's serial console, over all its boots."""
        return self.hypervisor.consoles.read(namespace, name)

    def silence_agent(self, namespace: str, name: str, seconds: float) -> None:
        """Disconnect the guest agent of a VM for a while; its addresses are not reported meanwhile."""
        vmi = self.listers.instances.get((namespace, name))
        if vmi is not None:
            self.hypervisor.silence_agent(uid_of(vmi), seconds)

    def renew_lease(self, namespace: str, name: str) -> None:
        """End the DHCP leases of a VM: its next request gets other addresses."""
        vm = self.listers.vms.get((namespace, name))
        macs = [mac for _, mac in macs_of_vm(vm)] if vm is not None else []
        for mac in (*macs, *self.hypervisor.macs_of((namespace, name))):
            for server in self.vlans.servers().values():
                server.release(mac)

    def fail_host(self, name: str) -> None:
        """Power off the host with every VM on it. May be repeated."""
        self.hosts.fail(name)

    def recover_host(self, name: str) -> None:
        """Power on the host. May be repeated."""
        self.hosts.recover(name)

    async def begin_maintenance(self, name: str, *, force: bool = False) -> None:
        """Ask for maintenance mode of the host, as Harvester's UI does. It is refused by removing the annotation."""
        wanted = {names.DRAIN_REQUESTED: "true", **({names.DRAIN_FORCED: "true"} if force else {})}
        await self._client.mutate(NODE.ref(name), lambda raw: annotate(raw, wanted))

    async def end_maintenance(self, name: str) -> None:
        """End maintenance mode of the host. May be repeated."""
        await self.maintenance.end(name)

    # --- composition --------------------------------------------------------------------------------------------

    async def _install(self) -> None:
        for kind, raw in system_objects(self.version, self.vip):
            await self._client.ensure(kind, raw)
        deployed = {"phase": "Deployed", "observedKubeVirtVersion": self.release.kubevirt}
        kubevirt = kinds.KUBEVIRT.ref("kubevirt", names.SYSTEM_NAMESPACE)
        await self._client.mutate(kubevirt, lambda raw: raw.update(status=deployed), "status")
        rng = Rng("harvester-system")
        for kind, raw in component_objects(self.version, self.vip):
            await self.api.ensure_system_object(kind, raw, rng)
        runs = deployment_status(format_time(self.clock.now()))
        harvester = DEPLOYMENT.ref(names.HARVESTER_DEPLOYMENT, names.SYSTEM_NAMESPACE)
        await self._client.mutate(harvester, lambda raw: raw.update(status=runs), "status")
        for host in self._host_specs:
            await self._client.ensure(NODE, render_node(host, self.clock.now(), self.version))

    async def _wait_until(self, ref: ObjectRef, holds: Callable[[Raw], bool]) -> None:
        while not holds(await self._client.get(ref)):
            await self.clock.sleep(0.05)

    def _is_mac_in_use(self, mac: str) -> bool:
        """Whether a VM has the MAC address; leases of others may be released."""
        return ("", mac) in self.listers.vms_by_mac or self.hypervisor.has_mac(mac)

    def _is_reserved(self, address: str) -> bool:
        """Whether DHCP does not lease the address."""
        return self.load_balancers.is_in_pool(address) or address in self.external_balancers

    async def _may_read(self, caller: UserInfo, kind: ApiResource, key: Key) -> bool:
        return await self.api.allows(caller, "get", RequestInfo.of(kind, *key))

    def _make_controllers(self) -> dict[str, Controller]:
        client, clock, delays = self._client, self.clock, self.delays
        recorder = EventRecorder(client, clock.base, self._rng)
        balancers = self.load_balancers
        finalizers = [
            one for one in VM_FINALIZERS if balancers.deletes_with_guest_cluster or one != names.LB_FINALIZER
        ]
        machines = VmController(
            client,
            self.listers,
            clock,
            delays,
            self._rng,
            recorder,
            balancers.on_vm_removed,
            tuple(finalizers),
            self.release,
        )
        control = InstanceContext(
            client,
            self.listers,
            clock,
            delays,
            self._rng,
            recorder,
            self.hosts,
            self.hypervisor,
            StepTimers(clock),
        )
        instances = self._instances = InstanceController(control)
        disks = self.hypervisor
        self._file_systems = FileSystemController(
            client, self.listers, self.hosts, self.network.nfs, disks.disk, clock, delays
        )
        replicas = ReplicaScheduler(
            {host.name: int(parse_quantity(host.storage)) for host in self._host_specs},
            lambda: self.listers.overcommit().storage,
            lambda host: self.hosts.health(host)[0].ready,
        )
        claims = ClaimController(
            client, self.listers, clock, delays, disks.copy_disk, disks.delete_disk, replicas
        )
        snapshots = SnapshotController(
            client, self.listers, clock, delays, disks.copy_disk, disks.delete_disk
        )
        reconciles: dict[str, Reconcile] = {
            "vms": machines.reconcile,
            "instances": instances.reconcile,
            "claims": claims.reconcile,
            "volumes": PersistentVolumeController(client, self.listers, replicas, clock, delays).reconcile,
            "snapshots": snapshots.reconcile,
            "remote_backups": RemoteBackupController(client, self.listers, clock, delays).reconcile,
            "remote_restores": RemoteRestoreController(client, self.listers, disks.copy_disk).reconcile,
            "file_systems": self._file_systems.reconcile,
            "images": ImageController(client, clock, delays, self.release).reconcile,
            "nodes": self.hosts.reconcile,
            "key_pairs": KeyPairController(client, clock.base).reconcile,
            "migrations": MigrationController(client, clock, delays, recorder, instances).reconcile,
            "maintenance": self.maintenance.reconcile,
            "upgrades": UpgradeController(client, self.listers, clock, delays, self.log.append).reconcile,
            "networks": NetworkController(client, self.listers).reconcile,
            "quotas": QuotaController(client, self.listers, clock).reconcile,
            "vm_backups": VmBackupController(client, self.listers, clock, delays).reconcile,
            "vm_restores": VmRestoreController(client, self.listers, clock, delays).reconcile,
        }
        made = {
            name: Controller(name, reconcile, clock.base, self.log.append)
            for name, reconcile in reconciles.items()
        }
        for name, controller in made.items():
            if name in (
                "quotas",
                "maintenance",
            ):  # quotas by what has changed: its own status must not be counted again
                continue
            self._informers[name].add_event_handler(lambda raw, add=controller.add: add(key_of(raw)))  # type: ignore[misc]
        self._wire_controllers(made)
        return made

    async def _begin_watch(self, operation: AdmissionRequest) -> None:
        informer = self._lazy_informers.get(operation.kind)
        if informer is not None:  # one without objects is false
            informer.begin()

    def _wire_controllers(self, made: dict[str, Controller]) -> None:
        """Event handlers that requeue the dependent keys of other controllers."""
        instances, vms, claims = made["instances"], made["vms"], made["claims"]
        migrations, volumes = made["migrations"], made["volumes"]
        self.hypervisor.on_change = instances.add

        used: dict[str, frozenset[str]] = {}  # by the uid of an instance: what it used when it changed last

        def claim_in_use(claim: Raw | None) -> None:
            if name := nested(claim, "spec", "volumeName", default=""):
                volumes.add(("", name))

        def attachment_changed(attachment: Raw) -> None:
            for key in volume_of_attachment(attachment):
                volumes.add(key)

        def share_changed(name: str) -> None:
            made["file_systems"].add((names.SYSTEM_NAMESPACE, name))

        def service_changed(service: Raw) -> None:
            if namespace_of(service) == LONGHORN_NAMESPACE:
                share_changed(labels_of(service).get(SERVICE_OF, name_of(service)))

        self.load_balancers.add_service_handler(service_changed)

        unplaced: set[str] = set()  # volumes that no host has

        def volume_changed(volume: Raw) -> None:
            volumes.add(key_of(volume))
            if is_shared(volume):
                share_changed(name_of(volume))
            if SCHEDULING_ERROR in annotations_of(volume):
                unplaced.add(name_of(volume))
            elif name_of(volume) in unplaced:
                unplaced.discard(name_of(volume))
                bound = nested(volume, "spec", "claimRef", default={})
                where = bound.get("namespace", ""), bound.get("name", "")
                for key in self.listers.vmis_by_claim.get(where, ()):
                    instances.add(key)
            if nested(volume, "spec", "claimRef"):
                return
            for key, claim in self.listers.claims.items():
                if nested(claim, "spec", "volumeName") == name_of(volume):
                    claims.add(key)

        def instance_changed(vmi: Raw) -> None:
            vms.add(key_of(vmi))
            for key, node in self.listers.nodes.items():
                if concerns(node):
                    made["maintenance"].add(key)
            for key in self.listers.upgrades:
                made["upgrades"].add(key)
            for key in self._informers["migrations"]:
                migrations.add(key)
            now = frozenset(claims_in_use(vmi))
            for claim in now | used.get(uid_of(vmi), frozenset()):
                claims.add((namespace_of(vmi), claim))
                claim_in_use(self.listers.claims.get((namespace_of(vmi), claim)))
            used[uid_of(vmi)] = now
            if key_of(vmi) not in self.listers.instances:
                del used[uid_of(vmi)]
            if phase_of(vmi) in FINAL or is_deleting(vmi):
                waiting_instances(vmi)  # its host has free resources again

        def waiting_instances(_: Any) -> None:
            for key in self._instances.waiting:
                instances.add(key)

        def secret_changed(secret: Raw) -> None:
            namespace, name = key_of(secret)
            for key in self._instances.waiting:
                vmi = self.listers.instances.get(key)
                if vmi is None or (key[0] == namespace and name in list_secrets(vmi)):
                    instances.add(key)

        def restored(raw: Raw) -> None:
            if restore := annotations_of(raw).get(RESTORED_BY):
                made["vm_restores"].add((namespace_of(raw), restore))

        def claim_changed(claim: Raw) -> None:
            claim_in_use(claim)
            restored(claim)
            made["remote_restores"].add(key_of(claim))
            for key in self.listers.vms_by_claim.get(key_of(claim), ()):
                vms.add(key)
            using = self.listers.vms_by_claim, self.listers.vmis_by_claim
            for key in sorted({key for index in using for key in index.get(key_of(claim), ())}):
                instances.add(key)

        def image_changed(image: Raw) -> None:
            for key, claim in self.listers.claims.items():
                if nested(claim, "status", "phase") != "Bound":
                    claims.add(key)
            for key, vm in self.listers.vms.items():
                if not nested(vm, "status", "ready"):
                    vms.add(key)

        def host_changed(name: str) -> None:
            made["nodes"].add(("", name))
            made["maintenance"].add(("", name))
            for key in self.listers.instances:
                instances.add(key)
            for key in self.listers.file_systems:
                made["file_systems"].add(key)

        def cluster_network_changed(_: Raw) -> None:
            for key in self.listers.networks:
                made["networks"].add(key)

        def quota_changed(quota: Raw) -> None:
            if nested(quota, "status", "hard") != nested(quota, "spec", "hard"):
                made["quotas"].add(key_of(quota))

        def usage_changed(raw: Raw) -> None:
            for key in self._informers["quotas"]:
                if key[0] == namespace_of(raw):
                    made["quotas"].add(key)

        self._informers["quotas"].add_event_handler(quota_changed)
        for name in ("claims", "instances", "secrets", "vms"):
            self._informers[name].add_event_handler(usage_changed)
        self._informers["vms"].add_event_handler(lambda vm: instances.add(key_of(vm)))
        self._informers["vms"].add_event_handler(restored)
        self._informers["instances"].add_event_handler(instance_changed)

        def snapshot_changed(snapshot: Raw) -> None:
            made["remote_backups"].add(key_of(snapshot))
            for owner in snapshot["metadata"].get("ownerReferences") or ():
                if owner["kind"] == kinds.VM_BACKUP.kind:
                    made["vm_backups"].add((namespace_of(snapshot), owner["name"]))
            for key, claim in self.listers.claims.items():
                if key[0] == namespace_of(snapshot) and nested(claim, "status", "phase") != "Bound":
                    claims.add(key)

        self._informers["snapshots"].add_event_handler(snapshot_changed)
        self._informers["claims"].add_event_handler(claim_changed)
        self._informers["volumes"].add_event_handler(volume_changed)
        self._informers["attachments"].add_event_handler(attachment_changed)
        self._informers["classes"].add_event_handler(image_changed)
        self._informers["images"].add_event_handler(image_changed)
        self._informers["secrets"].add_event_handler(secret_changed)
        self._informers["nodes"].add_event_handler(lambda node: host_changed(node["metadata"]["name"]))
        self._informers["quotas"].add_event_handler(image_changed)
        self._informers["networks"].add_event_handler(waiting_instances)
        self._informers["cluster_networks"].add_event_handler(cluster_network_changed)
        self.hosts.on_change = host_changed
