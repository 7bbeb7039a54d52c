"""ApiServer: authenticates, authorizes and dispatches requests to verbs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

from windrow.apiserver import apierrors
from windrow.apiserver.admission import AdmissionHook, AdmissionRequest
from windrow.apiserver.context import Authorize, ListResult, ObjectResult, Result, ServerContext, get_entry
from windrow.apiserver.controllers.claims import PvcProtectionController
from windrow.apiserver.controllers.compaction import HistoryCompactor
from windrow.apiserver.controllers.definitions import CrdFinalizer
from windrow.apiserver.controllers.events import EventExpiry
from windrow.apiserver.controllers.gc import GarbageCollector
from windrow.apiserver.controllers.namespaces import NamespaceController
from windrow.apiserver.controllers.tokens import TokenSecretController
from windrow.apiserver.discovery.nonresource import NonResourceHandler
from windrow.apiserver.encoding import encode_result, to_yaml
from windrow.apiserver.loopback import LoopbackClient
from windrow.apiserver.rbac import BOOTSTRAP_ROLES, RbacAuthorizer, bootstrap_objects, forbidden_error
from windrow.apiserver.request import decoding
from windrow.apiserver.request.authn import (
    Authenticator,
    StaticToken,
    TokenAuthenticator,
    impersonation_checks,
    read_impersonation,
)
from windrow.apiserver.request.flow_control import FlowControl
from windrow.apiserver.request.hooks import RequestHooks
from windrow.apiserver.request.info import (
    ApiCall,
    RequestInfo,
    UserInfo,
    header,
    headers,
    name_from_field_selector,
    parse_request_info,
    query_options,
    request_verb,
)
from windrow.apiserver.request.negotiation import YAML, NegotiatedType, negotiate
from windrow.apiserver.request.options import check_options
from windrow.apiserver.reviews import REVIEWS, review
from windrow.apiserver.service_account_tokens import ISSUER, ServiceAccountTokens
from windrow.apiserver.services.allocation import ServiceAllocator, ServiceRanges, render_kubernetes_service
from windrow.apiserver.storage.port import Store
from windrow.apiserver.tables import build_table, partial_metadata, render_partial_metadata, render_table
from windrow.apiserver.types import crds
from windrow.apiserver.types.builtins import BUILTINS
from windrow.apiserver.types.field_types import DELETE_OPTIONS, find_mistyped
from windrow.apiserver.types.registry import Registry, ResourceType
from windrow.apiserver.verbs.create import create
from windrow.apiserver.verbs.delete import delete, delete_collection
from windrow.apiserver.verbs.list import get, list_
from windrow.apiserver.verbs.patch import patch
from windrow.apiserver.verbs.scale import scale
from windrow.apiserver.verbs.subresources import SUBRESOURCE_VERBS
from windrow.apiserver.verbs.update import update
from windrow.apiserver.verbs.watch import watch
from windrow.core.clock import Clock
from windrow.core.crash import handle_crash
from windrow.core.formats.fastjson import dumps, loads
from windrow.core.formats.regex import require_re2
from windrow.core.rng import Rng
from windrow.kubernetes.errors import KubeError, NotFound
from windrow.kubernetes.handler import Peer, TlsIdentity
from windrow.kubernetes.objects import name_of, namespace_of
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import CRD, NAMESPACE, POD, SERVICE, ApiResource, ObjectRef

Raw = dict[str, Any]
SubresourceHandler = Callable[[Request, ObjectRef, UserInfo], Awaitable[Reply]]
RouteHandler = Callable[[Request, UserInfo], Awaitable[Reply]]

_log = logging.getLogger(__name__)

SYSTEM_ADMIN = UserInfo("system:admin", ("system:masters", "system:authenticated"))
VERB_TABLE: dict[str, Callable[[ServerContext, ResourceType, ApiCall], Awaitable[Result]]] = {
    "get": get,
    "list": list_,
    "create": create,
    "update": update,
    "patch": patch,
    "delete": delete,
    "deletecollection": delete_collection,
}
# Subresources of Pods that lead into a container.
CONTAINER_STREAMS = ("attach", "exec", "log", "portforward", "proxy")
NAMED_VERBS = ("get", "update", "patch", "delete")
# Those that are counted by their names.
COUNTED_VERBS = frozenset({*VERB_TABLE, "watch", "head", "options", "post", "put"})
SYSTEM_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


class ApiServer:
    """One Kubernetes API over one store. A Handler for sockets; `local()` is for code in this process.

    * `types`: the built-in resource types; `install_crd` adds more.
    * `authenticate`: a further authenticator of bearer tokens. `tokens` are static ones; they may change at any time.
    * `authorize`: "rbac", or a function; None allows every authenticated user everything.
    * `anonymous`: requests without a credential are of `system:anonymous` instead of 401.
    * `root_ca`: the bundle published in every namespace and in token Secrets.
    * `services`: ranges from which Services get cluster IPs and node ports; creates Service default/kubernetes. None
      allocates nothing.
    * `graceful_pod_deletion`: a deleted pod on a node is kept until its kubelet deletes it without grace period.
    * `protect_claims`: run the PVC protection controller. Off where another controller does it.
    * `admission` hooks run on every write. `subresource_handlers` serve subresources of other API groups, by
      `("virtualmachines.subresources.kubevirt.io", "start")`; `subresource_versions` are the served
      versions of such a group (`v1`). `routes` are handlers by path prefix. `warn_of_write` gives a warning for the answer
      to a write to a type, "" for none.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        rng: Rng,
        *,
        name: str = "kubernetes",
        types: Iterable[ResourceType] = BUILTINS,
        authenticate: TokenAuthenticator | None = None,
        authorize: Authorize | str | None = None,
        anonymous: bool = False,
        version: str = "v1.34.3+rke2r1",
        tls: TlsIdentity | None = None,
        root_ca: str = "",
        protect_claims: bool = False,
        services: ServiceRanges | None = None,
        graceful_pod_deletion: bool = False,
    ) -> None:
        require_re2()
        self.name, self.version = name, version
        self.tls, self.root_ca = tls, root_ca
        self._protects_claims = protect_claims
        self.context = ServerContext(
            store, clock, rng, Registry(types), graceful_pod_deletion=graceful_pod_deletion
        )
        self.admission: list[AdmissionHook] = self.context.admission_hooks
        self.validation: list[AdmissionHook] = self.context.object_validators
        self.subresource_handlers: dict[tuple[str, str], SubresourceHandler] = {}
        self.subresource_versions: dict[str, tuple[str, ...]] = {}
        self.routes: dict[str, RouteHandler] = {}
        self.warn_of_write: Callable[[ResourceType], str] = lambda type: ""
        self.hooks = RequestHooks()
        self._nonresource = NonResourceHandler(
            self.registry,
            lambda: self.version,
            self.subresource_handlers,
            self.subresource_versions,
            store.check_writable,
        )
        self._flows = FlowControl()
        self.authenticator = Authenticator(clock, anonymous=anonymous)
        if authenticate is not None:
            self.authenticator.token_authenticators.append(authenticate)
        self.service_account_tokens = ServiceAccountTokens(self.context)
        self.authenticator.token_authenticators.append(self.service_account_tokens.authenticate)
        self._rbac = RbacAuthorizer(self.context)
        self._is_rbac = authorize == "rbac"
        self._authorizer: Authorize | None = (
            authorize if callable(authorize) else self._rbac.allows if self._is_rbac else None
        )
        if self._authorizer is not None:
            self.context.validating_hooks.append(self._authorize_creation)
        if self._is_rbac:
            self.context.validating_hooks.append(self._check_escalation)
        self._service_ranges = services
        if services is not None:
            self.context.validating_hooks.append(ServiceAllocator(self.context, services).admit)
        self._pending_crds: list[tuple[Raw, Rng | None]] = []
        self._is_prepared = False
        self._prepare_lock = asyncio.Lock()

    @property
    def tokens(self) -> dict[str, StaticToken]:
        """Static bearer tokens: token -> (user, groups, expiry or None). May be changed at any time."""
        return self.authenticator.tokens

    @property
    def store(self) -> Store:
        return self.context.store

    @property
    def registry(self) -> Registry:
        return self.context.registry

    def identity(self) -> TlsIdentity | None:
        return self.tls

    def local(
        self, user: str = "system:admin", groups: tuple[str, ...] = ("system:masters",)
    ) -> LoopbackClient:
        """A client of this server as `user`, without sockets."""
        return LoopbackClient(self, UserInfo(user, tuple(dict.fromkeys((*groups, "system:authenticated")))))

    def install_crd(self, raw: Mapping[str, Any], rng: Rng | None = None) -> None:
        """Serve the resources that a CustomResourceDefinition defines, at once; the definition itself is stored
        before the next request is answered. May be repeated with a newer form. Its uid comes from `rng`, if there is
        one, so that the server's own draws stay what they were."""
        definition: Raw = loads(dumps(raw))
        self._register_crd(definition)
        self._pending_crds.append((definition, rng))
        self._is_prepared = False

    def forget_definitions(self) -> None:
        """The store's objects were replaced: serve the custom resources that are defined in it from the next request on."""
        for type in [one for one in self.registry if one.custom]:
            self.registry.remove(type)
        self._is_prepared = False

    async def run(self) -> None:
        """The server's own controllers; until cancelled."""
        await self.prepare()
        collector = GarbageCollector(self.context)
        namespaces = NamespaceController(self.context, lambda: self.root_ca)
        secrets = TokenSecretController(self.context, self.service_account_tokens, lambda: self.root_ca)
        async with asyncio.TaskGroup() as group:
            group.create_task(collector.run())
            group.create_task(namespaces.run())
            group.create_task(secrets.run())
            group.create_task(CrdFinalizer(self.context).run())
            group.create_task(EventExpiry(self.context).run())
            if self._protects_claims:
                group.create_task(PvcProtectionController(self.context).run())
            group.create_task(HistoryCompactor(self.store, self.context.clock).run())

    async def prepare(self) -> None:
        """Create the bootstrap objects and load CustomResourceDefinitions. Repeated calls do nothing."""
        if self._is_prepared:
            return
        async with self._prepare_lock:
            if not self._is_prepared:
                await self._create_bootstrap_objects()
                await self._load_crds()
                self._is_prepared = True

    async def _create_bootstrap_objects(self) -> None:
        for kind, raw in self._bootstrap_objects():
            type = self.registry.find_kind(kind)
            if type and await self.store.find(type.key(namespace_of(raw), name_of(raw))) is None:
                await self._create_system_object(type, loads(dumps(raw)))

    def _bootstrap_objects(self) -> Iterator[tuple[ApiResource, Raw]]:
        for name in SYSTEM_NAMESPACES:
            yield NAMESPACE, {"metadata": {"name": name}}
        if self._is_rbac:
            yield from bootstrap_objects()
        if self._service_ranges is not None:
            yield SERVICE, render_kubernetes_service(self._service_ranges)

    async def ensure_system_object(self, kind: ApiResource, raw: Raw, rng: Rng) -> None:
        """Store the object, if there is none of its name, through all hooks; its uid comes from `rng`, so that the server's
        own draws stay what they were."""
        await self.prepare()
        type = self.registry.find_kind(kind)
        assert type is not None, f"{kind} is not served"
        if await self.store.find(type.key(namespace_of(raw), name_of(raw))) is None:
            call = ApiCall(
                "create", RequestInfo.of(kind, namespace_of(raw)), SYSTEM_ADMIN, body=loads(dumps(raw))
            )
            await create(replace(self.context, rng=rng), type, call)

    async def ensure_kubernetes_service(self, rng: Rng) -> None:
        """Create Service default/kubernetes where it is gone, as kube-apiserver does; it gets another uid."""
        type = self.registry.find_kind(SERVICE)
        if type is None or self._service_ranges is None:
            return
        raw = render_kubernetes_service(self._service_ranges)
        if await self.store.find(type.key(namespace_of(raw), name_of(raw))) is None:
            await self._create_system_object(type, raw, rng)

    async def _create_system_object(self, type: ResourceType, raw: Raw, rng: Rng | None = None) -> None:
        info = RequestInfo.of(type.kind, namespace_of(raw))
        hooks: dict[str, Any] = dict.fromkeys(
            ("admission_hooks", "validating_hooks", "object_validators"), ()
        )
        # Bootstrap objects pass no admission hook.
        await create(
            replace(self.context, rng=rng or self.context.rng, **hooks),
            type,
            ApiCall("create", info, SYSTEM_ADMIN, body=raw),
        )

    async def _load_crds(self) -> None:
        home = self.registry.find_kind(CRD)
        if home is None:
            self._pending_crds.clear()
            return
        while self._pending_crds:
            definition, rng = self._pending_crds.pop(0)
            name = definition["metadata"]["name"]
            found = await self.store.find(home.key("", name))
            if found is None:
                await self._create_system_object(home, definition, rng)
            elif found.raw.get("spec") != definition["spec"]:
                await self.store.commit(found.key, {**found.raw, "spec": definition["spec"]}, found.rev)
        for entry in (await self.store.range(home.prefix())).entries:
            # Stored by another version, or by hand: one that cannot be read is not served, and ends nothing else.
            with handle_crash(_log, "%s is malformed, its resource is not served; delete it", entry.key):
                await self._establish_crd(entry.key)

    def _register_crd(self, definition: Raw) -> None:
        """Offer exactly the versions that the definition serves."""
        types = crds.types_from_crd(definition)
        place = (definition["spec"]["group"], definition["spec"]["names"]["plural"])
        for old in self.registry:
            if old.custom and (old.kind.group, old.kind.plural) == place:
                self.registry.remove(old)
        for type in types:
            self.registry.add(type)

    async def _establish_crd(self, key: str) -> None:
        """Serve the resource of a stored CustomResourceDefinition, and set its condition Established."""
        entry = await self.store.find(key)
        if entry is None:
            return
        self._register_crd(entry.raw)
        if not (entry.raw.get("status") or {}).get("conditions"):
            status = crds.established_status(entry.raw, self.context.timestamp())
            await self.store.commit(key, {**entry.raw, "status": status}, entry.rev)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def send(self, request: Request, peer: Peer) -> Reply:
        began = self.context.clock.monotonic()
        try:
            user = await self.authenticator.authenticate(request, peer)
        except KubeError as error:
            return self._refuse(request, error, began)
        return await self.send_as(request, user)

    async def send_as(self, request: Request, user: UserInfo) -> Reply:
        """The reply to `request` of an authenticated user, within what one user may have under way."""
        began = self.context.clock.monotonic()
        info = parse_request_info(request.path)
        is_list = info.is_resource and request_verb(request.method, info, query_options(request)) == "list"
        try:
            return await self._flows.reply(user, lambda: self.handle(request, user), is_list=is_list)
        except KubeError as error:
            return self._refuse(request, error, began)

    def _refuse(self, request: Request, error: KubeError, began: timedelta) -> Reply:
        """The reply to a request that was not handled."""
        self._count_request(request, error.status or 500, began)
        return apierrors.error_reply(error)

    def _count_request(self, request: Request, code: int, began: timedelta) -> None:
        info = parse_request_info(request.path)
        type = self.registry.find(info.group, info.version, info.plural) if info.is_resource else None
        verb = request_verb(request.method, info, query_options(request)) if type else request.method.lower()
        took = (self.context.clock.monotonic() - began).total_seconds()
        resource = type.kind.group_resource if type is not None else ""
        self.hooks.on_request(verb if verb in COUNTED_VERBS else "other", resource, code, took)

    @asynccontextmanager
    async def stream(self, request: Request, peer: Peer) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        user = await self.authenticator.authenticate(request, peer)
        async with self.stream_as(request, user) as events:
            yield events

    @asynccontextmanager
    async def stream_as(self, request: Request, user: UserInfo) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """A watch of an authenticated user, within how many one user may have open. Raises the API error on entry."""
        with self._flows.watching(user):
            async with self.handle_watch(request, user, self._flows.listing(user)) as events:
                yield events

    async def handle(self, request: Request, user: UserInfo) -> Reply:
        """The reply to `request` of an authenticated user; errors are Status replies."""
        began, code = self.context.clock.monotonic(), 500
        try:
            try:
                reply = await self._handle(request, user)
            except KubeError as error:
                reply = apierrors.error_reply(error)
            code = reply.status
            return reply
        finally:
            self._count_request(request, code, began)

    async def _handle(self, request: Request, user: UserInfo) -> Reply:
        await self.prepare()
        user = await self._impersonated(request, user)
        options = query_options(request)
        info = parse_request_info(request.path)
        verb = request_verb(request.method, info, options)
        asked = (
            replace(info, name=name_from_field_selector(options))
            if info.is_resource and not info.name
            else info
        )
        await self._authorize(user, verb if info.is_resource else request.method.lower(), asked)
        route = self._route(request.path)
        if route is not None:
            return await route(request, user)
        if not info.is_resource:
            return self._nonresource.handle(request)
        action = self.subresource_handlers.get((_qualified(info), info.subresource))
        if action is not None:
            return await action(request, self._ref(info), user)
        type = self._type(info)
        form = negotiate(request.accept)
        call = ApiCall(verb, info, user, options, user_agent=header(request, "User-Agent"))
        call.size = len(request.body or b"")
        if type.kind == POD and info.subresource in CONTAINER_STREAMS:
            await get_entry(self.context, type, info)
            raise apierrors.no_containers(info.subresource)
        await decoding.work_on(call.size, lambda: self._read_body(request, type, call))
        outcome = await self._perform(type, call)
        if call.verb in ("create", "update", "patch") and (text := self.warn_of_write(type)):
            call.warnings.append(text)
        reply = self._encode(outcome, form, options)
        if form.media_type == YAML and not form.as_:
            reply = await decoding.work_on(reply.size, partial(to_yaml, reply))
        if call.warnings:
            reply = replace(reply, headers={**reply.headers, "Warning": _warning_header(call.warnings)})
        return reply

    @asynccontextmanager
    async def handle_watch(
        self, request: Request, user: UserInfo, listing: AbstractAsyncContextManager[None] | None = None
    ) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """A watch of an authenticated user; `listing` is held while its initial events are sent. Raises the API error on
        entry."""
        began, code, resource = self.context.clock.monotonic(), 500, ""
        async with AsyncExitStack() as stack:
            try:
                type, events = await self._open_watch(stack, request, user, listing or nullcontext())
                code, resource = 200, type.kind.group_resource
            except KubeError as error:
                code = error.status or code
                raise
            finally:
                self._count_request(request, code, began)
            self.hooks.on_watch(resource, 1)
            stack.callback(self.hooks.on_watch, resource, -1)
            yield events

    async def _open_watch(
        self,
        stack: AsyncExitStack,
        request: Request,
        user: UserInfo,
        listing: AbstractAsyncContextManager[None],
    ) -> tuple[ResourceType, AsyncIterator[WatchEvent]]:
        await self.prepare()
        user = await self._impersonated(request, user)
        info, options = parse_request_info(request.path), query_options(request)
        await self._authorize(user, "watch", replace(info, name=name_from_field_selector(options)))
        type = self._type(info)
        form = negotiate(request.accept)
        call = ApiCall("watch", info, user, options)
        check_options(call)
        events = await stack.enter_async_context(watch(self.context, type, call, listing))
        return type, self._transform_events(type, events, form, call.options) if form.as_ else events

    async def _transform_events(
        self,
        type: ResourceType,
        events: AsyncIterator[WatchEvent],
        form: NegotiatedType,
        options: Mapping[str, str],
    ) -> AsyncIterator[WatchEvent]:
        """Each event's object as a table of one row, or as bare metadata."""
        first = True
        include = options.get("includeObject") or "Metadata"
        async for event in events:
            raw = event.object
            if event.type == "ERROR":
                yield event
            elif form.as_ != "Table":
                yield WatchEvent(event.type, partial_metadata(raw))
            elif event.type == "BOOKMARK":
                yield WatchEvent(
                    event.type, build_table(type, [], raw["metadata"], self.context.clock.now(), include)
                )
            else:
                head = {"resourceVersion": raw["metadata"]["resourceVersion"]}
                made = build_table(type, [raw], head, self.context.clock.now(), include, columns=first)
                first = False
                yield WatchEvent(event.type, made)

    async def perform(self, call: ApiCall) -> Result:
        """One call with a decoded body that the server may keep. Raises the API error."""
        await self.prepare()
        await self._authorize(call.user, call.verb, call.info)
        return await self._perform(self._type(call.info), call)

    async def _perform(self, type: ResourceType, call: ApiCall) -> Result:
        if call.info.subresource not in ("", *type.subresources):
            raise (
                apierrors.not_found(type.kind, call.info.name) if type.custom else apierrors.path_not_found()
            )
        if call.verb not in type.verbs and not call.info.subresource:
            raise apierrors.method_not_allowed()
        if bool(call.info.name) != (call.verb in NAMED_VERBS) and not call.info.subresource:
            raise apierrors.method_not_allowed()
        check_options(call)
        if type.kind.group_resource in REVIEWS:
            return await review(self, type, call)
        if call.info.subresource == "scale":
            return await scale(self.context, type, call)
        if call.info.subresource not in ("", "status", "ephemeralcontainers"):
            handler = SUBRESOURCE_VERBS.get((type.kind.group_resource, call.info.subresource, call.verb))
            if handler is None:
                raise apierrors.method_not_allowed()
            return await handler(self.context, type, call)
        if call.verb in ("create", "delete", "deletecollection") and call.info.name and call.info.subresource:
            raise apierrors.method_not_allowed()
        outcome = await self._execute_verb(type, call)
        if (
            type.kind == CRD
            and call.verb in ("create", "update", "patch")
            and isinstance(outcome, ObjectResult)
        ):
            await self._establish_crd(outcome.entry.key)
            call.warnings += crds.warnings_of(outcome.entry.raw)
        return outcome

    async def _execute_verb(self, type: ResourceType, call: ApiCall) -> Result:
        """The verb itself; types with AllowCreateOnUpdate are created by a PUT."""
        try:
            return await VERB_TABLE[call.verb](self.context, type, call)
        except NotFound:
            if call.verb != "update" or not type.allows_create_on_update or call.info.subresource:
                raise
            return await create(self.context, type, call)

    async def _impersonated(self, request: Request, user: UserInfo) -> UserInfo:
        wanted = read_impersonation(request)
        if wanted is None:
            return user
        for info in impersonation_checks(wanted, headers(request, "Impersonate-Group")):
            await self._authorize(user, "impersonate", info)
        return wanted

    async def _authorize(self, user: UserInfo, verb: str, info: RequestInfo) -> None:
        if not await self.allows(user, verb, info):
            raise forbidden_error(user, verb, info)

    async def allows(self, user: UserInfo, verb: str, info: RequestInfo) -> bool:
        """Whether the user may do this. Without an authorizer every authenticated user may do everything."""
        return self._authorizer is None or user.is_superuser or await self._authorizer(user, verb, info)

    async def rules(self, user: UserInfo, namespace: str) -> list[Raw]:
        """The RBAC rules of the user in `namespace`."""
        if user.is_superuser or not self._is_rbac:
            return BOOTSTRAP_ROLES["cluster-admin"]
        return await self._rbac.rules(user, namespace)

    async def authenticate_token(self, token: str) -> UserInfo | None:
        return await self.authenticator.authenticate_token(token)

    async def review_token(
        self, token: str, audiences: Sequence[str]
    ) -> tuple[UserInfo, tuple[str, ...]] | None:
        """The user of a token, and for which of `audiences` it is; without any, this API is the audience.

        Tokens that are not of ServiceAccounts are for this API only.
        """
        wanted = tuple(audiences) or (ISSUER,)
        if found := await self.service_account_tokens.review(token, wanted):
            return found
        user = await self.authenticate_token(token) if ISSUER in wanted else None
        return (user, (ISSUER,)) if user is not None else None

    async def _authorize_creation(self, operation: AdmissionRequest) -> None:
        """A PUT or an apply patch that creates its object needs the verb create as well."""
        if operation.verb == "create" and not operation.subresource:
            info = RequestInfo.of(operation.kind, operation.namespace, operation.name)
            await self._authorize(operation.user, "create", info)

    async def _check_escalation(self, operation: AdmissionRequest) -> None:
        if operation.object is not None and operation.verb != "delete":
            await self._rbac.check_escalation(
                operation.user, operation.kind, operation.object, operation.old_object
            )

    def _type(self, info: RequestInfo) -> ResourceType:
        type = self.registry.find(info.group, info.version, info.plural)
        if type is None:
            raise apierrors.path_not_found()
        return type

    def _ref(self, info: RequestInfo) -> ObjectRef:
        type = self.registry.find(info.group, info.version, info.plural)
        kind = type.kind if type else ApiResource(info.group, info.version, "", info.plural)
        return kind.ref(info.name, info.namespace)

    def _route(self, path: str) -> RouteHandler | None:
        for prefix, route in self.routes.items():
            if path == prefix or path.startswith(prefix.rstrip("/") + "/"):
                return route
        return None

    def _read_body(self, request: Request, type: ResourceType, call: ApiCall) -> None:
        match call.verb:
            case "create" | "update":
                call.body = decoding.decode(request.body, request.content_type, custom=type.custom)
                if call.body is None:
                    raise apierrors.bad_request("the request has no body")
                if type.custom and isinstance(call.body, dict) and not call.body.get("kind"):
                    text = dumps(call.body).decode()
                    raise apierrors.bad_request(
                        f"the object provided is unrecognized (must be of type {type.kind.kind}): "
                        f"Object 'Kind' is missing in '{text}' ({text})"
                    )
            case "patch":
                accepted = decoding.CUSTOM_PATCHES if type.custom else decoding.PATCHES
                if not type.custom and decoding.media_type_of(request.content_type) not in accepted:
                    raise apierrors.status_error(415, "415: Unsupported Media Type")
                call.media_type, call.body = decoding.decode_patch(
                    request.body, request.content_type, accepted
                )
            case "delete" | "deletecollection":
                options = decoding.decode(request.body, request.content_type)
                if options is not None and not isinstance(options, dict):
                    raise apierrors.bad_request(find_mistyped(DELETE_OPTIONS, options))
                call.delete_options = options or {}

    def _encode(self, outcome: Result, form: NegotiatedType, options: Mapping[str, str]) -> Reply:
        if isinstance(outcome, (ObjectResult, ListResult)) and form.as_:
            made = (
                render_table(outcome, self.context.clock.now(), options.get("includeObject") or "Metadata")
                if form.as_ == "Table"
                else render_partial_metadata(outcome)
            )
            status = outcome.status if isinstance(outcome, ObjectResult) else 200
            return Reply(status, dumps(made))
        return encode_result(outcome)


def _qualified(info: RequestInfo) -> str:
    return f"{info.plural}.{info.group}" if info.group else info.plural


def _warning_header(warnings: list[str]) -> str:
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in dict.fromkeys(warnings))
    return ", ".join(f'299 - "{text}"' for text in quoted)
