"""`vmi.status.interfaces`: the parts of multus, the domain and the guest agent (reference 05 §2.6).

Bridge networks get their address from the guest agent alone; a masquerade interface on the pod network always shows
the pod's address, and is listed first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from windrow.emulator.guest_os.hardware import AgentReport, Nic
from windrow.emulator.guest_os.kernel_files import interface_name
from windrow.emulator.kit.vm_readings import networks_of
from windrow.kubernetes.objects import Raw, nested

MAX_REPORTED = 10


def nics_of(vmi: Mapping[str, Any], namespace: str) -> tuple[Nic, ...]:
    """The NICs as the instance names them. Before Harvester 1.7 they may be without a MAC address."""
    networks = networks_of(vmi["spec"], namespace)
    return tuple(
        Nic(
            one["name"],
            one.get("macAddress", ""),
            networks.get(one["name"], ""),
            one.get("model") or "virtio",
        )
        for one in nested(vmi, "spec", "domain", "devices", "interfaces", default=[])
    )


def render_planned(nics: Iterable[Nic]) -> list[Raw]:
    """Entries from the time the pod exists to the start of the domain."""
    return _pod_network_first([({"name": nic.name, "infoSource": "multus-status"}, nic) for nic in nics])


def render_running(nics: Iterable[Nic], pod_address: str, report: AgentReport | None) -> list[Raw]:
    """Entries of a running domain, with the guest agent's report if there is one."""
    named = [(_entry(place, nic, pod_address, report), nic) for place, nic in enumerate(nics)]
    made = _pod_network_first(named)
    if report is None:
        return made
    known = {nic.name for _, nic in named} | {interface_name(place) for place in range(len(named))}
    for name, addresses in report.addresses.items():
        if name not in known and len(made) < MAX_REPORTED:
            made.append({"interfaceName": name, **_addresses(addresses), "infoSource": "guest-agent"})
    return made


def _entry(place: int, nic: Nic, pod_address: str, report: AgentReport | None) -> Raw:
    source = "domain" if nic.network == "" else "domain, multus-status"
    entry: Raw = {
        "name": nic.name,
        "mac": nic.mac,
        "queueCount": 1,
        "linkState": "up",
        "podInterfaceName": f"net{place}",
        "infoSource": source,
    }
    if nic.network == "":
        return {**entry, **_addresses((pod_address,))}
    found = _find_reported(report, nic, place)
    if found is None:
        return entry
    info = "domain, guest-agent, multus-status"
    return {**entry, "interfaceName": interface_name(place), **_addresses(found), "infoSource": info}


def _find_reported(report: AgentReport | None, nic: Nic, place: int) -> tuple[str, ...] | None:
    """The agent's report names NICs as the hypervisor or as the guest does."""
    if report is None:
        return None
    return report.addresses.get(nic.name, report.addresses.get(interface_name(place)))


def _addresses(addresses: Iterable[str]) -> Raw:
    ordered = sorted((one for one in addresses if one), key=lambda address: ":" in address)
    return {"ipAddress": ordered[0], "ipAddresses": ordered} if ordered else {}


def _pod_network_first(entries: list[tuple[Raw, Nic]]) -> list[Raw]:
    return [entry for entry, nic in sorted(entries, key=lambda pair: pair[1].network != "")]


def render_guest_os(report: AgentReport) -> Raw:
    """`status.guestOSInfo`: the agent's report over the defaults of Ubuntu 24.04."""
    return {
        "id": "ubuntu",
        "name": "Ubuntu",
        "prettyName": "Ubuntu 24.04 LTS",
        "version": "24.04 LTS (Noble Numbat)",
        "versionId": "24.04",
        "kernelRelease": "6.8.0-45-generic",
        "kernelVersion": "#45-Ubuntu SMP",
        "machine": "x86_64",
        **report.os,
    }
