"""The process, under the account and the rights that its chart renders, before a real API server that judges them."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conformance.chart_rig import NAME, NAMESPACE, Helm
from tests.conformance.chart_rights_rig import KINDS, give_back_address
from tests.conformance.cloud_provider_rig import (
    UNINITIALISED,
    ZONE,
    FakeKubeVip,
    Guest,
    a_host,
    a_provider,
    addresses_of,
    eventually,
    has_taint,
    our_program,
    run_beside,
)
from tests.conformance.real_cluster import Cluster

from windrow.app.clock import SystemClock
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.core.formats.json import dumps
from windrow.emulator import kinds
from windrow.kubernetes.kubeconfig import ClientConfig, render_kubeconfig
from windrow.kubernetes.objects import Raw, nested, new_object
from windrow.kubernetes.requests import JSON, Request
from windrow.kubernetes.resources import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    EVENT,
    NODE,
    SERVICE,
    SERVICE_ACCOUNT,
)

pytestmark = [pytest.mark.go, pytest.mark.timeout(180)]

TOKEN = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": {}}


async def token_of(api: Client, name: str, namespace: str) -> str:
    path = SERVICE_ACCOUNT.path(namespace, name, "token")
    answer = await api.call(Request("POST", path, body=dumps(TOKEN), content_type=JSON))
    return str(answer["status"]["token"])


async def let_read_metrics(api: Client, name: str) -> str:
    """The token of a new account that may read metrics."""
    rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    role = {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": "default"}
    await api.create(SERVICE_ACCOUNT, new_object(SERVICE_ACCOUNT, name, "default"))
    await api.create(CLUSTER_ROLE, new_object(CLUSTER_ROLE, name, rules=rules))
    await api.create(
        CLUSTER_ROLE_BINDING, new_object(CLUSTER_ROLE_BINDING, name, roleRef=role, subjects=[subject])
    )
    return await token_of(api, name, "default")


def read_metrics(port: int, token: str) -> tuple[int, str]:
    """As Prometheus does, which does not verify a self-signed certificate."""
    careless = ssl.create_default_context()
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    asked = urllib.request.Request(
        f"https://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}"} if token else {}
    )
    try:
        with urllib.request.urlopen(asked, context=careless, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def test_the_process_does_all_its_work_with_these_rights_and_is_refused_nothing(
    cluster: Cluster, reference_program: Callable[[str], str], tmp_path: Path
) -> None:
    objects = Helm(reference_program("helm"), tmp_path).render(
        {"global": {"cattle": {"clusterName": "demo"}}}
    )
    async with a_host() as host, HttpTransport(cluster.access(), SystemClock()) as transport:
        api = Client(transport)
        for raw in objects:
            if raw["kind"] in KINDS:
                await api.create(KINDS[raw["kind"]], raw)
        reader = await let_read_metrics(api, "prometheus")
        admin = Guest(api, transport, render_kubeconfig(cluster.access(), "admin"))
        token = await token_of(api, NAME, NAMESPACE)
        rightful = ClientConfig(cluster.url, ca=cluster.access().ca, token=token)
        guest = Guest(api, transport, render_kubeconfig(rightful, "provider"))
        await host.make_pool("pool", "192.168.50.100", "192.168.50.120")
        async with (
            run_beside(FakeKubeVip(admin).run()),
            a_provider(our_program(), tmp_path, host, guest) as provider,
        ):
            for name in ("n1", "n2"):
                await host.make_vm(name)
                await guest.register(name, await host.address_of(name))
                await guest.node_where(name, is_initialised, "initialised")
            for name, ipam in (("web", "pool"), ("asks", "dhcp")):
                await guest.make_service(a_service(name, ipam))
                await guest.service_where(name, addresses_of, "has its address")

            plain = SERVICE.ref("asks", "default")
            await api.patch(plain, {"spec": {"type": "ClusterIP"}})
            await api.patch(plain, await give_back_address(api, plain))
            await guest.service_where("asks", lambda raw: not addresses_of(raw), "is a plain service")
            await api.delete(SERVICE.ref("web", "default"))
            await guest.until_gone(SERVICE.ref("web", "default"))

            async def none_left() -> bool:
                return await host.api.list(kinds.LOAD_BALANCER, "default") == []

            await eventually(none_left, "nothing is left on Harvester")
            await host.remove_vm("n2")
            await guest.set_ready("n2", "Unknown")
            await guest.until_gone(NODE.ref("n2"))

            networks = await api.get(CONFIG_MAP.ref("harvester-nad-mapping", "kube-system"))
            reasons = {(raw["involvedObject"]["kind"], raw["reason"]) for raw in await api.list(EVENT)}
            shown, hidden = read_metrics(provider.port, reader), read_metrics(provider.port, "")
            log = provider.log()

    assert "default/vlan50" in networks["data"]["interface-nad-mapping"]
    assert {
        ("Node", "Synced"),
        ("Node", "DeletingNode"),
        ("Service", "EnsuredLoadBalancer"),
        ("Service", "DeletedLoadBalancer"),
    } <= reasons
    assert (shown[0], hidden[0]) == (200, 403)
    assert 'code="200"' in shown[1]
    assert 'code="403"' not in shown[1]
    assert "forbidden" not in log.lower()


def is_initialised(node: Raw) -> bool:
    return not has_taint(node, UNINITIALISED) and ZONE in nested(node, "metadata", "labels", default={})


def a_service(name: str, ipam: str) -> Raw:
    spec = {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"name": "http", "port": 80}]}
    asked = {"cloudprovider.harvesterhci.io/ipam": ipam}
    return new_object(SERVICE, name, "default", annotations=asked, spec=spec)
