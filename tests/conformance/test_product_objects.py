"""What the cloud provider and bootstrap write, over all their options: accepted by a real kube-apiserver, or refused by us before.

`make test` judges a sample; the whole is long. WINDROW_LOAD_BALANCER_WEBHOOK names Harvester's own webhook of load balancers. With `-s` the counts and a sample of our own refusals are printed.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from tests.conformance.cloud_provider_rig import eventually
from tests.conformance.load_balancer_webhook import definition, the_webhook
from tests.conformance.product_objects import NAMESPACES, REVIEWS, review_random
from tests.conformance.real_cluster import Cluster

from windrow.app.clock import SystemClock
from windrow.bootstrap.charts import HELM_CHART_CONFIG
from windrow.bootstrap.k3s.charts import HELM_CHART
from windrow.client.client import Client
from windrow.client.http_transport import HttpTransport
from windrow.harvester.resources import LOAD_BALANCER
from windrow.kubernetes.errors import AlreadyExists, KubeError
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import CRD, NAMESPACE

pytestmark = pytest.mark.go
SAMPLE, WHOLE = 8, 400


async def _is_served(api: Client) -> bool:
    try:
        await api.list(LOAD_BALANCER, "host")
        await api.list(HELM_CHART_CONFIG, "kube-system")
        await api.list(HELM_CHART, "kube-system")
    except KubeError:
        return False
    return True


@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", REVIEWS)
@pytest.mark.parametrize(
    ("first", "count"), [(0, SAMPLE), pytest.param(SAMPLE, WHOLE, marks=pytest.mark.long)]
)
async def test_what_the_products_write_is_accepted_by_a_real_api_server(
    what: str, first: int, count: int, cluster: Cluster, tmp_path: Path
) -> None:
    async with HttpTransport(cluster.access(), SystemClock()) as transport:
        api = Client(transport)
        for name in (*NAMESPACES, "host"):
            with suppress(AlreadyExists):
                await api.create(NAMESPACE, new_object(NAMESPACE, name))
        for kind in (LOAD_BALANCER, HELM_CHART_CONFIG, HELM_CHART):
            with suppress(AlreadyExists):
                await api.create(CRD, definition(kind))
        await eventually(lambda: _is_served(api), "the kinds are served")
        async with the_webhook(api, cluster, tmp_path) if what == "service" else nullcontext():
            found = await review_random(api, transport, what, range(first, first + count))

    print(f"\n{what}: {found}", *(one[:300] for one in found.ours[:12]), sep="\n  ")
    assert not found.refused, "\n".join(found.refused[:20])
    assert found.judged > count
