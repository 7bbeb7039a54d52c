"""The API server: authenticates, authorizes, understands the path, and hands over to one verb."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from windrow.apiserver import bodies, crds, statuses
from windrow.apiserver.accepting import YAML, Form, choose
from windrow.apiserver.admission import Hook, Operation
from windrow.apiserver.authentication import (
    Authenticator,
    Recognise,
    StaticToken,
    impersonated,
    read_impersonation,
)
from windrow.apiserver.builtins import BUILTINS
from windrow.apiserver.calls import (
    Call,
    Caller,
    Target,
    header,
    headers,
    named,
    options_of,
    parse_target,
    verb_of,
)
from windrow.apiserver.controllers.claims import Claims
from windrow.apiserver.controllers.definitions import Definitions
from windrow.apiserver.controllers.gc import Collector
from windrow.apiserver.controllers.namespaces import Namespaces
from windrow.apiserver.controllers.tokens import TokenSecrets
from windrow.apiserver.core import Allows, Core, Listing, Outcome, Single
from windrow.apiserver.documents import Documents
from windrow.apiserver.doors import Identity, Peer
from windrow.apiserver.local import Local
from windrow.apiserver.rbac import FIRST_ROLES, Rbac, first_objects, says_no
from windrow.apiserver.rendering import as_yaml, render
from windrow.apiserver.reviews import REVIEWS, review
from windrow.apiserver.services.allocation import Allocation, ServiceRanges
from windrow.apiserver.services.own import render_own_service
from windrow.apiserver.store import Store
from windrow.apiserver.tables import metadata_only, partial, table, table_of
from windrow.apiserver.tokens import Tokens
from windrow.apiserver.types import Registry, Type
from windrow.apiserver.verbs.create import create
from windrow.apiserver.verbs.delete import delete, delete_collection
from windrow.apiserver.verbs.get import get
from windrow.apiserver.verbs.list import list_
from windrow.apiserver.verbs.patch import patch
from windrow.apiserver.verbs.scale import scale
from windrow.apiserver.verbs.subresources import HANDLERS
from windrow.apiserver.verbs.update import update
from windrow.apiserver.verbs.watch import watch
from windrow.core.clock import Clock
from windrow.core.fastjson import dumps, loads
from windrow.core.rng import Rng
from windrow.kubernetes.errors import KubeError, NotFound
from windrow.kubernetes.objects import namespace_of
from windrow.kubernetes.requests import Reply, Request, WatchEvent
from windrow.kubernetes.resources import CRD, NAMESPACE, SERVICE, ApiResource, ObjectRef

Raw = dict[str, Any]
Action = Callable[[Request, ObjectRef, Caller], Awaitable[Reply]]
Route = Callable[[Request, Caller], Awaitable[Reply]]

SYSTEM = Caller("system:admin", ("system:masters", "system:authenticated"))
VERB_TABLE: dict[str, Callable[[Core, Type, Call], Awaitable[Outcome]]] = {
    "get": get,
    "list": list_,
    "create": create,
    "update": update,
    "patch": patch,
    "delete": delete,
    "deletecollection": delete_collection,
}
NAMED_VERBS = ("get", "update", "patch", "delete")
FIRST_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


class ApiServer:
    """One Kubernetes API over one store. A Door for sockets, and `local()` for code in this process.

    * `types`: what is built in; `install_crd` adds more.
    * `authenticate`: one more way to know a bearer token. `tokens` are static ones, to be changed at any time.
    * `authorize`: "rbac", or a function; None lets every known caller do everything.
    * `anonymous`: callers without a credential are `system:anonymous` instead of 401.
    * `root_ca`: the bundle published in every namespace and in token Secrets.
    * `services`: give Services cluster addresses and node ports out of these ranges, and the API its own one. None
      leaves them as they come, and there is none.
    * `pods_end_slowly`: a pod on a node that is deleted stays until somebody deletes it without grace: its kubelet.
    * `release_claims`: let go of deleted PersistentVolumeClaims that no pod uses. Off where somebody else does it.
    * `admission` hooks see every write. `actions` are subresources with a handler of their own, by
      `("virtualmachines.subresources.kubevirt.io", "start")`; `action_versions` says in which versions of a group
      they are found (`v1`). `routes` are handlers by path prefix.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        rng: Rng,
        *,
        name: str = "kubernetes",
        types: Iterable[Type] = BUILTINS,
        authenticate: Recognise | None = None,
        authorize: Allows | str | None = None,
        anonymous: bool = False,
        version: str = "v1.34.3+rke2r1",
        tls: Identity | None = None,
        root_ca: str = "",
        release_claims: bool = False,
        services: ServiceRanges | None = None,
        pods_end_slowly: bool = False,
    ) -> None:
        self.name, self.version = name, version
        self.tls, self.root_ca = tls, root_ca
        self._release_claims = release_claims
        self.core = Core(store, clock, rng, Registry(types), pods_end_slowly=pods_end_slowly)
        self.admission: list[Hook] = self.core.hooks
        self.actions: dict[tuple[str, str], Action] = {}
        self.action_versions: dict[str, tuple[str, ...]] = {}
        self.routes: dict[str, Route] = {}
        self._documents = Documents(self.registry, lambda: self.version, self.actions, self.action_versions)
        self.authenticator = Authenticator(clock, anonymous=anonymous)
        if authenticate is not None:
            self.authenticator.recognisers.append(authenticate)
        self.tokens_of_accounts = Tokens(self.core)
        self.authenticator.recognisers.append(self.tokens_of_accounts.recognise)
        self._rbac = Rbac(self.core)
        self._is_rbac = authorize == "rbac"
        self._allows: Allows | None = (
            authorize if callable(authorize) else self._rbac.allows if self._is_rbac else None
        )
        if self._is_rbac:
            self.core.guards.append(self._check_grant)
        self._service_ranges = services
        if services is not None:
            self.core.guards.append(Allocation(self.core, services).admit)
        self._pending: list[Raw] = []
        self._is_prepared = False
        self._preparing = asyncio.Lock()

    @property
    def tokens(self) -> dict[str, StaticToken]:
        """Static bearer tokens: token -> (user, groups, expiry or None). May be changed at any time."""
        return self.authenticator.tokens

    @property
    def store(self) -> Store:
        return self.core.store

    @property
    def registry(self) -> Registry:
        return self.core.registry

    def identity(self) -> Identity | None:
        return self.tls

    def local(self, user: str = "system:admin", groups: tuple[str, ...] = ("system:masters",)) -> Local:
        """This server as `user` sees it, without sockets."""
        return Local(self, Caller(user, tuple(dict.fromkeys((*groups, "system:authenticated")))))

    def install_crd(self, raw: Mapping[str, Any]) -> None:
        """Serve the resources that a CustomResourceDefinition defines, at once; the definition itself is stored
        before the next request is answered. May be repeated with a newer form."""
        definition: Raw = loads(dumps(raw))
        self._serve(definition)
        self._pending.append(definition)
        self._is_prepared = False

    async def run(self) -> None:
        """The server's own controllers; until cancelled."""
        await self.prepare()
        collector = Collector(self.core)
        namespaces = Namespaces(self.core, lambda: self.root_ca)
        secrets = TokenSecrets(self.core, self.tokens_of_accounts, lambda: self.root_ca)
        async with asyncio.TaskGroup() as group:
            group.create_task(collector.run())
            group.create_task(namespaces.run())
            group.create_task(secrets.run())
            group.create_task(Definitions(self.core).run())
            if self._release_claims:
                group.create_task(Claims(self.core).run())

    async def prepare(self) -> None:
        """Make the first namespaces and read the definitions in the store. Every request does so on its own."""
        if self._is_prepared:
            return
        async with self._preparing:
            if not self._is_prepared:
                await self._first_namespaces()
                await self._first_roles()
                await self._own_service()
                await self._load_definitions()
                self._is_prepared = True

    async def _first_namespaces(self) -> None:
        type = self.registry.find_kind(NAMESPACE)
        if type is None:
            return
        for name in FIRST_NAMESPACES:
            if await self.store.find(type.key("", name)) is None:
                await self._make(type, {"metadata": {"name": name}})

    async def _first_roles(self) -> None:
        for kind, raw in first_objects() if self._is_rbac else ():
            type = self.registry.find_kind(kind)
            if type and await self.store.find(type.key("", raw["metadata"]["name"])) is None:
                await self._make(type, loads(dumps(raw)))

    async def _own_service(self) -> None:
        type = self.registry.find_kind(SERVICE)
        if type is None or self._service_ranges is None:
            return
        raw = render_own_service(self._service_ranges)
        if await self.store.find(type.key(raw["metadata"]["namespace"], raw["metadata"]["name"])) is None:
            await self._make(type, raw)

    async def _make(self, type: Type, raw: Raw) -> None:
        target = Target("", type.kind.group, type.kind.version, type.kind.plural, namespace=namespace_of(raw))
        # What a server is born with is nobody's request: no hook sees it.
        await create(replace(self.core, hooks=[], guards=[]), type, Call("create", target, SYSTEM, body=raw))

    async def _load_definitions(self) -> None:
        home = self.registry.find_kind(CRD)
        if home is None:
            self._pending.clear()
            return
        while self._pending:
            definition = self._pending.pop(0)
            name = definition["metadata"]["name"]
            found = await self.store.find(home.key("", name))
            if found is None:
                await self._make(home, definition)
            elif found.raw["spec"] != definition["spec"]:
                await self.store.commit(found.key, {**found.raw, "spec": definition["spec"]}, found.rev)
        for entry in (await self.store.range(home.prefix())).entries:
            await self._adopt(entry.key)

    def _serve(self, definition: Raw) -> None:
        """Offer exactly the versions that the definition serves."""
        types = crds.types_of(definition)
        place = (definition["spec"]["group"], definition["spec"]["names"]["plural"])
        for old in self.registry:
            if old.custom and (old.kind.group, old.kind.plural) == place:
                self.registry.remove(old)
        for type in types:
            self.registry.add(type)

    async def _adopt(self, key: str) -> None:
        """Serve what a stored definition defines, and say so in its status."""
        entry = await self.store.find(key)
        if entry is None:
            return
        self._serve(entry.raw)
        if not (entry.raw.get("status") or {}).get("conditions"):
            status = crds.established(entry.raw, self.core.stamp())
            await self.store.commit(key, {**entry.raw, "status": status}, entry.rev)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def send(self, request: Request, peer: Peer) -> Reply:
        try:
            caller = await self.authenticator.caller(request, peer)
        except KubeError as error:
            return statuses.reply_with(error)
        return await self.handle(request, caller)

    @asynccontextmanager
    async def stream(self, request: Request, peer: Peer) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        caller = await self.authenticator.caller(request, peer)
        async with self.listen(request, caller) as events:
            yield events

    async def handle(self, request: Request, caller: Caller) -> Reply:
        """The whole answer to `request` from a known caller; refusals are Status replies."""
        try:
            return await self._handle(request, caller)
        except KubeError as error:
            return statuses.reply_with(error)

    async def _handle(self, request: Request, caller: Caller) -> Reply:
        await self.prepare()
        caller = await self._impersonated(request, caller)
        options = options_of(request)
        target = parse_target(request.path)
        verb = verb_of(request.method, target, options)
        asked = replace(target, name=named(options)) if target.is_resource and not target.name else target
        await self._authorize(caller, verb if target.is_resource else request.method.lower(), asked)
        route = self._route(request.path)
        if route is not None:
            return await route(request, caller)
        if not target.is_resource:
            return self._documents.answer(request)
        action = self.actions.get((_qualified(target), target.subresource))
        if action is not None:
            return await action(request, self._ref(target), caller)
        type = self._type(target)
        form = choose(request.accept)
        call = Call(verb, target, caller, options, agent=header(request, "User-Agent"))
        self._read_body(request, type, call)
        outcome = await self._perform(type, call)
        reply = self._rendered(outcome, form, options)
        if call.warnings:
            reply = replace(reply, headers={**reply.headers, "Warning": _warning_header(call.warnings)})
        return reply

    @asynccontextmanager
    async def listen(self, request: Request, caller: Caller) -> AsyncIterator[AsyncIterator[WatchEvent]]:
        """A watch for a known caller. Raises the refusal on entry."""
        await self.prepare()
        caller = await self._impersonated(request, caller)
        target, options = parse_target(request.path), options_of(request)
        await self._authorize(caller, "watch", replace(target, name=named(options)))
        type = self._type(target)
        form = choose(request.accept)
        call = Call("watch", target, caller, options)
        async with watch(self.core, type, call) as events:
            yield self._formed(type, events, form, call.options) if form.as_ else events

    async def _formed(
        self, type: Type, events: AsyncIterator[WatchEvent], form: Form, options: Mapping[str, str]
    ) -> AsyncIterator[WatchEvent]:
        """Each event's object as a table of one row, or as bare metadata."""
        first = True
        include = options.get("includeObject") or "Metadata"
        async for event in events:
            raw = event.object
            if event.type == "ERROR":
                yield event
            elif form.as_ != "Table":
                yield WatchEvent(event.type, metadata_only(raw))
            elif event.type == "BOOKMARK":
                yield WatchEvent(
                    event.type, table_of(type, [], raw["metadata"], self.core.clock.now(), include)
                )
            else:
                head = {"resourceVersion": raw["metadata"]["resourceVersion"]}
                made = table_of(type, [raw], head, self.core.clock.now(), include, columns=first)
                first = False
                yield WatchEvent(event.type, made)

    async def perform(self, call: Call) -> Outcome:
        """One call whose body is decoded already and belongs to the server. Raises the refusal."""
        await self.prepare()
        await self._authorize(call.caller, call.verb, call.target)
        return await self._perform(self._type(call.target), call)

    async def _perform(self, type: Type, call: Call) -> Outcome:
        if call.target.subresource not in ("", *type.subresources):
            raise statuses.not_found(type.kind, call.target.name) if type.custom else statuses.no_such_path()
        if call.verb not in type.verbs and not call.target.subresource:
            raise statuses.not_allowed()
        if bool(call.target.name) != (call.verb in NAMED_VERBS) and not call.target.subresource:
            raise statuses.not_allowed()
        if type.kind.group_resource in REVIEWS:
            return await review(self, type, call)
        if call.target.subresource == "scale":
            return await scale(self.core, type, call)
        if call.target.subresource not in ("", "status", "ephemeralcontainers"):
            handler = HANDLERS.get((type.kind.group_resource, call.target.subresource, call.verb))
            if handler is None:
                raise statuses.not_allowed()
            return await handler(self.core, type, call)
        if (
            call.verb in ("create", "delete", "deletecollection")
            and call.target.name
            and call.target.subresource
        ):
            raise statuses.not_allowed()
        outcome = await self._carry_out(type, call)
        if type.kind == CRD and call.verb in ("create", "update", "patch") and isinstance(outcome, Single):
            await self._adopt(outcome.entry.key)
        return outcome

    async def _carry_out(self, type: Type, call: Call) -> Outcome:
        """The verb itself; a PUT of what is not there creates it, for the few types that allow it."""
        try:
            return await VERB_TABLE[call.verb](self.core, type, call)
        except NotFound:
            if call.verb != "update" or not type.upserts or call.target.subresource:
                raise
            await self._authorize(call.caller, "create", call.target)
            return await create(self.core, type, call)

    async def _impersonated(self, request: Request, caller: Caller) -> Caller:
        wanted = read_impersonation(request)
        if wanted is None:
            return caller
        for target in impersonated(wanted, headers(request, "Impersonate-Group")):
            await self._authorize(caller, "impersonate", target)
        return wanted

    async def _authorize(self, caller: Caller, verb: str, target: Target) -> None:
        if not await self.allows(caller, verb, target):
            raise says_no(caller, verb, target)

    async def allows(self, caller: Caller, verb: str, target: Target) -> bool:
        """May the caller do this? Everybody known may do everything where no authorizer was given."""
        return self._allows is None or caller.is_master or await self._allows(caller, verb, target)

    async def rules(self, caller: Caller, namespace: str) -> list[Raw]:
        """The RBAC rules that hold for the caller."""
        if caller.is_master or not self._is_rbac:
            return FIRST_ROLES["cluster-admin"]
        return await self._rbac.rules(caller, namespace)

    async def by_token(self, token: str) -> Caller | None:
        return await self.authenticator.by_token(token)

    async def _check_grant(self, operation: Operation) -> None:
        if operation.object is not None and operation.verb != "delete":
            if operation.old is not None and _grants(operation.old) == _grants(operation.object):
                return
            await self._rbac.check_grant(operation.caller, operation.kind, operation.object)

    def _type(self, target: Target) -> Type:
        type = self.registry.find(target.group, target.version, target.plural)
        if type is None:
            raise statuses.no_such_path()
        return type

    def _ref(self, target: Target) -> ObjectRef:
        type = self.registry.find(target.group, target.version, target.plural)
        kind = type.kind if type else ApiResource(target.group, target.version, "", target.plural)
        return kind.ref(target.name, target.namespace)

    def _route(self, path: str) -> Route | None:
        for prefix, route in self.routes.items():
            if path == prefix or path.startswith(prefix.rstrip("/") + "/"):
                return route
        return None

    def _read_body(self, request: Request, type: Type, call: Call) -> None:
        match call.verb:
            case "create" | "update":
                call.body = bodies.decode(request.body, request.content_type, custom=type.custom)
                if call.body is None:
                    raise statuses.bad_request("the request has no body")
                if type.custom and isinstance(call.body, dict) and not call.body.get("kind"):
                    text = dumps(call.body).decode()
                    raise statuses.bad_request(
                        f"the object provided is unrecognized (must be of type {type.kind.kind}): "
                        f"Object 'Kind' is missing in '{text}' ({text})"
                    )
            case "patch":
                accepted = bodies.CUSTOM_PATCHES if type.custom else bodies.PATCHES
                if not type.custom and bodies.media_of(request.content_type) not in accepted:
                    raise statuses.fail(415, "415: Unsupported Media Type")
                call.media, call.body = bodies.decode_patch(request.body, request.content_type, accepted)
            case "delete" | "deletecollection":
                call.body_options = bodies.decode(request.body, request.content_type) or {}

    def _rendered(self, outcome: Outcome, form: Form, options: Mapping[str, str]) -> Reply:
        if isinstance(outcome, (Single, Listing)) and form.as_:
            made = (
                table(outcome, self.core.clock.now(), options.get("includeObject") or "Metadata")
                if form.as_ == "Table"
                else partial(outcome)
            )
            status = outcome.status if isinstance(outcome, Single) else 200
            return Reply(status, dumps(made))
        reply = render(outcome)
        return as_yaml(reply) if form.media == YAML else reply


def _grants(raw: Raw) -> Any:
    return raw.get("rules"), raw.get("roleRef"), raw.get("aggregationRule")


def _qualified(target: Target) -> str:
    return f"{target.plural}.{target.group}" if target.group else target.plural


def _warning_header(warnings: list[str]) -> str:
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in dict.fromkeys(warnings))
    return ", ".join(f'299 - "{text}"' for text in quoted)
