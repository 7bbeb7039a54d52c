"""Whether a kubeconfig still leads to the Harvester on which a machine was created, decided without a request.

Credentials are renewed, and the new one may lead to another Harvester, which truthfully answers 404 for the VM; a host
would then delete the record of a machine that runs. So the location is recorded in the machine's configuration:

    ca-<digest of the CA>@<server>

It is the same location where the server is the same, whatever its certificates, and where the CA is, whatever its
address; but behind one proxy, as Rancher's, all have one CA, and the path distinguishes them. The cluster controller
reads Harvester's own identity and records that instead; then the controller compares.
"""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlsplit

from windrow.harvester.identity import CA_PREFIX, ca_fingerprint
from windrow.harvester.problems import Problem
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.nodedriver.config import Configuration

# Set to anything, it turns the comparison off.
ANY_HARVESTER = "WINDROW_DRIVER_ANY_HARVESTER"


def with_location(configuration: Configuration, access: ClientConfig) -> Configuration:
    """The configuration with the location of `access` recorded, where none is."""
    if configuration.harvester_uid:
        return configuration
    return replace(configuration, harvester_uid=f"{ca_fingerprint(access)}@{_address(access)}")


def find_wrong_harvester(configuration: Configuration, access: ClientConfig) -> Problem | None:
    """Why a 404 for the machine's VM proves nothing: `access` leads to another location than the recorded one.

    None where it leads to the same, or where no location of that form is recorded.
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
        f"{configuration.vm_namespace}/{configuration.machine_name}; the machine was created at "
        f"{server or 'a server'} with another authority, so its VM may still run there",
        "give the machine a kubeconfig of that Harvester; if it is the same one with a new address and new "
        f'certificates, remove "WindrowHarvesterUID" from its config.json, or set {ANY_HARVESTER}=1 for the driver',
    )


def _address(access: ClientConfig) -> str:
    """The server without user information, in one spelling."""
    parts = urlsplit(access.server)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower()}{parts.path.rstrip('/')}"


def _path(server: str) -> str:
    return urlsplit(server).path
