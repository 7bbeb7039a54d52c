"""What the manager may do, as values. Each knows its reason; log line, event and test use the same value.

`subject` is the name of the Machine it is about, "" for the Cluster. Actions of one subject are carried out in the
order of the plan; those of different machines side by side, after those of the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from windrow.kube.refs import Ref


@dataclass(frozen=True, slots=True)
class Action:
    because: str

    @property
    def subject(self) -> str:
        return str(getattr(self, "machine", ""))

    @property
    def reason(self) -> str:
        """The CamelCase word that events carry."""
        return type(self).__name__

    @property
    def in_words(self) -> str:
        """What is being done, as a sentence about its failure begins."""
        return _IN_WORDS[self.reason]

    def __str__(self) -> str:
        return f"{self.reason}{' ' + self.subject if self.subject else ''}: {self.because}"


# -- about the cluster -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Claim(Action):
    """Put our finalizer on the Cluster."""


@dataclass(frozen=True, slots=True)
class MakeSecrets(Action):
    """Make the authorities and tokens of the cluster, once, into one Secret."""


@dataclass(frozen=True, slots=True)
class RecordAccount(Action):
    """Write down which account on Harvester is going to be made for the guest."""

    namespace: str
    account: str
    credential: str


@dataclass(frozen=True, slots=True)
class GrantAccess(Action):
    """Make the account for the guest on Harvester, and keep its credential."""


@dataclass(frozen=True, slots=True)
class Enlist(Action):
    """Record a machine that shall be made."""

    pool: str
    server: str = ""
    first: bool = False


@dataclass(frozen=True, slots=True)
class Elect(Action):
    """Make this machine the one that starts the cluster, and record its version as the one the cluster is born with.

    At most one machine ever is, by compare-and-swap.
    """

    machine: str
    uid: str
    instead_of: str = ""  # uid of the machine that held the place


@dataclass(frozen=True, slots=True)
class Initialize(Action):
    """Record that the guest API has answered: from now on nobody may start the cluster anew."""


@dataclass(frozen=True, slots=True)
class MeetGuest(Action):
    """Record the uid of a guest that did not tell it when the cluster started."""


@dataclass(frozen=True, slots=True)
class Publish(Action):
    """Write the kubeconfig for people."""

    server: str


@dataclass(frozen=True, slots=True)
class RevokeAccess(Action):
    """Remove the account on Harvester."""


@dataclass(frozen=True, slots=True)
class DeleteBalancers(Action):
    """Delete load balancers on Harvester that services of the guest had made, each with its uid."""

    balancers: tuple[tuple[Ref, str], ...]


@dataclass(frozen=True, slots=True)
class KeepBalancers(Action):
    """Say which load balancers stay on Harvester although they bear the cluster's name."""


@dataclass(frozen=True, slots=True)
class ForgetSecrets(Action):
    """Remove the Secrets of the cluster."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer(Action):
    """Take our finalizer off the Cluster."""


# -- about one machine -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Order(Action):
    """Have the machine made."""

    machine: str


@dataclass(frozen=True, slots=True)
class Start(Action):
    """Start a machine that stands still."""

    machine: str


@dataclass(frozen=True, slots=True)
class Label(Action):
    """Give a node what kubelet may not give itself."""

    machine: str
    node: str


@dataclass(frozen=True, slots=True)
class Scrub(Action):
    """Take the secrets out of what the machine reads at its next start."""

    machine: str


@dataclass(frozen=True, slots=True)
class Retire(Action):
    """Give the machine up; its removal follows in steps."""

    machine: str


@dataclass(frozen=True, slots=True)
class Cordon(Action):
    """Let no further pods come to the node."""

    machine: str
    node: str


@dataclass(frozen=True, slots=True)
class Evict(Action):
    """Ask pods to leave the node, as their disruption budgets allow."""

    machine: str
    pods: tuple[tuple[str, str], ...]  # (namespace, name)


@dataclass(frozen=True, slots=True)
class LeaveEtcd(Action):
    """Have the servers drop the machine's etcd member."""

    machine: str
    node: str


@dataclass(frozen=True, slots=True)
class Remove(Action):
    """Have the machine removed from Harvester, with the disks it came with."""

    machine: str


@dataclass(frozen=True, slots=True)
class ForgetNode(Action):
    """Remove the Node and its password from the guest."""

    machine: str
    node: str


@dataclass(frozen=True, slots=True)
class Release(Action):
    """Take our finalizer off the Machine: nothing of it is left outside."""

    machine: str


_IN_WORDS = {
    "Claim": "putting Windrow's finalizer on the cluster",
    "MakeSecrets": "making the cluster's Secret",
    "RecordAccount": "writing down the guest's account",
    "GrantAccess": "making the guest's account on Harvester",
    "Enlist": "recording a new machine",
    "Elect": "choosing the first server",
    "Initialize": "writing down that the cluster has started",
    "MeetGuest": "writing down which guest it is",
    "Publish": "writing the kubeconfig for people",
    "RevokeAccess": "removing the guest's account on Harvester",
    "DeleteBalancers": "deleting its load balancers on Harvester",
    "KeepBalancers": "telling which load balancers stay",
    "ForgetSecrets": "removing the cluster's Secrets",
    "RemoveFinalizer": "taking Windrow's finalizer off the cluster",
    "Order": "ordering the machine",
    "Start": "starting the machine",
    "Label": "labelling the node",
    "Scrub": "taking the secrets out of the machine's cloud-init",
    "Retire": "giving the machine up",
    "Cordon": "cordoning the node",
    "Evict": "asking pods to leave the node",
    "LeaveEtcd": "asking the servers to drop the etcd member",
    "Remove": "removing the machine from Harvester",
    "ForgetNode": "removing the Node from the cluster",
    "Release": "taking Windrow's finalizer off the machine",
}


# -- what is not done --------------------------------------------------------------------------------------------


LONGEST = 100


def brief(text: str) -> str:
    """The first clause of somebody else's explanation, for sentences that people read at 80 columns."""
    head = text.split("\n")[0]
    for mark in (". ", ": "):
        if len(head) > LONGEST and mark in head[20:]:
            head = head[: head.index(mark, 20)]
    return head if len(head) <= LONGEST else head[: LONGEST - 1].rstrip() + "…"


@dataclass(frozen=True, slots=True)
class Wait:
    """What is being waited for, and what happens then. `machine` is "" for the cluster; `until` brings us back."""

    what: str
    then: str
    machine: str = ""
    until: datetime | None = None
