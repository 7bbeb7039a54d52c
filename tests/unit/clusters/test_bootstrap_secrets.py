from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.client.client import Client
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.api.names import AUTHORIZED_CLUSTERS
from windrow.clusters.api.secrets import CredentialError
from windrow.clusters.bootstrap_secrets import (
    BootstrapSecretError,
    check_secrets,
    read_files,
    resolve_registries,
    resolve_s3,
)
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.resources import CONFIG_MAP, SECRET
from windrow.machines.port import Problem

ACCESS = {"s3credentialConfig-accessKey": "AK", "s3credentialConfig-secretKey": "SK"}


def consent(reference: str, namespace: str) -> None:
    """That of a Secret for its own namespace only."""
    if not reference.startswith(f"{namespace}:"):
        raise CredentialError(f"Secret {reference} does not allow its use", "annotate it")


HOST = "registry.example.com"


def resolved(config: dict[str, Any], **secrets: dict[str, str]) -> dict[str, Any]:
    async def story() -> dict[str, Any]:
        api = ApiServer(MemoryStore(), LoopClock(), Rng(1))
        client = Client(api.local())
        for name, data in secrets.items():
            encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
            await client.create(SECRET, new_object(SECRET, name, "default", data=encoded))
        registries = {"mirrors": {"docker.io": {"endpoint": ["https://m"]}}, "configs": {HOST: config}}
        cluster = Cluster("default", "prod", registries=registries)
        assert bool(await check_secrets(client.find, cluster, consent)) == bool(config.get("_broken"))
        return await resolve_registries(client.find, "default", registries)

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
    with pytest.raises(BootstrapSecretError, match=words):
        resolved({**config, "_broken": True}, **secrets)


def s3_with(secret: dict[str, str] | None, name: str = "cc-s3", **fields: Any) -> dict[str, Any]:
    async def story() -> dict[str, Any]:
        api = ApiServer(MemoryStore(), LoopClock(), Rng(1))
        client = Client(api.local())
        if secret is not None:
            encoded = {key: base64.b64encode(text.encode()).decode() for key, text in secret.items()}
            await client.create(SECRET, new_object(SECRET, "cc-s3", "default", data=encoded))
        etcd = {"snapshotRetention": 3, "s3": {"cloudCredentialName": name, **fields}}
        found = await resolve_s3(client.find, "default", etcd, consent)
        assert found["snapshotRetention"] == 3
        return dict(found["s3"])

    return run_driven(story())


@pytest.mark.parametrize("name", ["cc-s3", "default:cc-s3"])
def test_the_keys_for_s3_come_from_the_cloud_credential_as_rancher_writes_it(name):
    found = s3_with(ACCESS, name, bucket="b")

    assert (found["accessKey"], found["secretKey"], found["bucket"]) == ("AK", "SK", "b")


def test_what_s3_leaves_out_comes_from_the_defaults_of_its_credential():
    defaults = {"s3credentialConfig-defaultBucket": "theirs", "s3credentialConfig-defaultRegion": "eu-1"}
    defaults["s3credentialConfig-defaultSkipSSLVerify"] = "true"

    found = s3_with({**ACCESS, **defaults}, bucket="ours", region="")

    assert (found["bucket"], found["region"], found["skipSSLVerify"]) == ("ours", "eu-1", True)


@pytest.mark.parametrize(
    ("secret", "name", "words"),
    [
        (None, "cc-s3", "Secret default/cc-s3, which does not exist"),
        ({"other": "x"}, "cc-s3", "Secret default/cc-s3 holds no access key and secret key for S3"),
        (ACCESS, "cattle-global-data:cc-s3", "does not allow its use"),
        (ACCESS, "a/b", "is not the name of a Secret"),
    ],
)
def test_a_credential_for_s3_that_cannot_be_used_is_named(secret, name, words):
    with pytest.raises((BootstrapSecretError, CredentialError), match=words):
        s3_with(secret, name)


# -- files -------------------------------------------------------------------------------------------------------

ALLOWED = {AUTHORIZED_CLUSTERS: "other,prod"}


def files_from(*objects: Raw, **items: Any) -> tuple[dict[tuple[str, str, str], bytes], list[Problem]]:
    """What is read of key `ca` of Secret `site` and key `text` of ConfigMap `motd`."""
    secret = {"name": "site", "items": [{"key": "ca", "path": "/ca", **items}]}
    config_map = {"name": "motd", "items": [{"key": "text", "path": "/motd"}]}

    async def story() -> tuple[dict[tuple[str, str, str], bytes], list[Problem]]:
        client = Client(ApiServer(MemoryStore(), LoopClock(), Rng(1)).local())
        for raw in objects:
            await client.create(SECRET if raw["kind"] == "Secret" else CONFIG_MAP, raw)
        entries = ({"fileSources": [{"secret": secret}, {"configMap": config_map}]},)
        cluster = Cluster("default", "prod", selector_files=entries)
        contents, problems = await read_files(client.find, cluster)
        assert await check_secrets(client.find, cluster, consent) == problems
        return contents, problems

    return run_driven(story())


def a_secret(annotations: dict[str, str] = ALLOWED, **data: bytes) -> Raw:
    encoded = {key: base64.b64encode(content).decode() for key, content in data.items()}
    return new_object(SECRET, "site", "default", annotations=annotations, data=encoded)


def a_config_map(**rest: Any) -> Raw:
    return new_object(
        CONFIG_MAP, "motd", "default", annotations=ALLOWED, **(rest or {"data": {"text": "hi"}})
    )


def test_files_come_byte_for_byte_from_the_objects_that_allow_it():
    digest = "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="  # of abc
    contents, problems = files_from(a_secret(ca=b"abc"), a_config_map(), hash=digest)

    assert problems == []
    assert contents == {("secret", "site", "ca"): b"abc", ("configMap", "motd", "text"): b"hi"}
    binary = a_config_map(binaryData={"text": "AP8="})
    assert files_from(a_secret(ca=b"\x00"), binary)[0]["configMap", "motd", "text"] == b"\x00\xff"


@pytest.mark.parametrize("annotations", [{}, {AUTHORIZED_CLUSTERS: "production,pro"}])
def test_an_object_that_does_not_name_the_cluster_is_not_used(annotations):
    contents, problems = files_from(a_secret(annotations, ca=b"abc"), a_config_map())

    (problem,) = problems
    assert ("secret", "site", "ca") not in contents
    assert problem.field == "spec.rkeConfig.machineSelectorFiles[0].fileSources[0].secret.name"
    assert "Secret default/site does not allow its use by Cluster prod" in problem.message
    assert "rke.cattle.io/object-authorized-for-clusters=prod" in problem.hint


def test_what_is_absent_is_named_all_at_once():
    _, problems = files_from(a_secret(other=b""))

    assert [
        (one.field.rpartition("fileSources")[2], one.message.rpartition(": ")[2]) for one in problems
    ] == [
        ("[0].secret.items[0].key", "Secret default/site has no key 'ca'"),
        ("[1].configMap.name", "ConfigMap default/motd does not exist"),
    ]


def test_a_file_whose_content_has_another_hash_is_refused():
    _, problems = files_from(a_secret(ca=b"abc"), a_config_map(), hash="b3RoZXI=")

    (problem,) = problems
    assert "hash is 'b3RoZXI=', and the value of key 'ca' has another" in problem.message
    assert "ungWv48Bz" not in str(problem)  # who may read the Cluster may not read the Secret


def test_files_that_no_machine_could_be_given_are_refused():
    _, problems = files_from(a_secret(ca=b"x" * 499_999), a_config_map())

    assert [one.message for one in problems] == [
        "spec.rkeConfig.machineSelectorFiles: the files have 500001 bytes together"
    ]


def test_an_entry_without_files_brings_none():
    async def story() -> tuple[Any, list[Problem]]:
        client = Client(ApiServer(MemoryStore(), LoopClock(), Rng(1)).local())
        await client.create(SECRET, a_secret(ca=b"abc"))
        entries = ({}, {"fileSources": [{"secret": {"name": "site"}}]})
        return await read_files(client.find, Cluster("default", "prod", selector_files=entries))

    assert run_driven(story()) == ({}, [])


def test_a_key_that_is_many_files_counts_for_each():
    items = [{"key": "ca", "path": f"/ca-{number}"} for number in range(50)]

    async def story() -> list[Problem]:
        client = Client(ApiServer(MemoryStore(), LoopClock(), Rng(1)).local())
        await client.create(SECRET, a_secret(ca=b"x" * 20_000))
        entry = {"fileSources": [{"secret": {"name": "site", "items": items}}]}
        # The same files in a second entry are no further ones.
        _, problems = await read_files(client.find, Cluster("default", "prod", selector_files=(entry, entry)))
        return problems

    assert [one.message for one in run_driven(story())] == [
        "spec.rkeConfig.machineSelectorFiles: the files have 1000000 bytes together"
    ]


def test_without_a_credential_s3_is_as_it_is_written():
    async def story() -> list[dict[str, Any]]:
        client = Client(ApiServer(MemoryStore(), LoopClock(), Rng(1)).local())
        given: list[dict[str, Any]] = [{"snapshotRetention": 3}, {"s3": {"bucket": "b"}}, {"s3": None}]
        return [await resolve_s3(client.find, "default", etcd, consent) for etcd in given]

    assert run_driven(story()) == [{"snapshotRetention": 3}, {"s3": {"bucket": "b"}}, {"s3": None}]
    defaults = {"s3credentialConfig-defaultBucket": "theirs"}
    assert s3_with({**ACCESS, **defaults}, bucket=None)["bucket"] == "theirs"
