"""The management API as one of its users, within this process: what a dashboard shows, its user may read with kubectl.

Every request is authorized by the API as that user's own. Who shows a bearer token is authenticated by it at each request, so
that a token which is revoked ends at once, also where it asked for the sign-in code. Who asked for that with a client certificate is
the user that the API authenticated then.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from windrow.apiserver.request.info import UserInfo
from windrow.apiserver.server import ApiServer
from windrow.client.client import Client
from windrow.client.transport import Transport
from windrow.core.formats.fastjson import dumps, loads
from windrow.core.formats.json import NotJson
from windrow.kubernetes.errors import InvalidReply
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.objects import Raw, nested, new_object
from windrow.kubernetes.requests import JSON, Reply, Request, WatchEvent
from windrow.kubernetes.resources import CLUSTER_ROLE, CLUSTER_ROLE_BINDING

CODE_PATH = "/dashboard/sign-in-codes"
ROLE_NAME = "windrow-dashboard"
MAX_CODE_REQUEST_BYTES = 4096
_IDENTITY = ("authorization", "impersonate-")  # headers that say who asks, as they begin
_WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


@dataclass(frozen=True, slots=True)
class ApiUser:
    """A user of the management API, and the transport of their requests."""

    name: str
    groups: tuple[str, ...]
    transport: Transport = field(repr=False, compare=False)


IssueLink = Callable[[ApiUser, str], Raw]
"""Gives the answer to a request for a sign-in code: of this user, who begins in this namespace ("": in all)."""


class ManagementAccess:
    """Ways into the management API of `api` for those who sign in elsewhere."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    async def by_token(self, token: str, address: str) -> ApiUser:
        """The user of a bearer token. Raises Unauthorized, and Forbidden where the user may not ask who they are."""
        transport = _CredentialTransport(self._api, (("Authorization", f"Bearer {token}"),), address)
        request = Request("POST", _WHO_AM_I, (), dumps(_SELF_SUBJECT_REVIEW), JSON)
        raw = await Client(transport).call(request)
        groups = nested(raw, "status", "userInfo", "groups", default=())
        return ApiUser(
            str(nested(raw, "status", "userInfo", "username", default="")),
            tuple(map(str, groups)),
            transport,
        )

    def serve_codes(self, issue: IssueLink) -> None:
        """Answer a POST to CODE_PATH with what `issue` gives for the user that the API has authenticated."""

        async def answer(request: Request, user: UserInfo) -> Reply:
            if request.method != "POST":
                return _status(405, "MethodNotAllowed", "send a POST; windrow dashboard does")
            try:
                wanted = read_code_request(request.body or b"{}")
            except ValueError as error:
                return _status(400, "BadRequest", str(error))
            made = issue(ApiUser(user.username, user.groups, self._as_asked(request, user)), wanted)
            return Reply(201, dumps(made), JSON, {"Cache-Control": "no-store"})

        self._api.routes[CODE_PATH] = answer

    def _as_asked(self, request: Request, user: UserInfo) -> Transport:
        """Requests with the token, and as the user it stands in for, of the one who asked."""
        kept = tuple((key, value) for key, value in request.headers if key.lower().startswith(_IDENTITY))
        if any(key.lower() == "authorization" for key, _ in kept):
            return _CredentialTransport(self._api, kept)
        return _UserTransport(self._api, user)

    def forget_codes(self) -> None:
        """Serve CODE_PATH no longer. May be repeated."""
        self._api.routes.pop(CODE_PATH, None)


_SELF_SUBJECT_REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


def read_code_request(body: bytes) -> str:
    """The namespace in the body of a request for a code, "" for none. Raises ValueError."""
    if len(body) > MAX_CODE_REQUEST_BYTES:
        raise ValueError(f"wanted at most {MAX_CODE_REQUEST_BYTES} bytes, found {len(body)}")
    try:
        raw = loads(body)
    except NotJson as error:
        raise ValueError('wanted JSON such as {"namespace": "default"}') from error
    namespace = raw.get("namespace", "") if isinstance(raw, dict) else None
    if not isinstance(namespace, str) or len(namespace) > 63:
        raise ValueError('wanted JSON such as {"namespace": "default"}, with the name of a namespace')
    return namespace


def _status(code: int, reason: str, message: str) -> Reply:
    raw: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    return Reply(code, dumps({**raw, "message": message, "reason": reason, "code": code}), JSON)


class _UserTransport:
    """The requests of a user that the API has authenticated before."""

    def __init__(self, api: ApiServer, user: UserInfo) -> None:
        self._api, self._user = api, user

    async def send(self, request: Request) -> Reply:
        return await self._api.send_as(request, self._user)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return self._api.stream_as(request, self._user)

    async def aclose(self) -> None:
        """Nothing to close: there are no sockets."""


class _CredentialTransport:
    """Requests with the headers of a credential, which the API reads anew each time."""

    def __init__(self, api: ApiServer, credential: tuple[tuple[str, str], ...], address: str = "") -> None:
        self._api, self._credential, self._peer = api, credential, Peer(address=address)

    def _with_credential(self, request: Request) -> Request:
        return replace(request, headers=(*request.headers, *self._credential))

    async def send(self, request: Request) -> Reply:
        return await self._api.send(self._with_credential(request), self._peer)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        async with self._api.stream(self._with_credential(request), self._peer) as events:
            yield events

    async def aclose(self) -> None:
        """Nothing to close: there are no sockets."""


async def ask_for_link(api: Client, namespace: str = "") -> str:
    """A link that signs the user of `api` in to the dashboard, once. Raises NotFound where the API serves none."""
    body = dumps({"namespace": namespace})
    url = (await api.call(Request("POST", CODE_PATH, (), body, JSON))).get("url")
    if not isinstance(url, str) or not url.startswith(("http://", "https://")) or not url.isprintable():
        raise InvalidReply(
            f"wanted a link in the answer to POST {CODE_PATH}, found none; is this a windrow serve?"
        )
    return url


async def install_code_role(api: Client) -> None:
    """Every authenticated user may ask for a code of their own. May be repeated; an administrator may delete the binding."""
    rules = [{"nonResourceURLs": [CODE_PATH], "verbs": ["post"]}]
    role = {**new_object(CLUSTER_ROLE, ROLE_NAME), "rules": rules}
    binding = {
        **new_object(CLUSTER_ROLE_BINDING, ROLE_NAME),
        "roleRef": {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": ROLE_NAME},
        "subjects": [{"apiGroup": CLUSTER_ROLE.group, "kind": "Group", "name": "system:authenticated"}],
    }
    await api.apply(CLUSTER_ROLE.ref(ROLE_NAME), role, "windrow", force=True)
    await api.apply(CLUSTER_ROLE_BINDING.ref(ROLE_NAME), binding, "windrow", force=True)
