"""Whether a credential still leads to the Harvester on which a machine was made, told without asking anybody.

Credentials are renewed, and the new one may lead to another Harvester. That one says truthfully that it has no such VM,
and a host that believes it forgets a machine that runs. So the place is put on record with a machine:

    ca-<digest of the CA>@<server>

It is the same place where the server is, whatever certificates it has by now, and where the CA is, whatever its
address; but behind one proxy, as Rancher's, all have one CA, and the path tells them apart. A manager of ours asks a
Harvester itself who it is, and records that instead; then it is for the manager to compare.
"""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from windrow.harvester.identity import CA_PREFIX, ca_fingerprint
from windrow.harvester.problems import Problem
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.nodedriver.config import Configuration

# Set to anything, it makes the driver believe every Harvester.
ANY_HARVESTER = "WINDROW_DRIVER_ANY_HARVESTER"


def with_location(configuration: Configuration, access: ClientConfig) -> Configuration:
    """The configuration with the place that `access` leads to on record, where none is."""
    if configuration.harvester_uid:
        return configuration
    return replace(configuration, harvester_uid=f"{ca_fingerprint(access)}@{_address(access)}")


def find_wrong_harvester(configuration: Configuration, access: ClientConfig) -> Problem | None:
    """Why the absence of the machine's VM proves nothing: `access` leads to another place than the recorded one.

    None where it leads there, or where nothing tells.
    """
    recorded = configuration.harvester_uid
    if not recorded.startswith(CA_PREFIX):
        return None
    ca, _, server = recorded.partition("@")
    address = _address(access)
    if server == address or (
        ca == ca_fingerprint(access) and (not server or _path(server) == _path(address))
    ):
        return None
    return Problem(
        f"the credential leads to {address}, which has no VM "
        f"{configuration.vm_namespace}/{configuration.machine_name}; the machine was made at "
        f"{server or 'a server'} with another authority, so its VM may still run there",
        "give the machine a kubeconfig of that Harvester; if it is the same one with a new address and new "
        f'certificates, remove "WindrowHarvesterUID" from its config.json, or set {ANY_HARVESTER}=1 for the driver',
    )


def _address(access: ClientConfig) -> str:
    """The server without what may be secret in it, and in one spelling."""
    parts = urlsplit(access.server)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}{parts.path.rstrip('/')}"


def _path(server: str) -> str:
    return urlsplit(server).path
