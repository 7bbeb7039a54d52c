from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.client.client import Client
from windrow.clusters.registries import RegistrySecretError, check_registries, resolve_registries
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import SECRET

HOST = "registry.example.com"


def resolved(config: dict[str, Any], **secrets: dict[str, str]) -> dict[str, Any]:
    async def story() -> dict[str, Any]:
        api = ApiServer(MemoryStore(), LoopClock(), Rng(1))
        client = Client(api.local())
        for name, data in secrets.items():
            encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
            await client.create(SECRET, new_object(SECRET, name, "default", data=encoded))
        registries = {"mirrors": {"docker.io": {"endpoint": ["https://m"]}}, "configs": {HOST: config}}
        assert bool(await check_registries(client, "default", registries)) == bool(config.get("_broken"))
        return await resolve_registries(client, "default", registries)

    return run_driven(story())


def test_user_and_password_come_from_the_named_secret():
    found = resolved({"authConfigSecretName": "auth"}, auth={"username": "u", "password": "p"})

    assert found["configs"][HOST]["auth"] == {"username": "u", "password": "p"}
    assert found["mirrors"] == {"docker.io": {"endpoint": ["https://m"]}}


def test_a_docker_configuration_is_understood():
    text = dumps({"auths": {HOST: {"auth": "dTpw"}}}).decode()

    found = resolved({"authConfigSecretName": "auth"}, auth={".dockerconfigjson": text})

    assert found["configs"][HOST]["auth"] == {"auth": "dTpw"}


def test_a_client_certificate_comes_from_the_named_secret():
    found = resolved({"tlsSecretName": "tls"}, tls={"tls.crt": "c", "tls.key": "k"})

    assert found["configs"][HOST]["tls"] == {"cert": "c", "key": "k"}


def test_without_secrets_nothing_is_asked():
    assert resolved({"insecureSkipVerify": True})["configs"] == {HOST: {"insecureSkipVerify": True}}


@pytest.mark.parametrize(
    ("config", "secrets", "words"),
    [
        ({"authConfigSecretName": "auth"}, {}, "Secret default/auth, which does not exist"),
        ({"authConfigSecretName": "auth"}, {"auth": {"other": "x"}}, "holds no credentials"),
        ({"authConfigSecretName": "auth"}, {"auth": {".dockerconfigjson": "{"}}, "holds no credentials"),
        ({"tlsSecretName": "tls"}, {"tls": {"tls.crt": "c"}}, "holds no client certificate"),
    ],
)
def test_a_secret_that_is_absent_or_empty_is_named(config, secrets, words):
    with pytest.raises(RegistrySecretError, match=words):
        resolved({**config, "_broken": True}, **secrets)
