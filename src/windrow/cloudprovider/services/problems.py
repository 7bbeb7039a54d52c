"""Problems of a Service, each as a sentence with a hint: what is wrong with it before any request to Harvester, why
Harvester refused or failed, and what takes too long. Pure."""

from __future__ import annotations

import re

from windrow.cloudprovider import names
from windrow.cloudprovider.services.actions import WAIT_TIMEOUT
from windrow.cloudprovider.services.readings import LoadBalancer, Service, family_of
from windrow.cloudprovider.services.state import ServiceState, Unavailable
from windrow.core.text import join_some
from windrow.harvester.names import MACVLAN, MACVLAN_MISSING, is_label_value
from windrow.harvester.problems import MACVLAN_CURE
from windrow.harvester.unanswered import describe_expiry
from windrow.kubernetes.errors import AdmissionDenied, Forbidden, Invalid, KubeError, Unauthorized
from windrow.kubernetes.kubectl import render_kubectl
from windrow.kubernetes.objects import is_dns_subdomain

MODES = ("pool", "dhcp")
# Of a network, with its namespace: NAMESPACE/NAME.
LONGEST_NAME = 317
NODES_NAMED = 3


def find_problem(state: ServiceState) -> str:
    """The first problem of the service, with a hint; "" when it is valid."""
    service = state.service
    if service.mode not in MODES:
        return (
            f"annotation {names.IPAM} is {service.ipam!r}, which is not known; write 'pool' (an address from an IP "
            "pool of Harvester) or 'dhcp'"
        )
    name = state.settings.name_for(service)
    if not is_dns_subdomain(name) or not is_label_value(state.settings.cluster):
        return (
            f"the cluster name {state.settings.cluster!r} cannot be part of an object's name on Harvester ({name}), or not its "
            "label; set --cluster-name to the guest cluster's name: lower-case letters, digits and dashes, 63 at most"
        )
    return (
        _find_long_annotation(service)
        or _find_pool_problem(service)
        or _find_family_problem(service)
        or _find_other_owner(state)
        or find_immutable_change(service, state.load_balancer)
        or _find_missing_interface(state)
    )


def _find_long_annotation(service: Service) -> str:
    """What is copied to the LoadBalancer and cannot be the name of anything; all its annotations have 256 KiB."""
    copied = {
        names.NETWORK: service.network,
        names.PROJECT: service.project,
        names.NAMESPACE: service.project_namespace,
        names.IP_POOL: max(service.pool, service.second_pool, key=len),
    }
    return next(
        (
            f"annotation {key} has {len(text)} characters, and no name on Harvester has as many; write {LONGEST_NAME} at most"
            for key, text in copied.items()
            if len(text) > LONGEST_NAME
        ),
        "",
    )


def _find_other_owner(state: ServiceState) -> str:
    """The other owner of the LoadBalancer of this name; "" when it is ours, or does not exist."""
    balancer = state.load_balancer
    return "" if balancer is None or state.owns_load_balancer else other_owner(state, balancer)


def _find_pool_problem(service: Service) -> str:
    """What cannot be meant by a list of pools."""
    if service.more_pools:
        fault = f"names {2 + len(service.more_pools)} pools"
    elif service.second_pool and not service.pool:
        fault = "names no pool before its comma"
    elif service.second_pool and service.second_pool == service.pool:
        fault = f"names the pool {service.pool} twice"
    else:
        return ""
    return f"annotation {names.IP_POOL} {fault}; write POOL, or for an address of each family POOL,POOL"


def _find_family_problem(service: Service) -> str:
    if service.uses_dhcp and service.families == ("IPv6",) and not service.assigned:
        return (
            "spec.ipFamilies is IPv6 alone, and kube-vip gets addresses by DHCP for IPv4 only; set the annotation "
            f"{names.IPAM} to 'pool', with an IP pool of IPv6 on Harvester"
        )
    return ""


def other_owner(state: ServiceState, balancer: LoadBalancer) -> str:
    """That the LoadBalancer of this name is another owner's."""
    return (
        f"LoadBalancer {balancer.namespace}/{balancer.name} on Harvester is of {balancer.owner}, not of service "
        f"{state.service.title} of cluster {state.settings.cluster!r}; it is neither used nor deleted: delete or rename it there"
    )


def find_immutable_change(service: Service, balancer: LoadBalancer | None) -> str:
    """A change that an existing LoadBalancer does not allow; one without an address is replaced instead."""
    if balancer is None or balancer.is_deleting:
        return ""
    if balancer.mode != service.mode:
        return (
            f"the IPAM mode cannot be changed from {balancer.mode} to {service.mode} while the load balancer has an address; "
            f"set the annotation {names.IPAM} back to {balancer.mode!r}, or delete the service and create it with "
            f"{service.mode!r}"
        )
    # Load balancers of before v0.2.7 do not say what they were made for.
    made_for = balancer.annotations.get(names.FIXED_NETWORK)
    if made_for is not None and made_for != service.network:
        back = f"set the annotation {names.NETWORK} back to {made_for!r}"
        if not made_for:
            back = f"remove the annotation {names.NETWORK}"
        return (
            f"network annotation of service {service.title} ({service.network or 'none'}) is not same as the load "
            f"balancer's ({made_for or 'none'}), and cannot be changed while that has an address; {back}, or delete the service "
            "and create it again"
        )
    return ""


def _find_missing_interface(state: ServiceState) -> str:
    """Why the network has no interface for kube-vip. A service that works is left as it is: networks come to and go
    from the map as nodes start and stop."""
    service, interfaces = state.service, state.interfaces
    works = service.interface or (service.addresses and state.load_balancer is not None)
    if not service.network or interfaces is None or works:
        return ""
    where = f"{names.NETWORK_MAP_NAMESPACE}/{names.NETWORK_MAP_NAME}"
    if isinstance(interfaces, Unavailable):
        return interfaces.problem
    if not interfaces:
        return (
            f"there is no common NAD mapping: {where} is empty; every VM of the cluster needs a running guest agent and "
            f"the network {service.network} on the same interface"
        )
    if service.network not in interfaces:
        missing = f"network {service.network} not found in NAD mapping for service {service.title}"
        known = sorted(interfaces)
        meant = [one for one in known if one.partition("/")[2] == service.network]
        if meant:
            return f"{missing}: its namespace is missing; write {' or '.join(meant)} into the annotation {names.NETWORK}"
        return (
            f"{missing}, the table of networks and their interfaces in {where}: not every VM of the cluster has it on "
            f"the same interface; write NAMESPACE/NAME of one that is there ({', '.join(known)}) into the annotation "
            f"{names.NETWORK}, or attach it to all VMs"
        )
    return ""


# Signs in the Ready condition's message (reference 02 §4.3, §4.4) and their hints; the first match counts.
_HINTS: tuple[tuple[str, str], ...] = (
    (
        r"no matched IPPool",
        "no IP pool on Harvester is for this network, project, namespace and guest cluster; widen the scope of a pool "
        f"or create one, name a pool in the annotation {names.IP_POOL}, or set the annotation {names.IPAM} to 'dhcp'",
    ),
    (
        r"fail to get allocator",
        f"there is no IP pool of this name on Harvester; create it, or correct the annotation {names.IP_POOL}",
    ),
    (
        r"no IP addresses available in range set|no available IP",
        "all addresses of the IP pool are taken; widen its range, delete load balancers that are not used, or name "
        f"another pool in the annotation {names.IP_POOL}; Harvester then allocates an address within two minutes",
    ),
    (
        r"requested IP address|requested ip|not in range set",
        "the address that this service had before cannot be had again; free it or put it back into the pool's range, "
        "or delete and create the service to get another one",
    ),
    (
        r"duplicate allocation",
        "Harvester before 1.5 does not recover from this; its administrator has to release the address in the IP pool "
        "(annotation loadbalancer.harvesterhci.io/manuallyReleaseIP), or delete and create the service",
    ),
)
_ANY = "ask Harvester's administrator; Harvester allocates an address once this is solved"


def explain_refusal(service: Service, balancer: LoadBalancer, asked: str) -> str:
    """The hint first, because tables cut long texts off; then Harvester's message, as the Go program passes it on."""
    hint = next((hint for sign, hint in _HINTS if re.search(sign, balancer.refusal)), _ANY)
    pool = f", pool: {asked}" if asked else ""
    return f"{hint} (ip is not allocated, mode: {service.mode}{pool}, message: {balancer.refusal})"


def explain_error(error: KubeError, namespace: str) -> str:
    """Why a request to Harvester failed, with a hint."""
    match error:
        case Unauthorized():
            return (
                f"Harvester does not accept the credential of the cloud config: {error.message}; put a valid "
                "kubeconfig there, it is reloaded within seconds"
            )
        case Forbidden():
            return (
                f"the credential of the cloud config may not do this in namespace {namespace} of Harvester: "
                f"{error.message}; the kubeconfig's context must name the namespace that the credential is for"
            )
        case AdmissionDenied():
            return f"Harvester refuses the load balancer: {error.message}"
        case Invalid():
            return f"Harvester does not accept the load balancer: {error.message}"
        case _:
            return f"Harvester cannot be reached: {error.message}; retrying"


def held_under_other_name(state: ServiceState) -> str:
    """Why nothing is done for a service whose LoadBalancer was created under another cluster name."""
    other = state.other_name
    assert other is not None
    return (
        f"it is left as it is: LoadBalancer {other.namespace}/{other.name} on Harvester holds its address "
        f"{', '.join(sorted(state.held_under_other_name))} under the cluster name {other.owner.cluster!r}, and this "
        f"cloud provider runs with {state.settings.cluster!r}; set --cluster-name (chart value "
        f"global.cattle.clusterName) back to {other.owner.cluster!r}; or, to leave that load balancer where it is and "
        f"go on without its address, remove the annotation {names.VIP_ADDRESSES} from the service"
    )


def allocation_timeout(service: Service) -> str:
    return (
        "failed to ensure load balancer: ip is not allocated after "
        f"{WAIT_TIMEOUT.seconds} s, mode: {service.mode}, message: none; is the load balancer controller "
        "(harvester-load-balancer in harvester-system) running on Harvester?"
    )


_RESTART_KUBE_VIP = render_kubectl("rollout restart daemonset kube-vip", "kube-system")


def not_announced(service: Service, addresses: tuple[str, ...]) -> str:
    """Why kube-vip may leave a reserved address off the nodes, most frequent cause first."""
    endpoints = render_kubectl(
        f"get endpointslices -l kubernetes.io/service-name={service.name}", service.namespace
    )
    before = ""
    if service.vip_keys:
        before = f"or it had another address before, which kube-vip 1.2 and later does not exchange ({_RESTART_KUBE_VIP}); "
    return (
        f"kube-vip does not announce {', '.join(addresses)} after {WAIT_TIMEOUT.seconds} s: either there is no pod behind "
        f"the service (kube-vip 1.2 and later waits for an endpoint: {endpoints}); or another pending or DHCP "
        "service blocks kube-vip, which waits 30 s for one without an address and two minutes for a DHCP server; "
        f"{before}or it does not run on the control-plane nodes (DaemonSet kube-vip in kube-system, chart value "
        "kube-vip.enabled), or the interface does not exist there"
    )


def without_lease(state: ServiceState) -> str:
    """Why there is no lease: the kernels that are known to lack the module first, else what is most frequent."""
    nodes, after = state.without_macvlan, f"no address by DHCP after {WAIT_TIMEOUT.seconds} s"
    unanswered = f"no DHCP server answers on the network {state.service.network or 'of the VMs'} (or its addresses are used up)"
    others = "or there is no pod behind the service, or another pending or DHCP service blocks kube-vip; kube-vip's log says which"
    if not nodes:
        return (
            f"{after}; either {unanswered}, or the nodes' kernel lacks the module macvlan, as minimal cloud images do (install "
            f"the full kernel package), {others}"
        )
    return (
        f"{after}; the kernel of Node {join_some(nodes, NODES_NAMED)} has no module macvlan (label {MACVLAN}={MACVLAN_MISSING}), "
        f"without which kube-vip gets none there: {MACVLAN_CURE}. Where kube-vip runs on another Node: either {unanswered}, {others}"
    )


def kept_by_kube_vip(service: Service, reserved: tuple[str, ...]) -> str:
    """Why a service that is no load balancer any more keeps its LoadBalancer on Harvester."""
    annotations = " ".join(f"{key}-" for key in (names.VIP_ADDRESSES, *service.vip_keys))
    return (
        f"{', '.join(reserved)} stays reserved: kube-vip does not look at services of another type, and its node "
        f"goes on answering for the address; delete the service, or restart kube-vip ({_RESTART_KUBE_VIP}) and give the "
        f"address back with: {render_kubectl(f'annotate service {service.name} {annotations}', service.namespace)}"
    )


def address_changed(service: Service, addresses: tuple[str, ...]) -> str:
    return (
        f"Its address is {', '.join(addresses)} now; kube-vip 1.2 and later takes the former one off the node and does not "
        f"announce another one before it is restarted: {_RESTART_KUBE_VIP} (not with svc_election)"
    )


# --- the families of its addresses ---------------------------------------------------------------------------------


def _describe_addresses(addresses: tuple[str, ...]) -> str:
    return " and ".join(f"{one} ({family_of(one)})" for one in addresses)


def wrong_family(service: Service, allocated: tuple[str, ...]) -> str:
    """Why an address that Harvester gave is not announced."""
    return (
        f"Harvester gave {_describe_addresses(allocated)}, and spec.ipFamilies of the service is "
        f"{' and '.join(service.families)}, so nothing would be forwarded from that address; name an IP pool of "
        f"{' or '.join(service.families)} in the annotation {names.IP_POOL}, or create the service with another ipFamilies"
    )


def shares_wrong_family(service: Service, primary: Service) -> str:
    """Why no address of its primary is announced for it."""
    return (
        f"service {service.title} cannot share the address of {primary.title}, {_describe_addresses(primary.ingress)}: its "
        f"spec.ipFamilies is {' and '.join(service.families)}, so nothing would be forwarded from there; create it with a family "
        f"of that address, or remove the annotation {names.PRIMARY_SERVICE} to get an address of its own"
    )


def _wants_both(service: Service) -> str:
    policy = "RequireDualStack" if service.requires_both else "PreferDualStack"
    return f"ipFamilyPolicy {policy} asks for an address of {' and '.join(service.families)}"


def _or_less(service: Service) -> str:
    return ", or set ipFamilyPolicy PreferDualStack to go on with one" if service.requires_both else ""


def dhcp_has_one_family(service: Service) -> str:
    return (
        f"{_wants_both(service)}, and kube-vip gets addresses by DHCP for IPv4 only; for both create the service in mode "
        f"pool, with two pools in the annotation {names.IP_POOL}{_or_less(service)}"
    )


def one_pool_for_two(service: Service, first: tuple[str, ...]) -> str:
    return (
        f"{_wants_both(service)}, and Harvester gave {_describe_addresses(first)}, for it takes one address, from one pool; name "
        f"a pool of each family in the annotation {names.IP_POOL}: POOL,POOL{_or_less(service)}"
    )


def same_family_twice(service: Service, addresses: tuple[str, ...]) -> str:
    return (
        f"{_wants_both(service)}, and the pools {service.pool} and {service.second_pool} gave {_describe_addresses(addresses)}; "
        f"name a pool of each family in the annotation {names.IP_POOL}{_or_less(service)}"
    )


def second_is_awaited(service: Service) -> str:
    return (
        f"{_wants_both(service)}, and pool {service.second_pool} has not given one: the load balancer controller "
        f"(harvester-load-balancer in harvester-system) may not be running on Harvester{_later(service)}"
    )


def second_is_refused(service: Service, why: str) -> str:
    return (
        f"{_wants_both(service)}, and there is none from pool {service.second_pool}: {why}{_later(service)}"
    )


def _later(service: Service) -> str:
    """What becomes of an address that comes after the other one was announced."""
    return (
        ""
        if service.requires_both
        else f". An address that comes later is reserved, and announced with: {_add(service)}"
    )


def not_added(service: Service, address: str) -> str:
    """Why a reserved address is not announced beside another one."""
    return (
        f"{address} is reserved for it, too, and not announced: kube-vip 1.2 and later takes an announced address off the node "
        f"when another one is added, and announces both only after a restart. To have both: {_add(service)}"
    )


def _add(service: Service) -> str:
    annotate = render_kubectl(f"annotate service {service.name} {names.VIP_ADDRESSES}-", service.namespace)
    return f"{annotate} && {_RESTART_KUBE_VIP}"


def creation_unanswered(load_balancer: str) -> str:
    """Why a deleted service stays though Harvester has no load balancer of it."""
    return (
        f"failed to delete load balancer: waiting for {describe_expiry(f'LoadBalancer {load_balancer}')}; nothing is to be "
        "done: Harvester is asked for it again, two minutes later at most, and the service is released"
    )


def deletion_timeout(balancer: LoadBalancer) -> str:
    held = ", ".join(balancer.finalizers) or "nothing"
    return (
        f"failed to delete load balancer: {balancer.namespace}/{balancer.name} is still there {WAIT_TIMEOUT.seconds} s "
        f"after its deletion, held by {held}; is the load balancer controller (harvester-load-balancer in "
        "harvester-system) running on Harvester, and does the IP pool of its address still exist?"
    )
