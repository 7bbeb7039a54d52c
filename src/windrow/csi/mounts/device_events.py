"""Waits for changes of the node's devices, as the kernel and udev announce them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from windrow.core.clock import Clock, sleep
from windrow.core.wait import Stopped, run_until

T = TypeVar("T")

_UEVENTS = 15  # NETLINK_KOBJECT_UEVENT
_KERNEL_AND_UDEV = 1 | 2
_MAX_EVENT = 8192
# udev tells only its own network namespace when it has made its links, so they are looked for now and then as well.
_AGAIN_AFTER = timedelta(seconds=1)


async def wait_for_device(clock: Clock, timeout: timedelta, find: Callable[[], T | None]) -> T | None:
    """What `find` gives, called again after each change of a device; None when the time is up. Raises what it raises."""
    deadline = clock.monotonic() + timeout
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK, _UEVENTS) as events:
        events.bind((0, _KERNEL_AND_UDEV))
        while True:
            found = find()
            left = deadline - clock.monotonic()
            if found is not None or left <= timedelta(0):
                return found
            # OSError: more events than the socket keeps. Something changed, then.
            with suppress(Stopped, OSError):
                loop = asyncio.get_running_loop()
                await run_until(loop.sock_recv(events, _MAX_EVENT), sleep(clock, min(left, _AGAIN_AFTER)))
