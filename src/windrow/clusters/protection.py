"""The finalizer on what a Cluster needs until it is gone: its credential Secrets, its Machines' and its HarvesterConfigs.

A namespace that is deleted loses all its objects at once, in any order, and takes no new ones. Without its credential a
Cluster there could not delete what it has on Harvester, and would wait for ever. So these objects stay until the Clusters
of their namespace that need them are gone, as a PersistentVolumeClaim stays while a Pod uses it.

That holds only while the namespace is being deleted. Where just the object is deleted, the finalizer goes at once:
a user who may delete a credential takes it away, or replaces it, while Clusters use it. A Cluster protects nothing in other
namespaces, whose end is not its own.

Between a Cluster's finalizer and those set because of it some milliseconds pass, in which a namespace may be deleted. What
is left if the manager ends: a finalizer too many, removed at the next start, or one too few, set then.
"""

from __future__ import annotations

from windrow.clusters.api import names
from windrow.clusters.api.kinds import HARVESTER_CONFIG
from windrow.clusters.api.machine import Machine
from windrow.clusters.api.manifest.machine_config import kind_of
from windrow.clusters.api.references import list_secret_references, parse_secret_reference
from windrow.clusters.context import ReconcileContext
from windrow.clusters.sources.users import UserIndex
from windrow.controller.controller import Controller
from windrow.controller.outcomes import SETTLED, Outcome
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.objects import (
    Raw,
    finalizers_of,
    is_deleting,
    is_dns_subdomain,
    mappings_at,
    namespace_of,
    nested,
    uid_of,
)
from windrow.kubernetes.resources import NAMESPACE, ObjectRef


def list_needed(cluster: Raw) -> frozenset[ObjectRef]:
    """What the Cluster needs of its own namespace, once it has the finalizer, without which it just ends."""
    if names.CLUSTER_FINALIZER not in finalizers_of(cluster):
        return frozenset()
    namespace = namespace_of(cluster)
    account = nested(cluster, "status", "guestServiceAccount", "credential", default="")
    endpoint = nested(cluster, "status", "controlPlaneEndpoint", "credential", default="")
    secrets = (_secret_of(one, namespace) for one in (account, endpoint, *list_secret_references(cluster)))
    pools = mappings_at(cluster, "spec", "rkeConfig", "machinePools")
    references = (pool.get("machineConfigRef") for pool in pools)
    named = [reference for reference in references if isinstance(reference, dict)]
    configs = (
        HARVESTER_CONFIG.ref(name_of_config, namespace)
        for config in named
        if kind_of(config) == HARVESTER_CONFIG.kind
        and is_dns_subdomain(name_of_config := str(config.get("name")))
    )
    return frozenset(configs).union(*secrets)


def list_needed_by_machine(machine: Machine) -> frozenset[ObjectRef]:
    """What the Machine needs of its own namespace: its credential may be one that its Cluster names no more."""
    return _secret_of(machine.credential, machine.namespace) if machine.has_finalizer else frozenset()


def _secret_of(credential: str, namespace: str) -> frozenset[ObjectRef]:
    ref = parse_secret_reference(credential)
    return frozenset({ref} if ref is not None and ref.namespace == namespace else ())


def needs_finalizer(*, is_needed: bool, is_deleting: bool, is_namespace_deleting: bool) -> bool:
    return is_needed and (is_namespace_deleting or not is_deleting)


class ProtectionController:
    """Sets and removes the finalizer. Its owner tells what is needed, all of it before `controller` runs."""

    def __init__(self, context: ReconcileContext) -> None:
        self._context = context
        self._used: UserIndex[ObjectRef] = UserIndex()
        self.controller: Controller[ObjectRef] = Controller(
            "protection", self.reconcile, context.clock, context.rng
        )

    def on_user(self, user: ObjectRef, needed: frozenset[ObjectRef]) -> None:
        """A Cluster or Machine needs just these objects from now on; none once it is gone."""
        begun, ended = self._used.update(user, needed)
        for ref in (*begun, *ended):
            self.controller.queue.add(ref)

    def on_object(self, ref: ObjectRef, finalizers: frozenset[str]) -> None:
        """An object that may be needed exists, or has changed."""
        if self._used.users_of(ref) or names.IN_USE_FINALIZER in finalizers:
            self.controller.queue.add(ref)

    async def reconcile(self, ref: ObjectRef) -> Outcome:
        raw = await self._context.api.find(ref)
        if raw is None:
            return SETTLED
        is_needed, is_held = bool(self._used.users_of(ref)), names.IN_USE_FINALIZER in finalizers_of(raw)
        is_wanted = needs_finalizer(
            is_needed=is_needed,
            is_deleting=is_deleting(raw),
            is_namespace_deleting=is_needed and is_deleting(raw) and await self._is_deleting(ref.namespace),
        )
        if is_wanted and not is_held and not is_deleting(raw):  # which takes no new finalizer
            await self._context.patch_finalizers(ref, uid_of(raw), add=names.IN_USE_FINALIZER)
        elif is_held and not is_wanted:
            await self._context.patch_finalizers(ref, uid_of(raw), drop=names.IN_USE_FINALIZER)
        return SETTLED

    async def _is_deleting(self, namespace: str) -> bool:
        """A manager that may not get Namespaces protects nothing: an object that cannot be deleted would be worse."""
        try:
            raw = await self._context.api.find(NAMESPACE.ref(namespace))
        except Forbidden:
            return False
        return raw is not None and is_deleting(raw)
