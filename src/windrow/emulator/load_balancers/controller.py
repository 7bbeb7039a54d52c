"""LoadBalancer controller: allocates an address, creates the Service of VM load balancers, releases both.

One reconcile reads once and executes every step that it can; the Ready condition has the reason for the rest (reference 02 §4.3).
Status is written by ordinary updates, for the kind has no status subresource, and only when it differs.
"""

from __future__ import annotations

from datetime import timedelta

from windrow.emulator import kinds
from windrow.emulator.delays import Delays, ScaledClock
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.controller import Backoff
from windrow.emulator.kit.edits import add_finalizers, remove_finalizer
from windrow.emulator.kit.listers import Key, key_of
from windrow.emulator.kit.step_timers import StepTimers
from windrow.emulator.load_balancers import names
from windrow.emulator.load_balancers.ip_pools.allocation import DUPLICATE
from windrow.emulator.load_balancers.ip_pools.controller import IPPoolController
from windrow.emulator.load_balancers.ip_pools.selection import requirement_of, select_pool
from windrow.emulator.load_balancers.readiness import (
    FIRST_RETRY_S,
    LAST_RETRY_S,
    AwaitChange,
    Failed,
    NotReady,
    RetrySoon,
    set_ready,
)
from windrow.emulator.load_balancers.services import REQUEST_DHCP
from windrow.emulator.load_balancers.validation import is_for_cluster
from windrow.emulator.load_balancers.vm_frontends import VmFrontends
from windrow.emulator.release import Release
from windrow.kubernetes.objects import Raw, finalizers_of, is_deleting, nested, uid_of
from windrow.kubernetes.resources import ObjectRef, ref_of

SEEN, ADDRESS, REMOVAL = "seen", "address", "removal"


class LoadBalancerController:
    """One reconcile per LoadBalancer."""

    def __init__(
        self,
        client: AdminClient,
        pools: IPPoolController,
        frontends: VmFrontends,
        clock: ScaledClock,
        delays: Delays,
        release: Release,
    ) -> None:
        self._client = client
        self._pools = pools
        self._frontends = frontends
        self._clock = clock
        self._delays = delays
        self._release = release
        self._timers = StepTimers(clock)
        self._backoff = Backoff(clock, FIRST_RETRY_S, LAST_RETRY_S)

    async def reconcile(self, key: Key) -> timedelta | None:
        balancer = await self._client.find(kinds.LOAD_BALANCER.ref(key[1], key[0]))
        if balancer is None:
            self._backoff.forget(key)
            return None
        if is_deleting(balancer):
            return await self._remove(balancer)
        # The finalizer is added first, by a write of its own: a client's next write without a read gets a conflict.
        if due := self._timers.due(uid_of(balancer), SEEN, self._delays.balancer_controller):
            return due
        if names.BALANCER_FINALIZER not in finalizers_of(balancer):
            await self._client.mutate(_ref(balancer), add_finalizers(names.BALANCER_FINALIZER))
        if self._wants_address(balancer) and (
            due := self._timers.due(uid_of(balancer), ADDRESS, self._delays.balancer_address)
        ):
            return due
        return await self._ensure(balancer)

    async def _ensure(self, balancer: Raw) -> timedelta | None:
        """Address and Service as far as possible, then the status."""
        status: Raw = {**(balancer.get("status") or {})}
        try:
            await self._ensure_address(balancer, status)
            if not is_for_cluster(balancer):
                await self._frontends.ensure({**balancer, "status": status}, status)
        except NotReady as error:
            await self._update_status(balancer, status, "False", str(error))
            match error:
                case RetrySoon():
                    return self._clock.after(self._delays.balancer_retry)
                case AwaitChange():
                    return None
                case _:
                    return self._backoff.next(key_of(balancer))
        self._backoff.forget(key_of(balancer))
        await self._update_status(balancer, status, "True", "")
        return None

    async def _update_status(self, balancer: Raw, status: Raw, truth: str, message: str) -> None:
        """Write the controller's fields. The address of a guest cluster's LoadBalancer is written by its cloud provider."""
        now = self._clock.now()
        fields = ["allocatedAddress"]
        if not is_for_cluster(balancer):
            fields += ["address", "backendServers"]

        def edit(raw: Raw) -> None:
            kept = raw.setdefault("status", {})
            for field in fields:
                if status.get(field):
                    kept[field] = status[field]
                else:
                    kept.pop(field, None)
            set_ready(raw, truth, message, now)

        await self._client.mutate(_ref(balancer), edit, uid=uid_of(balancer))

    # --- address ----------------------------------------------------------------------------------------------------

    def _wants_address(self, balancer: Raw) -> bool:
        if nested(balancer, "spec", "ipam") == "dhcp":
            return bool(nested(balancer, "status", "allocatedAddress", "ip") != REQUEST_DHCP)
        return not nested(balancer, "status", "allocatedAddress", "ipPool")

    async def _ensure_address(self, balancer: Raw, status: Raw) -> None:
        if nested(balancer, "spec", "ipam") == "dhcp":
            if self._wants_address(balancer):
                status["allocatedAddress"] = {"ip": REQUEST_DHCP}
            return
        held = nested(balancer, "status", "allocatedAddress", "ipPool", default="")
        requested = nested(balancer, "spec", "ipPool", default="")
        if held and requested and held != requested:
            await self._change_pool(balancer, held)
            status.pop("allocatedAddress", None)
            self._timers.restart(uid_of(balancer), ADDRESS)
        elif not held:
            status["allocatedAddress"] = await self._allocate(balancer)

    async def _change_pool(self, balancer: Raw, held: str) -> None:
        """Release the old address; the write of that triggers the next reconcile, which allocates the new one."""
        address = nested(balancer, "status", "allocatedAddress", "ip")
        try:
            await self._pools.release(held, _holder(balancer))
        except Failed as error:
            requested = nested(balancer, "spec", "ipPool")
            raise Failed(f"fail to release ip {address} to pool {requested}, error: {error}") from error

    async def _allocate(self, balancer: Raw) -> Raw:
        pool = nested(balancer, "spec", "ipPool", default="") or await self._select(balancer)
        try:
            allocation = await self._pools.allocate(pool, _holder(balancer))
        except Failed as error:
            if DUPLICATE in str(error):
                await self._pools.release(pool, _holder(balancer))
            raise
        return {
            "ipPool": pool,
            "ip": allocation.address,
            "mask": allocation.mask,
            "gateway": allocation.gateway,
        }

    async def _select(self, balancer: Raw) -> str:
        wanted = requirement_of(balancer)
        pools = await self._client.list(kinds.IP_POOL)
        found = select_pool(pools, wanted)
        if found is None and is_for_cluster(balancer) and self._release.matches_loosely:
            found = select_pool(pools, wanted, loosely=True)
        if found is None:
            raise RetrySoon(f"no matched IPPool with requirement {wanted}")
        return str(found["metadata"]["name"])

    # --- removal ----------------------------------------------------------------------------------------------------

    async def _remove(self, balancer: Raw) -> timedelta | None:
        if names.BALANCER_FINALIZER not in finalizers_of(balancer):
            return None
        if due := self._timers.due(uid_of(balancer), REMOVAL, self._delays.balancer_removal):
            return due
        pool = nested(balancer, "status", "allocatedAddress", "ipPool", default="")
        # As shipped: with `spec.ipam` unset an address is allocated from a pool and never released.
        if nested(balancer, "spec", "ipam") == "pool" and pool:
            try:
                await self._pools.release(pool, _holder(balancer))
            except Failed:
                return self._backoff.next(key_of(balancer))
        if not is_for_cluster(balancer):
            await self._frontends.remove(balancer)
        await self._client.mutate(_ref(balancer), remove_finalizer(names.BALANCER_FINALIZER))
        self._timers.forget(uid_of(balancer))
        self._backoff.forget(key_of(balancer))
        return None


def _ref(balancer: Raw) -> ObjectRef:
    return ref_of(kinds.LOAD_BALANCER, balancer)


def _holder(balancer: Raw) -> str:
    return "/".join(key_of(balancer))
