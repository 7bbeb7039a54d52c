"""What the manager may do, as values. Each knows its reason; log line, event and test use the same value.

`subject` is the name of the Machine it is about, "" for the Cluster. Actions of one subject are carried out in the
order of the plan; those of different machines side by side, after those of the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from windrow.kubernetes.resources import ObjectRef


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
class AddFinalizer(Action):
    """Put our finalizer on the Cluster."""


@dataclass(frozen=True, slots=True)
class CreateSecrets(Action):
    """Make the authorities and tokens of the cluster, once, into one Secret."""


@dataclass(frozen=True, slots=True)
class RecordServiceAccount(Action):
    """Write down which account on Harvester is going to be made for the guest."""

    namespace: str
    service_account: str
    credential: str


@dataclass(frozen=True, slots=True)
class CreateServiceAccount(Action):
    """Make the account for the guest on Harvester, and keep its credential."""


@dataclass(frozen=True, slots=True)
class CreateMachine(Action):
    """Record a machine that shall be made."""

    pool: str
    join_server: str = ""
    is_init_server: bool = False


@dataclass(frozen=True, slots=True)
class ElectInitServer(Action):
    """Make this machine the one that starts the cluster, and record its version as the one the cluster is born with.

    At most one machine ever is, by compare-and-swap.
    """

    machine: str
    uid: str
    previous_uid: str = ""  # uid of the machine that held the place


@dataclass(frozen=True, slots=True)
class MarkInitialized(Action):
    """Record that the guest API has answered: from now on nobody may start the cluster anew."""


@dataclass(frozen=True, slots=True)
class RecordGuestUID(Action):
    """Record the uid of a guest that did not tell it when the cluster started."""


@dataclass(frozen=True, slots=True)
class PublishKubeconfig(Action):
    """Write the kubeconfig for people."""

    server: str


@dataclass(frozen=True, slots=True)
class DeleteServiceAccount(Action):
    """Remove the account on Harvester."""


@dataclass(frozen=True, slots=True)
class DeleteLoadBalancers(Action):
    """Delete load balancers on Harvester that services of the guest had made, each with its uid."""

    load_balancers: tuple[tuple[ObjectRef, str], ...]


@dataclass(frozen=True, slots=True)
class KeepLoadBalancers(Action):
    """Say which load balancers stay on Harvester although they bear the cluster's name."""


@dataclass(frozen=True, slots=True)
class DeleteSecrets(Action):
    """Remove the Secrets of the cluster."""


@dataclass(frozen=True, slots=True)
class RemoveFinalizer(Action):
    """Take our finalizer off the Cluster."""


# -- about one machine -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProvisionVM(Action):
    """Have the machine made."""

    machine: str


@dataclass(frozen=True, slots=True)
class StartVM(Action):
    """Start a machine that stands still."""

    machine: str


@dataclass(frozen=True, slots=True)
class LabelNode(Action):
    """Give a node what kubelet may not give itself."""

    machine: str
    node: str


@dataclass(frozen=True, slots=True)
class ScrubBootstrapData(Action):
    """Take the secrets out of what the machine reads at its next start."""

    machine: str


@dataclass(frozen=True, slots=True)
class DeleteMachine(Action):
    """Give the machine up; its removal follows in steps."""

    machine: str


@dataclass(frozen=True, slots=True)
class CordonNode(Action):
    """Let no further pods come to the node."""

    machine: str
    node: str


@dataclass(frozen=True, slots=True)
class EvictPods(Action):
    """Ask pods to leave the node, as their disruption budgets allow."""

    machine: str
    pods: tuple[tuple[str, str], ...]  # (namespace, name)


@dataclass(frozen=True, slots=True)
class RemoveEtcdMember(Action):
    """Have the servers drop the machine's etcd member."""

    machine: str
    node: str


@dataclass(frozen=True, slots=True)
class DeleteVM(Action):
    """Have the machine removed from Harvester, with the disks it came with."""

    machine: str


@dataclass(frozen=True, slots=True)
class DeleteNode(Action):
    """Remove the Node and its password from the guest."""

    machine: str
    node: str


@dataclass(frozen=True, slots=True)
class RemoveMachineFinalizer(Action):
    """Take our finalizer off the Machine: nothing of it is left outside."""

    machine: str


_IN_WORDS = {
    "AddFinalizer": "putting Windrow's finalizer on the cluster",
    "CreateSecrets": "making the cluster's Secret",
    "RecordServiceAccount": "writing down the guest's account",
    "CreateServiceAccount": "making the guest's account on Harvester",
    "CreateMachine": "recording a new machine",
    "ElectInitServer": "choosing the first server",
    "MarkInitialized": "writing down that the cluster has started",
    "RecordGuestUID": "writing down which guest it is",
    "PublishKubeconfig": "writing the kubeconfig for people",
    "DeleteServiceAccount": "removing the guest's account on Harvester",
    "DeleteLoadBalancers": "deleting its load balancers on Harvester",
    "KeepLoadBalancers": "telling which load balancers stay",
    "DeleteSecrets": "removing the cluster's Secrets",
    "RemoveFinalizer": "taking Windrow's finalizer off the cluster",
    "ProvisionVM": "ordering the machine",
    "StartVM": "starting the machine",
    "LabelNode": "labelling the node",
    "ScrubBootstrapData": "taking the secrets out of the machine's cloud-init",
    "DeleteMachine": "giving the machine up",
    "CordonNode": "cordoning the node",
    "EvictPods": "asking pods to leave the node",
    "RemoveEtcdMember": "asking the servers to drop the etcd member",
    "DeleteVM": "removing the machine from Harvester",
    "DeleteNode": "removing the Node from the cluster",
    "RemoveMachineFinalizer": "taking Windrow's finalizer off the machine",
}


# -- what is not done --------------------------------------------------------------------------------------------


MAX_CLAUSE = 100


def first_clause(text: str) -> str:
    """The first clause of somebody else's explanation, for sentences that people read at 80 columns."""
    head = text.split("\n")[0]
    for mark in (". ", ": "):
        if len(head) > MAX_CLAUSE and mark in head[20:]:
            head = head[: head.index(mark, 20)]
    return head if len(head) <= MAX_CLAUSE else head[: MAX_CLAUSE - 1].rstrip() + "…"


@dataclass(frozen=True, slots=True)
class Wait:
    """What is being waited for, and what happens then. `machine` is "" for the cluster; `until` brings us back."""

    what: str
    then: str
    machine: str = ""
    until: datetime | None = None
