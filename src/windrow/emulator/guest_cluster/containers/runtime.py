"""The containers of one node: those that act run in the machine's simulated shell, every other one runs and does nothing.

A container acts when its command is a script of a shell (`sh -c "…"`), `chroot DIRECTORY …` or `nsenter …`. It runs once for each
start of its pod, and again where it failed in a pod with restartPolicy OnFailure, with the mounted volumes and the environment of its pod, on a filesystem of its own; by a hostPath, `chroot` or
`nsenter` it acts on its node. What it prints is its log, its exit code ends its pod. Containers outlive the kubelet and
the distribution's service, whose unit kills only its own process, and end with the machine's power.

The answer of a pod over HTTP has the text of the file that the variable `SERVE_FILE` of its container names, so that something
outside can read a volume.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_cluster.containers.commands import (
    START_ERROR,
    Privileges,
    container_commands,
    find_start_error,
    is_simulated,
    lacks_libraries,
)
from windrow.emulator.guest_cluster.containers.files import ContainerOS, FileTree, VolumeTree, list_mounts
from windrow.emulator.guest_cluster.containers.images import (
    PullFailure,
    find_pull_failure,
    has_image,
    pull_policy,
)
from windrow.emulator.guest_cluster.containers.preparation import (
    BadContainerConfig,
    PodContext,
    VolumeNotReady,
    expand_variables,
    prepare_environment,
    prepare_volumes,
)
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.shell.run import TERMINATION_LOG, Shell
from windrow.emulator.guest_os.storage import MountedVolume
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.events import EventRecorder
from windrow.emulator.kit.listers import key_of
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, name_of, namespace_of, nested, uid_of

SERVE_FILE = "SERVE_FILE"
_FIRST_BACKOFF_S, _MAX_BACKOFF_S = 0.5, 122.0  # of volumes
_FIRST_PULL_S, _MAX_PULL_S = 10.0, 300.0
_MAX_LINES = 5_000
_MESSAGE_LINES, _MESSAGE_BYTES = 80, 2048
_LOST = 255


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why the containers of a pod have not started: the waiting state of their status."""

    reason: str = "ContainerCreating"
    message: str = ""


CREATING = Waiting()


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """How the containers of a pod ended: the code of the first that failed, or 0, and what its status says."""

    exit_code: int = 0
    reason: str = ""  # "" for Completed or Error, by the code
    message: str = ""
    container: str = ""  # the one that failed, "" where none is known


ENDED = ContainerEnd()
LOST = ContainerEnd(_LOST, "Unknown")


@dataclass(frozen=True, slots=True)
class ContainerState:
    """The containers of a pod that act: why they have not started, whether one runs, how they ended."""

    waiting: Waiting | None = None
    is_running: bool = False
    end: ContainerEnd = ENDED


NOTHING_ACTS = ContainerState()


@dataclass(slots=True)
class _PodRecord:
    """What the node knows of one pod."""

    waiting: Waiting | None = None
    preparing: asyncio.Task[None] | None = None
    volumes: Mapping[str, FileTree] | None = None  # once they are ready
    environments: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by container
    task: asyncio.Task[None] | None = None
    done: int = 0  # how many of the containers that act have ended well
    end: ContainerEnd | None = None
    logs: dict[str, deque[tuple[datetime, str]]] = field(default_factory=dict)  # by container


def acting_containers(pod: Raw) -> list[Raw]:
    """The containers of the pod that act, those of its initialisation first."""
    containers = [
        *nested(pod, "spec", "initContainers", default=[]),
        *nested(pod, "spec", "containers", default=[]),
    ]
    return [one for one in containers if is_simulated(_words(one))]


def _words(container: Raw) -> list[str]:
    return [str(one) for one in (*(container.get("command") or ()), *(container.get("args") or ()))]


def _variables(container: Raw) -> dict[str, str]:
    return {str(one["name"]): str(one.get("value") or "") for one in container.get("env") or ()}


class Containers:
    """The containers of a node, as one kubelet knows them; one that is started again finds them as they are."""

    def __init__(self, guest: GuestOS, cluster: GuestCluster, node: str) -> None:
        self._guest, self._cluster = guest, cluster
        self._client = AdminClient(cluster.client(f"system:node:{node}", ("system:nodes", "system:masters")))
        self._events = EventRecorder(self._client, guest.host.clock, guest.host.rng)
        self._pods: dict[str, _PodRecord] = guest.storage.kubelet_containers

    # -- before they start

    def prepare(self, pod: Raw) -> Waiting | None:
        """Begin to make what the pod's containers need; why they cannot start yet, None where they can. May be repeated."""
        site = self._guest.host.network.internet
        acts = bool(acting_containers(pod))
        if not acts and site.has_every_image:
            return None
        record = self._record(pod)
        if record.preparing is None and record.volumes is None:
            record.waiting = CREATING
            record.preparing = self._guest.spawn(
                self._prepare(pod, record, acts), f"prepare pod {namespace_of(pod)}/{name_of(pod)}"
            )
        return record.waiting

    def _record(self, pod: Raw) -> _PodRecord:
        return self._pods.setdefault(uid_of(pod), _PodRecord())

    async def _prepare(self, pod: Raw, record: _PodRecord, acts: bool) -> None:
        volumes = await self._prepare_volumes(pod, record) if acts else {}
        await self._pull_images(pod, record)
        record.environments = await self._prepare_environments(pod, record) if acts else {}
        record.volumes, record.preparing = volumes, None
        self._set_waiting(pod, record, None)

    def _set_waiting(self, pod: Raw, record: _PodRecord, waiting: Waiting | None) -> None:
        if record.waiting != waiting:
            record.waiting = waiting
            self._cluster.on_pod_volumes(key_of(pod))

    def _context(self, pod: Raw) -> PodContext:
        return PodContext(pod, self._guest, self._client.find)

    async def _prepare_volumes(self, pod: Raw, record: _PodRecord) -> Mapping[str, FileTree]:
        backoff = _FIRST_BACKOFF_S
        while True:
            await self._cluster.wait_usable()
            try:
                return await prepare_volumes(self._context(pod))
            except VolumeNotReady as error:
                self._guest.log("kubelet", f"pod {namespace_of(pod)}/{name_of(pod)}: {error}")
                await self._events.record(pod, "FailedMount", str(error), "kubelet", "Warning")
            except KubeError as error:
                self._guest.log("kubelet", f"pod {namespace_of(pod)}/{name_of(pod)}: {error}")
            await self._guest.sleep(backoff)
            backoff = min(backoff * 2, _MAX_BACKOFF_S)

    async def _prepare_environments(self, pod: Raw, record: _PodRecord) -> Mapping[str, Mapping[str, str]]:
        while True:
            await self._cluster.wait_usable()
            try:
                context = self._context(pod)
                return {
                    one["name"]: await prepare_environment(context, one) for one in acting_containers(pod)
                }
            except BadContainerConfig as error:
                self._set_waiting(pod, record, Waiting("CreateContainerConfigError", str(error)))
                await self._events.record(pod, "Failed", f"Error: {error}", "kubelet", "Warning")
            except KubeError as error:
                self._guest.log("kubelet", f"pod {namespace_of(pod)}/{name_of(pod)}: {error}")
            await self._guest.sleep(_FIRST_PULL_S)

    # -- images

    async def _pull_images(self, pod: Raw, record: _PodRecord) -> None:
        backoff = _FIRST_PULL_S
        while (found := self._find_missing(pod)) is not None:
            image, failure = found
            message = f'Failed to pull image "{image}": {failure.message}'
            self._guest.log("kubelet", message)
            await self._events.record(pod, "Failed", message, "kubelet", "Warning")
            await self._events.record(pod, "Failed", f"Error: {failure.reason}", "kubelet", "Warning")
            self._set_waiting(pod, record, Waiting(failure.reason, failure.message))
            await self._guest.sleep(1)
            off = failure.backed_off(image)
            await self._events.record(
                pod, "BackOff", f'Back-off pulling image "{image}"', "kubelet", "Normal"
            )
            self._set_waiting(pod, record, Waiting(off.reason, off.message))
            await self._guest.sleep(backoff)
            backoff = min(backoff * 2, _MAX_PULL_S)
            await self._cluster.wait_usable()

    def _find_missing(self, pod: Raw) -> tuple[str, PullFailure] | None:
        site, state = self._guest.host.network.internet, self._guest.hardware.root.state
        spec = pod["spec"]
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
            image = str(container.get("image") or "")
            failure = find_pull_failure(
                image,
                pull_policy(image, str(container.get("imagePullPolicy") or "")),
                is_present=has_image(image, state.get("release images", ()), state.get("images", ())),
                mirrors=state.get("registry mirrors", {}),
                reachable=None if site.is_reachable else site.registries,
                missing=site.missing_images,
            )
            if failure is not None:
                return image, failure
        return None

    # -- while they run

    def start(self, pod: Raw, claims: Mapping[str, MountedVolume]) -> None:
        """Run the acting containers of a pod that has just been started, with its claims by name of the volume."""
        record = self._record(pod)
        volumes = self._find_volumes(claims, record)
        self._serve_files(pod, volumes)
        if acting_containers(pod) and record.task is None:
            record.task = self._guest.spawn(
                self._run(pod, volumes, record), f"pod {namespace_of(pod)}/{name_of(pod)}"
            )

    def restart(self, pod: Raw, claims: Mapping[str, MountedVolume]) -> None:
        """Run the acting containers of a pod again, from the one that failed on; all where the power was cut meanwhile."""
        record = self._record(pod)
        record.end = None
        name = f"pod {namespace_of(pod)}/{name_of(pod)}"
        record.task = self._guest.spawn(self._run_again(pod, claims, record), name)

    def stop(self, key: tuple[str, str], uid: str) -> None:
        """End what runs of a pod. May be repeated."""
        record = self._pods.get(uid)
        for task in (record.task, record.preparing) if record is not None else ():
            if task is not None:
                task.cancel()
        self._cluster.served_files.pop(key, None)

    def forget(self, uid: str) -> None:
        """The pod is gone, and its log with it. May be repeated."""
        self._pods.pop(uid, None)

    def is_running(self, pod: Raw) -> bool:
        """Whether an acting container of the pod has not ended."""
        record = self._pods.get(uid_of(pod))
        return record is not None and record.task is not None and record.end is None

    def find_end(self, pod: Raw) -> ContainerEnd:
        """How the pod's containers ended; LOST where they ran before the machine's power was cut."""
        record = self._pods.get(uid_of(pod))
        if acting_containers(pod) and (record is None or record.task is None):
            return LOST
        return (record.end if record is not None else None) or ENDED

    def find_log(self, uid: str, container: str) -> Sequence[tuple[datetime, str]] | None:
        """The lines that a container has printed; None where it has none yet."""
        record = self._pods.get(uid)
        return None if record is None or record.task is None else record.logs.get(container, ())

    async def _run_again(self, pod: Raw, claims: Mapping[str, MountedVolume], record: _PodRecord) -> None:
        if record.volumes is None:
            await self._prepare(pod, record, acts=True)
        await self._run(pod, self._find_volumes(claims, record), record)

    def _find_volumes(self, claims: Mapping[str, MountedVolume], record: _PodRecord) -> dict[str, FileTree]:
        mounted = {name: VolumeTree(one, self._guest) for name, one in claims.items() if not one.block}
        return {**mounted, **(record.volumes or {})}

    async def _run(self, pod: Raw, volumes: Mapping[str, FileTree], record: _PodRecord) -> None:
        end = ENDED
        for container in acting_containers(pod)[record.done :]:
            end = await self._run_container(pod, container, volumes, record)
            if end.exit_code:
                break
            record.done += 1
        record.end = end
        self._cluster.on_pod_volumes(key_of(pod))

    async def _run_container(
        self, pod: Raw, container: Raw, volumes: Mapping[str, FileTree], record: _PodRecord
    ) -> ContainerEnd:
        name, image = f"{namespace_of(pod)}/{name_of(pod)}", str(container.get("image") or "")
        log = record.logs[container["name"]] = deque(maxlen=_MAX_LINES)
        given = record.environments.get(container["name"], {})
        words = [expand_variables(one, given) for one in _words(container)]
        mounts = list_mounts(container, volumes)
        if error := find_start_error(words[0], image, mounts):
            self._guest.log("kubelet", f"pod {name}: {error}")
            return ContainerEnd(START_ERROR, "StartError", error, container["name"])

        def write(line: str) -> None:
            log.append((self._guest.now(), line))
            self._guest.log(name, line)

        if lacks_libraries(image, mounts):
            write(f"exec {words[0]}: no such file or directory")
            return _ended(_LOST, container, log, "")
        system = ContainerOS(self._guest, mounts, "" if nested(pod, "spec", "hostNetwork") else name_of(pod))
        told = str(container.get("terminationMessagePath") or TERMINATION_LOG)
        GuestOS.write(system, told, b"")
        try:
            commands = container_commands(self._guest, image, Privileges.of(pod, container))
            variables = {**given, "HOSTNAME": system.hostname}
            code = await Shell(system, dict(commands), variables, name, log=write).run(words)
        except Exception as error:  # what a container does must not end the machine
            write(f"panic: {type(error).__name__}: {error}")
            code = 2
        return _ended(code, container, log, system.read_text(told))

    def _serve_files(self, pod: Raw, volumes: Mapping[str, FileTree]) -> None:
        for container in nested(pod, "spec", "containers", default=[]):
            if path := _variables(container).get(SERVE_FILE):
                system = ContainerOS(self._guest, list_mounts(container, volumes))
                self._cluster.served_files[key_of(pod)] = partial(system.read_text, path)


def _ended(code: int, container: Raw, log: Sequence[tuple[datetime, str]], told: str) -> ContainerEnd:
    """The end with its termination message: what the container wrote, or the end of its log where it asked for that."""
    if not told and code and container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        lines = [line for _, line in log][-_MESSAGE_LINES:]
        told = "".join(f"{line}\n" for line in lines).encode()[-_MESSAGE_BYTES:].decode("utf-8", "replace")
    return ContainerEnd(code, "", told, container["name"])
