"""RequestInfo, UserInfo and ApiCall: what a request addresses, who sent it, and its options (reference/05 §7.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from windrow.kubernetes.requests import JSON, Request
from windrow.kubernetes.resources import ApiResource


@dataclass(frozen=True, slots=True)
class UserInfo:
    """An authenticated user."""

    username: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def is_superuser(self) -> bool:
        return "system:masters" in self.groups


ANONYMOUS = UserInfo("system:anonymous", ("system:unauthenticated",))


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """The resource that a URL addresses. A non-resource URL has only `path`."""

    path: str
    group: str = ""
    version: str = ""
    plural: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""

    @classmethod
    def of(cls, resource: ApiResource, namespace: str = "", name: str = "") -> RequestInfo:
        return cls("", resource.group, resource.version, resource.plural, namespace, name)

    @property
    def is_resource(self) -> bool:
        return bool(self.plural)


@dataclass(slots=True)
class ApiCall:
    """One request with its decoded body and options. Handlers add to its `warnings`."""

    verb: str
    info: RequestInfo
    user: UserInfo
    options: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    media_type: str = JSON
    user_agent: str = ""
    warnings: list[str] = field(default_factory=list)
    delete_options: Mapping[str, Any] = field(default_factory=dict)  # DeleteOptions
    size: int = 0  # of the encoded body

    @property
    def dry_run(self) -> bool:
        return "dryRun" in self.options or bool(self.delete_options.get("dryRun"))

    @property
    def field_manager(self) -> str:
        return self.options.get("fieldManager") or self.user_agent.split("/", 1)[0] or "unknown"


def is_truthy(options: Mapping[str, str], name: str) -> bool:
    """A boolean query option: `=1`, `=true`, and the name without a value."""
    return name in options and options[name].lower() not in ("false", "0")


def parse_request_info(path: str) -> RequestInfo:
    parts = [unquote(part) for part in path.split("/") if part]
    match parts:
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return RequestInfo(path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = rest[0], *[*rest[1:2], "", ""][:1], "/".join(rest[2:])
    if plural == "namespaces" and not group:
        namespace = name
    return RequestInfo(path, group, version, plural, namespace, name, subresource)


_BY_METHOD = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def request_verb(method: str, info: RequestInfo, options: Mapping[str, str]) -> str:
    """The verb of a request, as RBAC rules name it."""
    if method in ("GET", "HEAD"):
        if info.name:
            return "get"
        return "watch" if is_truthy(options, "watch") else "list"
    verb = _BY_METHOD.get(method, method.lower())
    return "deletecollection" if verb == "delete" and not info.name else verb


def name_from_field_selector(options: Mapping[str, str]) -> str:
    """The name that field selector `metadata.name` requires, by which a list or watch is authorized; else ""."""
    terms = options.get("fieldSelector", "").split(",")
    for term in terms:
        field, equals, value = term.replace("==", "=").partition("=")
        if equals and field == "metadata.name":
            return value
    return ""


def query_options(request: Request) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in request.query:
        found.setdefault(name, value)
    return found


def header(request: Request, name: str) -> str:
    wanted = name.lower()
    return next((value for key, value in request.headers if key.lower() == wanted), "")


def headers(request: Request, name: str) -> list[str]:
    wanted = name.lower()
    return [value for key, value in request.headers if key.lower() == wanted]
