"""A user's account on Harvester: bearer tokens that are made and revoked, and the kubeconfig with one of them."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import yaml
from tests.chaos.api import Api

# A namespace and a name that the inventory leaves out: the account is no part of the cluster.
NAMESPACE, ACCOUNT = "cattle-system", "system-of-the-user"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"


@dataclass
class UserAccount:
    """An administrator's ServiceAccount on the Harvester behind `api`."""

    api: Api
    tokens: int = 0

    async def create(self) -> None:
        subject = {"kind": "ServiceAccount", "namespace": NAMESPACE, "name": ACCOUNT}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        await self.api.demand(
            "POST", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": ACCOUNT}}
        )
        await self.api.demand(
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            {"metadata": {"name": f"system:{ACCOUNT}"}, "subjects": [subject], "roleRef": role},
        )

    async def new_token(self) -> str:
        """A token that is valid until `revoke`."""
        self.tokens += 1
        name = f"{ACCOUNT}-{self.tokens}"
        head = {"name": name, "annotations": {"kubernetes.io/service-account.name": ACCOUNT}}
        await self.api.demand(
            "POST", SECRETS, {"metadata": head, "type": "kubernetes.io/service-account-token"}
        )
        while True:
            raw = await self.api.demand("GET", f"{SECRETS}/{name}")
            if token := (raw.get("data") or {}).get("token"):
                return b64decode(token).decode()
            await asyncio.sleep(0.05)

    async def list_tokens(self) -> list[str]:
        """The names of the tokens that there are."""
        names = [raw["metadata"]["name"] for raw in await self.api.list(SECRETS)]
        return [name for name in names if name.startswith(f"{ACCOUNT}-")]

    async def revoke(self, names: Iterable[str]) -> None:
        for name in names:
            await self.api.demand("DELETE", f"{SECRETS}/{name}")


def render_kubeconfig(original: str, token: str, proxy_port: int) -> str:
    """The kubeconfig with this token for its user's certificate, by way of a proxy on this computer."""
    raw: dict[str, Any] = yaml.safe_load(original)
    raw["clusters"][0]["cluster"]["proxy-url"] = f"http://127.0.0.1:{proxy_port}"
    raw["users"][0]["user"] = {"token": token}
    return yaml.safe_dump(raw)
