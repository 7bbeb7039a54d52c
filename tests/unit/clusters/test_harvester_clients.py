"""Clients of Harvester by credential Secret, from the secrets that the controller keeps."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.client.client import Client
from windrow.client.informer import Informer
from windrow.client.mutation_cache import MutationCache
from windrow.clusters.api.names import CREDENTIAL_KEY
from windrow.clusters.api.secrets import CredentialError, SecretData, read_secret_data
from windrow.clusters.sources.harvesters import HarvesterClients, VmLocation
from windrow.core.rng import Rng
from windrow.harvester.identity import IDENTITY
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import Raw, new_object, uid_of
from windrow.kubernetes.resources import NAMESPACE, SECRET


def a_secret(version: int, token: str) -> Raw:
    text = render_kubeconfig(ClientConfig("https://10.0.0.1:6443", token=token), "harvester")
    secret = new_object(SECRET, "cc", "ns", data={CREDENTIAL_KEY: base64.b64encode(text.encode()).decode()})
    secret["metadata"]["resourceVersion"] = str(version)
    return secret


def test_a_kubeconfig_is_parsed_again_when_its_secret_has_changed_and_not_before():
    async def story() -> None:
        clock, rng = LoopClock(), Rng(1)
        api = ApiServer(MemoryStore(), clock, rng).local()
        secrets: MutationCache[SecretData] = MutationCache(
            Informer(api, SECRET, "", read_secret_data, clock, rng), lambda one: one.resource_version, clock
        )
        harvesters = HarvesterClients(secrets, lambda access: api)
        secrets.mutated(a_secret(1, "first"))
        first = harvesters.get_config("ns:cc", "ns")
        secrets.mutated(a_secret(2, "first"))
        assert harvesters.read_config("ns:cc") is first
        secrets.mutated(a_secret(3, "second"))
        assert (first.token, harvesters.get_config("ns:cc", "ns").token) == ("first", "second")

        other = a_secret(4, "third")
        secrets.mutated(other | {"data": {"kubeconfig": other["data"][CREDENTIAL_KEY]}})
        for read in (harvesters.read_config, lambda name: harvesters.get_config(name, "ns")):
            with pytest.raises(CredentialError, match=f"Secret ns/cc has no key {CREDENTIAL_KEY}"):
                read("ns:cc")

        secrets.deleted(SECRET.ref("cc", "ns"), "5")
        for _ in range(2):
            with pytest.raises(CredentialError, match="does not exist"):
                harvesters.read_config("ns:cc")

    run_driven(story())


def test_the_client_for_a_vm_is_that_of_the_very_harvester_it_was_made_on():
    async def story() -> None:
        clock, rng = LoopClock(), Rng(1)
        api = ApiServer(MemoryStore(), clock, rng).local()
        host = Client(api)
        found = await host.find(IDENTITY) or await host.create(
            NAMESPACE, new_object(NAMESPACE, IDENTITY.name)
        )
        secrets: MutationCache[SecretData] = MutationCache(
            Informer(api, SECRET, "", read_secret_data, clock, rng), lambda one: one.resource_version, clock
        )
        harvesters = HarvesterClients(secrets, lambda access: api)
        secrets.mutated(a_secret(1, "token"))
        vm = VmLocation("default", "w1", "ns:cc", uid_of(found))

        assert await harvesters.get_verified_client(vm, "ns") is harvesters.get_client("ns:cc", "ns")
        with pytest.raises(CredentialError) as caught:
            await harvesters.get_verified_client(replace(vm, harvester="another"), "ns")
        assert f"Harvester ({uid_of(found)}) than the one with VirtualMachine default/w1 (another)" in str(
            caught.value
        )

    run_driven(story())


def test_of_a_secret_that_concerns_no_cluster_the_data_are_not_kept():
    secret = a_secret(1, "token")

    kept = read_secret_data(secret | {"data": {"password": secret["data"][CREDENTIAL_KEY]}})

    assert (kept.name, kept.data) == ("cc", {})
    assert CREDENTIAL_KEY in read_secret_data(secret).data
