"""Credentials that change while we run: token files are read again, exec plugins are asked again.

`present` says what to show with the next request; `rejected` says that the server answered 401, so the next
`present` must not repeat itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from windrow.formats.json import NotJson, dumps, loads
from windrow.kube.errors import Unreachable
from windrow.kube.kubeconfig import Access, Exec, ReadFile
from windrow.values.clock import Clock, read_stamp

# The kubelet renews projected tokens long before they end; once a minute is what client-go does.
TOKEN_FILE_AGE = timedelta(minutes=1)
PLUGIN_PATIENCE_S = 60.0

RunPlugin = Callable[[Exec, Mapping[str, str]], Awaitable[tuple[int, bytes, bytes]]]


@dataclass(frozen=True, slots=True)
class Presented:
    """What to show: a bearer token, a client certificate with its key (PEM), both, or nothing."""

    token: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)


class Credential(Protocol):
    async def present(self) -> Presented:
        """Raises Unreachable when the credential cannot be had: then nothing was sent."""
        ...

    def rejected(self, shown: Presented) -> None: ...


class Fixed:
    """A token or a certificate that stands in the kubeconfig."""

    def __init__(self, access: Access) -> None:
        self._shown = Presented(access.token, access.certificate, access.key)

    async def present(self) -> Presented:
        return self._shown

    def rejected(self, shown: Presented) -> None:
        pass  # there is no other


class TokenFile:
    """A token that somebody renews in a file."""

    def __init__(self, access: Access, clock: Clock, read_file: ReadFile) -> None:
        self._access = access
        self._clock = clock
        self._read_file = read_file
        self._shown: Presented | None = None
        self._read_at = clock.now()

    async def present(self) -> Presented:
        if self._shown is None or self._clock.now() - self._read_at > TOKEN_FILE_AGE:
            self._shown = self._read()
            self._read_at = self._clock.now()
        return self._shown

    def rejected(self, shown: Presented) -> None:
        if shown is self._shown:
            self._shown = None

    def _read(self) -> Presented:
        path = self._access.token_file
        try:
            token = self._read_file(path).strip()
        except OSError as error:
            if self._shown is not None:
                return self._shown  # the file is being replaced; the old token may still do
            raise Unreachable(
                f"the token file {path} for {self._access.server} cannot be read: {error}; correct the path"
            ) from error
        return Presented(token, self._access.certificate, self._access.key)


@dataclass(frozen=True, slots=True)
class _Answer:
    presented: Presented
    expires: datetime | None


class Plugin:
    """A program that prints ExecCredentials. Many requests may wait, one program runs."""

    def __init__(
        self, access: Access, spec: Exec, clock: Clock, env: Mapping[str, str], run: RunPlugin
    ) -> None:
        self._access = access
        self._spec = spec
        self._clock = clock
        self._env = env
        self._run = run
        self._one = asyncio.Lock()
        self._answer: _Answer | None = None

    async def present(self) -> Presented:
        async with self._one:
            if self._answer is None or self._is_over(self._answer):
                self._answer = await self._ask()
            return self._answer.presented

    def rejected(self, shown: Presented) -> None:
        if self._answer is not None and self._answer.presented is shown:
            self._answer = None

    def _is_over(self, answer: _Answer) -> bool:
        return answer.expires is not None and self._clock.now() >= answer.expires

    async def _ask(self) -> _Answer:
        spec = self._spec
        env = {**self._env, **dict(spec.env), "KUBERNETES_EXEC_INFO": self._question()}
        try:
            async with asyncio.timeout(PLUGIN_PATIENCE_S):
                code, out, err = await self._run(spec, env)
        except FileNotFoundError as error:
            raise self._failed("it is not installed", spec.install_hint or "install it") from error
        except OSError as error:
            raise self._failed(f"it cannot be started: {error}", "make it executable") from error
        except TimeoutError as error:
            raise self._failed(
                f"no answer within {PLUGIN_PATIENCE_S:.0f} s", "run it by hand to see why"
            ) from error
        if code != 0:
            said = err.decode("utf-8", "replace").strip()[-300:]
            raise self._failed(f"it ended with code {code}: {said}", "run it by hand to see why")
        return self._read(out)

    def _question(self) -> str:
        spec: dict[str, Any] = {"interactive": False}
        if self._spec.provide_cluster_info:
            spec["cluster"] = {"server": self._access.server, "certificate-authority-data": self._access.ca}
        question = {"kind": "ExecCredential", "apiVersion": self._spec.api_version, "spec": spec}
        return dumps(question).decode()

    def _read(self, out: bytes) -> _Answer:
        try:
            raw = loads(out)
            status = raw["status"]
            presented = Presented(
                str(status.get("token") or ""),
                str(status.get("clientCertificateData") or ""),
                str(status.get("clientKeyData") or ""),
            )
            until = status.get("expirationTimestamp")
            expires = read_stamp(until) if until else None
        except (NotJson, LookupError, TypeError, AttributeError, ValueError) as error:
            raise self._failed(
                "it printed no ExecCredential with a status", "run it by hand to see why"
            ) from error
        if raw.get("apiVersion") != self._spec.api_version:
            raise self._failed(
                f"it answered in {raw.get('apiVersion')}", f"the kubeconfig asks for {self._spec.api_version}"
            )
        if not presented.token and not (presented.certificate and presented.key):
            raise self._failed("its answer holds neither a token nor a certificate with key", "log in again")
        return _Answer(presented, expires)

    def _failed(self, why: str, cure: str) -> Unreachable:
        return Unreachable(
            f"the credential plugin {self._spec.command!r} for {self._access.server} gave no credential: {why}; {cure}"
        )


async def run_plugin(spec: Exec, env: Mapping[str, str]) -> tuple[int, bytes, bytes]:
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
    access: Access,
    clock: Clock,
    read_file: ReadFile,
    env: Mapping[str, str],
    run: RunPlugin = run_plugin,
) -> Credential:
    """The credential that `access` names; client-go's order: exec plugin, token file, then what stands inside."""
    if access.exec:
        return Plugin(access, access.exec, clock, env, run)
    if access.token_file:
        return TokenFile(access, clock, read_file)
    return Fixed(access)
