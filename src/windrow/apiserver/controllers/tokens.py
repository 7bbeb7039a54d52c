"""The token Secret controller: fills Secrets of type service-account-token, deletes those without a ServiceAccount."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from windrow.apiserver.context import ServerContext
from windrow.apiserver.controllers.loop import Key, StoreController, split_key
from windrow.apiserver.request.info import UserInfo
from windrow.apiserver.service_account_tokens import ServiceAccountTokens
from windrow.apiserver.storage.port import Change, Entry
from windrow.apiserver.types.registry import ResourceType
from windrow.core.text import encode_base64
from windrow.kubernetes.resources import SECRET, SERVICE_ACCOUNT

Raw = dict[str, Any]

TYPE = "kubernetes.io/service-account-token"
NAME = "kubernetes.io/service-account.name"
UID = "kubernetes.io/service-account.uid"


class TokenSecretController(StoreController):
    user = UserInfo("system:kube-controller-manager", ("system:masters", "system:authenticated"))

    def __init__(
        self, context: ServerContext, tokens: ServiceAccountTokens, root_ca: Callable[[], str]
    ) -> None:
        super().__init__(context)
        self._tokens, self._root_ca = tokens, root_ca

    async def list_keys(self) -> Iterable[Key]:
        return [
            (entry.key,) for entry in await self._context.entries(SECRET) if entry.raw.get("type") == TYPE
        ]

    def keys_of_change(self, change: Change) -> Iterable[Key]:
        group, plural, namespace, name = split_key(change.key)
        if (group, plural) == ("", "secrets") and change.after and change.after.raw.get("type") == TYPE:
            return [(change.key,)]
        if (group, plural) == ("", "serviceaccounts") and change.after is None:
            return [("account", namespace, name)]
        return []

    async def reconcile(self, key: Key) -> None:
        type = self._context.registry.find_kind(SECRET)
        if type is None:
            return
        if key[0] == "account":
            for entry in await self._context.entries(SECRET, key[1]):
                annotations = entry.raw["metadata"].get("annotations") or {}
                if entry.raw.get("type") == TYPE and annotations.get(NAME) == key[2]:
                    self._queue.add((entry.key,))
            return
        found = await self._context.store.find(key[0])
        if found is not None:
            await self._fill(type, found)

    async def _fill(self, type: ResourceType, entry: Entry) -> None:
        head = entry.raw["metadata"]
        annotations = head.get("annotations") or {}
        if head.get("deletionTimestamp") or NAME not in annotations:
            return
        account = await self._context.find(SERVICE_ACCOUNT, annotations[NAME], head["namespace"])
        uid = account.raw["metadata"]["uid"] if account else ""
        if account is None or annotations.get(UID, uid) != uid:
            await self.delete(type, entry)
            return
        data = entry.raw.get("data") or {}
        wanted = {"namespace": encode_base64(head["namespace"])}
        if self._root_ca():
            wanted["ca.crt"] = encode_base64(self._root_ca())
        if not data.get("token"):
            wanted["token"] = encode_base64(await self._tokens.issue(account.raw, secret=entry.raw))
        if all(data.get(name) == value for name, value in wanted.items()) and UID in annotations:
            return
        filled = {
            **entry.raw,
            "metadata": {**head, "annotations": {**annotations, UID: uid}},
            "data": {**data, **wanted},
        }
        await self.commit(entry, filled)
