"""The storage of a simulated machine: mounts, the sockets of CSI drivers, and which of them kubelets know."""

from __future__ import annotations

import asyncio

import pytest

from windrow.emulator.guest_cluster.csi.port import CsiFailed, RegisteredDrivers
from windrow.emulator.guest_os.hardware import Disk
from windrow.emulator.guest_os.notifier import Notifier
from windrow.emulator.guest_os.storage import MountedVolume, NodeStorage
from windrow.kubernetes.objects import Raw

SOCKET = "/csi/csi.sock"


async def answer(method: str, request: Raw) -> Raw:
    return {"method": method, **request}


async def another(method: str, request: Raw) -> Raw:
    return {"another": method}


def a_storage() -> NodeStorage:
    return NodeStorage(lambda: (), Notifier())


def test_a_call_reaches_whatever_serves_the_socket_at_that_moment():
    async def story() -> None:
        storage = a_storage()
        call = storage.dial(SOCKET)
        with pytest.raises(CsiFailed) as refused:
            await call("Probe", {})
        assert refused.value.code == "UNAVAILABLE"
        assert f"dial unix {SOCKET}: connect: no such file or directory" in str(refused.value)
        storage.listen(SOCKET, answer)
        assert await call("Probe", {"x": 1}) == {"method": "Probe", "x": 1}
        storage.listen(SOCKET, another)
        assert await call("Probe", {}) == {"another": "Probe"}

    asyncio.run(story())


def test_a_process_that_ends_leaves_the_socket_of_the_next_one():
    storage = a_storage()
    storage.listen(SOCKET, answer)
    storage.listen(SOCKET, another)
    storage.close(SOCKET, answer)
    assert storage.is_listening(SOCKET)
    storage.close(SOCKET, another)
    assert not storage.is_listening(SOCKET)


def test_an_error_is_printed_as_go_programs_do():
    assert str(CsiFailed("NOT_FOUND", "no such volume")) == "rpc error: code = NotFound desc = no such volume"


def test_a_kubelet_forgets_a_driver_unless_it_was_registered_anew():
    changes: list[str] = []
    drivers = RegisteredDrivers(lambda: changes.append("changed"))
    drivers.register("one", "a.driver", answer)
    drivers.register("two", "a.driver", answer)
    drivers.register("one", "a.driver", another)
    assert list(drivers.nodes_of("a.driver")) == ["one", "two"]
    drivers.unregister("one", "a.driver", answer)
    assert drivers.find("one", "a.driver") is another
    drivers.unregister("one", "a.driver", another)
    assert drivers.find("one", "a.driver") is None
    assert drivers.find("two", "b.driver") is None
    assert len(changes) == 4


def test_the_latest_mount_is_what_is_seen_at_a_path():
    mounts, first, second = a_storage().mounts, Disk(), Disk()
    mounts.mount("/a", MountedVolume(first))
    mounts.mount("/b", MountedVolume(first, read_only=True))
    assert mounts.paths_of(first) == ["/a", "/b"]
    mounts.mount("/a", MountedVolume(second))
    found = mounts.find("/a")
    assert found is not None
    assert found.disk is second
    assert mounts.paths_of(first) == ["/b"]
    mounts.unmount("/a")
    mounts.unmount("/a")
    assert mounts.find("/a") is None
