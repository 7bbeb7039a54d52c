"""`GET /v1-<rt>/encrypt/status` and `PUT /v1-<rt>/encrypt/config` of a server (reference/10-day2 §2.8).

`prepare`, `rotate` and `reencrypt_active` are the stages of the classic way, with a restart of every server after each;
`rotate_keys` does all at once, while the request waits. A server that ends in between leaves the stage before.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from windrow.apiserver.apierrors import error_reply, status_error
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.emulator.guest_cluster.cluster import GuestCluster, ServerInstance
from windrow.emulator.guest_cluster.datastore.snapshot_requests import BadRequest, error_with_id, read_body
from windrow.emulator.guest_cluster.rotation.encryption import (
    PREPARE,
    PROVIDERS,
    REENCRYPT_ACTIVE,
    REENCRYPT_FINISHED,
    ROTATE,
    ROTATE_KEYS,
    START,
    Encryption,
    encryption_path,
    write_encryption,
)
from windrow.emulator.guest_os.notifier import result_unless
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.edits import annotate
from windrow.emulator.kit.events import EventRecorder
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import Raw, annotations_of, labels_of, name_of, new_object
from windrow.kubernetes.requests import Reply, Request
from windrow.kubernetes.resources import NODE, SECRET

_COMPONENT = "secret-encrypt"
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
_NOT_READY = "runtime core not ready"
_BETWEEN = (START, REENCRYPT_FINISHED)  # the stages in which a rotation may begin


class StageRefused(Exception):
    """The stage cannot be taken; the message is for the server's log."""


class EncryptionRoutes:
    """The answers of one server."""

    def __init__(self, guest: GuestOS, cluster: GuestCluster, server: ServerInstance) -> None:
        self.guest = guest
        self.cluster = cluster
        self.server = server
        self._annotation = server.settings.distribution.node_annotation("encryption-config-hash")
        self._rng = Rng(f"encryption of {cluster.uid} {server.node} {guest.now()}")

    # -- status

    async def status(self, request: Request) -> Reply:
        if not self.cluster.is_usable():
            return error_with_id(_COMPONENT, _NOT_READY, self.server)
        encryption = self.cluster.encryption
        if encryption is None:
            return Reply(200, dumps({"stage": "", "activekey": ""}))
        try:
            return Reply(200, dumps(await self._describe(encryption)))
        except (StageRefused, KubeError) as error:
            return error_with_id(_COMPONENT, str(error), self.server)

    async def _describe(self, encryption: Encryption) -> Raw:
        nodes = await self._list_servers()
        algorithm = PROVIDERS[encryption.provider][1]
        active, *others = [f"{algorithm} {key.name}" for key in encryption.keys]
        said: Raw = {
            "stage": self._read_own(nodes)[0],
            "activekey": active if encryption.is_enabled else "",
            "enable": encryption.is_enabled,
        }
        if differing := self._find_differing(nodes):
            said["hasherror"] = differing
        else:
            said["hashmatch"] = True
        inactive = others if encryption.is_enabled else [active, *others]
        return {**said, "inactivekeys": inactive} if inactive else said

    async def _list_servers(self) -> list[Raw]:
        return await self.cluster.client().list(NODE, labels=f"{_CONTROL_PLANE}=true")

    def _find_differing(self, nodes: list[Raw]) -> str:
        """Which two servers use different keys, "" where all use the same."""
        said = [(name_of(raw), annotations_of(raw).get(self._annotation)) for raw in nodes]
        known = [(name, hash) for name, hash in said if hash]
        for name, hash in known[1:]:
            if hash != known[0][1]:
                return f"hash does not match between {known[0][0]} and {name}"
        return ""

    def _read_own(self, nodes: list[Raw]) -> tuple[str, str]:
        """Stage and hash on this server's Node. Raises StageRefused."""
        name = self.server.node
        own = next((raw for raw in nodes if name_of(raw) == name), None)
        if own is None or _CONTROL_PLANE not in labels_of(own):
            raise StageRefused(f"cannot manage secrets encryption on non control-plane node {name}")
        if not (said := annotations_of(own).get(self._annotation, "")):
            raise StageRefused(f"missing annotation on node {name}")
        stage, dash, hash = said.partition("-")
        if not dash or "-" in hash:
            raise StageRefused(f"invalid annotation {said} found on node {name}")
        return stage, hash

    # -- stages

    async def configure(self, request: Request) -> Reply:
        if request.method != "PUT":
            return error_reply(status_error(405, "method not allowed"))
        if not self.cluster.is_usable():
            return error_reply(status_error(503, _NOT_READY))
        try:
            raw = read_body(request)
            stage, is_forced = _read_stage(raw), raw.get("force") is True
        except BadRequest as error:
            return error_reply(status_error(400, str(error)))
        try:
            if stage is not None:
                await self._take(stage, is_forced=is_forced)
            elif raw.get("enable") is not None:
                await self._enable(bool(raw["enable"]))
        except (StageRefused, KubeError) as error:
            return error_with_id(_COMPONENT, str(error), self.server, 400)
        await self.guest.sleep(1)  # real servers wait for their disks
        return Reply(200)

    async def _take(self, stage: str, *, is_forced: bool) -> None:
        stages: dict[str, tuple[tuple[str, ...], Callable[[Encryption], Awaitable[None]]]] = {
            PREPARE: (_BETWEEN, self._prepare),
            ROTATE: ((PREPARE,), self._rotate),
            REENCRYPT_ACTIVE: ((ROTATE,), self._start_reencryption),
            ROTATE_KEYS: (_BETWEEN, self._rotate_keys),
        }
        if stage not in stages:
            raise StageRefused(f"unknown stage {stage} requested")
        before, take = stages[stage]
        encryption = self.cluster.encryption
        if encryption is None:
            raise StageRefused(f"open {encryption_path(self.server.settings)}: no such file or directory")
        if not is_forced or stage == ROTATE_KEYS:
            await self._verify(before, encryption)
        if encryption.provider == "secretbox" and stage != ROTATE_KEYS:
            name = "reencrypt" if stage == REENCRYPT_ACTIVE else stage
            raise StageRefused(f"{name} does not support secretbox key type, use rotate-keys instead")
        await take(encryption)

    async def _verify(self, before: tuple[str, ...], encryption: Encryption) -> None:
        """Raises StageRefused unless all servers use the same keys, and are at one of these stages."""
        nodes = await self._list_servers()
        if differing := self._find_differing(nodes):
            raise StageRefused(differing)
        stage, hash = self._read_own(nodes)
        if stage not in before:
            raise StageRefused(f"incorrect stage: {stage} found on node {name_of(nodes[0])}")
        if hash != encryption.hash:
            raise StageRefused(f"invalid hash: {hash} found on node {name_of(nodes[0])}")

    async def _prepare(self, encryption: Encryption) -> None:
        await self._save(encryption.with_new_key(self._rng, self.guest.now()).at(PREPARE))

    async def _rotate(self, encryption: Encryption) -> None:
        await self._save(encryption.rotated().at(ROTATE))

    async def _start_reencryption(self, encryption: Encryption) -> None:
        """It goes on after the answer."""
        await self._announce(encryption.annotation_at(REENCRYPT_ACTIVE))
        self.guest.spawn(self._unless_stopped(self._reencrypt(encryption)), "reencryption of Secrets")

    async def _rotate_keys(self, encryption: Encryption) -> None:
        await self._announce(encryption.annotation_at(REENCRYPT_ACTIVE))
        await self._unless_stopped(self._reload_and_reencrypt(encryption))

    async def _reload_and_reencrypt(self, encryption: Encryption) -> None:
        added = encryption.with_new_key(self._rng, self.guest.now()).rotated()
        await self.guest.sleep(self.guest.delays.encryption_reload)
        await self._reencrypt(added)

    async def _unless_stopped(self, work: Awaitable[None]) -> None:
        await result_unless(work, self.server.stopped.wait())

    async def _reencrypt(self, encryption: Encryption) -> None:
        await self.guest.sleep(self.guest.delays.reencryption)
        await self.cluster.wait_usable()
        count = len(await self.cluster.client().list(SECRET))
        await self._save(encryption.without_old_key().at(REENCRYPT_FINISHED))
        events = EventRecorder(AdminClient(self.cluster.client()), self.cluster.clock, self._rng)
        about = new_object(NODE, self.server.node)
        await events.record(
            about, "SecretsUpdateComplete", f"reencrypted {count} secrets", "secrets-reencrypt"
        )

    async def _enable(self, wanted: bool) -> None:
        encryption = self.cluster.encryption
        if encryption is None:
            raise StageRefused("unable to enable/disable secrets encryption, unknown configuration")
        if encryption.is_enabled != wanted:
            changed = Encryption(encryption.provider, encryption.keys, encryption.stage, wanted)
            await self.guest.sleep(self.guest.delays.reencryption)
            await self._save(changed)

    async def _save(self, encryption: Encryption) -> None:
        """This server uses these keys, and others will when they start again."""
        self.cluster.encryption = encryption
        write_encryption(self.guest, self.server.settings, encryption)
        await self._announce(encryption.annotation)

    async def _announce(self, text: str) -> None:
        wanted = {self._annotation: text}
        await self.cluster.edit(NODE.ref(self.server.node), lambda raw: annotate(raw, wanted))


def _read_stage(raw: dict[str, Any]) -> str | None:
    stage = raw.get("stage")
    if stage is not None and not isinstance(stage, str):
        raise BadRequest("json: cannot unmarshal into Go struct field EncryptionRequest.stage of type string")
    return stage
