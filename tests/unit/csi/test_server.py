"""The server of CSI: codes of errors, bounds, the socket."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path

import grpc
import pytest

from windrow.app.clock import SystemClock
from windrow.core.clock import Clock
from windrow.csi import errors, server
from windrow.csi.server import (
    CALL_TIMEOUT,
    STATUS_CODES,
    CannotServe,
    TcpEndpoint,
    UnixEndpoint,
    parse_endpoint,
    serving,
    status_code,
)
from windrow.csi.waits import waits_for
from windrow.protocols.csi import csi_pb2 as csi
from windrow.protocols.csi.services import CONTROLLER, IDENTITY, ServiceClient

LOG = logging.getLogger("csi-test")


class Identity:
    """Answers a probe as it is told."""

    def __init__(self, answer: Callable[[], object]) -> None:
        self._answer = answer
        self.cancelled = False

    async def Probe(self, request: csi.ProbeRequest) -> csi.ProbeResponse:
        try:
            result = self._answer()
            if asyncio.iscoroutine(result):
                await result
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return csi.ProbeResponse()


class Controller:
    async def DeleteVolume(self, request: csi.DeleteVolumeRequest) -> csi.DeleteVolumeResponse:
        raise errors.FailedPrecondition("PersistentVolumeClaim default/v is attached", "detach it")


class SleeplessClock(SystemClock):
    """Sleeps no time, and keeps for how long it should have."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[timedelta] = []
        self._noon = super().now()

    def now(self) -> datetime:
        return self._noon

    async def sleep_until(self, instant: datetime) -> None:
        self.slept.append(instant - self._noon)


@asynccontextmanager
async def client_of(
    path: Path, service: str, implementation: object, clock: Clock | None = None
) -> AsyncIterator[ServiceClient]:
    endpoint = UnixEndpoint(str(path / "csi.sock"))
    async with (
        serving(endpoint, {service: implementation}, clock or SystemClock(), LOG),
        grpc.aio.insecure_channel(f"unix://{endpoint.path}") as channel,
    ):
        yield ServiceClient(channel, service)


async def probe(client: ServiceClient, timeout_s: float = 30) -> csi.ProbeResponse:
    return await client.call(csi.ProbeRequest(), csi.ProbeResponse, timeout_s=timeout_s)


def raising(error: Exception) -> Callable[[], object]:
    def answer() -> object:
        raise error

    return answer


@pytest.mark.parametrize("kind", STATUS_CODES)
async def test_an_error_is_answered_with_the_code_of_its_kind(tmp_path: Path, kind: type[errors.CsiError]):
    error = kind("a", "b") if kind is not errors.InvalidArgument else errors.InvalidArgument("a", "b", "c")
    async with client_of(tmp_path, IDENTITY, Identity(raising(error))) as client:
        with pytest.raises(grpc.aio.AioRpcError) as answered:
            await probe(client)

    assert answered.value.code() == STATUS_CODES[kind]
    assert answered.value.details() == str(error)


def test_a_narrower_error_has_the_code_of_its_nearest_kind():
    class DeviceGone(errors.NotFound):
        pass

    assert status_code(DeviceGone("a", "b")) == grpc.StatusCode.NOT_FOUND


def test_each_kind_of_error_has_a_code():
    kinds = {
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.CsiError)
    }

    assert kinds == set(STATUS_CODES)


async def test_a_defect_ends_only_its_call_and_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    outcomes: list[Callable[[], object]] = [raising(ZeroDivisionError("secret detail")), lambda: None]
    async with client_of(tmp_path, IDENTITY, Identity(lambda: outcomes.pop(0)())) as client:
        with pytest.raises(grpc.aio.AioRpcError) as answered:
            await probe(client)
        await probe(client)

    assert answered.value.code() == grpc.StatusCode.INTERNAL
    assert answered.value.details() == "unexpected ZeroDivisionError; see the log"
    assert "Probe: unexpected error" in caplog.text


async def test_a_method_that_nothing_implements_is_unimplemented(tmp_path: Path):
    async with client_of(tmp_path, CONTROLLER, Controller()) as client:
        with pytest.raises(grpc.aio.AioRpcError) as answered:
            await client.call(csi.GetCapacityRequest(), csi.GetCapacityResponse, timeout_s=30)

    assert answered.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_the_log_names_the_ids_and_no_secret(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    async with client_of(tmp_path, CONTROLLER, Controller()) as client:
        request = csi.DeleteVolumeRequest(volume_id="pvc-1", secrets={"password": "hunter2"})
        with pytest.raises(grpc.aio.AioRpcError):
            await client.call(request, csi.DeleteVolumeResponse, timeout_s=30)

    assert (
        "DeleteVolume volume_id='pvc-1': FAILED_PRECONDITION: PersistentVolumeClaim default/v is attached; detach it"
        in caplog.text
    )
    assert "hunter2" not in caplog.text


async def test_a_call_ends_before_its_caller_s_deadline_and_says_what_it_waited_for(tmp_path: Path):
    async def wait() -> None:
        waits_for("VirtualMachine default/a to stop")
        await asyncio.Event().wait()

    identity = Identity(wait)
    async with client_of(tmp_path, IDENTITY, identity) as client:
        with pytest.raises(grpc.aio.AioRpcError) as answered:
            await probe(client, timeout_s=1.0)

    assert answered.value.code() == grpc.StatusCode.ABORTED
    assert (
        answered.value.details()
        == "out of time while waiting for VirtualMachine default/a to stop; repeat the same call"
    )
    assert identity.cancelled


async def test_a_call_without_a_deadline_is_bounded(tmp_path: Path):
    clock = SleeplessClock()
    identity = Identity(lambda: asyncio.Event().wait())
    async with client_of(tmp_path, IDENTITY, identity, clock) as client:
        with pytest.raises(grpc.aio.AioRpcError) as answered:
            await client.call(csi.ProbeRequest(), csi.ProbeResponse)

    assert answered.value.code() == grpc.StatusCode.ABORTED
    assert clock.slept == [CALL_TIMEOUT]


async def test_the_socket_belongs_to_its_owner_alone(tmp_path: Path):
    async with client_of(tmp_path, IDENTITY, Identity(lambda: None)):
        mode = (tmp_path / "csi.sock").stat().st_mode

    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
    assert not (tmp_path / "csi.sock").exists()


async def test_a_socket_of_a_killed_process_is_replaced(tmp_path: Path):
    import socket

    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "csi.sock"))
    async with client_of(tmp_path, IDENTITY, Identity(lambda: None)) as client:
        await probe(client)


async def test_the_socket_of_the_next_process_is_left_alone(tmp_path: Path):
    async with AsyncExitStack() as before:
        await before.enter_async_context(client_of(tmp_path, IDENTITY, Identity(lambda: None)))
        async with client_of(tmp_path, IDENTITY, Identity(lambda: None)):
            await before.aclose()
            async with grpc.aio.insecure_channel(f"unix://{tmp_path}/csi.sock") as channel:
                await probe(ServiceClient(channel, IDENTITY))
            assert os.listdir(tmp_path) == ["csi.sock"]


class WaitingController:
    """Each call waits until its test has ended."""

    async def DeleteVolume(self, request: csi.DeleteVolumeRequest) -> csi.DeleteVolumeResponse:
        if request.volume_id == "wait":
            await asyncio.Event().wait()
        return csi.DeleteVolumeResponse()


async def test_a_driver_with_many_calls_refuses_more_and_answers_probes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server, "MAX_CALLS", 2)
    monkeypatch.setattr(server, "_MAX_PROBES", 4)
    endpoint = UnixEndpoint(str(tmp_path / "csi.sock"))
    services = {IDENTITY: Identity(lambda: None), CONTROLLER: WaitingController()}
    async with (
        serving(endpoint, services, SystemClock(), LOG),
        grpc.aio.insecure_channel(f"unix://{endpoint.path}") as channel,
    ):

        async def delete(volume_id: str) -> None:
            request = csi.DeleteVolumeRequest(volume_id=volume_id)
            await ServiceClient(channel, CONTROLLER).call(request, csi.DeleteVolumeResponse, timeout_s=30)

        waiting = [asyncio.create_task(delete("wait")) for _ in range(2)]
        refused = await _first_refusal(delete)
        await probe(ServiceClient(channel, IDENTITY))
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        while await _refusal(delete) is not None:  # until the server has seen that the callers have gone
            pass

    assert refused.code() == grpc.StatusCode.UNAVAILABLE
    assert refused.details() == "2 calls are under way; repeat the same call later"


async def _first_refusal(delete: Callable[[str], Awaitable[None]]) -> grpc.aio.AioRpcError:
    """Once the calls before have arrived."""
    while True:
        if (refused := await _refusal(delete)) is not None:
            return refused


async def _refusal(delete: Callable[[str], Awaitable[None]]) -> grpc.aio.AioRpcError | None:
    try:
        await delete("v")
    except grpc.aio.AioRpcError as error:
        return error
    return None


async def test_what_an_error_quotes_is_logged_and_sent_without_what_steers_a_terminal(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    error = errors.NotFound("nothing is at /a\x1b[2J\nDeleteVolume: OK " + "é" * 5000, "look")
    async with client_of(tmp_path, IDENTITY, Identity(raising(error))) as client:
        with pytest.raises(grpc.aio.AioRpcError) as answered:
            await probe(client)

    (logged,) = (record.getMessage() for record in caplog.records if record.name == LOG.name)
    sent = answered.value.details() or ""
    assert logged.startswith(f"Probe: NOT_FOUND: {sent}")
    assert len(logged) < 2100
    assert sent.startswith(r"nothing is at /a\x1b[2J\nDeleteVolume: OK é")
    assert errors.MAX_MESSAGE - 1 <= len(sent.encode()) <= errors.MAX_MESSAGE


async def test_a_file_that_is_no_socket_is_kept(tmp_path: Path):
    (tmp_path / "csi.sock").write_text("data")
    with pytest.raises(CannotServe, match="exists and is no socket"):
        async with client_of(tmp_path, IDENTITY, Identity(lambda: None)):
            pass

    assert (tmp_path / "csi.sock").read_text() == "data"


async def test_a_folder_that_is_missing_is_named(tmp_path: Path):
    with pytest.raises(CannotServe, match="its folder has to exist"):
        async with client_of(tmp_path / "missing", IDENTITY, Identity(lambda: None)):
            pass


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("unix:///csi/csi.sock", UnixEndpoint("/csi/csi.sock")),
        ("UNIX:///csi/csi.sock", UnixEndpoint("/csi/csi.sock")),
        ("tcp://127.0.0.1:10000", TcpEndpoint("127.0.0.1", 10000)),
        ("tcp://[::1]:0", TcpEndpoint("[::1]", 0)),
    ],
)
def test_an_endpoint(text: str, endpoint: UnixEndpoint | TcpEndpoint):
    assert parse_endpoint(text) == endpoint


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("/csi/csi.sock", "neither unix:// nor tcp://"),
        ("unix://csi.sock", "names no absolute path"),
        ("http://127.0.0.1:1", "neither unix:// nor tcp://"),
        ("tcp://0.0.0.0:1", "can be reached from other machines"),
        ("tcp://127.0.0.1", "has no port"),
        ("tcp://127.0.0.1:99999", "is no address with a port"),
        ("tcp://localhost:1", "is no address with a port"),
        ("", "neither unix:// nor tcp://"),
    ],
)
def test_an_endpoint_that_is_refused(text: str, problem: str):
    with pytest.raises(CannotServe, match=problem):
        parse_endpoint(text)
