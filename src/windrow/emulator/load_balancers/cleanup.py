"""Deletion of a guest cluster's LoadBalancers together with its VMs (Harvester 1.8; reference 02 §4.8)."""

from __future__ import annotations

from windrow.emulator import kinds
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.load_balancers import names
from windrow.emulator.load_balancers.release import Release
from windrow.emulator.load_balancers.validation import is_being_removed, is_for_cluster, is_guest_of
from windrow.kubernetes.objects import Raw, is_deleting, labels_of, namespace_of


class GuestClusterCleanup:
    """Handler of the load balancer finalizer on VirtualMachines."""

    def __init__(self, client: AdminClient, release: Release) -> None:
        self._client = client
        self._release = release

    async def on_vm_removed(self, vm: Raw) -> None:
        """Delete the LoadBalancers of the VM's guest cluster if the whole cluster is removed. May be repeated."""
        cluster = labels_of(vm).get(names.MACHINE_CLUSTER, "")
        if (
            not self._release.deletes_with_guest_cluster
            or not cluster
            or not is_guest_of(vm, cluster)
            or not is_being_removed(vm)
        ):
            return
        found, _ = await self._client.list_page(kinds.LOAD_BALANCER)
        for balancer in found:
            if (
                namespace_of(balancer) == namespace_of(vm)
                and labels_of(balancer).get(names.BALANCER_CLUSTER) == cluster
                and is_for_cluster(balancer)
                and not is_deleting(balancer)
            ):
                await self._client.delete(kinds.LOAD_BALANCER, balancer)
