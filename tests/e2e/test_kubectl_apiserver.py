"""kubectl, which we did not write, against the API server behind its TLS door."""

from __future__ import annotations

import asyncio
import base64
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from windrow.apiserver.http import Listener
from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage import MemoryStore
from windrow.app.clock import SystemClock
from windrow.core import pki
from windrow.core.formats import yaml
from windrow.core.rng import Rng
from windrow.kubernetes.handler import TlsIdentity

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")

WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.io}
spec:
  group: example.io
  names: {plural: widgets, kind: Widget, shortNames: [wd]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1}
              color: {type: string, default: red, enum: [red, blue]}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
"""
WIDGET = """
apiVersion: example.io/v1
kind: Widget
metadata: {name: w, namespace: default}
spec: {size: %s}
"""


@dataclass
class Done:
    code: int
    out: str


class Kubectl:
    """Runs kubectl with a home of its own, so that no cache outlives the test."""

    def __init__(self, home: Path, server: str, ca: str) -> None:
        self._home, self._server, self._ca = home, server, ca

    def know(self, user: str, **credential: str) -> None:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [
                {
                    "name": "it",
                    "cluster": {"server": self._server, "certificate-authority-data": b64(self._ca)},
                }
            ],
            "users": [{"name": "it", "user": credential}],
        }
        (self._home / user).write_text(yaml.dump(config))

    async def __call__(self, *words: str, stdin: str = "", user: str = "admin") -> Done:
        environment = {
            "HOME": str(self._home),
            "PATH": os.environ["PATH"],
            "KUBECONFIG": str(self._home / user),
        }
        process = await asyncio.create_subprocess_exec(
            str(KUBECTL),
            *words,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        out, _ = await asyncio.wait_for(process.communicate(stdin.encode()), 30)
        return Done(process.returncode or 0, out.decode())

    async def ok(self, *words: str, stdin: str = "", user: str = "admin") -> str:
        done = await self(*words, stdin=stdin, user=user)
        assert done.code == 0, f"kubectl {' '.join(words)}: {done.out}"
        return done.out


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    clock = SystemClock()
    day = {"now": clock.now(), "lifetime": timedelta(days=1)}
    ca, ca_key = pki.new_ca("it", clock.now(), 2)
    chain, key = pki.issue_certificate(
        ca, ca_key, common_name="api", ips=["127.0.0.1"], server=True, client=False, **day
    )
    shown, shown_key = pki.issue_certificate(
        ca, ca_key, common_name="admin", organizations=["system:masters"], server=False, client=True, **day
    )
    server = ApiServer(
        MemoryStore(),
        clock,
        Rng(1),
        authorize="rbac",
        tls=TlsIdentity(chain, key, ca),
        root_ca=ca,
        protect_claims=True,
    )
    server.tokens["good"] = ("alice", ("team",), None)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(server.run())
        async with Listener(server) as listener:
            run = Kubectl(tmp_path, f"https://127.0.0.1:{listener.port}", ca)
            run.know("admin", **{"client-certificate-data": b64(shown), "client-key-data": b64(shown_key)})
            run.know("alice", token="good")
            run.know("mallory", token="bad")
            yield run
        running.cancel()


async def test_apply_twice_changes_nothing_and_a_third_time_what_differs(kubectl: Kubectl) -> None:
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {a: %s}\n"

    said = [await kubectl.ok("apply", "-f", "-", stdin=manifest % value) for value in ("one", "one", "two")]

    assert [one.split()[-1] for one in said] == ["created", "unchanged", "configured"]
    assert await kubectl.ok("get", "cm", "m", "-o", "jsonpath={.data.a}") == "two"


async def test_custom_resources_live_a_whole_life(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=WIDGETS)
    await kubectl.ok("wait", "--for=condition=Established", "crd/widgets.example.io", "--timeout=10s")
    said = [await kubectl.ok("apply", "-f", "-", stdin=WIDGET % size) for size in (3, 3, 5)]
    status = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    await kubectl.ok("patch", "wd", "w", "--subresource=status", "--type=merge", "-p", status)
    await kubectl.ok("wait", "--for=condition=Ready", "wd/w", "--timeout=10s")

    shown = await kubectl.ok("get", "wd")

    assert [one.split()[-1] for one in said] == ["created", "unchanged", "configured"]
    assert [line.split() for line in shown.splitlines()] == [["NAME", "SIZE", "READY"], ["w", "5", "True"]]
    assert "Color:  red" in await kubectl.ok("describe", "wd", "w")
    await kubectl.ok("delete", "wd", "w", "--timeout=10s")
    await kubectl.ok("delete", "crd", "widgets.example.io", "--timeout=10s")
    assert (await kubectl("get", "wd")).code != 0


async def test_wrong_fields_are_named(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=WIDGETS)

    low = await kubectl("apply", "-f", "-", stdin=WIDGET % 0)
    unknown = await kubectl("apply", "-f", "-", stdin=WIDGET % "1, colour: red")

    assert "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1" in low.out
    assert 'strict decoding error: unknown field "spec.colour"' in unknown.out


async def test_server_side_apply_notices_other_managers(kubectl: Kubectl) -> None:
    manifest = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {%s}\n"
    apply = ("apply", "--server-side", "-f", "-")
    await kubectl.ok(*apply, "--field-manager=one", stdin=manifest % "a: x, b: x")

    clash = await kubectl(*apply, "--field-manager=two", stdin=manifest % "a: two")
    await kubectl.ok(*apply, "--field-manager=two", "--force-conflicts", stdin=manifest % "a: two")
    await kubectl.ok(*apply, "--field-manager=one", stdin=manifest % "c: z")

    assert 'Apply failed with 1 conflict: conflict with "one": .data.a' in clash.out
    assert await kubectl.ok("get", "cm", "m", "-o", "jsonpath={.data}") == '{"a":"two","c":"z"}'


async def test_label_annotate_patch_and_replace(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "deployment", "d", "--image=one")
    more = '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"two"}]}}}}'
    await kubectl.ok("patch", "deployment", "d", "-p", more)
    await kubectl.ok(
        "patch", "deployment", "d", "--type=json", "-p", '[{"op":"add","path":"/spec/replicas","value":3}]'
    )
    await kubectl.ok("label", "deployment", "d", "tier=front")
    await kubectl.ok("annotate", "deployment", "d", "note=x")

    found = await kubectl.ok(
        "get", "deployment", "-l", "tier=front", "-o",
        "jsonpath={.items[0].spec.template.spec.containers[*].name} {.items[0].spec.replicas}",
    )  # fmt: skip

    assert found == "side one 3"


async def test_protobuf_bodies_are_understood(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "namespace", "team")
    await kubectl.ok("create", "secret", "generic", "s", "-n", "team", "--from-literal=k=v")
    await kubectl.ok("create", "serviceaccount", "robot", "-n", "team")
    token = await kubectl.ok("create", "token", "robot", "-n", "team")
    kubectl.know("robot", token=token.strip())

    assert await kubectl.ok("get", "secret", "s", "-n", "team", "-o", "jsonpath={.data.k}") == b64("v")
    assert "system:serviceaccount:team:robot" in await kubectl.ok("auth", "whoami", user="robot")
    await kubectl.ok("delete", "namespace", "team", "--timeout=20s")
    assert "error: You must be logged in to the server" in (await kubectl("get", "ns", user="robot")).out


async def test_rights_are_what_bindings_say(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "role", "reader", "--verb=get,list", "--resource=configmaps")
    before = await kubectl("get", "configmaps", user="alice")
    await kubectl.ok("create", "rolebinding", "readers", "--role=reader", "--group=team")

    assert (
        'User "alice" cannot list resource "configmaps" in API group "" in the namespace "default"'
        in before.out
    )
    await kubectl.ok("get", "configmaps", user="alice")
    assert (await kubectl("auth", "can-i", "list", "configmaps", user="alice")).out.strip() == "yes"
    assert (await kubectl("auth", "can-i", "delete", "configmaps", user="alice")).out.strip() == "no"
    assert (await kubectl("auth", "can-i", "get", "pods", "--as=bob")).out.strip() == "no"


async def test_an_unknown_token_is_unauthorized(kubectl: Kubectl) -> None:
    assert "You must be logged in to the server" in (await kubectl("get", "pods", user="mallory")).out


async def test_nodes_are_shown_with_what_people_look_for(kubectl: Kubectl) -> None:
    node = """
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {node-role.kubernetes.io/etcd: "true", node-role.kubernetes.io/control-plane: "true"}}
status:
  addresses: [{type: InternalIP, address: 10.0.0.7}]
  conditions: [{type: Ready, status: "True"}]
  nodeInfo: {kubeletVersion: v1.34.3+rke2r1, osImage: SLE Micro}
"""
    await kubectl.ok("create", "-f", "-", stdin=node)

    row = (await kubectl.ok("get", "nodes", "-o", "wide", "--no-headers")).split()

    assert row[:3] == ["n1", "Ready", "control-plane,etcd"]
    assert row[4:6] == ["v1.34.3+rke2r1", "10.0.0.7"]
    await kubectl.ok("cordon", "n1")
    assert "SchedulingDisabled" in await kubectl.ok("get", "nodes")


async def test_a_claim_is_deleted_when_nothing_uses_it(kubectl: Kubectl) -> None:
    claim = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c}
spec: {accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
"""
    await kubectl.ok("apply", "-f", "-", stdin=claim)
    assert "Pending" in await kubectl.ok("get", "pvc")

    await kubectl.ok("delete", "pvc", "c", "--timeout=10s")


async def test_a_token_secret_is_filled_and_works(kubectl: Kubectl) -> None:
    secret = """
apiVersion: v1
kind: Secret
metadata: {name: t, annotations: {kubernetes.io/service-account.name: default}}
type: kubernetes.io/service-account-token
"""
    await kubectl.ok("apply", "-f", "-", stdin=secret)
    await kubectl.ok("wait", "--for=jsonpath={.data.token}", "secret/t", "--timeout=10s")
    token = await kubectl.ok("get", "secret", "t", "-o", "go-template={{.data.token | base64decode}}")
    kubectl.know("account", token=token)

    assert "system:serviceaccount:default:default" in await kubectl.ok("auth", "whoami", user="account")
    assert "Data" in await kubectl.ok("describe", "secret", "t")


async def test_discovery_tells_every_resource(kubectl: Kubectl) -> None:
    listed = await kubectl.ok("api-resources", "--no-headers", "-o", "name")

    assert {"pods", "leases.coordination.k8s.io", "customresourcedefinitions.apiextensions.k8s.io"} <= set(
        listed.split()
    )
    assert "Server Version: v1.34" in await kubectl.ok("version")
    assert await kubectl.ok("get", "--raw", "/readyz") == "ok"


async def test_custom_resources_are_explained_and_deployments_scaled(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", stdin=WIDGETS)
    await kubectl.ok("create", "deployment", "d", "--image=x")

    await kubectl.ok("scale", "deployment", "d", "--replicas=3")

    assert "0/3" in await kubectl.ok("get", "deployment", "d")
    assert "size\t<integer> -required-" in await kubectl.ok("explain", "widgets.spec")


INGRESS = """
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: i}
spec: {}
"""


async def test_a_kind_that_is_not_served_is_told_as_that(kubectl: Kubectl) -> None:
    done = await kubectl("apply", "-f", "-", stdin=INGRESS)

    assert done.code != 0
    assert 'no matches for kind "Ingress" in version "networking.k8s.io/v1"' in done.out
    assert "validate=false" not in done.out


async def test_what_leads_into_a_container_is_told_as_not_implemented(kubectl: Kubectl) -> None:
    await kubectl.ok("run", "p", "--image=one")
    running = '{"status": {"phase": "Running"}}'
    await kubectl.ok("patch", "pod", "p", "--subresource=status", "--type=merge", "-p", running)

    for words in (("exec", "p", "--", "true"), ("logs", "p"), ("port-forward", "p", "8080")):
        done = await kubectl(*words)
        assert done.code != 0
        assert "is not implemented: no container of this API can be entered" in done.out
