"""What all actions have: reason and message of their event, and the object that they are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from windrow.client.events import EventType
from windrow.clusters.api.cluster import Cluster
from windrow.clusters.state import MachineState


@dataclass(frozen=True)
class ActionBase:
    """What all actions have.

    `reason` is that of the event, part of the API: it never follows the class name. `done` begins the message of the
    event, as a format string of the `action`, its `cluster` and its `machine`; without it there is no event.
    `on_cluster` says whether the event of an action on a Machine is also recorded on the Cluster; `final` whether that on
    the Cluster is one of its last or of its main ones, which many events before it must not keep from being written.
    """

    because: str
    reason: ClassVar[str]
    done: ClassVar[str]
    event: ClassVar[EventType]
    on_cluster: ClassVar[bool]
    final: ClassVar[bool]

    def __init_subclass__(
        cls,
        reason: str = "",
        done: str = "",
        event: EventType = "Normal",
        on_cluster: bool = False,
        final: bool = False,
    ) -> None:
        cls.reason, cls.done, cls.event, cls.on_cluster, cls.final = reason, done, event, on_cluster, final

    @property
    def subject(self) -> str:
        return ""

    def __str__(self) -> str:
        return f"{self.reason}: {self.because}"

    def message(self, cluster: Cluster, machine: MachineState | None) -> str:
        """What was done to which object, and why."""
        return f"{self.done.format(action=self, cluster=cluster, machine=machine)}: {self.because}"


@dataclass(frozen=True)
class MachineActionBase(ActionBase):
    """About one Machine, by its name."""

    machine: str

    @property
    def subject(self) -> str:
        return self.machine


@dataclass(frozen=True)
class OperationAction(ActionBase, reason="Operation"):
    """A step of what a user asks for once, such as a snapshot; each of them is in `operations/actions.py`."""
