"""Simulated kubelet: registers its Node, reports its status, and runs the pods scheduled on it.

Status is written only when it changes; the lease, which carries the heartbeat, as often as a kubelet renews it. Rules
of the real one that matter here: labels under `node-role.kubernetes.io` are refused; taints are set only when the Node
is made; with an external cloud provider the addresses stay with the host name until that provider writes them, and
`alpha.kubernetes.io/provided-node-ip` carries the address that the kubelet was started with (RKE2 and K3s always pass one).
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Callable, Coroutine, Mapping
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

from windrow.core.clock import format_time
from windrow.core.formats.json import dumps
from windrow.core.formats.version import Version
from windrow.emulator.guest_cluster.cluster import EVERY_NODE, ChartPod, GuestCluster, Heartbeat, MountFailed
from windrow.emulator.guest_cluster.containers.images import list_node_images
from windrow.emulator.guest_cluster.containers.runtime import Containers
from windrow.emulator.guest_cluster.containers.static_pods import list_static_pods, mirror_static_pods
from windrow.emulator.guest_cluster.distribution.distribution import Settings
from windrow.emulator.guest_cluster.rotation.expiry import (
    LIFETIME,
    ExpiryMonitor,
    find_end,
    serving_certificate,
)
from windrow.emulator.guest_cluster.service_accounts import pod_access
from windrow.emulator.guest_cluster.volumes.volume_manager import VolumeManager
from windrow.emulator.guest_os.hardware import Disk, File, GuestProgram, ProgramContext
from windrow.emulator.guest_os.notifier import result_unless
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.edits import annotate
from windrow.emulator.kit.events import EventRecorder
from windrow.emulator.kit.scheduling import find_untolerated
from windrow.kubernetes.conditions import Condition, find_condition, set_condition
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, labels_of, nested, new_object
from windrow.kubernetes.resources import NODE

UNINITIALIZED = "node.cloudprovider.kubernetes.io/uninitialized"
NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
_NODE_ID = "/etc/rancher/node/id"
PROVIDED_IP = "alpha.kubernetes.io/provided-node-ip"
_ALLOWED_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_ALLOWED_LABELS = (
    "kubernetes.io/hostname kubernetes.io/arch kubernetes.io/os beta.kubernetes.io/arch "
    "beta.kubernetes.io/os beta.kubernetes.io/instance-type node.kubernetes.io/instance-type "
    "failure-domain.beta.kubernetes.io/region failure-domain.beta.kubernetes.io/zone "
    "topology.kubernetes.io/region topology.kubernetes.io/zone"
)
_ALLOWED = frozenset(_ALLOWED_LABELS.split())
_CLOUD_PROVIDER = "harvester-cloud-provider"
_MASK = "********"
_SECRET_NAMES = "token agent-token datastore-endpoint etcd-s3-access-key etcd-s3-secret-key etcd-s3-session-token vpn-auth"
_SECRET_FLAGS = frozenset(_SECRET_NAMES.split())
READY = Condition("Ready", "True", "KubeletReady", "kubelet is posting ready status")
NO_NETWORK = Condition(
    "Ready",
    "False",
    "KubeletNotReady",
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
    "message:Network plugin returns error: cni plugin not initialized",
)
TOO_NEW = Condition(
    "Ready",
    "False",
    "KubeletNotReady",
    "failed to initialize CSINode: error updating CSINode annotation: timed out waiting for the condition; "
    "caused by: the server could not find the requested resource",
)
_PRESSURE_CONDITIONS = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)


# What the DaemonSet controller adds to the tolerations of its pods.
_DAEMON_TOLERATIONS = tuple(
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists"}
    for name in (
        *("not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure"),
        "unschedulable",
    )
)


class BadKubelet(Exception):
    """The kubelet does not start; the message is its own."""


def parse_labels(settings: Settings) -> dict[str, str]:
    """The labels of `node-label`. Raises BadKubelet for those a kubelet may not set on itself."""
    labels: dict[str, str] = {}
    for entry in settings.list("node-label"):
        key, _, value = entry.partition("=")
        labels[key] = value
    forbidden = sorted(key for key in labels if _is_forbidden(key))
    if forbidden:
        raise BadKubelet(
            f"unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [{' '.join(forbidden)}]; "
            f"allowed are those that start with {'/, '.join(_ALLOWED_DOMAINS)}/ and {', '.join(sorted(_ALLOWED))}"
        )
    return labels


def _is_forbidden(key: str) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    reserved = any(domain == one or domain.endswith("." + one) for one in ("kubernetes.io", "k8s.io"))
    own = any(domain == one or domain.endswith("." + one) for one in _ALLOWED_DOMAINS)
    return reserved and not own and key not in _ALLOWED


_TAINT = re.compile(
    r"(?P<key>([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)"
    r"(?P<sign>=(?P<value>([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?))?"
    r":(?P<effect>NoSchedule|PreferNoSchedule|NoExecute)"
)


def parse_taints(settings: Settings) -> list[Raw]:
    """The taints of `node-taint`. Raises BadKubelet for a malformed one."""
    taints: list[Raw] = []
    for entry in settings.list("node-taint"):
        found = _TAINT.fullmatch(entry)
        if found is None:
            raise BadKubelet(f"invalid taint spec: {entry!r}; wanted key[=value]:Effect with a known effect")
        taint = {"key": found["key"], "effect": found["effect"]}
        taints.append(taint | {"value": found["value"]} if found["sign"] else taint)
    return taints


def own_addresses(guest: GuestOS) -> tuple[str, ...]:
    """What RKE2 and K3s pass to the kubelet unless they are told: the address of the interface with the default route, and,
    where that is IPv4, an IPv6 address of the machine, too."""
    first = guest.address
    if not first or ":" in first:
        return (first,) if first else ()
    six = next((one for found in guest.addresses.values() for one in found if ":" in one), "")
    return (first, six) if six else (first,)


class Kubelet:
    """The kubelet of one machine. `run` ends only by cancellation or a BadKubelet."""

    def __init__(
        self,
        guest: GuestOS,
        cluster: GuestCluster,
        settings: Settings,
        version: Version,
        programs: Mapping[str, GuestProgram],
        daemons: Mapping[str, Callable[[], Coroutine[Any, Any, None]]] = MappingProxyType({}),
    ) -> None:
        self.guest = guest
        self.cluster = cluster
        self.settings = settings
        self.version = version
        self.programs = programs
        self.name = node_name(guest, settings)
        self.addresses = tuple(settings.list("node-ip")) or own_addresses(guest)
        self.address = self.addresses[0] if self.addresses else ""
        self.labels = parse_labels(settings)
        self.taints = parse_taints(settings)
        # K3s' own cloud controller counts as well, and the servers' settings say whether it runs.
        has_own = (
            settings.distribution.runs_cloud_controller
            and cluster.critical["disable-cloud-controller"] == "false"
        )
        self.waits_for_cloud_provider = settings.has_external_cloud_provider or has_own
        self._has_own_cloud_controller = has_own and settings.runs_api  # on this machine
        self._daemons = daemons  # containers that decide themselves when they act
        self._ref = NODE.ref(self.name)
        # By cluster and pod: what the service's restart does not end.
        self._pod_tasks: dict[tuple[str, str], asyncio.Task[None]] = guest.storage.chart_pods

    async def run(self) -> None:
        await self.guest.sleep(self.guest.delays.kubelet)
        await self.cluster.wait_usable()
        await self._register()
        started = self.guest.monotonic()
        volumes = self.cluster.volume_managers[self.name] = VolumeManager(self.guest, self.cluster, self.name)
        self.cluster.containers[self.name] = Containers(self.guest, self.cluster, self.name)
        self.cluster.heartbeats[self.name] = Heartbeat(True, started)
        self.cluster.changed.notify()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._renew_lease())
                group.create_task(self._become_ready())
                group.create_task(self._follow_restores())
                group.create_task(volumes.run())
                group.create_task(self._mirror_static_pods())
                await self._run_pods()
        finally:
            if self.cluster.volume_managers.get(self.name) is volumes:
                del self.cluster.volume_managers[self.name]
            self.cluster.heartbeats[self.name] = Heartbeat(
                False, self._last_heartbeat(started), self.guest.has_power
            )
            self.cluster.changed.notify()

    def _last_heartbeat(self, started: timedelta) -> timedelta:
        """The instant of the last heartbeat before now."""
        period = self.guest.delays.heartbeat / self.guest.host.time_scale
        passed = (self.guest.monotonic() - started).total_seconds()
        return started + timedelta(seconds=int(passed / period) * period)

    # -- the Node

    async def _register(self) -> None:
        # The node authorizer is not simulated: kubelets may do what they do.
        local = self.cluster.client(f"system:node:{self.name}", ("system:nodes", "system:masters"))
        while True:
            try:
                found = await local.find(self._ref)
                if found is None:
                    await local.create(NODE, self._new_node())
                    self.guest.log("kubelet", f"Successfully registered node {self.name}")
                    return
                await self.cluster.edit(self._ref, self._refresh)
                await self.cluster.edit(self._ref, self._refresh_status, subresource="status")
                self.guest.log("kubelet", f"Node {self.name} was previously registered")
                return
            except KubeError as error:
                self.guest.log("kubelet", f"Unable to register node with API server: {error}")
                await self.guest.sleep(self.guest.delays.join_retry)
                await self.cluster.wait_usable()

    def _new_node(self) -> Raw:
        taints = [dict(taint) for taint in self.taints]
        if self.waits_for_cloud_provider:
            taints.append({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"})
        taints.append({"key": NOT_READY, "effect": "NoSchedule"})
        node = new_object(NODE, self.name, labels=self._all_labels(), annotations=self._annotations())
        pod_ranges = self.cluster.allocate_pod_ranges()
        node["spec"] = {"podCIDR": pod_ranges[0], "podCIDRs": pod_ranges, "taints": taints}
        if provider_id := self.settings.kubelet_argument("provider-id"):
            node["spec"]["providerID"] = provider_id
        node["status"] = self._status()
        self._set_conditions(node, ready=False)
        return node

    def _refresh(self, raw: Raw) -> None:
        raw["metadata"]["labels"] = {**labels_of(raw), **self._all_labels()}
        annotate(raw, self._annotations())

    def _refresh_status(self, raw: Raw) -> None:
        old = raw.get("status") or {}
        raw["status"] = {**old, **self._status()}
        if self.waits_for_cloud_provider and old.get("addresses"):
            raw["status"]["addresses"] = old["addresses"]
        self._set_conditions(raw, ready=False)

    def _all_labels(self) -> dict[str, str]:
        labels = {
            "beta.kubernetes.io/arch": "amd64",
            "beta.kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": self.name,
            "kubernetes.io/os": "linux",
            **self.labels,
        }
        # Controllers of the distribution set the role labels, not the kubelet.
        if self.settings.runs_etcd and self.cluster.etcd.is_embedded:
            labels["node-role.kubernetes.io/etcd"] = "true"
        if self.settings.runs_api:
            labels["node-role.kubernetes.io/control-plane"] = "true"
            if self.version.minor < 35:
                labels["node-role.kubernetes.io/master"] = "true"
        return labels

    def _annotations(self) -> dict[str, str]:
        annotations = {
            "node.alpha.kubernetes.io/ttl": "0",
            "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            self.settings.distribution.node_annotation("hostname"): self.name,
            self.settings.distribution.node_annotation("internal-ip"): ",".join(self.addresses),
        }
        if external := self.settings.list("node-external-ip"):
            annotations[self.settings.distribution.node_annotation("external-ip")] = ",".join(external)
        named = self.settings.distribution.node_annotation
        annotations[named("node-args")] = self._node_arguments()
        annotations[named("node-env")] = "{}"
        annotations[named("node-config-hash")] = self._config_hash()
        if self.cluster.encryption is not None and self.settings.runs_api:
            annotations[named("encryption-config-hash")] = self.cluster.encryption.annotation
        if self.waits_for_cloud_provider:
            annotations[PROVIDED_IP] = ",".join(self.addresses)
        return annotations

    def _node_arguments(self) -> str:
        """The flags with which the program runs, secrets masked."""
        words: list[str] = [self.settings.role]
        for flag, values in sorted(self.settings.flags.items()):
            for value in values:
                words += [f"--{flag}", _MASK if flag in _SECRET_FLAGS else value]
        return dumps(words).decode()

    def _config_hash(self) -> str:
        """Of the flags with their secrets, so that it changes with whatever the service is started with."""
        digest = hashlib.sha256(repr(sorted(self.settings.flags.items())).encode()).digest()
        return base64.b32encode(digest).decode()

    def _status(self) -> Raw:
        hardware = self.guest.hardware
        capacity = {
            "cpu": str(hardware.cores),
            "memory": f"{hardware.memory_bytes // 1024}Ki",
            "ephemeral-storage": "40Gi",
            "pods": "110",
        }
        addresses = [{"type": "Hostname", "address": self.name}]
        if not self.waits_for_cloud_provider:
            addresses[:0] = [{"type": "InternalIP", "address": one} for one in self.addresses]
        return {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "addresses": addresses,
            "images": list_node_images(self.version),
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": hardware.vmi_uid,
                "containerRuntimeVersion": "containerd://2.1.5-k3s1",
                "kernelVersion": "6.8.0-60-generic",
                "kubeProxyVersion": "",
                "kubeletVersion": str(self.version),
                "machineID": hardware.vm_uid.replace("-", ""),
                "operatingSystem": "linux",
                "osImage": "Ubuntu 24.04.3 LTS",
                "systemUUID": hardware.system_uuid or hardware.vm_uid,
            },
        }

    def _set_conditions(self, raw: Raw, *, ready: bool) -> None:
        for type, reason, message in _PRESSURE_CONDITIONS:
            set_node_condition(raw, Condition(type, "False", reason, message), self.guest.now())
        set_node_condition(raw, READY if ready else NO_NETWORK, self.guest.now())

    async def _become_ready(self) -> None:
        known = self.guest.hardware.root.state.setdefault("network plugin", {})
        if self._network_plugin() == "none":
            self.guest.log("kubelet", "no network plugin is deployed; the node stays NotReady")
            return
        if not known.get("installed"):
            await self.guest.sleep(self.guest.delays.network_plugin)
            known["installed"] = True
        await self._wait_for_api_version()

        def edit(raw: Raw) -> None:
            self._set_conditions(raw, ready=True)

        if await self.cluster.edit(self._ref, edit, subresource="status") is not None:
            self.guest.log("kubelet", "node is Ready")
        self.cluster.changed.notify()

    async def _follow_restores(self) -> None:
        """After each restore of etcd, write the status of the Node, which is the one of then; a real kubelet does every ten seconds."""
        while True:
            known = self.cluster.restores
            await self.cluster.changed.wait_for(lambda: self.cluster.restores != known)  # noqa: B023
            await self.cluster.wait_usable()

            def edit(raw: Raw) -> None:
                self._refresh_status(raw)
                self._set_conditions(raw, ready=True)

            await self.cluster.edit(self._ref, edit, subresource="status")
            self.cluster.changed.notify()

    async def _wait_for_api_version(self) -> None:
        """Return once no API server that the kubelet may speak to is of an older minor. A real one does not refuse, either; what
        it then needs of a newer API it does not find."""
        if self.settings.runs_api or self.version.line <= self.cluster.oldest_api_version.line:
            return
        self.guest.log(
            "kubelet",
            f"failed to initialize CSINode: the server could not find the requested resource (kubelet {self.version} is newer "
            f"than the cluster's kube-apiserver {self.cluster.oldest_api_version})",
        )

        def edit(raw: Raw) -> None:
            set_node_condition(raw, TOO_NEW, self.guest.now())

        await self.cluster.edit(self._ref, edit, subresource="status")
        await self.cluster.changed.wait_for(lambda: self.version.line <= self.cluster.oldest_api_version.line)

    def _network_plugin(self) -> str:
        if self.settings.role == "server":
            return self.settings.network_plugin
        plugins = {server.settings.network_plugin for server in self.cluster.servers.values()}
        return next(iter(plugins), "canal")

    async def _renew_lease(self) -> None:
        heartbeat = self.guest.delays.heartbeat
        # No simulated controller reads the lease; at a high time scale it is renewed less often, to save CPU time.
        period = max(heartbeat, self.guest.host.time_scale)
        expiry = self._make_expiry_monitor()
        while True:
            if expiry.is_kubelet_expired(self.guest.now()):
                self.guest.log("kubelet", "tls: failed to verify certificate: x509: certificate has expired")
                self.cluster.heartbeats[self.name] = Heartbeat(
                    False, self.guest.monotonic(), self.guest.has_power
                )
                self.cluster.changed.notify()
                return
            await self._warn_of_expiry(expiry)
            try:
                await self.cluster.renew_lease("kube-node-lease", self.name, self.name, 4 * heartbeat)
            except KubeError as error:
                self.guest.log("kubelet", f"Failed to update lease: {error}")
            await self.guest.sleep(period)

    def _make_expiry_monitor(self) -> ExpiryMonitor:
        kubelet_ends = self.guest.now() + LIFETIME
        ends = {f"kubelet/client-kubelet.crt:CN=system:node:{self.name},O=system:nodes": kubelet_ends}
        serving = find_end(self.guest, serving_certificate(self.settings.data_directory))
        if serving is not None and self.settings.role == "server":
            ends["kube-apiserver/serving-kube-apiserver.crt:CN=kube-apiserver"] = serving
        return ExpiryMonitor(self.version, ends, kubelet_ends)

    async def _warn_of_expiry(self, expiry: ExpiryMonitor) -> None:
        program = self.settings.distribution.name
        message = expiry.warn(program, self.guest.now())
        if not message or not self.cluster.is_usable():
            return
        client = AdminClient(self.cluster.client())
        events = EventRecorder(client, self.guest.host.clock, self.guest.host.rng)
        if (node := await client.find(self._ref)) is not None:
            await events.record(
                node, "CertificateExpirationWarning", message, f"{program}-cert-monitor", "Warning"
            )

    # -- pods

    async def _run_pods(self) -> None:
        for (cluster, _), task in self._pod_tasks.items():
            if cluster != self.cluster.uid:
                task.cancel()
        for name, run in self._daemons.items():
            self._ensure_running(name, run)
        while True:
            for pod in self.cluster.pods.values():
                if pod.is_on(self.name):
                    self._ensure_running(pod.name, partial(self._run_pod, pod))
            await self.cluster.changed.wait()

    def _ensure_running(self, name: str, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        running = self._pod_tasks.get((self.cluster.uid, name))
        if running is None or running.done():
            self._pod_tasks[self.cluster.uid, name] = self.guest.spawn(run(), f"pod {name}")

    async def _mirror_static_pods(self) -> None:
        no_proxy = self.cluster.critical.get("disable-kube-proxy") == "true"
        pods = list_static_pods(
            self.settings, self.version, is_etcd=self.cluster.etcd.is_embedded, no_proxy=no_proxy
        )
        while True:
            await self.cluster.wait_usable()
            try:
                await mirror_static_pods(self.cluster, self.name, pods, self.address, self.guest.now())
                return
            except KubeError as error:
                self.guest.log("kubelet", f"Failed creating a mirror pod: {error}")
                await self.guest.sleep(self.guest.delays.join_retry)

    async def _run_pod(self, pod: ChartPod) -> None:
        delays = self.guest.delays
        backoff = delays.crash_backoff
        if pod.node == EVERY_NODE:
            await self._wait_tolerated(pod)
        await self.guest.sleep(delays.pod_start)
        while pod.is_on(self.name):
            try:
                files = await pod.mount(self.guest)
            except MountFailed as error:
                self.guest.log("kubelet", f"pod kube-system/{pod.name}: {error}")
                await self.guest.sleep(delays.crash_backoff)
                continue
            code = await self._run_program(pod, files)
            if code is None:
                self.guest.log("kubelet", f"pod kube-system/{pod.name}: container is replaced")
                await self.guest.sleep(delays.pod_start)
                continue
            self.guest.log(
                "kubelet", f"pod kube-system/{pod.name}: container exited with code {code}; restarting"
            )
            await self.guest.sleep(backoff)
            backoff = min(backoff * 2, delays.crash_backoff_limit)

    async def _wait_tolerated(self, pod: ChartPod) -> None:
        """Return once the pod of a DaemonSet tolerates this Node."""
        while True:
            await self.cluster.wait_usable()
            node = await self.cluster.client().find(self._ref)
            taints = nested(node, "spec", "taints", default=[])
            if (
                node is not None
                and find_untolerated([*pod.tolerations, *_DAEMON_TOLERATIONS], taints) is None
            ):
                return
            await self.cluster.changed.wait()

    async def _run_program(self, pod: ChartPod, files: Mapping[str, File]) -> int | None:
        """The program's exit code; None when the pod was to end, or its way to the API did."""
        await self.cluster.wait_usable()
        server, generation = self.cluster.find_api_server(self.name), pod.generation
        if server is None:
            return None
        access = await pod_access(self.cluster, pod.chart, server)
        program_context = ProgramContext(
            argv=tuple(await pod.command(self.name)),
            env=access.env,
            root=Disk({**files, **access.files}),
            clock=self.guest.host.clock,
            rng=self.guest.host.rng,
            network=self.guest.host.network,
            out=lambda line: self.guest.console(f"{pod.name}: {line}"),
            storage=self.guest.storage,
            guest_kubeconfig=access.kubeconfig,
        )

        def is_over() -> bool:
            return server.stopped.is_set() or pod.generation != generation or not pod.is_on(self.name)

        running = self._run_guarded(pod, program_context)
        side_cars = asyncio.ensure_future(self._run_side_cars(pod))
        try:
            return await result_unless(running, self.cluster.changed.wait_for(is_over))
        finally:
            side_cars.cancel()
            await asyncio.wait([side_cars])

    async def _run_side_cars(self, pod: ChartPod) -> None:
        while pod.side_cars is not None:
            try:
                await pod.side_cars(self.guest, self.name)
            except Exception as error:  # as below
                self.guest.log(pod.name, f"a side-car ended: {type(error).__name__}: {error}; restarting")
            await self.guest.sleep(self.guest.delays.crash_backoff)

    async def _run_guarded(self, pod: ChartPod, program_context: ProgramContext) -> int:
        if self._has_own_cloud_controller and pod.chart == _CLOUD_PROVIDER:
            # Both are on the host's network (harvester#2998).
            self.guest.log(
                pod.name,
                "failed to listen on 0.0.0.0:10258: listen tcp 0.0.0.0:10258: bind: address already in use",
            )
            return 1
        try:
            return await self.programs[pod.chart](program_context)
        except Exception as error:  # a crash of the program must not end the machine
            self.guest.log(pod.name, f"panic: {type(error).__name__}: {error}")
            return 2


def set_node_condition(raw: Raw, wanted: Condition, now: datetime) -> None:
    """Write one condition of a Node; one of the same status and reason is left as it is."""
    status = raw.setdefault("status", {})
    found = find_condition(status.get("conditions"), wanted.type)
    if found is None or (found.status, found.reason) != (wanted.status, wanted.reason):
        conditions = set_condition(status.get("conditions"), wanted, now)
        next(one for one in conditions if one["type"] == wanted.type)["lastHeartbeatTime"] = format_time(now)
        status["conditions"] = conditions


def node_name(guest: GuestOS, settings: Settings) -> str:
    """The name under which the machine registers; with `with-node-id` it carries the id that its disk keeps."""
    name = settings.text("node-name").lower() or guest.hostname.lower()
    if not settings.is_true("with-node-id"):
        return name
    if guest.read(_NODE_ID) is None:
        guest.write(_NODE_ID, guest.host.rng.uid()[:8].encode(), 0o600)
    return f"{name}-{(guest.read(_NODE_ID) or b'').decode()}"
