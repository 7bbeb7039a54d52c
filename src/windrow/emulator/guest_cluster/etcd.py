"""The member list of a guest cluster's etcd: voters, learners, which members are up (reference/04 §2.7, §7.12).

Members outlive their machines until they are removed. One learner at a time; no new member while a voting one is
down, because etcd's strict reconfiguration check refuses; without a majority of voters nothing can be read or written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from windrow.core.formats.version import Version
from windrow.emulator.kit.network import bracketed


class JoinRefused(Exception):
    """etcd refuses a new member now; the message is etcd's."""


class EtcdDowngrade(Exception):
    """A member of an older etcd than the cluster's; the message is etcd's."""


class NotMember(Exception):
    """The etcd data belongs to a member that the cluster removed, or whose address has changed."""


def etcd_version(kubernetes: Version) -> tuple[int, int]:
    """The etcd that a release of RKE2 or K3s brings."""
    return (3, 6) if kubernetes.minor >= 34 else (3, 5)


@dataclass(slots=True)
class EtcdMember:
    name: str  # "<node>-<8 hex digits>"
    node: str
    address: str
    learner: bool = False
    up: bool = False
    registered: bool = False  # whether its Node has been observed
    version: tuple[int, int] | None = None  # of etcd, since it runs

    @property
    def peer(self) -> str:
        return f"{self.name}=https://{bracketed(self.address)}:2380"


@dataclass(slots=True)
class EtcdMembers:
    """The member list. `on_change` is called after every change."""

    by_name: dict[str, EtcdMember] = field(default_factory=dict)
    is_embedded: bool = True  # False: one server keeps the data in SQLite, and there are no members
    removed: set[str] = field(default_factory=set)
    left_behind: set[str] = field(
        default_factory=set
    )  # by a reset: their data are those of another etcd cluster
    on_change: Callable[[], None] = lambda: None
    cluster_version: tuple[int, int] = (0, 0)

    def check_version(self, version: tuple[int, int]) -> None:
        """Raises EtcdDowngrade for a version before the one that all members had."""
        if version < self.cluster_version:
            own, known = (f"{major}.{minor}" for major, minor in (version, self.cluster_version))
            raise EtcdDowngrade(
                f"etcdserver: invalid downgrade; server version is lower than determined cluster version "
                f"(current-server-version: {own}.0, determined-cluster-version: {known})"
            )

    def set_version(self, name: str, version: tuple[int, int]) -> None:
        """A member runs this version; once all do, the cluster has it and does not go back."""
        self.by_name[name].version = version
        known = [member.version for member in self.by_name.values()]
        if lowest := min((one or (0, 0) for one in known), default=None):
            self.cluster_version = max(self.cluster_version, lowest)

    def voters(self) -> list[EtcdMember]:
        return [member for member in self.by_name.values() if not member.learner]

    def has_quorum(self) -> bool:
        if not self.is_embedded:
            return True
        voters = self.voters()
        return bool(voters) and 2 * sum(member.up for member in voters) > len(voters)

    def find_by_node(self, node: str) -> EtcdMember | None:
        return next((member for member in self.by_name.values() if member.node == node), None)

    def add_first(self, member: EtcdMember) -> None:
        """The first member of a new cluster, which votes at once."""
        member.up = True
        self.by_name[member.name] = member
        self.on_change()

    def knows(self, name: str) -> bool:
        """Whether this member is one of the cluster, or was."""
        return name in self.by_name or name in self.removed or name in self.left_behind

    def reset(self, member: EtcdMember) -> None:
        """This member, which does not run yet, is the whole cluster from now on."""
        self.left_behind |= self.by_name.keys()
        self.by_name = {member.name: member}
        self.is_embedded = True
        self.on_change()

    def add_learner(self, member: EtcdMember) -> None:
        """Add a learner. Raises JoinRefused, which may be retried, or NotMember."""
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
        self.on_change()

    def rejoin(self, name: str, address: str) -> EtcdMember:
        """Mark a member up that restarts with its data. Raises NotMember when it was removed or its address changed."""
        if name in self.left_behind:
            found = " ".join(member.peer for member in self.by_name.values())
            raise NotMember(
                f"this server is a not a member of the etcd cluster. Found [{found}], "
                f"expect: {name}=https://{address}:2380 (the cluster was reset; delete the db directory to join again)"
            )
        if name in self.removed or name not in self.by_name:
            raise NotMember("the member has been permanently removed from the cluster")
        member = self.by_name[name]
        if member.address != address:
            raise NotMember(
                f"this server is a not a member of the etcd cluster. Found [{member.peer}], "
                f"expect: {name}=https://{address}:2380 (the machine's address changed)"
            )
        member.up = True
        self.on_change()
        return member

    def promote(self, name: str) -> bool:
        """Make a learner a voter; False when it is missing or down."""
        member = self.by_name.get(name)
        if member is None or not member.learner or not member.up or not self.has_quorum():
            return False
        member.learner = False
        self.on_change()
        return True

    def mark_down(self, name: str) -> None:
        if name in self.by_name:
            self.by_name[name].up = False
            self.on_change()

    def remove(self, name: str) -> bool:
        """Remove a member; False without quorum, or when the rest would have none."""
        if name not in self.by_name:
            return True
        if not self.has_quorum():
            return False
        rest = [member for member in self.voters() if member.name != name]
        if not rest or 2 * sum(member.up for member in rest) <= len(rest):
            return False
        del self.by_name[name]
        self.removed.add(name)
        self.on_change()
        return True
