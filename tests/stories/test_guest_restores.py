"""Restores of guests on the emulated Harvester, from a bucket of its site: what `bootstrap` renders, and etcd's own rules, agree."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.support.clock import NOON, run_driven

from windrow.bootstrap.pki import new_cluster_secrets
from windrow.bootstrap.spec import ClusterSecrets, Restore, Role
from windrow.core import pki
from windrow.core.formats.json import dumps, loads
from windrow.core.text import encode_base64
from windrow.emulator.guest_cluster.cluster import GuestCluster
from windrow.emulator.guest_os.machine import machine_factory
from windrow.emulator.harvester import Harvester
from windrow.emulator.storage.object_store import ObjectStore
from windrow.kubernetes import requests
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import name_of
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import CONFIG_MAP, NODE

from .harvester_rig import a_harvester, eventually, order, shows, vm_ref
from .test_guests_on_harvester import an_intent, let_pass, stand_up, until_ready

HOST = "10.99.0.9"


class Guest:
    """The guest cluster's servers, as a client with its secrets asks them."""

    def __init__(self, harvester: Harvester, secrets: ClusterSecrets, store: ObjectStore) -> None:
        self.harvester, self.secrets, self.store = harvester, secrets, store
        self.certificate, _ = pki.issue_certificate(
            secrets.client_ca.certificate,
            secrets.client_ca.key,
            common_name="admin",
            organizations=("system:masters",),
            client=True,
            now=NOON,
            lifetime=timedelta(days=2),
        )

    async def send(self, address: str, port: int, request: Request) -> Any:
        door = self.harvester.network.find(address, port)
        assert door is not None
        reply = await door.send(request, Peer(self.certificate))
        assert reply.status < 300, reply.body.decode()
        return loads(reply.body)

    async def names(self, address: str, kind: Any, namespace: str = "") -> set[str]:
        found = await self.send(address, 6443, requests.list_(kind, namespace))
        return {name_of(raw) for raw in found["items"]}

    async def make(self, address: str, name: str) -> None:
        raw = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        await self.send(address, 6443, requests.create(CONFIG_MAP, raw, "default"))

    def s3(self) -> dict[str, str]:
        return {
            "endpoint": f"{HOST}:9000",
            "bucket": "etcd",
            "folder": "mine",
            "accessKey": self.store.access_key,
            "secretKey": self.store.secret_key,
        }

    async def save(self, address: str) -> str:
        """A snapshot in the bucket; its name."""
        s3 = {**self.s3(), "endpointCA": encode_base64(self.store.ca)}
        pair = encode_base64(f"server:{self.secrets.server_password}")
        body = dumps({"operation": "save", "name": ["mine"], "s3": s3})
        headers = (("Authorization", f"Basic {pair}"),)
        made = await self.send(address, 9345, Request("POST", "/db/snapshot", body=body, headers=headers))
        return str(made["created"][0])

    def restore(self, name: str) -> Restore:
        return Restore("restore-1", name, {**self.s3(), "endpointCA": self.store.ca})


def test_a_new_server_restores_the_cluster_of_lost_ones_and_its_worker_goes_on():
    async def story() -> None:
        clusters: dict[str, GuestCluster] = {}
        async with a_harvester(machine=machine_factory({}, clusters=clusters)) as harvester:
            store = ObjectStore(harvester.clock.base, ["etcd"])
            store.listen(harvester.network, HOST)
            secrets = new_cluster_secrets(NOON)
            guest = Guest(harvester, secrets, store)
            first = await stand_up(harvester, an_intent(secrets, "one"))
            await stand_up(
                harvester, an_intent(secrets, "four", frozenset({Role.WORKER}), f"https://{first}:9345")
            )
            await until_ready(harvester, secrets, first, {"one", "four"})
            await guest.make(first, "kept")
            name = await guest.save(first)
            await guest.make(first, "later")
            await order(harvester, "stop", "one")
            await eventually(harvester, vm_ref("one"), shows("Stopped"))

            intent = replace(an_intent(secrets, "two"), restore=guest.restore(name))
            second = await stand_up(harvester, intent)
            await until_ready(harvester, secrets, second, {"two", "four"})

            assert await guest.names(second, CONFIG_MAP, "default") == {"kept", "kube-root-ca.crt"}
            assert await guest.names(second, NODE) == {"one", "two", "four"}
            assert len(clusters) == 1
            await let_pass(harvester, 60)  # a service that starts again restores nothing again
            await guest.make(second, "since")
            await order(harvester, "stop", "two")
            await eventually(harvester, vm_ref("two"), shows("Stopped"))
            await let_pass(harvester, 5)
            assert await order(harvester, "start", "two") == 202
            await let_pass(harvester, 60)
            await until_ready(harvester, secrets, second, {"two", "four"})
            assert "since" in await guest.names(second, CONFIG_MAP, "default")

            assert await order(harvester, "start", "one") == 202
            await let_pass(harvester, 120)
            assert any(
                "not a member of the etcd cluster" in line for line in harvester.console("default", "one")
            )

    run_driven(story())


@pytest.mark.parametrize("change", ["keys", "name", "token"])
def test_a_restore_that_fails_starts_no_empty_cluster_and_succeeds_once_it_can(change: str):
    async def story() -> None:
        clusters: dict[str, GuestCluster] = {}
        async with a_harvester(machine=machine_factory({}, clusters=clusters)) as harvester:
            store = ObjectStore(harvester.clock.base, ["etcd"])
            store.listen(harvester.network, HOST)
            secrets = new_cluster_secrets(NOON)
            guest = Guest(harvester, secrets, store)
            first = await stand_up(harvester, an_intent(secrets, "one"))
            await until_ready(harvester, secrets, first, {"one"})
            await guest.make(first, "kept")
            name = await guest.save(first)
            await order(harvester, "stop", "one")
            await eventually(harvester, vm_ref("one"), shows("Stopped"))

            restore = guest.restore(name if change != "name" else "mine-lost-1")
            other = replace(secrets, server_password="another") if change == "token" else secrets
            if change == "keys":
                store.access_key = "rotated"
            second = await stand_up(harvester, replace(an_intent(other, "two"), restore=restore))
            await let_pass(harvester, 180)

            told = {
                "keys": "failed to test for existence of bucket etcd: Access Denied.",
                "name": "The specified key does not exist.",
                "token": "bootstrap data already found and encrypted with different token",
            }
            assert any(told[change] in line for line in harvester.console("default", "two"))
            assert harvester.network.find(second, 6443) is None
            assert len(clusters) == 1
            if change == "token":
                return
            store.access_key = "snapshots"
            store.buckets["etcd"]["mine/mine-lost-1"] = store.buckets["etcd"][f"mine/{name}"]
            await until_ready(harvester, secrets, second, {"two"})
            assert "kept" in await guest.names(second, CONFIG_MAP, "default")

    run_driven(story())
