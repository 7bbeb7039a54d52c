"""One look at one Cluster: everything the plan needs, read once, before anything is decided.

What changes often comes from caches that watches keep. Asked for each time are only: the preflight, until it has
passed; whether the account that is to be made for the guest is free; the pods of a node that is being emptied; and
what a deleted cluster's services have on Harvester, once its machines are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from windrow.bootstrap.access import GuestAccount
from windrow.bootstrap.intent import BadIntent
from windrow.catalogue.reading import read_named_kinds
from windrow.client.client import Client
from windrow.clusters import names
from windrow.clusters.desk import Desk
from windrow.clusters.endpoint import find_apis
from windrow.clusters.intents import find_distribution, find_revision, sample_intent, sample_specs
from windrow.clusters.kinds import CLUSTER
from windrow.clusters.leftovers import (
    Leftovers,
    balancer_labels,
    find_home,
    is_namesake,
    namesake_labels,
    read_balancer,
)
from windrow.clusters.reading import Cluster, read_cluster
from windrow.clusters.records import Machine
from windrow.clusters.registries import check_registries
from windrow.clusters.removal import wants_pods
from windrow.clusters.sealed import (
    CredentialMissing,
    Sealed,
    read_given_credential,
    read_guest_credential,
    read_published,
    read_secrets,
)
from windrow.clusters.seen import Guest, GuestAccess, MachineSeen, Pod, Seen, Shut
from windrow.clusters.standing import Account
from windrow.harvester.kinds import LOAD_BALANCER, VM
from windrow.kube.errors import Forbidden, KubeError, NotFound
from windrow.kube.objects import Raw, annotations_of, dig, is_deleting, name_of, namespace_of
from windrow.kube.refs import POD, SECRET, Kind, Ref
from windrow.machines.port import HARVESTER, InfrastructureUnknown, Problem, Sighting

# A guest that answers and does not tell its uid is asked again, with the next look that comes after this.
MEET_AGAIN = timedelta(minutes=10)


class Observer:
    """Reads. `look` is the only place where a plan's facts come from."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def look(self, key: Ref) -> Seen | None:
        """The Cluster `key` as it is now; None when there is none."""
        raw = self._desk.clusters.get(key)
        if raw is None:
            return None
        configs = await self._desk.configs.look(key.namespace, read_named_kinds(raw))
        reading = read_cluster(raw, configs, self._desk.configs.judge_kind)
        cluster = reading.cluster
        kept = self._desk.secrets.get(SECRET.ref(names.secrets_name(cluster.name), cluster.namespace))
        seen = Seen(
            now=self._desk.clock.now(),
            cluster=cluster,
            problems=reading.problems,
            machines=self._machines_of(cluster),
            secrets=read_secrets(kept, cluster.uid),
            access=self._access(cluster, kept),
            revisions=_revisions(cluster),
            shut=self._shut(cluster),
        )
        seen = self._with_guest(seen)
        if cluster.claimed and cluster.deleting is not None and not seen.machines:
            return replace(seen, leftovers=await self._look_for_leftovers(cluster))
        if _needs_preflight(seen, self._desk.memo.passed.get(cluster.uid)):
            seen = replace(seen, preflight=await self._check(seen))
            if not seen.has_failed_preflight:
                self._desk.memo.passed[cluster.uid] = cluster.generation
        return await self._with_pods(seen)

    # -- machines --------------------------------------------------------------------------------------------------

    def _machines_of(self, cluster: Cluster) -> tuple[MachineSeen, ...]:
        records = [
            record
            for record in self._desk.machines.values()
            if record.namespace == cluster.namespace and record.cluster_uid == cluster.uid
        ]
        records.sort(key=lambda record: (record.created, record.name))
        return tuple(self._machine(record) for record in records)

    def _machine(self, record: Machine) -> MachineSeen:
        sightings = self._desk.infrastructure.sightings()
        sighting: Sighting | None = sightings.get(record.uid)
        if sighting is not None and not sightings.is_synced:
            sighting = Sighting(
                record.uid, record.name, "unknown", because="Harvester cannot be watched right now"
            )
        return MachineSeen(record, sighting, removal_ordered=self._desk.memo.removals.get(record.uid))

    # -- what the guest had made -----------------------------------------------------------------------------------

    async def _look_for_leftovers(self, cluster: Cluster) -> Leftovers | None:
        """One list, as long as nothing is left; what is not certain is unknown, and then nothing is deleted."""
        home = find_home(cluster)
        if home is None:
            return None
        try:
            return await self._leftovers_at(home, cluster)
        except CredentialMissing as error:
            return Leftovers(unknown=f"{error.fact}; {error.cure}")
        except Forbidden as error:
            what = "list and delete load balancers, and list virtual machines"
            return Leftovers(unknown=f"{error}; let {home.credential} {what} in namespace {home.namespace}")
        except KubeError as error:
            return Leftovers(unknown=str(error))

    async def _leftovers_at(self, home: Account, cluster: Cluster) -> Leftovers:
        client = self._desk.harvesters.get_client(home.credential)
        labelled = await _list_known(client, LOAD_BALANCER, home.namespace, balancer_labels(cluster.name))
        read = (read_balancer(raw, cluster.name, home.namespace) for raw in labelled)
        balancers = tuple(sorted(filter(None, read), key=lambda one: one.name))
        if not balancers:
            return Leftovers()  # whether it is the right Harvester is asked before the account goes
        await self._desk.harvesters.reach(home)
        vms = [
            vm
            for labels in namesake_labels(cluster.name)
            for vm in await client.list(VM, home.namespace, labels)
        ]
        namesakes = sorted(f"{namespace_of(vm)}/{name_of(vm)}" for vm in vms if is_namesake(vm, cluster))
        return Leftovers(balancers, tuple(namesakes))

    # -- guest -----------------------------------------------------------------------------------------------------

    def _with_guest(self, seen: Seen) -> Seen:
        link = self._desk.guests.find(seen.cluster.uid)
        if link is None:
            return replace(seen, guest=Guest(published=self._published(seen.cluster)))
        guest = replace(link.look(), published=self._published(seen.cluster))
        nodes = {node.machine_uid: node for node in guest.nodes if node.machine_uid}
        # A node that lost its label is still the one that was recorded; taken for deleted, it would be replaced.
        unlabelled = {node.uid: node for node in guest.nodes if not node.machine_uid}
        for machine in seen.machines:
            known = unlabelled.get(dig(machine.record.status, "nodeRef", "uid", default=""))
            if known is not None:
                nodes.setdefault(machine.record.uid, known)
        if not guest.answers:
            # What the guest said last tells which nodes there are, but not how they are now.
            nodes = {uid: replace(node, ready=False, because=guest.because) for uid, node in nodes.items()}
        machines = tuple(replace(machine, node=nodes.get(machine.record.uid)) for machine in seen.machines)
        return replace(seen, guest=guest, machines=machines, unmet=guest.answers and self._is_unmet(seen))

    def _is_unmet(self, seen: Seen) -> bool:
        if not seen.standing.initialized or seen.standing.guest_uid:
            return False
        asked = self._desk.memo.met.get(seen.cluster.uid)
        return asked is None or seen.now >= asked + MEET_AGAIN

    def _published(self, cluster: Cluster) -> str:
        sealed = self._desk.secrets.get(SECRET.ref(names.kubeconfig_name(cluster.name), cluster.namespace))
        return read_published(sealed, cluster, self._desk.clock.now())

    async def _with_pods(self, seen: Seen) -> Seen:
        link = self._desk.guests.find(seen.cluster.uid)
        draining = [machine for machine in seen.leaving if wants_pods(machine, seen)]
        if link is None or not draining:
            return seen
        pods = await asyncio.gather(*(_pods_on(link.client, machine) for machine in draining))
        found = {machine.name: tuple(some) for machine, some in zip(draining, pods, strict=True)}
        machines = tuple(replace(machine, pods=found.get(machine.name, ())) for machine in seen.machines)
        return replace(seen, machines=machines)

    # -- the guest's credential --------------------------------------------------------------------------------------

    def _access(self, cluster: Cluster, kept: Sealed | None) -> GuestAccess:
        if cluster.cloud_config_secret:
            namespace, _, name = cluster.cloud_config_secret.partition(":")
            given = read_given_credential(self._desk.secrets.get(SECRET.ref(name, namespace)), cluster)
            if given is not None:
                return GuestAccess("ready", given)
        if cluster.cloud_provider != "harvester" and not cluster.cloud_config_secret:
            return GuestAccess("unneeded")
        made = read_guest_credential(kept, cluster)
        if made is not None:
            return GuestAccess("ready", made)
        return GuestAccess("missing" if cluster.standing.account is None else "ordered")

    def _shut(self, cluster: Cluster) -> tuple[Shut, ...] | None:
        trials, credentials = self._desk.trials, credentials_of(cluster)
        if not all(trials.was_tried(credential) for credential in credentials):
            return None
        return tuple(shut for credential in credentials if (shut := trials.find_shut(credential)))

    # -- preflight -------------------------------------------------------------------------------------------------

    async def _check(self, seen: Seen) -> tuple[Problem, ...]:
        """Everything that is wrong, all at once, before anything is made."""
        cluster = seen.cluster
        problems = _check_configuration(cluster, seen.problems)
        problems += await check_registries(self._desk.api, cluster.namespace, cluster.registries)
        usable = set()
        on_harvester = [pool for pool in cluster.pools if pool.driver == HARVESTER]
        for credential in sorted({pool.credential for pool in on_harvester if ":" in pool.credential}):
            try:
                self._desk.harvesters.get_access(credential)
                usable.add(credential)
            except CredentialMissing as error:
                problems.append(Problem(error.fact, error.cure, "spec.cloudCredentialSecretName"))
        pools = [
            pool
            for pool in cluster.pools
            if pool.options is not None and (pool.credential in usable or pool not in on_harvester)
        ]
        specs = [spec for pool in pools for spec in sample_specs(cluster, pool)]
        try:
            problems += await self._desk.infrastructure.check(specs)
            if seen.access.state == "missing" and cluster.credential in usable:
                problems += await self._check_account(cluster)
        except InfrastructureUnknown as error:
            problems.append(Problem(error.fact, error.cure, "spec.cloudCredentialSecretName"))
        except KubeError as error:
            cure = "make Harvester reachable, with a credential that may read there"
            problems.append(Problem(str(error), cure, "spec.cloudCredentialSecretName"))
        return tuple(dict.fromkeys(problems))

    async def _check_account(self, cluster: Cluster) -> list[Problem]:
        """Whether the name of the guest's account is free, or its objects ours from an earlier attempt."""
        account = GuestAccount(cluster.name, cluster.vm_namespace, cluster.uid)
        client = self._desk.harvesters.get_client(cluster.credential)
        found = await asyncio.gather(*(client.find(ref) for ref in account.refs))
        taken = [
            ref for ref, raw in zip(account.refs, found, strict=True) if raw and not account.is_mine(raw)
        ]
        if not taken:
            return []
        fact = f"{taken[0]} on Harvester belongs to somebody else, perhaps to another cluster called {cluster.name}"
        cure = (
            "rename the cluster, choose another vmNamespace, or name a Secret with the guest's credential in "
            "cloud-provider-config"
        )
        return [Problem(fact, cure, "metadata.name")]


def credentials_of(cluster: Cluster) -> list[str]:
    """Every credential for a Harvester that it names, `namespace:name` each."""
    named = {pool.credential for pool in cluster.pools if pool.driver == HARVESTER}
    if named or not cluster.pools or cluster.cloud_provider == "harvester":
        named.add(cluster.credential)
    return sorted(credential for credential in named if ":" in credential)


def _needs_preflight(seen: Seen, passed: int | None) -> bool:
    if seen.cluster.deleting is not None or seen.standing.initialized:
        return False
    generation = seen.cluster.generation
    return passed != generation and not (
        seen.standing.checked and seen.standing.raw.get("observedGeneration") == generation
    )


def _check_configuration(cluster: Cluster, known: tuple[Problem, ...]) -> list[Problem]:
    found: list[Problem] = []
    if any(problem.field == "spec.kubernetesVersion" for problem in known):
        return found  # without a version there is no distribution to ask
    for pool in cluster.pools:
        try:
            distribution = find_distribution(cluster.version)
            warnings = distribution.check(sample_intent(cluster, pool, cluster.version))
            found += [_warning(text) for text in warnings]
        except BadIntent as error:
            found.append(Problem(error.fact, error.cure, "spec.rkeConfig"))
    return found


def _warning(text: str) -> Problem:
    fact, _, cure = text.rpartition("; ")
    return Problem(fact or cure, cure if fact else "", "spec.rkeConfig", "warning")


def _revisions(cluster: Cluster) -> Mapping[str, str]:
    version = cluster.standing.version or cluster.version
    return {pool.name: find_revision(cluster, pool, version) for pool in cluster.pools}


async def _list_known(client: Client, kind: Kind, namespace: str, labels: str) -> list[Raw]:
    """Nothing where the kind itself is not known there."""
    try:
        return await client.list(kind, namespace, labels)
    except NotFound:
        return []


async def _pods_on(client: Client, machine: MachineSeen) -> list[Pod]:
    """The pods that must leave the node: not those that belong to it (DaemonSets, mirrors) or have ended."""
    if machine.node is None:
        return []
    pods = await client.list(POD, fields=f"spec.nodeName={machine.node.name}")
    return [Pod(namespace_of(raw), name_of(raw), is_deleting(raw)) for raw in pods if _must_leave(raw)]


def _must_leave(raw: Raw) -> bool:
    owners = dig(raw, "metadata", "ownerReferences", default=())
    if any(owner.get("kind") == "DaemonSet" for owner in owners) or names.MIRROR_POD in annotations_of(raw):
        return False
    return dig(raw, "status", "phase") not in ("Succeeded", "Failed")


def addresses_of(seen: Seen) -> tuple[str, ...]:
    """Where the link to the guest shall lead."""
    return find_apis(seen)


def config_clusters(kind: str, config: Raw, clusters: list[Raw]) -> list[Ref]:
    """The Clusters that name this machine config."""
    found = []
    for raw in clusters:
        pools = dig(raw, "spec", "rkeConfig", "machinePools", default=())
        named = any(dig(pool, "machineConfigRef", "name") == name_of(config) for pool in pools)
        if named and kind in read_named_kinds(raw) and namespace_of(raw) == namespace_of(config):
            found.append(CLUSTER.ref(name_of(raw), namespace_of(raw)))
    return found
