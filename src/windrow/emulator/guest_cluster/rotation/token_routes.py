"""`PUT /v1-<rt>/token`: another server token (reference/04 §7.5; K3s' pkg/server/handlers/token.go).

The bootstrap data are encrypted with the new one from then on. Each server reads its passwords when it starts: until then it
takes the old token of clients, and it only starts again with the new one.
"""

from __future__ import annotations

from windrow.apiserver.apierrors import error_reply, status_error
from windrow.core.rng import SystemRng
from windrow.emulator.guest_cluster.cluster import GuestCluster, ServerInstance
from windrow.emulator.guest_cluster.datastore.snapshot_requests import BadRequest, error_with_id, read_body
from windrow.emulator.guest_cluster.distribution.admin_files import write_tokens
from windrow.emulator.guest_cluster.distribution.tokens import BadToken, parse_token
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.kubernetes.requests import Reply, Request

_RANDOM_BITS = 128
_LONGEST = 1024


class TokenRoutes:
    """The answers of one server."""

    def __init__(self, guest: GuestOS, cluster: GuestCluster, server: ServerInstance) -> None:
        self.guest = guest
        self.cluster = cluster
        self.server = server

    async def rotate(self, request: Request) -> Reply:
        if request.method != "PUT":
            return error_reply(status_error(405, "method not allowed"))
        try:
            token = read_body(request).get("newToken")
        except BadRequest as error:
            return error_reply(status_error(400, str(error)))
        if not self.cluster.is_usable():
            return error_with_id("token", "runtime core not ready", self.server)
        if not isinstance(token, str) or len(token) > _LONGEST:
            return error_with_id("token", "newToken is missing, or no text", self.server)
        try:
            password = parse_token(token).password if token else f"{SystemRng().bits(_RANDOM_BITS):032x}"
        except BadToken as error:
            return error_with_id("token", str(error), self.server)
        if not password:
            return error_with_id("token", "a bootstrap token is no server token", self.server)
        self._set_password(password)
        return Reply(200)

    def _set_password(self, password: str) -> None:
        cluster, settings = self.cluster, self.server.settings
        has_own = bool(settings.text("agent-token") or settings.text("agent-token-file"))
        if cluster.agent_password == cluster.server_password and not has_own:
            cluster.agent_password = password
        cluster.server_password = password
        write_tokens(self.guest, settings, cluster.authorities, password, cluster.agent_password)
