"""Non-resource URLs: discovery, OpenAPI, health, version."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any

from windrow.apiserver import apierrors
from windrow.apiserver.discovery import openapi, resources
from windrow.apiserver.request.info import header
from windrow.apiserver.request.negotiation import DISCOVERY, NegotiatedType, negotiate
from windrow.apiserver.types.registry import Registry
from windrow.core.formats.fastjson import dumps
from windrow.kubernetes.requests import Reply, Request

Raw = dict[str, Any]

ROOTS = ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
HEALTHY = Reply(200, b"ok", "text/plain; charset=utf-8")


class NonResourceHandler:
    """Serves the documents, built once per revision of the registry."""

    def __init__(
        self,
        registry: Registry,
        version: Callable[[], str],
        actions: Mapping[tuple[str, str], Any],
        action_versions: Mapping[str, tuple[str, ...]],
        check_writable: Callable[[], None],
    ) -> None:
        self._registry, self._version, self._check_writable = registry, version, check_writable
        self._actions, self._action_versions = actions, action_versions
        self._documents: dict[tuple[str, ...], bytes | None] = {}
        self._revision: tuple[int, int] = (-1, -1)

    def handle(self, request: Request) -> Reply:
        """Raises 404 and 405 as kube-apiserver does."""
        path = tuple(part for part in request.path.split("/") if part)
        if path[:1] and path[0] in ("healthz", "livez", "readyz"):
            return HEALTHY if path[0] == "livez" else self._readiness(path[0])
        if path == ("openapi", "v2") and any(media in request.accept for media in openapi.V2_ACCEPTED):
            return Reply(200, openapi.protobuf_document_v2(self._version()), openapi.V2_MEDIA)
        state = (self._registry.revision, len(self._actions))
        if state != self._revision:
            self._documents.clear()
            self._revision = state
        form = negotiate(request.accept, (DISCOVERY,)) if path in (("api",), ("apis",)) else NegotiatedType()
        if form.as_:
            return self._aggregated(request, path[0], form.parameters["v"])
        if path not in self._documents:
            document = self._build(path)
            self._documents[path] = None if document is None else dumps(document)
        body = self._documents[path]
        if body is None:
            raise apierrors.path_not_found()
        if request.method not in ("GET", "HEAD"):
            raise apierrors.method_not_allowed()
        return Reply(200, body)

    def _readiness(self, check: str) -> Reply:
        """Ready is what can store: with a full disk every write fails."""
        try:
            self._check_writable()
        except OSError as error:
            text = f"[+]ping ok\n[-]storage failed: {error}\n{check} check failed\n"
            return Reply(500, text.encode(), HEALTHY.content_type)
        return HEALTHY

    def _aggregated(self, request: Request, root: str, version: str) -> Reply:
        key = (root, version, DISCOVERY)
        if key not in self._documents:
            self._documents[key] = dumps(
                resources.aggregated(self._resources(), core=root == "api", version=version)
            )
        body = self._documents[key] or b""
        tag = f'"{sha256(body).hexdigest().upper()}"'
        headers = {"ETag": tag, "Vary": "Accept", "Cache-Control": "public"}
        # A 304 carries the full media type, too: client-go merges its headers into the cached response.
        media = f"application/json;g=apidiscovery.k8s.io;v={version};as={DISCOVERY}"
        if header(request, "If-None-Match") == tag:
            return Reply(304, b"", media, headers)
        return Reply(200, body, media, headers)

    def _resources(self) -> list[resources.DiscoveredResource]:
        return resources.discover_resources(self._registry, self._actions, self._action_versions)

    def _build(self, path: Iterable[str]) -> Any:
        groups = resources.groups_of(self._resources())
        match path:
            case ():
                return {"paths": ROOTS}
            case ("version",):
                return version_document(self._version())
            case ("api",):
                return resources.api_versions()
            case ("apis",):
                return resources.group_list(groups)
            case ("apis", group) if group in groups:
                return resources.group_document(group, groups[group])
            case ("api", version):
                return resources.resource_list(self._resources(), "", version)
            case ("apis", group, version):
                return resources.resource_list(self._resources(), group, version)
            case ("openapi", "v2"):
                return openapi.document_v2(self._version())
            case ("openapi", "v3"):
                return openapi.index(self._registry)
            case ("openapi", "v3", "api", version):
                return openapi.group_document(self._registry, "", version)
            case ("openapi", "v3", "apis", group, version):
                return openapi.group_document(self._registry, group, version)
            case _:
                return None


def version_document(version: str) -> Raw:
    major, minor = version.removeprefix("v").split(".")[:2]
    return {
        "major": major,
        "minor": minor,
        "gitVersion": version,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "go1.24.0",
        "compiler": "gc",
        "platform": "linux/amd64",
    }
