"""Plans that give addresses back: of a removed Service, of earlier Services of its name, and of an address lost. Pure.

`plan_removal` deletes the LoadBalancers of a service that is deleted, or wants none any more; but of one that has another
type now and was announced only once its annotations are gone, because kube-vip goes on answering for it. `delete_orphans` deletes
those of earlier services of its name. While a request to create one may be carried out yet (`harvester/unanswered`), the
finalizer stays, since Harvester is asked only once whether nothing is left. `plan_withdrawal` removes an address from a
service for which it is not reserved any more: its LoadBalancer was deleted by hand and no other one can be created, its
pool was changed, or its primary lost the address. Such an address may be allocated to another service at any time, and
then two machines would answer for it. While a new LoadBalancer is only being created, the address stays: Harvester
allocates the same one again.
"""

from __future__ import annotations

from windrow.cloudprovider import names
from windrow.cloudprovider.services.actions import (
    DELETED,
    DELETING,
    GRACE,
    Action,
    ClearStatus,
    ConfirmDeleted,
    DeleteLoadBalancer,
    EmitEvent,
    Entries,
    PatchService,
    Plan,
    RemoveFinalizer,
    host_unavailable,
    waiting,
)
from windrow.cloudprovider.services.families import own_load_balancers, plan_families
from windrow.cloudprovider.services.problems import creation_unanswered, deletion_timeout, kept_by_kube_vip
from windrow.cloudprovider.services.readings import LoadBalancer, Service
from windrow.cloudprovider.services.sharing import primary_of
from windrow.cloudprovider.services.state import ServiceState
from windrow.harvester.resources import LOAD_BALANCER
from windrow.harvester.unanswered import plan_end
from windrow.kubernetes.kubectl import ON_HARVESTER, render_delete

# What a plan waits for while a creation may be carried out though Harvester has no load balancer.
CREATION = "the request to expire"


def deletable_orphans(state: ServiceState) -> tuple[LoadBalancer, ...]:
    """The orphans that may be deleted. One whose address secondaries still show stays until they have the new one,
    unless there is no new one while it stays."""
    if state.load_balancer is not None and state.load_balancer.refusal:
        return state.orphans
    shown = {address for one in state.users for address in one.assigned}
    return tuple(one for one in state.orphans if one.is_deleting or not shown & set(one.allocated))


def delete_orphans(state: ServiceState) -> tuple[DeleteLoadBalancer, ...]:
    if state.host is not None:
        return ()
    return tuple(
        DeleteLoadBalancer(one, because="it is of an earlier service of this name, with another UID")
        for one in deletable_orphans(state)
        if not one.is_deleting
    )


def plan_withdrawal(state: ServiceState) -> tuple[Action, ...]:
    """Remove an address that is not reserved for the service any more, and set the one that is."""
    service, balancer = state.service, state.load_balancer
    if not service.has_finalizer:
        return ()
    if service.primary_label:
        return _follow_holder(state)
    if state.host is not None:
        return ()
    if balancer is None:
        off = withdraw(service, "its load balancer is gone")
        return (ConfirmDeleted(state.settings.name_for(service)), *off) if off else ()
    if not state.owns_load_balancer:
        return ()
    if balancer.has_released_address or balancer.changes_pool:
        return withdraw(service, "Harvester takes its address back")
    if not balancer.allocated:
        is_lost = balancer.refusal and not balancer.is_reallocating
        return withdraw(service, "Harvester refuses it an address") if is_lost else ()
    wanted = ",".join(plan_families(state, balancer.allocated).addresses)
    if service.addresses == wanted or balancer.is_deleting:
        return ()
    if not wanted:
        if set(service.ingress) & set(balancer.allocated):
            return ()  # what it shows is reserved for it, though it cannot be announced by its families
        return withdraw(service, "Harvester gave it another address, which cannot be announced now")
    return (PatchService("Harvester holds this address for it", {names.VIP_ADDRESSES: wanted}),)


def _follow_holder(state: ServiceState) -> tuple[Action, ...]:
    """A service that shows the address of another one shows its present address, whatever it requests itself."""
    service, holder = state.service, state.holder
    if holder is None:
        return ()
    balancer = state.load_balancer
    is_refused = balancer is not None and not balancer.allocated and balancer.refusal
    if holder.is_deleting and is_refused and not service.primary:
        # Otherwise each waits for the other: the only free address may be the one that the holder cannot give back.
        because = f"{holder.title} is being deleted, and may leave its address to it"
        return withdraw(service, because, leave_shared=True)
    wanted = ",".join(holder.ingress)
    # The label alone gives no address: any user may write it.
    shares = bool(service.addresses) or primary_of(service) == (holder.namespace, holder.name)
    if wanted and shares and service.addresses != wanted:
        return (PatchService(f"it shows the address of {holder.title}", {names.VIP_ADDRESSES: wanted}),)
    if not wanted and not state.is_reserved:
        return withdraw(service, f"{holder.title} has no address any more")
    return ()


def withdraw(service: Service, because: str, *, leave_shared: bool = False) -> tuple[Action, ...]:
    """Take its address off annotation and status, and the label of a shared address if it is to `leave_shared`."""
    if service.addresses == names.NO_ADDRESS and not leave_shared:
        return ()  # done already; what kube-vip may write after that stays
    if service.addresses is None and not service.may_be_announced and not leave_shared:
        return ()
    labels: dict[str, str | None] = {names.PRIMARY_SERVICE: None} if leave_shared else {}
    # The annotation last, because it shows that this is to be done.
    clear = (ClearStatus(because),) if service.ingress else ()
    return (*clear, PatchService(because, {names.VIP_ADDRESSES: names.NO_ADDRESS}, labels))


def plan_removal(state: ServiceState) -> Plan:
    """Delete its LoadBalancers, then remove our annotations from the service, and last the finalizer.

    For a service that has any of these (`needs_removal`).
    """
    service = state.service
    if state.users:
        users = " ".join(one.title for one in state.users)
        problem = (
            f"failed to delete load balancer: could not delete load balancer for service {service.title}: "
            f"service {service.title} is still used by other services [{users}]; delete these, or remove their "
            f"annotation {names.PRIMARY_SERVICE}, first"
        )
        return waiting(state, "users", problem, timeout=GRACE)
    if state.host is not None:
        return host_unavailable(state.host, "delete")
    stays = not service.is_deleting and not state.is_gone
    own = own_load_balancers(state)
    reserved = tuple(address for one in own for address in one.reserved)
    if stays and not service.is_load_balancer and service.vip_keys and reserved:
        clear = (ClearStatus("it is no load balancer any more"),) if service.ingress else ()
        return waiting(state, "kube-vip", kept_by_kube_vip(service, reserved), clear, GRACE)
    has_other_finalizer = _has_other_finalizer(service) and not state.is_gone
    actions: list[Action] = []
    keeps_object = stays or has_other_finalizer
    annotations: Entries = _own_annotations(service) if keeps_object else {}
    has_label = keeps_object and service.primary_label is not None
    labels: Entries = {names.PRIMARY_SERVICE: None} if has_label else {}
    off = PatchService("it is no load balancer of ours any more", annotations, labels)
    to_delete = [*own, *state.orphans]
    is_other_class = stays and bool(service.load_balancer_class)  # the finalizer is another controller's then
    end = None if is_other_class else state.may_be_made_until
    # Where the name is another owner's, a creation is refused.
    is_taken = state.load_balancer is not None and (state.second is not None or not service.second_pool)
    awaits_creation = not is_taken and plan_end(end, state.now) == "wait"
    if to_delete or awaits_creation:
        # The announcement ends before the address goes back into the pool, whatever keeps us from the finalizer then.
        if annotations or labels:
            actions.append(off)
        elif not state.is_gone and service.is_load_balancer and service.assigned:
            actions.append(PatchService("it is being deleted", {names.VIP_ADDRESSES: names.NO_ADDRESS}))
        if has_other_finalizer and service.ingress:
            because = "it is being deleted, and kube-vip announces it as long as it is there"
            actions.append(ClearStatus(because))
    if to_delete:
        because = off.because if stays else "it is being deleted"
        actions += [DeleteLoadBalancer(one, because) for one in to_delete if not one.is_deleting]
        if any(not one.is_deleting for one in own):
            actions.append(DELETING)  # after the DELETE, so that one that fails emits it once
        return waiting(state, "removal", deletion_timeout(to_delete[0]), tuple(actions))
    if awaits_creation:
        problem = creation_unanswered(f"{state.settings.namespace}/{state.settings.name_for(service)}")
        return Plan(tuple(actions), problem, CREATION, end)
    if is_other_class:
        return Plan((off,) if annotations or labels else ())
    if (stays or has_other_finalizer) and service.ingress:
        actions.append(ClearStatus("it is no load balancer any more"))
    # For a secondary, too: it may have had a LoadBalancer before, and its label proves nothing.
    name = state.settings.name_for(service)
    if service.second_pool:
        actions.append(ConfirmDeleted(state.settings.second_name_for(service)))
    because, left = "nothing is left of it on Harvester", _report_left(state)
    if left:
        because = "no load balancer of this cluster name is left on Harvester"
    return Plan((*actions, RemoveFinalizer(because, annotations, labels, load_balancer=name), *left, DELETED))


def plan_annotation_removal(service: Service) -> Plan:
    """For a service that never had a load balancer: our annotations go, or kube-vip would pass it over for another controller."""
    return Plan((PatchService("it is no load balancer of ours any more", _own_annotations(service)),))


def _report_left(state: ServiceState) -> tuple[EmitEvent, ...]:
    """The warning about a LoadBalancer under another cluster name, which stays: it may be that of a copy."""
    other = state.other_name
    if other is None:
        return ()
    by_hand = render_delete(LOAD_BALANCER.ref(other.name, other.namespace), kubeconfig=ON_HARVESTER)
    return (
        EmitEvent(
            "LoadBalancerLeft",
            f"LoadBalancer {other.namespace}/{other.name} on Harvester was created for this service under the cluster "
            f"name {other.owner.cluster!r} and stays, with {', '.join(other.allocated) or 'no address'}; if no cluster of that "
            f"name uses it, on Harvester: {by_hand}",
            "Warning",
        ),
    )


def _has_other_finalizer(service: Service) -> bool:
    """Whether another finalizer keeps it after ours is removed: it would show an address that is free."""
    return service.is_deleting and any(one != names.FINALIZER for one in service.finalizers)


def _own_annotations(service: Service) -> dict[str, str | None]:
    """The annotations that we and kube-vip wrote. With a class kube-vip may still announce it, and keeps its own.

    While the type is LoadBalancer the addresses are emptied, for kube-vip keeps an address whose annotation is removed.
    """
    found: dict[str, str | None] = {}
    if service.wants_load_balancer:
        if service.addresses != names.NO_ADDRESS:
            found[names.VIP_ADDRESSES] = names.NO_ADDRESS
    elif service.addresses is not None:
        found[names.VIP_ADDRESSES] = None
    if service.primary_label and service.lease is not None:
        found[names.VIP_LEASE] = None
    if service.awaits_address:
        found |= {names.VIP_IGNORE: None, names.AWAITS_ADDRESS: None}
    if service.interface is not None:
        found[names.VIP_INTERFACE] = None
    if not service.load_balancer_class:
        found.update(dict.fromkeys(service.vip_keys))
    return found
