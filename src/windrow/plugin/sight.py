"""What is to be seen of the machine, for a host of our own: more than docker-machine's state and address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.harvester.cloud_init_secret import secret_ref
from windrow.harvester.hosts import Host, read_host
from windrow.harvester.instances import Vmi, read_vmi
from windrow.harvester.kinds import VMI
from windrow.harvester.vms import read_vm
from windrow.kube import requests
from windrow.kube.errors import KubeError, NotFound, says_gone
from windrow.kube.refs import NODE
from windrow.nodedriver.configuration import Configuration
from windrow.nodedriver.ownership import unclear, whose
from windrow.nodedriver.problems import Refused
from windrow.nodedriver.state import judge_state
from windrow.nodedriver.steps import Gather, Talk


def look(configuration: Configuration) -> Talk[dict[str, Any]]:
    """One look, no waiting. Raises Refused where nothing tells whose the VM is, and what says nothing of it."""
    vmi_ref = VMI.ref(configuration.machine_name, configuration.vm_namespace)
    secret = secret_ref(configuration.vm_namespace, configuration.machine_name)
    wanted = [requests.get(configuration.ref), requests.get(vmi_ref)]
    if not configuration.vm_uid:  # it is just being made, and may lack its document still
        wanted.append(requests.get(secret))
    raw, raw_vmi, *raw_secret = yield Gather(tuple(wanted), f"look at {configuration.machine_name}")
    where = f"{configuration.vm_namespace}/{configuration.machine_name}"
    if says_gone(raw, configuration.machine_name):
        return {"presence": "missing", "because": f"Harvester has no VM {where}"}
    if isinstance(raw, KubeError):
        raise raw
    match whose(configuration, raw):
        case "another's":
            return {"presence": "missing", "because": f"VM {where} belongs to somebody else now"}
        case "unclear":
            raise Refused(unclear(configuration, raw))
    if isinstance(raw_vmi, KubeError) and not isinstance(raw_vmi, NotFound):
        raise raw_vmi
    vmi = None if isinstance(raw_vmi, NotFound) else read_vmi(raw_vmi)
    host = yield from _host(vmi)
    return _shown(raw, vmi, host) | {"complete": not any(says_gone(each, secret.name) for each in raw_secret)}


def _shown(raw: Mapping[str, Any], vmi: Vmi | None, host: Host | None) -> dict[str, Any]:
    vm = read_vm(raw)
    shown = judge_state(vm, vmi)
    runs = vmi is not None and vmi.phase == "Running"
    return {
        "presence": "present",
        "vmUID": vm.uid,
        "state": shown.state,
        "addresses": list(vmi.addresses) if vmi is not None and runs else [],
        "host": vmi.host if vmi is not None else "",
        "hostReady": host.is_ready if host is not None else None,
        "agentConnected": vmi.agent_connected if vmi is not None and runs else None,
        "zone": (vmi.zone if vmi is not None else "") or (host.zone if host is not None else ""),
        "region": (vmi.region if vmi is not None else "") or (host.region if host is not None else ""),
        "because": shown.because,
    }


def _host(vmi: Vmi | None) -> Talk[Host | None]:
    """The host, where the credential may see hosts."""
    if vmi is None or not vmi.host:
        return None
    (raw,) = yield Gather((requests.get(NODE.ref(vmi.host)),), f"see how host {vmi.host} is")
    return None if isinstance(raw, KubeError) else read_host(raw)
