"""The last step: kube-vip announces what the service was told. Pure."""

from __future__ import annotations

from windrow.cloudprovider import names
from windrow.cloudprovider.services.actions import WAIT_TIMEOUT, Action, Plan, ensure_failed, waiting
from windrow.cloudprovider.services.state import ServiceState


def plan_announcement(state: ServiceState, addresses: tuple[str, ...], actions: tuple[Action, ...]) -> Plan:
    """The service has been told its addresses; kube-vip is to announce them."""
    service = state.service
    by_dhcp = set(addresses) <= names.DHCP_PLACEHOLDERS
    if (service.ingress if by_dhcp else set(service.ingress) & set(addresses)) or service.ignores_vip:
        return Plan(actions)
    shown = ", ".join(addresses)
    problem = ensure_failed(
        f"kube-vip does not announce {shown} after {WAIT_TIMEOUT.seconds} s; is kube-vip "
        "running on the control-plane nodes (DaemonSet kube-vip in kube-system, chart value kube-vip.enabled), and "
        "does the interface exist there?"
    )
    if by_dhcp:
        network = service.network or "of the VMs"
        problem = ensure_failed(
            f"no address by DHCP after {WAIT_TIMEOUT.seconds} s; either no DHCP server "
            f"answers on the network {network} (or its addresses are used up), or the nodes' kernel lacks the module "
            "macvlan, as minimal cloud images do (install the full kernel package); kube-vip's log says which"
        )
    return waiting(state, "announcement", problem, actions)
