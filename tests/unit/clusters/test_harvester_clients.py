"""Clients of Harvester by credential Secret, from the secrets that the controller keeps."""

from __future__ import annotations

import base64

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.client.informer import Informer
from windrow.client.mutation_cache import MutationCache
from windrow.clusters.api.names import CREDENTIAL_KEY
from windrow.clusters.api.secrets import CredentialError, SecretData, read_secret_data
from windrow.clusters.sources.harvesters import HarvesterClients
from windrow.core.rng import Rng
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import SECRET


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

        secrets.deleted(SECRET.ref("cc", "ns"), "4")
        for _ in range(2):
            with pytest.raises(CredentialError, match="does not exist"):
                harvesters.read_config("ns:cc")

    run_driven(story())
