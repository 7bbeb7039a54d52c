"""The plan for a service with an address of its own. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from windrow.cloudprovider import names
from windrow.cloudprovider.services import words
from windrow.cloudprovider.services.actions import (
    ENSURED,
    ENSURING,
    HICCUP,
    Action,
    Amend,
    Mark,
    Plan,
    Reserve,
    Tell,
    cannot_ensure,
    refused,
    waited_in_vain,
    waiting,
    without_host,
)
from windrow.cloudprovider.services.announcement import plan_announcement
from windrow.cloudprovider.services.balancer_readings import Balancer
from windrow.cloudprovider.services.faults import find_fault
from windrow.cloudprovider.services.seeing import Policy, Seen, Unseen
from windrow.cloudprovider.services.service_readings import Interfaces, Service
from windrow.cloudprovider.services.strays import free_strays, release_strays
from windrow.cloudprovider.services.withdrawal import plan_withdrawal, withdraw

# What a plan waits for before it takes an address: that an earlier service's is given back.
STRAYS = "strays"
# And while it has one that Harvester says no to: whether that lasts.
HICCUPS = "another look at its address"


def plan_own_address(seen: Seen, policy: Policy) -> Plan:
    """The finalizer, the load balancer on Harvester, and its address to the service, each as soon as it can be."""
    if fault := find_fault(seen, policy):
        return replace(refused(fault), actions=plan_withdrawal(seen, policy))
    if seen.host is not None and seen.balancer is None:
        return without_host(seen.host, "ensure")
    if isinstance(seen.interfaces, Unseen) and seen.service.network and not seen.service.interface:
        return Plan(waits_for="the network map", until=seen.interfaces.until)
    if seen.balancer is None:
        if free_strays(seen) and not waited_in_vain(seen, STRAYS):
            return waiting(seen, STRAYS, "", release_strays(seen))  # the pool may have only one address
        return _plan_reservation(seen, policy)
    if seen.balancer.is_deleting:
        complaint = words.stuck(seen.balancer)
        return waiting(seen, "removal", complaint, plan_withdrawal(seen, policy))
    plan = _plan_upkeep(seen, seen.balancer, policy)
    # What a service before it left, last: it is no reason for this one to lack anything.
    return plan if plan.problem else replace(plan, actions=(*plan.actions, *release_strays(seen)))


def _plan_reservation(seen: Seen, policy: Policy) -> Plan:
    service = seen.service
    actions: list[Action] = []
    if not service.is_protected:
        actions.append(Mark("it is about to have a load balancer on Harvester", protects=True))
    actions.append(Reserve(policy.name_for(service), because="it has none"))
    actions.append(ENSURING)
    if policy.cluster == names.UNNAMED:
        actions.append(UNNAMED)
    if service.old_keys:
        actions.append(old_keys_ignored(service.old_keys))
    return waiting(seen, "allocation", words.slow(service), tuple(actions))


UNNAMED = Tell(
    "ClusterNameMissing",
    f"The cloud provider runs with the cluster name {names.UNNAMED!r}: IP pools for this cluster do not match, and "
    "clusters in one Harvester namespace may take each other's load balancers. Set --cluster-name (chart value "
    "global.cattle.clusterName) to the guest cluster's name",
    "Warning",
)


def old_keys_ignored(keys: tuple[str, ...]) -> Tell:
    """What is said of annotations that mean nothing any more."""
    return Tell(
        "IgnoredAnnotations",
        f"Without effect since v0.2.0: {', '.join(keys)}; traffic goes to Ready pods only, so use readiness and "
        "liveness probes of the pods instead, and remove the annotations",
        "Warning",
    )


def _plan_upkeep(seen: Seen, balancer: Balancer, policy: Policy) -> Plan:
    """The load balancer is there: what it says is brought to the service, and what the service says to it."""
    service = seen.service
    actions: list[Action] = []
    amend = _amend(service, balancer, policy)
    moves = balancer.moves
    if amend is not None and amend.pool is not None and seen.host is None:
        moves = replace(balancer, pool=amend.pool).moves
    addresses = () if moves else balancer.given
    mark = _mark_for_own(seen, addresses)
    if mark is not None:
        actions.append(mark)
    is_news = mark is not None and bool(mark.annotations.get(names.VIP_ADDRESSES))
    if is_news:
        actions.append(ENSURED)
    if addresses and (is_news or seen.has_new_wish):
        actions.extend(_other_than_wished(service, balancer))
    if seen.new_old_keys:
        actions.append(old_keys_ignored(seen.new_old_keys))
    if moves and not service.primary_label:
        # First the address off the network, then back into the pool.
        actions += withdraw(service, "another pool is asked for, so Harvester takes its address back")
    if amend is not None and seen.host is not None:
        return replace(without_host(seen.host, "ensure"), actions=tuple(actions))
    if amend is not None:
        actions.append(amend)
    if addresses:
        return plan_announcement(seen, addresses, tuple(actions))
    if balancer.refusal and _answer_is_due(seen, balancer, amend):
        return waiting(seen, _answer_after(balancer), words.slow(service), tuple(actions))
    if balancer.refusal and _may_be_a_hiccup(seen):
        return waiting(seen, HICCUPS, "", tuple(actions), HICCUP)
    if balancer.refusal:
        actions.extend(plan_withdrawal(seen, policy))
        problem = cannot_ensure(words.explain_refusal(service, balancer))
        waits_for = HICCUPS if seen.pause.what == HICCUPS else "allocation"
        return Plan(tuple(actions), problem=problem, waits_for=waits_for)
    return waiting(seen, "allocation", words.slow(service), tuple(actions))


def _may_be_a_hiccup(seen: Seen) -> bool:
    """Whether it had an address, and is refused one only just now."""
    if seen.service.addresses is None or seen.service.primary_label:
        return False
    since = seen.pause.since if seen.pause.what == HICCUPS else None
    return since is None or seen.now - since < HICCUP


def _answer_is_due(seen: Seen, balancer: Balancer, amend: Amend | None) -> bool:
    """Whether the refusal is older than our question. It stands in the load balancer until Harvester has tried again;
    where it does so with the same words, they count after a while."""
    if amend is not None and amend.pool is not None:
        return True
    asked = seen.pause.what == _answer_after(balancer) and not waited_in_vain(seen, seen.pause.what)
    return asked or balancer.is_refusal_outdated


def _answer_after(balancer: Balancer) -> str:
    return f"another answer than: {balancer.refusal}"


def _mark_for_own(seen: Seen, addresses: tuple[str, ...]) -> Mark | None:
    service = seen.service
    annotations: dict[str, str | None] = {}
    labels: dict[str, str | None] = {}
    if addresses:
        wanted = ",".join(addresses)
        if service.addresses != wanted:
            annotations[names.VIP_ADDRESSES] = wanted
        interface = _interface(seen)
        if interface and service.interface != interface:
            annotations[names.VIP_INTERFACE] = interface
        if service.primary_label:  # the Go program leaves an empty label, which says the same as none
            labels[names.PRIMARY_SERVICE] = None
    if not annotations and not labels and service.is_protected:
        return None
    because = "Harvester gave its address" if annotations else "it shares no address any more"
    if not annotations and not labels:
        because = "it has a load balancer on Harvester"
    return Mark(because, annotations, labels, protects=not service.is_protected)


def _interface(seen: Seen) -> str:
    if not seen.service.network or not isinstance(seen.interfaces, Interfaces):
        return ""
    return seen.interfaces.of.get(seen.service.network, "")


def _other_than_wished(service: Service, balancer: Balancer) -> list[Tell]:
    return [Tell("AddressNotAsWished", text, "Warning") for text in _unmet_wishes(service, balancer)]


def _unmet_wishes(service: Service, balancer: Balancer) -> Iterator[str]:
    wish, pool = service.wishes
    is_open = not wish or wish in names.ASKS_DHCP or wish in balancer.given
    if service.uses_dhcp:
        asks = ([] if is_open else [f"spec.loadBalancerIP asks for {wish}"]) + (
            [f"the annotation {names.IP_POOL} names the pool {pool}"] if pool else []
        )
        for ask in asks:
            yield f"{ask}, but in mode dhcp the DHCP server chooses the address; use mode pool"
    elif not is_open:
        found = ", ".join(balancer.given)
        yield (
            f"spec.loadBalancerIP asks for {wish}, and Harvester gave {found} from pool "
            f"{balancer.given_pool or 'none'}; an address is fixed by an IP pool of its own: create one with only "
            f"{wish} and name it in the annotation {names.IP_POOL}"
        )


def _amend(service: Service, balancer: Balancer, policy: Policy) -> Amend | None:
    annotations: dict[str, str | None] = {}
    said = balancer.annotations
    if said.get(names.LB_CLUSTER) != policy.cluster:
        annotations[names.LB_CLUSTER] = policy.cluster
    if said.get(names.MANAGEMENT_NETWORK, "") != policy.management_network:
        annotations[names.MANAGEMENT_NETWORK] = policy.management_network or None
    if service.network and names.FIXED_NETWORK not in said:
        annotations[names.FIXED_NETWORK] = service.network
    pool = _other_pool(service, balancer)
    in_use = _address_in_use(service, balancer)
    address = in_use if in_use and in_use != balancer.address else None
    if not annotations and pool is None and address is None:
        return None
    reasons = [
        *(f"annotation {key} differs" for key in annotations),
        *(
            [f"the service asks for {f'pool {pool}' if pool else 'no pool any more'}"]
            if pool is not None
            else []
        ),
        *([f"{address} is in use"] if address else []),
    ]
    return Amend(balancer, "; ".join(reasons), annotations, pool, address)


def _other_pool(service: Service, balancer: Balancer) -> str | None:
    """The pool to ask for instead; "" for any. Who has an address keeps it when the annotation goes, and so does an
    administrator's own choice that Harvester has not refused."""
    if service.uses_dhcp or service.pool == balancer.pool:
        return None
    gives_up = not balancer.given and balancer.refused_by == balancer.pool
    return service.pool if service.pool or gives_up else None


def _address_in_use(service: Service, balancer: Balancer) -> str:
    """The first of its addresses that kube-vip announces; "" while there is none, or another one still."""
    if balancer.mode == "dhcp":
        return service.ingress[0] if service.ingress and not service.primary_label else ""
    return next((one for one in service.ingress if one in balancer.given), "")
