"""A host for one plugin process, and a Harvester that answers a little: what measuring and the jail tests need.

    with a_harvester() as harvester, Host.of(process) as host:
        host.ask("SetConfigRaw", harvester.configuration())
        host.ask("GetState")

Blocking, on loopback only, and independent of the manager's own host: it shares the wire format with it, and no more.
"""

from __future__ import annotations

import base64
import datetime
import functools
import json
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windrow.core import pki
from windrow.protocols import dockermachine
from windrow.protocols.netrpc import Client

TOKENS = {dockermachine.TOKEN_ENV: dockermachine.TOKEN, dockermachine.NAME_ENV: "harvester"}
PATIENCE_S = 20


class Refused(Exception):
    """The plugin answered a call with this error."""


class Host:
    """One connection to a plugin."""

    def __init__(self, address: str) -> None:
        host, _, port = address.strip().rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self._client = Client(dockermachine.DEFAULT_LIMITS)

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, method: str, argument: Any = None) -> Any:
        """Call a method and wait for what it gives; raises Refused with its error."""
        types = dockermachine.METHODS[method]
        value = {} if argument is None else argument
        self._client.call(f"{dockermachine.SERVICE}.{method}", types.argument, value)
        while True:
            if ready := self._client.data_to_send():
                self._socket.sendall(ready)
            block = self._socket.recv(1 << 16)
            if not block:
                raise ConnectionError(f"the plugin hung up during {method}")
            for answer in self._client.feed(block):
                if answer.error:
                    raise Refused(answer.error)
                return answer.value

    def close_plugin(self) -> None:
        """Tell it to end."""
        with suppress(OSError):
            self.ask("Close")


# A Harvester of a few objects


@dataclass
class SmallHarvester:
    """Where it listens, who it is, a user's certificate, and what it was asked by whom."""

    address: str
    authority: str
    certificate: str
    key: str
    seen: list[str] = field(default_factory=list)
    callers: set[str] = field(default_factory=set)

    def kubeconfig(self, *, by_certificate: bool = False) -> str:
        pair = (
            f"{{client-certificate-data: {_base64(self.certificate)}, client-key-data: {_base64(self.key)}}}"
        )
        user = pair if by_certificate else "{token: a-token}"
        return f"""\
apiVersion: v1
kind: Config
clusters:
- name: harvester
  cluster:
    server: https://{self.address}
    certificate-authority-data: {_base64(self.authority)}
contexts:
- name: harvester
  context: {{cluster: harvester, user: admin}}
current-context: harvester
users:
- name: admin
  user: {user}
"""

    def configuration(self, *, by_certificate: bool = False) -> bytes:
        """What a host hands to SetConfigRaw."""
        kubeconfig = self.kubeconfig(by_certificate=by_certificate)
        stored = {"MachineName": NAME, "VMNamespace": "default", "KubeConfigContent": kubeconfig}
        return json.dumps(stored).encode()


NAME = "m-1"
USER = "admin"
_MARKS = {"harvesterhci.io/creator": "docker-machine-driver-harvester", "harvesterhci.io/vmName": NAME}
_META = {
    "name": NAME,
    "namespace": "default",
    "uid": "5b9ec1ba-0f26-4b53-9bd1-5ff63c2cb2b9",
    "labels": _MARKS,
}
_MACHINE = {
    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": _META,
    "spec": {"runStrategy": "RerunOnFailure", "template": {"spec": {"domain": {"devices": {}}}}},
    "status": {"printableStatus": "Running", "created": True, "ready": True},
}  # fmt: skip
_INSTANCE = {
    "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": _META,
    "spec": {}, "status": {"phase": "Running"},
}  # fmt: skip
OBJECTS: Mapping[str, Any] = {"virtualmachines": _MACHINE, "virtualmachineinstances": _INSTANCE}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@contextmanager
def a_harvester(host: str = "127.0.0.1") -> Iterator[SmallHarvester]:
    """A TLS server with a certificate of a private authority; it knows one running VM."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    now, hour = datetime.datetime.now(datetime.UTC), datetime.timedelta(hours=1)
    authority, authority_key = pki.new_ca("harvester", now, 1)
    issue = functools.partial(pki.issue_certificate, authority, authority_key, now=now, lifetime=hour)
    user, user_key = issue(common_name=USER, client=True)
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind((host, 0))
    listener.listen(64)
    port = listener.getsockname()[1]
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    small = SmallHarvester(address, authority, user, user_key)
    context = _context(*issue(common_name="harvester", ips=(host,), server=True), authority)
    threading.Thread(target=_accept, args=(listener, context, small), daemon=True).start()
    try:
        yield small
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _context(certificate: str, key: str, authority: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=authority)
    with tempfile.TemporaryDirectory() as folder:
        pem = Path(folder) / "server.pem"
        pem.write_text(key + certificate)
        context.load_cert_chain(pem)
    return context


def _accept(listener: socket.socket, context: ssl.SSLContext, small: SmallHarvester) -> None:
    with suppress(OSError):
        while True:
            plain, _ = listener.accept()
            threading.Thread(target=_serve, args=(plain, context, small), daemon=True).start()


def _serve(plain: socket.socket, context: ssl.SSLContext, small: SmallHarvester) -> None:
    with suppress(OSError), plain, context.wrap_socket(plain, server_side=True) as connection:
        for ((_, value),) in (connection.getpeercert() or {}).get("subject", ()):
            small.callers.add(value)
        data = b""
        while block := connection.recv(1 << 16):
            data += block
            while b"\r\n\r\n" in data:
                head, _, data = data.partition(b"\r\n\r\n")
                request = head.split(b"\r\n")[0].decode()
                small.seen.append(request)
                connection.sendall(_answer(request.split(" ")[1]))


def _answer(path: str) -> bytes:
    plural = next((part for part in path.split("?")[0].split("/") if part in OBJECTS), "")
    status, body = (
        ("200 OK", OBJECTS[plural]) if plural else ("404 Not Found", {"kind": "Status", "code": 404})
    )
    content = json.dumps(body).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    return head.encode() + content
