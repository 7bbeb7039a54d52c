"""`subresources.kubevirt.io`: start, stop, restart, migrate, volumes and the guest agent's lists (reference 05 §2.7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from windrow.apiserver.request.info import UserInfo
from windrow.apiserver.types.go_types import Field, find_mistyped
from windrow.core.formats.json import NotJson, dumps, loads
from windrow.emulator import kinds
from windrow.emulator.host.hypervisor import Hypervisor
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.vm_readings import FINAL, is_connected, phase_of, read_strategy
from windrow.emulator.release import Release
from windrow.emulator.vms import volume_requests
from windrow.emulator.vms.declared_volumes import takes_volumes
from windrow.emulator.vms.instances import interfaces
from windrow.emulator.vms.virtual_machines import set_strategy
from windrow.kubernetes.errors import BadRequest, Conflict, KubeError, NotFound, ServerError
from windrow.kubernetes.objects import Raw, is_deleting, nested, new_object, uid_of
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import ObjectRef, ref_of

Handler = Callable[[Request, ObjectRef, UserInfo], Awaitable[Reply]]

ACCEPTED = Reply(202, b"")


def _conflict(name: str, text: str) -> KubeError:
    message = f'Operation cannot be fulfilled on virtualmachine.kubevirt.io "{name}": {text}'
    details = {"name": name, "group": "kubevirt.io", "kind": "virtualmachine"}
    return Conflict(message, status=409, reason="Conflict", details=details)


_DRY_RUN = {"dryRun": Field("[]string", "[]string")}
# What the bodies decode into.
_OPTIONS: Mapping[str, Mapping[str, Field]] = {
    "StartOptions": {"paused": Field("bool", "bool"), **_DRY_RUN},
    "StopOptions": {"gracePeriod": Field("int64", "int64"), **_DRY_RUN},
    "RestartOptions": {"gracePeriodSeconds": Field("int64", "int64"), **_DRY_RUN},
    "MigrateOptions": {"addedNodeSelector": Field("{}string", "map[string]string"), **_DRY_RUN},
    "AddVolumeOptions": {
        "disk": Field("{}json", "v1.Disk"),
        "volumeSource": Field("{}json", "v1.HotplugVolumeSource"),
        **_DRY_RUN,
    },
    "RemoveVolumeOptions": _DRY_RUN,
}


def _unreadable(why: object) -> KubeError:
    text = f"Can not unmarshal Request body to struct, error: {why}"
    return BadRequest(text, status=400, reason="BadRequest")


def _options(request: Request, struct: str) -> Raw:
    if not request.body:
        return {}
    try:
        found = loads(request.body)
    except NotJson as error:
        raise _unreadable(error) from error
    if found is not None and (fault := find_mistyped(_OPTIONS.__getitem__, struct, found)):
        raise _unreadable(fault)
    options = found if isinstance(found, dict) else {}
    if "name" in options:  # a body that is no JSON of the type is read as YAML, where a number is a text, too
        options["name"] = str(options["name"])
    return options


class VmSubresources:
    """The handlers, by resource and verb."""

    def __init__(self, client: AdminClient, power: Hypervisor, release: Release) -> None:
        self._client = client
        self._release = release
        self._power = power

    def handlers(self) -> dict[tuple[str, str], Handler]:
        vm, vmi = kinds.VM_SUBRESOURCES.group_resource, kinds.VMI_SUBRESOURCES.group_resource
        return {
            (vm, "start"): self.start,
            (vm, "stop"): self.stop,
            (vm, "restart"): self.restart,
            (vm, "migrate"): self.migrate,
            (vm, "addvolume"): self.add_volume,
            (vm, "removevolume"): self.remove_volume,
            (vmi, "addvolume"): partial(self._change_volumes_of_instance, volume_requests.ADDING),
            (vmi, "removevolume"): partial(self._change_volumes_of_instance, volume_requests.REMOVING),
            (vmi, "guestosinfo"): self.guest_os_info,
            (vmi, "userlist"): partial(self._list, "VirtualMachineInstanceGuestOSUserList"),
            (vmi, "filesystemlist"): partial(self._list, "VirtualMachineInstanceFileSystemList"),
            (vmi, "softreboot"): self.soft_reboot,
        }

    # --- virtual machines ---------------------------------------------------------------------------------------

    async def start(self, request: Request, ref: ObjectRef, caller: UserInfo) -> Reply:
        vm, vmi = await self._read_vm_and_instance(ref)
        strategy = read_strategy(vm)
        if vmi is not None and phase_of(vmi) not in FINAL and phase_of(vmi) not in ("", "Unknown"):
            raise _conflict(ref.name, "VM is already running")
        dry = _is_dry(_options(request, "StartOptions"))
        if strategy in ("Always", "Once"):
            raise _conflict(ref.name, f"{strategy} does not support manual start requests")
        if strategy == "RerunOnFailure" and vmi is not None and phase_of(vmi) == "Failed":
            raise _conflict(ref.name, "RerunOnFailure does not support starting VM from failed state")
        if strategy == "Halted":
            return await self._mutate(ref, lambda raw: set_strategy(raw, "Always"), dry)
        wanted: list[Raw] = [{"action": "Start"}]
        ended = FINAL if strategy == "Manual" else {"Succeeded"}
        if vmi is not None and phase_of(vmi) in ended:
            wanted = [{"action": "Stop", "uid": uid_of(vmi)}, *wanted]
        return await self._request(ref, vm, wanted, dry)

    async def stop(self, request: Request, ref: ObjectRef, caller: UserInfo) -> Reply:
        options = _options(request, "StopOptions")
        vm, vmi = await self._read_vm_and_instance(ref)
        strategy, dry = read_strategy(vm), _is_dry(options)
        grace = options.get("gracePeriod")
        alive = vmi is not None and phase_of(vmi) not in FINAL
        if not alive and strategy not in ("Always", "Once"):
            raise _conflict(ref.name, "VM is not running")
        if strategy == "Halted":
            before = nested(vmi, "spec", "terminationGracePeriodSeconds", default=30)
            if grace is None or grace >= before:
                raise _conflict(
                    ref.name, "Halted only supports manual stop requests with a shorter graceperiod"
                )
        if vmi is not None and alive and grace is not None and not dry:
            await self._shorten_grace(vmi, int(grace))
        if strategy == "Halted":
            return ACCEPTED
        if strategy in ("Always", "Once"):
            return await self._mutate(ref, lambda raw: set_strategy(raw, "Halted"), dry)
        assert vmi is not None
        return await self._request(ref, vm, [{"action": "Stop", "uid": uid_of(vmi)}], dry)

    async def restart(self, request: Request, ref: ObjectRef, caller: UserInfo) -> Reply:
        options = _options(request, "RestartOptions")
        grace = options.get("gracePeriodSeconds")
        if grace:
            text = "For force restart, only gracePeriod=0 is supported for now"
            if grace < 0:
                text = "gracePeriod has to be greater or equal to 0"
            raise BadRequest(text, status=400, reason="BadRequest")
        vm, vmi = await self._read_vm_and_instance(ref)
        if (strategy := read_strategy(vm)) in ("Halted", "Once"):
            # The misspelling is as shipped.
            raise _conflict(ref.name, f"RunStategy {strategy} does not support manual restart requests")
        if vmi is None:
            raise _conflict(ref.name, "VM is not running: Halted")
        if grace == 0 and not _is_dry(options):
            await self._shorten_grace(vmi, 0)
        wanted: list[Raw] = [{"action": "Stop", "uid": uid_of(vmi)}, {"action": "Start"}]
        return await self._request(ref, vm, wanted, _is_dry(options))

    async def migrate(self, request: Request, ref: ObjectRef, caller: UserInfo) -> Reply:
        options = _options(request, "MigrateOptions")
        _, vmi = await self._read_vm_and_instance(ref)
        if vmi is None:
            raise _not_found(ref.name, "virtualmachineinstance")
        if phase_of(vmi) != "Running":
            raise _conflict(ref.name, "VM is not running")
        if not _is_dry(options):
            raw = new_object(kinds.MIGRATION, "", ref.namespace, spec={"vmiName": ref.name})
            raw["metadata"] = {"generateName": "kubevirt-migrate-vm-", "namespace": ref.namespace}
            await self._client.create(kinds.MIGRATION, raw)
        return ACCEPTED

    async def add_volume(self, request: Request, ref: ObjectRef, caller: UserInfo) -> Reply:
        return await self._change_volumes(request, ref, volume_requests.ADDING)

    async def remove_volume(self, request: Request, ref: ObjectRef, caller: UserInfo) -> Reply:
        return await self._change_volumes(request, ref, volume_requests.REMOVING)

    async def _change_volumes(
        self, request: Request, ref: ObjectRef, change: volume_requests.VolumeChange
    ) -> Reply:
        options = _options(request, change.options)
        change.check(options)
        vm, vmi = await self._read_vm_and_instance(ref)
        if why := change.find_conflict(vm, options):
            raise _conflict(ref.name, why)
        try:
            reply = await self._mutate(ref, lambda raw: change.edit(raw, options), _is_dry(options))
        except KubeError as error:
            if error.reason == "Invalid":
                raise
            raise _internal(f"unable to patch vm: {error.message}") from error
        if not self._release.has_declarative_hotplug and takes_volumes(vmi) and not _is_dry(options):
            await self._change_running(change, options, ref)
        return reply

    async def _change_running(
        self, change: volume_requests.VolumeChange, options: Raw, ref: ObjectRef
    ) -> None:
        """The instance follows its VM, which KubeVirt's controller sees to; what it has or lacks already stays."""

        def edit(raw: Raw) -> None:
            if not change.find_conflict(_as_template(raw), options):
                change.edit(_as_template(raw), options)

        await self._client.mutate(kinds.VMI.ref(ref.name, ref.namespace), edit)

    async def _change_volumes_of_instance(
        self, change: volume_requests.VolumeChange, request: Request, ref: ObjectRef, caller: UserInfo
    ) -> Reply:
        """With declarative hot-plug only the template of its VirtualMachine may be changed. Before, the instance could be,
        until it ended."""
        instance = kinds.VMI.ref(ref.name, ref.namespace)
        vmi = await self._client.find(instance)
        if vmi is None:
            raise _not_found(ref.name, "virtualmachineinstance")
        if self._release.has_declarative_hotplug:
            text = f"VMI {ref.namespace}/{ref.name} is owned by a VM"
            raise BadRequest(text, status=400, reason="BadRequest")
        options = _options(request, change.options)
        change.check(options)
        if why := change.find_conflict(_as_template(vmi), options):
            raise _conflict(ref.name, why)
        await self._client.mutate(
            instance, lambda raw: change.edit(_as_template(raw), options), is_dry_run=_is_dry(options)
        )
        return ACCEPTED

    async def _read_vm_and_instance(self, ref: ObjectRef) -> tuple[Raw, Raw | None]:
        vm = await self._client.find(kinds.VM.ref(ref.name, ref.namespace))
        if vm is None:
            raise _not_found(ref.name, "virtualmachine")
        return vm, await self._client.find(kinds.VMI.ref(ref.name, ref.namespace))

    async def _request(self, ref: ObjectRef, vm: Raw, wanted: list[Raw], dry: bool) -> Reply:
        if nested(vm, "status", "stateChangeRequests", default=[]):
            raise _internal("unable to complete request: stop/start already underway")

        def edit(raw: Raw) -> None:
            raw.setdefault("status", {})["stateChangeRequests"] = wanted

        return await self._mutate(ref, edit, dry, "status")

    async def _mutate(
        self, ref: ObjectRef, edit: Callable[[Raw], None], dry: bool, subresource: str = ""
    ) -> Reply:
        await self._client.mutate(kinds.VM.ref(ref.name, ref.namespace), edit, subresource, is_dry_run=dry)
        return ACCEPTED

    async def _shorten_grace(self, vmi: Raw, seconds: int) -> None:
        ref = ref_of(kinds.VMI, vmi)
        await self._client.mutate(ref, lambda raw: raw["spec"].update(terminationGracePeriodSeconds=seconds))

    # --- instances ----------------------------------------------------------------------------------------------

    async def guest_os_info(self, request: Request, ref: ObjectRef, caller: UserInfo) -> Reply:
        vmi = await self._client.get(kinds.VMI.ref(ref.name, ref.namespace))
        if error := _find_agent_error(vmi):
            return error
        session = self._power.find(uid_of(vmi))
        report = session.report if session else None
        body: Raw = {
            "guestAgentVersion": "8.2.2",
            "supportedCommands": [{"name": "guest-ping", "enabled": True, "success-response": True}],
            "hostname": report.hostname if report else ref.name,
            "os": interfaces.render_guest_os(report)
            if report
            else nested(vmi, "status", "guestOSInfo", default={}),
            "timezone": "UTC, 0",
            "userList": [],
            "fsInfo": {"disks": []},
        }
        return _json(body)

    async def _list(self, kind: str, request: Request, ref: ObjectRef, caller: UserInfo) -> Reply:
        if error := _find_agent_error(await self._client.get(kinds.VMI.ref(ref.name, ref.namespace))):
            return error
        return _json({"kind": kind, "apiVersion": "subresources.kubevirt.io/v1", "metadata": {}, "items": []})

    async def soft_reboot(self, request: Request, ref: ObjectRef, caller: UserInfo) -> Reply:
        vmi = await self._client.get(kinds.VMI.ref(ref.name, ref.namespace))
        if phase_of(vmi) != "Running" or is_deleting(vmi):
            raise _conflict(ref.name, "VMI is not running")
        self._power.reset(uid_of(vmi))
        return Reply(200, b"")


def _as_template(vmi: Raw) -> Raw:
    """The instance in the form of a VM whose template it is, which shares its spec."""
    return {"spec": {"template": {"spec": vmi["spec"]}}}


def _not_found(name: str, kind: str) -> NotFound:
    details = {"name": name, "group": "kubevirt.io", "kind": kind}
    return NotFound(f'{kind}.kubevirt.io "{name}" not found', status=404, reason="NotFound", details=details)


def _find_agent_error(vmi: Raw) -> Reply | None:
    """The reply while the guest agent cannot be asked: plain text and not a Status, as shipped."""
    if phase_of(vmi) != "Running":
        return Reply(500, b"VMI is not running", "text/plain")
    if not is_connected(vmi):
        return Reply(500, b"VMI does not have guest agent connected", "text/plain")
    return None


def _internal(why: str) -> ServerError:
    return ServerError(f"Internal error occurred: {why}", status=500, reason="InternalError")


def _is_dry(options: Raw) -> bool:
    return bool(options.get("dryRun"))


def _json(body: Mapping[str, Any]) -> Reply:
    return Reply(200, dumps(dict(body)))
