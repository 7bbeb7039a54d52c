"""Errors of the node driver's operations."""

from __future__ import annotations

from windrow.core.errors import UserError
from windrow.harvester.problems import Problem


class Refused(Exception):
    """The machine cannot be created, or not be changed, as asked; repeating unchanged is useless."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


class MachineNotFound(Exception):
    """A live GET on Harvester answered 404 for the machine's VM. The text is that of Kubernetes; hosts search it."""

    def __init__(self, name: str) -> None:
        super().__init__(f'virtualmachines.kubevirt.io "{name}" not found')


class NotRunning(Exception):
    """The machine is not running. Hosts compare the text."""

    def __init__(self) -> None:
        super().__init__("Host is not running")


class Busy(UserError):
    """KubeVirt is still starting or stopping the VM; the same request may be repeated later."""
