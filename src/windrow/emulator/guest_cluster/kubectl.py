"""`kubectl` and `k3s` on a simulated machine: what tutorials type after an installation.

kubectl has get, apply, create (-f, namespace, secret generic), delete, wait and version, with `-n`, `-A`, `-l`, `-f` and `-o name|json|yaml|wide`;
everything else is logged as not simulated. It reads a kubeconfig and sends requests through the simulated network, as
any client of the cluster.
"""

from __future__ import annotations

import base64
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from windrow.core.formats.duration import NotDuration, parse_duration
from windrow.core.formats.json import dumps, loads
from windrow.core.formats.yaml import NotYaml, dump
from windrow.core.text import encode_base64
from windrow.emulator.guest_cluster.components.manifests import BadManifest, read_manifest
from windrow.emulator.guest_cluster.distribution.k3s import K3S
from windrow.emulator.guest_os.binaries import read_binary
from windrow.emulator.guest_os.shell.commands import parse_options
from windrow.emulator.guest_os.shell.run import Command, Invocation
from windrow.kubernetes import requests
from windrow.kubernetes.conditions import find_condition
from windrow.kubernetes.errors import KubeError, NotFound, error_for
from windrow.kubernetes.handler import Peer
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, parse_kubeconfig
from windrow.kubernetes.objects import Raw, labels_of, name_of, nested, new_object
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import NAMESPACE, SECRET, ApiResource, ref_of

_VALUED = ("n", "namespace", "o", "output", "f", "filename", "l", "selector", "kubeconfig", "for", "timeout")
_ROLE_LABEL = "node-role.kubernetes.io/"
_COMMANDS = ("get", "apply", "create", "delete", "wait", "version")


class _Failed(Exception):
    """kubectl ends with this message and 1."""


def kubectl_commands() -> dict[str, Command]:
    commands: dict[str, Command] = {
        "kubectl": _run_kubectl,
        "k3s": _run_k3s,
        "crictl": _run_crictl,
        "ctr": _run_crictl,
    }
    return commands | {f"/usr/local/bin/{name}": command for name, command in commands.items()}


async def _run_k3s(call: Invocation) -> int:
    version = _find_version(call, "k3s")
    if not version:
        call.print_error("not found")
        return 127
    match call.argv[1:]:
        case ["--version" | "-v", *_]:
            call.print(f"k3s version {version}")
            return 0
        case ["kubectl", *rest]:
            return await _run_kubectl(Invocation(["kubectl", *rest], call.shell, call.streams))
        case ["crictl" | "ctr" | "check-config", *_]:
            return 0
    return await call.shell.run_binary(call)


async def _run_crictl(call: Invocation) -> int:
    if not _find_version(call, call.argv[0]):
        call.print_error("not found")
        return 127
    return 0


def _find_version(call: Invocation, program: str) -> str:
    """The version of the binary of that name in PATH, "" without it."""
    directories = [*call.env.get("PATH", "").split(":"), "/var/lib/rancher/rke2/bin"]
    for directory in directories:
        content = call.guest.read(f"{directory}/{program.rsplit('/', 1)[-1]}") or b""
        if version := read_binary(content)[1]:
            return version
    return ""


async def _run_kubectl(call: Invocation) -> int:
    if not _find_version(call, "kubectl"):
        call.print_error("not found")
        return 127
    options, words = parse_options(call.argv[1:], _VALUED)
    if not words or words[0] not in _COMMANDS:
        call.guest.console(f"not simulated: {' '.join(call.argv)}")
        return 0
    try:
        return await _Kubectl(call, options).run(words[0], words[1:])
    except (_Failed, BadKubeconfig, NotYaml) as error:
        call.streams.err += f"error: {error}\n".encode()
    except KubeError as error:
        call.streams.err += f"Error from server ({error.reason}): {error.message}\n".encode()
    return 1


@dataclass(frozen=True, slots=True)
class _Kind:
    resource: ApiResource
    names: frozenset[str]  # by which it may be asked for


class _Kubectl:
    """One call of kubectl."""

    def __init__(self, call: Invocation, options: Mapping[str, str]) -> None:
        self.call = call
        self.options = options
        self.access = self._read_access()
        self.namespace = options.get("n") or options.get("namespace") or self.access.namespace or "default"
        self.is_everywhere = "A" in options or "all-namespaces" in options
        self.output = options.get("o") or options.get("output") or ""
        self._kinds: list[_Kind] = []

    async def run(self, verb: str, words: list[str]) -> int:
        match verb:
            case "version":
                reply = await self._send(Request("GET", "/version"))
                self.call.print(f"Client Version: {_find_version(self.call, 'kubectl')}")
                self.call.print(f"Server Version: {reply['gitVersion']}")
            case "get":
                await self._get(words)
            case "delete":
                await self._delete(words)
            case "wait":
                return await self._wait(words)
            case "create" if not self._file():
                return await self._create_of_words(words)
            case _:
                await self._write(verb)
        return 0

    # -- verbs

    async def _get(self, words: list[str]) -> None:
        kind, found = await self._find(words)
        match self.output:
            case "name":
                for raw in found:
                    self.call.print(f"{kind.plural.removesuffix('s')}/{name_of(raw)}")
            case "json" | "yaml":
                single = len(found) == 1 and (len(words) > 1 or "/" in words[0])
                shown = found[0] if single else {"apiVersion": "v1", "kind": "List", "items": found}
                self.call.print(dumps(shown).decode() if self.output == "json" else dump(shown))
            case "" | "wide":
                self._print_table(kind, found)
            case _:
                self.call.guest.console(f"not simulated: kubectl -o {self.output}")

    def _print_table(self, kind: ApiResource, found: list[Raw]) -> None:
        if not found:
            place = "" if self.is_everywhere or not kind.namespaced else f" in {self.namespace} namespace"
            self.call.streams.err += f"No resources found{place}.\n".encode()
            return
        is_node = kind.plural == "nodes"
        header = "NAME STATUS ROLES VERSION" if is_node else "NAME"
        shows_namespace = self.is_everywhere and kind.namespaced
        lines = [("NAMESPACE " if shows_namespace else "") + header]
        if "no-headers" in self.options:
            lines = []
        for raw in found:
            prefix = f"{raw['metadata']['namespace']} " if shows_namespace else ""
            lines.append(prefix + (_render_node(raw) if is_node else name_of(raw)))
        for line in lines:
            self.call.print(line.replace(" ", "   "))

    async def _write(self, verb: str) -> None:
        for raw in self._read_documents():
            kind = await self._find_kind_of(raw)
            if kind.namespaced:
                raw["metadata"].setdefault("namespace", self.namespace)
            done = "created"
            if verb == "apply" and await self._exists(kind, raw):
                await self._send(requests.merge_patch(ref_of(kind, raw), raw))
                done = "configured"
            else:
                await self._send(requests.create(kind, raw, raw["metadata"].get("namespace", "")))
            self.call.print(f"{kind.plural.removesuffix('s')}/{name_of(raw)} {done}")

    async def _create_of_words(self, words: list[str]) -> int:
        match words:
            case ["namespace" | "ns", name]:
                kind, raw = NAMESPACE, new_object(NAMESPACE, name)
            case ["secret", "generic", name]:
                kind = SECRET
                raw = new_object(SECRET, name, self.namespace, type="Opaque", data=self._read_secret_data())
            case _:
                self.call.guest.console(f"not simulated: {' '.join(self.call.argv)}")
                return 0
        await self._send(requests.create(kind, raw, raw["metadata"].get("namespace", "")))
        self.call.print(f"{kind.plural.removesuffix('s')}/{name} created")
        return 0

    def _read_secret_data(self) -> Raw:
        """The data of --from-literal=KEY=VALUE and --from-file=[KEY=]PATH."""
        data: Raw = {}
        for word in self.call.argv:
            if word.startswith("--from-literal="):
                key, _, value = word.removeprefix("--from-literal=").partition("=")
                data[key] = encode_base64(value)
            elif word.startswith("--from-file="):
                left, sign, right = word.removeprefix("--from-file=").partition("=")
                key, path = (left, right) if sign else (posixpath.basename(left), left)
                content = self.call.guest.read(path)
                if content is None:
                    raise _Failed(f"error reading {path}: no such file or directory")
                data[key] = base64.b64encode(content).decode()
        return data

    async def _exists(self, kind: ApiResource, raw: Raw) -> bool:
        try:
            await self._send(requests.get(ref_of(kind, raw)))
        except NotFound:
            return False
        return True

    async def _delete(self, words: list[str]) -> None:
        if self._file():
            found = [(await self._find_kind_of(raw), raw) for raw in self._read_documents()]
            for kind, raw in found:
                if kind.namespaced:
                    raw["metadata"].setdefault("namespace", self.namespace)
        else:
            kind, objects = await self._find(words)
            found = [(kind, raw) for raw in objects]
        for kind, raw in found:
            await self._send(requests.delete(ref_of(kind, raw)))
            self.call.print(f'{kind.plural.removesuffix("s")} "{name_of(raw)}" deleted')

    async def _wait(self, words: list[str]) -> int:
        wanted, _, status = self.options.get("for", "").removeprefix("condition=").partition("=")
        seconds = self._read_timeout()
        if not self.options.get("for", "").startswith("condition="):
            self.call.guest.console(f"not simulated: {' '.join(self.call.argv)}")
            return 0
        for _second in range(seconds + 1):
            kind, found = await self._find(words)
            states = [find_condition(nested(raw, "status", "conditions"), wanted) for raw in found]
            if found and all(one is not None and one.status == (status or "True") for one in states):
                for raw in found:
                    self.call.print(f"{kind.plural.removesuffix('s')}/{name_of(raw)} condition met")
                return 0
            await self.call.guest.sleep(1)
        raise _Failed(f"timed out waiting for the condition on {' '.join(words)}")

    def _read_timeout(self) -> int:
        """The seconds of `wait --timeout`, which is a duration of Go; below zero it is a week."""
        text = self.options.get("timeout", "30s")
        try:
            span = parse_duration(text)
        except NotDuration:
            why = f'invalid duration "{text}"'
            if text.isdecimal():
                why = f'missing unit in duration "{text}"'
            raise _Failed(f'invalid argument "{text}" for "--timeout" flag: time: {why}') from None
        return int((span if span >= timedelta() else timedelta(weeks=1)).total_seconds())

    # -- objects

    async def _find(self, words: list[str]) -> tuple[ApiResource, list[Raw]]:
        if not words:
            raise _Failed("You must specify the type of resource to get.")
        name, slash, _ = words[0].partition("/")
        names = [one.partition("/")[2] for one in words if "/" in one] if slash else words[1:]
        kind = await self._find_kind(name.partition(".")[0].lower())
        namespace = self.namespace if kind.namespaced else ""
        if names:
            return kind, [await self._send(requests.get(kind.ref(one, namespace))) for one in names]
        selector = self.options.get("l") or self.options.get("selector") or ""
        place = "" if self.is_everywhere else namespace
        listed = await self._send(requests.list_(kind, place, labels=selector))
        typed = {"apiVersion": kind.api_version, "kind": kind.kind}
        return kind, [{**typed, **one} for one in listed["items"]]

    def _file(self) -> str:
        return self.options.get("f") or self.options.get("filename") or ""

    def _read_documents(self) -> list[Raw]:
        path = self._file()
        if not path:
            raise _Failed("must specify one of -f and -k")
        content = self.call.stdin if path == "-" else self.call.guest.read(path)
        if content is None:
            raise _Failed(f'the path "{path}" does not exist')
        try:
            return read_manifest(content)
        except BadManifest as error:
            raise _Failed(f"error parsing {path}: {error}") from error

    # -- kinds

    async def _find_kind_of(self, raw: Raw) -> ApiResource:
        version, kind = str(raw.get("apiVersion") or ""), str(raw.get("kind") or "")
        for one in await self._discover(version):
            if one.resource.kind == kind:
                return one.resource
        raise _Failed(
            f'resource mapping not found for name: "{name_of(raw)}": no matches for kind "{kind}" in version "{version}"'
        )

    async def _find_kind(self, name: str) -> ApiResource:
        groups = (await self._send(Request("GET", "/apis")))["groups"]
        versions = ["v1", *(one["preferredVersion"]["groupVersion"] for one in groups)]
        for version in versions:
            for one in await self._discover(version):
                if name in one.names:
                    return one.resource
        raise _Failed(f'the server doesn\'t have a resource type "{name}"')

    async def _discover(self, version: str) -> list[_Kind]:
        path = f"/apis/{version}" if "/" in version else f"/api/{version}"
        try:
            listed = (await self._send(Request("GET", path)))["resources"]
        except NotFound:
            return []
        group, _, number = version.rpartition("/")
        return [
            _Kind(
                ApiResource(group, number, one["kind"], one["name"], namespaced=one["namespaced"]),
                frozenset({one["name"], one["kind"].lower(), *one.get("shortNames", ())}),
            )
            for one in listed
            if "/" not in one["name"]
        ]

    # -- requests

    def _read_access(self) -> ClientConfig:
        env, guest = self.call.env, self.call.guest
        paths = [self.options.get("kubeconfig"), env.get("KUBECONFIG"), K3S.kubeconfig, "/root/.kube/config"]
        path = next((one for one in paths if one and guest.is_file(one)), "")
        if not path:
            raise _Failed(
                "The connection to the server localhost:8080 was refused - did you specify the right host or port?"
            )
        return parse_kubeconfig(guest.read_text(path), read_file=guest.read_text)

    async def _send(self, request: Request) -> Any:
        try:
            parts = urlsplit(self.access.server)
            host, port = parts.hostname or "", parts.port or 443
        except ValueError as error:
            raise _Failed(f"the server {self.access.server} is no URL: {error}") from error
        guest = self.call.guest
        local = guest.address if host in ("127.0.0.1", "localhost", "::1") else host
        handler = guest.host.network.find(local, port)
        if handler is None:
            raise _Failed(
                f"The connection to the server {host}:{port} was refused - did you specify the right host or port?"
            )
        token = self.access.token
        headers = (("Authorization", f"Bearer {token}"),) if token else ()
        reply = await handler.send(
            replace(request, headers=headers), Peer(self.access.certificate, guest.address)
        )
        if refusal := error_for(reply):
            raise refusal
        return loads(reply.body)


def _render_node(raw: Raw) -> str:
    ready = find_condition(nested(raw, "status", "conditions"), "Ready")
    status = "Ready" if ready is not None and ready.status == "True" else "NotReady"
    if nested(raw, "spec", "unschedulable"):
        status += ",SchedulingDisabled"
    roles = sorted(one.removeprefix(_ROLE_LABEL) for one in labels_of(raw) if one.startswith(_ROLE_LABEL))
    version = nested(raw, "status", "nodeInfo", "kubeletVersion", default="")
    return f"{name_of(raw)} {status} {','.join(roles) or '<none>'} {version}"
