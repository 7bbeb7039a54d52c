"""`GET /metrics` on an API server of this process, for users who may `get` that path by the API's own authorization.

The page names the Clusters of all tenants. So it is no port of its own without authorization, and no role that tenants have
includes it: an administrator binds ClusterRole `windrow-metrics-reader`.
"""

from __future__ import annotations

from windrow.apiserver.apierrors import error_reply, method_not_allowed, path_not_found
from windrow.apiserver.request.info import UserInfo
from windrow.apiserver.server import ApiServer
from windrow.kubernetes.requests import Reply, Request
from windrow.probes.metrics import CONTENT_TYPE, Registry

METRICS_PATH = "/metrics"


def serve_metrics(api: ApiServer, registry: Registry) -> None:
    """Answer METRICS_PATH with the metrics of the registry."""

    async def answer(request: Request, caller: UserInfo) -> Reply:
        if request.path != METRICS_PATH:
            return error_reply(path_not_found())
        if request.method not in ("GET", "HEAD"):
            return error_reply(method_not_allowed())
        return Reply(200, registry.render().encode(), CONTENT_TYPE)

    api.routes[METRICS_PATH] = answer
