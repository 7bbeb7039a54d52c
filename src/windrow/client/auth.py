"""Authentication: tokens and client certificates from the kubeconfig, from token files and from exec plugins.

`get` returns the credentials of the next request. `invalidate` reports that the server answered them with 401, so that
the next `get` reads the file, or runs the plugin, again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from windrow.core.clock import Clock, parse_time
from windrow.core.formats.json import NotJson, dumps, loads
from windrow.kubernetes.errors import Unreachable
from windrow.kubernetes.kubeconfig import ClientConfig, ExecConfig, ReadFile

# The kubelet renews projected tokens long before they end; once a minute is what client-go does.
TOKEN_FILE_MAX_AGE = timedelta(minutes=1)
PLUGIN_TIMEOUT_S = 60.0

RunPlugin = Callable[[ExecConfig, Mapping[str, str]], Awaitable[tuple[int, bytes, bytes]]]


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """The credentials of one request: a bearer token, a client certificate with its key (PEM), both, or none."""

    token: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)


class CredentialProvider(Protocol):
    async def get(self) -> RequestCredentials:
        """Raises Unreachable when the credential cannot be had: then nothing was sent."""
        ...

    def invalidate(self, used: RequestCredentials) -> None: ...


class StaticCredential:
    """A token or a certificate that is in the kubeconfig."""

    def __init__(self, config: ClientConfig) -> None:
        self._credentials = RequestCredentials(config.token, config.certificate, config.key)

    async def get(self) -> RequestCredentials:
        return self._credentials

    def invalidate(self, used: RequestCredentials) -> None:
        pass  # there is no other credential


class TokenFileCredential:
    """A token in a file, which is renewed by the kubelet or another program."""

    def __init__(self, config: ClientConfig, clock: Clock, read_file: ReadFile) -> None:
        self._config = config
        self._clock = clock
        self._read_file = read_file
        self._credentials: RequestCredentials | None = None
        self._read_at = clock.monotonic()

    async def get(self) -> RequestCredentials:
        if self._credentials is None or self._clock.monotonic() - self._read_at > TOKEN_FILE_MAX_AGE:
            self._credentials = self._read()
            self._read_at = self._clock.monotonic()
        return self._credentials

    def invalidate(self, used: RequestCredentials) -> None:
        if used is self._credentials:
            self._credentials = None

    def _read(self) -> RequestCredentials:
        path = self._config.token_file
        try:
            token = self._read_file(path).strip()
        except OSError as error:
            if self._credentials is not None:
                return self._credentials  # the file is being replaced; the old token may still be valid
            raise Unreachable(
                f"the token file {path} for {self._config.server} cannot be read: {error}; correct the path"
            ) from error
        return RequestCredentials(token, self._config.certificate, self._config.key)


@dataclass(frozen=True, slots=True)
class _ExecResult:
    credentials: RequestCredentials
    expires: datetime | None


class ExecPlugin:
    """A program that prints ExecCredentials. Many requests may wait, one program runs."""

    def __init__(
        self, config: ClientConfig, spec: ExecConfig, clock: Clock, env: Mapping[str, str], run: RunPlugin
    ) -> None:
        self._config = config
        self._spec = spec
        self._clock = clock
        self._env = env
        self._run = run
        self._lock = asyncio.Lock()
        self._result: _ExecResult | None = None

    async def get(self) -> RequestCredentials:
        async with self._lock:
            if self._result is None or self._is_expired(self._result):
                self._result = await self._run_plugin()
            return self._result.credentials

    def invalidate(self, used: RequestCredentials) -> None:
        if self._result is not None and self._result.credentials is used:
            self._result = None

    def _is_expired(self, result: _ExecResult) -> bool:
        return result.expires is not None and self._clock.now() >= result.expires

    async def _run_plugin(self) -> _ExecResult:
        spec = self._spec
        env = {**self._env, **dict(spec.env), "KUBERNETES_EXEC_INFO": self._exec_info()}
        try:
            async with asyncio.timeout(PLUGIN_TIMEOUT_S):
                code, out, err = await self._run(spec, env)
        except FileNotFoundError as error:
            raise self._failed("it is not installed", spec.install_hint or "install it") from error
        except OSError as error:
            raise self._failed(f"it cannot be started: {error}", "make it executable") from error
        except TimeoutError as error:
            raise self._failed(
                f"no answer within {PLUGIN_TIMEOUT_S:.0f} s", "run it by hand to see why"
            ) from error
        if code != 0:
            output = err.decode("utf-8", "replace").strip()[-300:]
            raise self._failed(f"it ended with code {code}: {output}", "run it by hand to see why")
        return self._read(out)

    def _exec_info(self) -> str:
        spec: dict[str, Any] = {"interactive": False}
        if self._spec.provide_cluster_info:
            spec["cluster"] = {"server": self._config.server, "certificate-authority-data": self._config.ca}
        exec_info = {"kind": "ExecCredential", "apiVersion": self._spec.api_version, "spec": spec}
        return dumps(exec_info).decode()

    def _read(self, out: bytes) -> _ExecResult:
        try:
            raw = loads(out)
            status = raw["status"]
            credentials = RequestCredentials(
                str(status.get("token") or ""),
                str(status.get("clientCertificateData") or ""),
                str(status.get("clientKeyData") or ""),
            )
            until = status.get("expirationTimestamp")
            expires = parse_time(until) if until else None
        except (NotJson, LookupError, TypeError, AttributeError, ValueError) as error:
            raise self._failed(
                "it printed no ExecCredential with a status", "run it by hand to see why"
            ) from error
        if raw.get("apiVersion") != self._spec.api_version:
            raise self._failed(
                f"it answered in {raw.get('apiVersion')}", f"the kubeconfig asks for {self._spec.api_version}"
            )
        if not credentials.token and not (credentials.certificate and credentials.key):
            raise self._failed("its answer holds neither a token nor a certificate with key", "log in again")
        return _ExecResult(credentials, expires)

    def _failed(self, why: str, hint: str) -> Unreachable:
        return Unreachable(
            f"the credential plugin {self._spec.command!r} for {self._config.server} gave no credential: {why}; {hint}"
        )


async def run_plugin(spec: ExecConfig, env: Mapping[str, str]) -> tuple[int, bytes, bytes]:
    """Run the program to its end: exit code, standard output, standard error. Killed when cancelled."""
    process = await asyncio.create_subprocess_exec(
        spec.command,
        *spec.args,
        env=dict(env),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    return process.returncode or 0, out, err


def credential_for(
    config: ClientConfig,
    clock: Clock,
    read_file: ReadFile,
    env: Mapping[str, str],
    run: RunPlugin = run_plugin,
) -> CredentialProvider:
    """The credential of the config, in client-go's order: exec plugin, token file, token and certificate."""
    if config.exec:
        return ExecPlugin(config, config.exec, clock, env, run)
    if config.token_file:
        return TokenFileCredential(config, clock, read_file)
    return StaticCredential(config)
