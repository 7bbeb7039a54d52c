"""The consoles of simulated machines, for other processes: `GET /windrow/console/NAMESPACE/NAME` on the emulator.

A real Harvester shows consoles through VNC only, so this path is ours and lies outside the Kubernetes API.
"""

from __future__ import annotations

from windrow.apiserver.request.info import UserInfo
from windrow.emulator.harvester import Harvester
from windrow.kubernetes.requests import Reply, Request

PREFIX = "/windrow/console/"
TEXT = "text/plain; charset=utf-8"


def serve_consoles(harvester: Harvester) -> None:
    """Let `harvester` answer for its machines' consoles."""

    async def answer(request: Request, caller: UserInfo) -> Reply:
        namespace, _, name = request.path.removeprefix(PREFIX).partition("/")
        lines = harvester.console(namespace, name)
        if not lines:
            return Reply(404, f"no machine {namespace}/{name} has written anything\n".encode(), TEXT)
        return Reply(200, "".join(f"{line}\n" for line in lines).encode(), TEXT)

    harvester.api.routes[PREFIX] = answer
