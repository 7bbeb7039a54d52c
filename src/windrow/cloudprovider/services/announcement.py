"""The last step: kube-vip announces what the service was told. Pure."""

from __future__ import annotations

from windrow.cloudprovider import names
from windrow.cloudprovider.services.actions import PATIENCE, Action, Plan, cannot_ensure, waiting
from windrow.cloudprovider.services.seeing import Seen


def plan_announcement(seen: Seen, addresses: tuple[str, ...], actions: tuple[Action, ...]) -> Plan:
    """The service has been told its addresses; kube-vip is to announce them."""
    service = seen.service
    asks = set(addresses) <= names.ASKS_DHCP
    if (service.ingress if asks else set(service.ingress) & set(addresses)) or service.ignores_vip:
        return Plan(actions)
    shown = ", ".join(addresses)
    complaint = cannot_ensure(
        f"kube-vip does not announce {shown} after {PATIENCE.seconds} s; is kube-vip "
        "running on the control-plane nodes (DaemonSet kube-vip in kube-system, chart value kube-vip.enabled), and "
        "does the interface exist there?"
    )
    if asks:
        network = service.network or "of the VMs"
        complaint = cannot_ensure(
            f"no address by DHCP after {PATIENCE.seconds} s; either no DHCP server "
            f"answers on the network {network} (or its addresses are used up), or the nodes' kernel lacks the module "
            "macvlan, as minimal cloud images do (install the full kernel package); kube-vip's log says which"
        )
    return waiting(seen, "announcement", complaint, actions)
