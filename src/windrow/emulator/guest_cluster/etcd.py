"""The member list of a guest cluster's etcd: who votes, who learns, who is up (reference/04 §2.7, §7.12).

Members outlive their machines until somebody removes them. One learner at a time; no new member while a voting one is
down, because etcd's strict reconfiguration check refuses; without a majority of voters nothing can be read or written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field


class JoinRefused(Exception):
    """The cluster cannot take a member now; the message is etcd's."""


class NotMember(Exception):
    """The machine's etcd data belongs to a member that the cluster no longer has, or knows under another address."""


@dataclass(slots=True)
class EtcdMember:
    name: str  # "<node>-<8 hex digits>"
    node: str
    address: str
    learner: bool = False
    up: bool = False
    registered: bool = False  # whether its Node has been seen

    @property
    def peer(self) -> str:
        return f"{self.name}=https://{self.address}:2380"


@dataclass(slots=True)
class EtcdMembers:
    """The member list. `changed` is told after every change."""

    by_name: dict[str, EtcdMember] = field(default_factory=dict)
    removed: set[str] = field(default_factory=set)
    on_change: Callable[[], None] = lambda: None
    quorum: asyncio.Event = field(default_factory=asyncio.Event)

    def voters(self) -> list[EtcdMember]:
        return [member for member in self.by_name.values() if not member.learner]

    def has_quorum(self) -> bool:
        voters = self.voters()
        return bool(voters) and 2 * sum(member.up for member in voters) > len(voters)

    def find_by_node(self, node: str) -> EtcdMember | None:
        return next((member for member in self.by_name.values() if member.node == node), None)

    def add_first(self, member: EtcdMember) -> None:
        """The first member of a new cluster, which votes at once."""
        member.up = True
        self.by_name[member.name] = member
        self._notify()

    def add_learner(self, member: EtcdMember) -> None:
        """Take a joiner in. Raises JoinRefused, which the joiner may try again."""
        if (same_node := self.find_by_node(member.node)) is not None and same_node.name != member.name:
            raise NotMember("duplicate node name found, please use a unique name for this node")
        if not self.has_quorum():
            raise JoinRefused("etcdserver: no leader")
        if any(other.learner for other in self.by_name.values()):
            raise JoinRefused("etcdserver: too many learner members in cluster")
        if any(not other.up for other in self.voters()):
            raise JoinRefused("etcdserver: unhealthy cluster")
        member.learner = member.up = True
        self.by_name[member.name] = member
        self._notify()

    def rejoin(self, name: str, address: str) -> EtcdMember:
        """A member comes back with its data. Raises NotMember when the cluster has no such member there."""
        if name in self.removed or name not in self.by_name:
            raise NotMember("the member has been permanently removed from the cluster")
        member = self.by_name[name]
        if member.address != address:
            raise NotMember(
                f"this server is a not a member of the etcd cluster. Found [{member.peer}], "
                f"expect: {name}=https://{address}:2380 (the machine's address changed)"
            )
        member.up = True
        self._notify()
        return member

    def promote(self, name: str) -> bool:
        """Let a learner vote; False when it is not there or not up."""
        member = self.by_name.get(name)
        if member is None or not member.learner or not member.up or not self.has_quorum():
            return False
        member.learner = False
        self._notify()
        return True

    def mark_down(self, name: str) -> None:
        if name in self.by_name:
            self.by_name[name].up = False
            self._notify()

    def remove(self, name: str) -> bool:
        """Strike a member from the list; False when etcd cannot (no quorum) or it would lose its majority."""
        if name not in self.by_name:
            return True
        if not self.has_quorum():
            return False
        rest = [member for member in self.voters() if member.name != name]
        if not rest or 2 * sum(member.up for member in rest) <= len(rest):
            return False
        del self.by_name[name]
        self.removed.add(name)
        self._notify()
        return True

    def _notify(self) -> None:
        if self.has_quorum():
            self.quorum.set()
        else:
            self.quorum.clear()
        self.on_change()
