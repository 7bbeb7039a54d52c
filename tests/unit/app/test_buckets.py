"""The buckets of manifests on an emulated Harvester."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from windrow.app.clock import SystemClock
from windrow.app.preload.buckets import (
    CREDENTIAL,
    ENDPOINT,
    Bucket,
    NotBucket,
    list_buckets,
    named_bucket,
    open_object_stores,
)
from windrow.emulator.kit.aws_signature import UNSIGNED, sign
from windrow.emulator.kit.network import Network
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import Raw, annotations_of
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import SECRET


def a_cluster(s3: Any, namespace: str = "fleet-default") -> Raw:
    metadata = {"name": "orchard", "namespace": namespace}
    return {"kind": "Cluster", "metadata": metadata, "spec": {"rkeConfig": {"etcd": {"s3": s3}}}}


NAMED = {"bucket": "backups", "cloudCredentialName": "cc-s3"}


@pytest.mark.parametrize(
    ("s3", "bucket"),
    [
        (NAMED, Bucket("backups")),
        (NAMED | {"endpoint": "s3.example.org"}, Bucket("backups", "s3.example.org:443")),
        (
            NAMED | {"endpoint": "10.0.0.9:9000", "region": "eu-1", "cloudCredentialName": "keys:s3"},
            Bucket("backups", "10.0.0.9:9000", "eu-1", SECRET.ref("s3", "keys")),
        ),
    ],
)
def test_a_bucket_is_at_the_endpoint_that_its_cluster_names_or_at_that_of_the_emulator(
    s3: Raw, bucket: Bucket
) -> None:
    assert list_buckets([a_cluster(s3), {"kind": "HarvesterConfig"}, a_cluster(s3)]) == (bucket,)


@pytest.mark.parametrize(
    "s3",
    [
        None,
        "backups",
        {},
        {"bucket": "backups"},  # without keys nothing could be put there
        {"cloudCredentialName": "cc-s3"},
        NAMED | {"bucket": "Back ups"},
        NAMED | {"bucket": "b" * 64},
        NAMED | {"cloudCredentialName": "a:b:c"},
        NAMED | {"endpoint": "https://s3.example.org/path"},
        NAMED | {"endpoint": "x" * 300},
    ],
)
def test_what_names_no_bucket_is_left_to_the_manager_to_report(s3: Any) -> None:
    assert list_buckets([a_cluster(s3)]) == ()


def test_a_bucket_by_name_is_the_emulator_s_own() -> None:
    assert named_bucket("backups") == Bucket("backups", ENDPOINT, credential=CREDENTIAL)
    assert str(named_bucket("backups")) == f"backups at {ENDPOINT}, keys in Secret fleet-default/cc-s3"
    with pytest.raises(
        NotBucket, match="3 to 63 lower-case letters, digits, dots and dashes, found 'Backups'"
    ):
        named_bucket("Backups")


def test_the_secret_says_what_a_cluster_leaves_out_and_allows_its_namespace() -> None:
    cluster = a_cluster(NAMED | {"cloudCredentialName": "keys:s3"})
    stores = open_object_stores(Network(), list_buckets([cluster]), SystemClock())

    (secret,) = stores.render_secrets([cluster])
    said = secret["stringData"]

    assert (secret["metadata"]["namespace"], secret["metadata"]["name"]) == ("keys", "s3")
    assert list(annotations_of(secret).values()) == ["fleet-default"]
    assert said["s3credentialConfig-defaultEndpoint"] == ENDPOINT
    assert said["s3credentialConfig-defaultRegion"] == "us-east-1"
    assert said["s3credentialConfig-defaultEndpointCA"].startswith("-----BEGIN CERTIFICATE-----")
    assert len(said["s3credentialConfig-secretKey"]) == 40


def test_each_emulator_has_keys_of_its_own() -> None:
    made = [open_object_stores(Network(), [named_bucket("backups")], SystemClock()) for _ in range(2)]
    keys = [store.secret_key for one in made for store in one.by_endpoint.values()]

    assert len(set(keys)) == 2
    assert keys[0] not in repr(made[0])


def test_only_the_keys_of_the_secret_put_an_object_into_the_bucket() -> None:
    network, clock = Network(), SystemClock()
    stores = open_object_stores(network, [named_bucket("backups")], clock)
    (secret,) = stores.render_secrets([])

    def put(secret_key: str) -> int:
        said = secret["stringData"]
        stamp = clock.now().strftime("%Y%m%dT%H%M%SZ")
        signed = {"host": ENDPOINT, "x-amz-content-sha256": UNSIGNED, "x-amz-date": stamp}
        signature = sign("PUT", "/backups/a", (), signed, "us-east-1", secret_key)
        scope = f"{said['s3credentialConfig-accessKey']}/{stamp[:8]}/us-east-1/s3/aws4_request"
        headers = ";".join(sorted(signed))
        text = f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={headers}, Signature={signature}"
        request = Request("PUT", "/backups/a", (), b"x", headers=(*signed.items(), ("Authorization", text)))
        handler = network.find("s3.emulator.windrow.io", 9000)
        assert handler is not None
        return asyncio.run(handler.send(request, Peer())).status

    assert put("0" * 40) == 403
    assert stores.list_keys("backups") == []
    assert put(secret["stringData"]["s3credentialConfig-secretKey"]) == 200
    assert stores.list_keys("backups") == ["a"]
    assert stores.list_keys("others") == []
