"""What a new Cluster needs of the original: the Secret, the snapshot, S3; read from a management API."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.support.clock import LoopClock, run_driven
from tests.unit.clusters.builders import NOON, SECRETS, SERVER, a_cluster, a_pool, look, some

from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.embedded import management_api
from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER, ETCD_SNAPSHOT
from windrow.clusters.api.names import AUTHORIZED_CLUSTERS
from windrow.clusters.api.operations.recorded import RecordedOperations, RecordedRestore, RestoreRequest
from windrow.clusters.api.operations.snapshot import SPEC_KEY, encode_spec, token_hash
from windrow.clusters.api.operations.source import RecordedSource, RestoreSource
from windrow.clusters.api.secrets import render_secrets
from windrow.clusters.context import ReconcileContext
from windrow.clusters.execute.copies.source import CopySource, NotFit, _check_tolerations
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.core.text import encode_base64
from windrow.kubernetes.objects import new_object, secret_texts
from windrow.kubernetes.resources import NAMESPACE, SECRET
from windrow.machines.port import Problem

SERVERS = a_pool("servers", 1, SERVER)
SPACE = "fleet-default"
PLACE = {"bucket": "backups", "folder": "orchard", "cloudCredentialName": "cc-s3"}
SOURCE = RestoreSource("orchard", "orchard-windrow-secrets", PLACE)
REQUEST = RestoreRequest("one", 1, source=SOURCE)
PASSWORDS = replace(SECRETS, server_password="now", former_server_passwords=("then",))
KEYS = {"s3credentialConfig-accessKey": "a", "s3credentialConfig-secretKey": "b"}
OWNER = {"metadata": {"name": "orchard", "namespace": "fleet-default", "uid": "uid-of-orchard"}}
ALL = {"operator": "Exists"}


class Held(dict[Any, Any]):
    """The cache of Secrets, which is only written to."""

    def mutated(self, raw: Any) -> None:
        self[raw["metadata"]["name"]] = raw


class Rig:
    """A management API with the original's Secret, the credential, and an ETCDSnapshot of the file."""

    def __init__(self) -> None:
        self.version = "v1.35.1+rke2r1"
        self.machines = 0
        self.initialized = False
        self.recorded = RecordedOperations()
        self.chart_values: dict[str, Any] = {}
        self.s3: dict[str, Any] | None = None
        self.allowed = "a, prod"
        self.secret: dict[str, str] = {}
        self.snapshot: dict[str, Any] | None = {}
        self.carried: dict[str, Any] = {"kubernetesVersion": "v1.35.1+rke2r1"}
        self.original: dict[str, Any] = {}
        self.digest = token_hash("then")
        self.request = REQUEST

    async def api(self) -> Client:
        server = management_api(MemoryStore(), LoopClock(NOON), Rng(1))
        await server.prepare()
        api = Client(server.local())
        await api.create(NAMESPACE, new_object(NAMESPACE, SPACE))
        original = replace(a_cluster(SERVERS), name="orchard", uid="uid-of-orchard", raw=OWNER)
        raw = render_secrets(original, PASSWORDS)
        raw["metadata"]["annotations"][AUTHORIZED_CLUSTERS] = self.allowed
        del raw["metadata"]["ownerReferences"]
        raw["data"] |= {"server-passwords-former": encode_base64("then"), **self.secret}
        await api.create(SECRET, raw)
        data = {key: encode_base64(text) for key, text in KEYS.items()}
        await api.create(SECRET, new_object(SECRET, "cc-s3", SPACE, data=data))
        await api.create(CLUSTER, new_object(CLUSTER, "orchard", SPACE, spec=self.original))
        if self.snapshot is not None:
            metadata = encode_base64(dumps({SPEC_KEY: encode_spec(self.carried)}).decode())
            file = {
                "name": "one",
                "nodeName": "s3",
                "size": 544,
                "status": "successful",
                "tokenHash": self.digest,
                "s3": {"bucket": "backups"},
                "metadata": metadata,
                **self.snapshot,
            }
            spec = {"clusterName": "orchard"}
            await api.create(
                ETCD_SNAPSHOT, new_object(ETCD_SNAPSHOT, "orchard-one", SPACE, spec=spec, snapshotFile=file)
            )
        return api

    def state(self) -> Any:
        rke: dict[str, Any] = {"etcd": {"s3": self.s3}} if self.s3 else {}
        raw = {"metadata": {"name": "prod", "namespace": SPACE, "uid": "u"}, "spec": {"rkeConfig": rke}}
        cluster = replace(a_cluster(SERVERS), raw=raw, version=self.version, chart_values=self.chart_values)
        status = replace(cluster.recorded, operations=self.recorded, initialized=self.initialized)
        return look(replace(cluster, recorded=status), some("s", self.machines, SERVERS))

    async def source(self) -> tuple[CopySource, Client]:
        api, unused = await self.api(), None
        held: Any = Held()
        args: Any = (api, unused, unused, held, LoopClock(NOON), Rng(2), unused)
        return CopySource(ReconcileContext(*args)), api


def described(**changed: Any) -> Any:
    async def run() -> Any:
        rig = Rig()
        for key, value in changed.items():
            setattr(rig, key, value)
        source, _ = await rig.source()
        return await source.describe(rig.request, rig.state())

    return run_driven(run())


def test_what_is_fit_is_recorded_without_what_was_recorded_before() -> None:
    found = described()["restoredFrom"]
    assert {key: one for key, one in found.items() if key != "s3"} == {
        "clusterName": "orchard",
        "secretName": "orchard-windrow-secrets",
        "guestUID": None,
        "clean": None,
        "separated": None,
    }
    assert {key: one for key, one in found["s3"].items() if one} == PLACE
    assert {key for key, one in found["s3"].items() if one is None} == {
        "endpoint",
        "endpointCA",
        "region",
        "skipSSLVerify",
    }


UNDER_WAY = RecordedOperations(restore=RecordedRestore(1, "Restore"), source=RecordedSource("orchard"))
TOLERANT = {"rkeConfig": {"chartValues": {"harvester-csi-driver": {"tolerations": [ALL]}}}}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"machines": 1}, "has machines, and only a new one"),
        ({"initialized": True}, "has started, and only a new one"),
        ({"initialized": True, "recorded": UNDER_WAY}, ""),
        ({"machines": 1, "recorded": UNDER_WAY}, ""),
        ({"machines": 1, "recorded": replace(UNDER_WAY, source=None)}, "has machines"),
        ({"request": replace(REQUEST, source=replace(SOURCE, cluster="prod"))}, "of a Cluster prod, too"),
        (
            {"chart_values": {"harvester-cloud-provider": {"global": {"cattle": {"clusterName": "x"}}}}},
            "name x",
        ),
        ({"chart_values": {"harvester-cloud-provider": {"global": {"cattle": {"clusterName": "prod"}}}}}, ""),
        ({"allowed": "a"}, "does not allow its use by Cluster prod"),
        ({"request": replace(REQUEST, source=replace(SOURCE, secret="gone"))}, "does not exist"),
        ({"secret": {"service-key": ""}}, ""),
        ({"digest": token_hash("other")}, "was made with a server token"),
        ({"digest": "", "snapshot": {"tokenHash": ""}}, ""),
        ({"snapshot": {"status": "failed", "message": "no"}}, "failed when it was made (no)"),
        ({"snapshot": {"size": 0}}, "is empty"),
        ({"snapshot": {"metadata": "!"}}, ""),
        ({"snapshot": {"name": "two", "size": 0}}, ""),
        ({"snapshot": {"s3": None, "size": 0}}, ""),
        ({"snapshot": None}, ""),
        ({"carried": {"kubernetesVersion": "v1.36.0+rke2r1"}}, "made by v1.36.0+rke2r1, and v1.35.1+rke2r1"),
        ({"carried": {"kubernetesVersion": "v1.34.0+k3s1"}}, "made by v1.34.0+k3s1"),
        ({"carried": {"kubernetesVersion": "v1.34.0+rke2r1"}}, ""),
        ({"carried": {"kubernetesVersion": "v1.35.9+rke2r1"}}, ""),
        ({"carried": {}}, ""),
        ({"carried": TOLERANT}, "have pods of harvester-csi-driver tolerate taint"),
        ({"original": TOLERANT}, "have pods of harvester-csi-driver tolerate taint"),
        ({"s3": {**PLACE, "folder": "/orchard/"}}, "each of the two would prune those of the other"),
        ({"s3": {**PLACE, "folder": "prod"}}, ""),
        ({"s3": {**PLACE, "folder": "prod", "cloudCredentialName": "gone"}}, "which does not exist"),
        (
            {"request": replace(REQUEST, source=replace(SOURCE, s3={"cloudCredentialName": "cc-s3"}))},
            "no bucket",
        ),
    ],
)
def test_what_is_not_fit_is_said_with_the_way_to_try_again(changed: dict[str, Any], words: str) -> None:
    found = described(**changed)
    if not words:
        assert "restoredFrom" in found
        return
    assert isinstance(found, Problem)
    assert words in found.message
    assert found.hint.endswith(
        "; nothing was made; raise spec.rkeConfig.etcdSnapshotRestore.generation to try again"
    )


@pytest.mark.parametrize(
    ("toleration", "is_refused"),
    [
        (ALL, True),
        ({**ALL, "effect": "NoExecute"}, True),
        ({**ALL, "effect": "NoSchedule"}, False),
        ({**ALL, "key": "windrow.io/restored-copy"}, True),
        ({**ALL, "key": "other"}, False),
        ({"operator": "Equal", "key": ""}, False),
        ("no mapping", False),
    ],
)
def test_only_what_tolerates_the_taint_is_refused(toleration: Any, is_refused: bool) -> None:
    values = {"harvester-cloud-provider": {"tolerations": [toleration]}}
    found = described(original={"rkeConfig": {"chartValues": values}})
    assert isinstance(found, Problem) is is_refused


def test_the_cluster_gets_the_authorities_of_the_original_and_the_token_of_the_snapshot() -> None:
    async def run() -> None:
        rig = Rig()
        recorded = RecordedSource("orchard", "orchard-windrow-secrets", PLACE)
        rig.recorded = RecordedOperations(restore=RecordedRestore(1, "Started", file="one"), source=recorded)
        source, api = await rig.source()
        for _ in range(2):
            await source.adopt_secrets(rig.state())
            held = secret_texts(await api.get(SECRET.ref("prod-windrow-secrets", SPACE)))
            assert held["server-ca.crt"] == PASSWORDS.server_ca.certificate
            assert held["etcd-peer-ca.key"] == PASSWORDS.etcd_peer_ca.key
            assert (held["server-password"], held["server-passwords-former"]) == ("then", "now")

    run_driven(run())


@pytest.mark.parametrize(
    "path", ["harvester-cloud-provider kube-vip", "harvester-cloud-provider", "harvester-csi-driver"]
)
@pytest.mark.parametrize("toleration", [{"operator": "Exists"}, {"key": "windrow.io/restored-copy"}])
def test_pods_that_act_before_the_separation_are_refused(path: str, toleration: dict[str, str]) -> None:
    with pytest.raises(NotFit, match="have pods of"):
        _check_tolerations(_with_tolerations(path, toleration), RestoreSource("orchard", "s", {}))


@pytest.mark.parametrize("toleration", [{"operator": "Exists", "effect": "NoSchedule"}, {"key": "other"}])
def test_other_tolerations_are_not(toleration: dict[str, str]) -> None:
    _check_tolerations(
        _with_tolerations("harvester-cloud-provider", toleration), RestoreSource("orchard", "s", {})
    )


def test_the_node_plugin_may_tolerate_everything() -> None:
    values = _with_tolerations("harvester-csi-driver node", {"operator": "Exists"})
    _check_tolerations(values, RestoreSource("orchard", "s", {}))


def _with_tolerations(path: str, toleration: dict[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {"tolerations": [toleration]}
    for key in reversed(path.split()):
        values = {key: values}
    return {"rkeConfig": {"chartValues": values}}
