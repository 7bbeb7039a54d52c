"""What a supervisor serves to other servers, and to clients with the servers' password: members, snapshots."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from functools import partial

from windrow.core.formats.json import dumps
from windrow.emulator.guest_cluster.cluster import GuestCluster, ServerInstance
from windrow.emulator.guest_cluster.datastore.releases import has_snapshot_endpoint, has_token_rotation
from windrow.emulator.guest_cluster.datastore.snapshot_requests import answer_snapshot_request
from windrow.emulator.guest_cluster.rotation.encryption_routes import EncryptionRoutes
from windrow.emulator.guest_cluster.rotation.token_routes import TokenRoutes
from windrow.emulator.kit.network import bracketed
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.requests import Reply, Request

ServerRoute = Callable[[Request], Awaitable[Reply]]


def list_server_routes(cluster: GuestCluster, server: ServerInstance) -> dict[str, ServerRoute]:
    """The paths that this server has: without embedded etcd, and before some releases, there are fewer."""
    routes: dict[str, ServerRoute] = {}
    if cluster.etcd.is_embedded and server.settings.runs_etcd:
        routes["/db/info"] = partial(_list_members, cluster)
    if server.snapshots is not None and has_snapshot_endpoint(server.version):
        routes["/db/snapshot"] = partial(answer_snapshot_request, server=server, snapshots=server.snapshots)
    if server.guest is not None:
        path = cluster.distribution.supervisor_path
        encryption = EncryptionRoutes(server.guest, cluster, server)
        routes[path("encrypt/status")] = encryption.status
        routes[path("encrypt/config")] = encryption.configure
        if has_token_rotation(server.version):
            routes[path("token")] = TokenRoutes(server.guest, cluster, server).rotate
    return routes


async def _list_members(cluster: GuestCluster, request: Request) -> Reply:
    members: list[Raw] = []
    for member in cluster.etcd.by_name.values():
        number = int.from_bytes(hashlib.sha256(member.name.encode()).digest()[:8])
        host = bracketed(member.address)
        one: Raw = {"ID": number, "name": member.name, "peerURLs": [f"https://{host}:2380"]}
        members.append(
            {**one, "clientURLs": [f"https://{host}:2379"]} | ({"isLearner": True} if member.learner else {})
        )
    return Reply(200, dumps({"members": members}))
