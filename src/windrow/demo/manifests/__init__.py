"""The manifests that come with Windrow."""

from __future__ import annotations

from importlib.resources import files

from windrow.app.preload.buckets import CREDENTIAL
from windrow.core.formats.yaml import load_all
from windrow.kubernetes.objects import Raw, name_of

BUCKET = "backups"
PROVIDER = "harvester-cloud-provider"
# Hardware is twenty times as fast in the demo, and the cloud provider, whose clock is the real one, would wait 15 s for the Lease
# of one that is gone.
LEASE = (
    "--leader-elect-lease-duration=5s",
    "--leader-elect-renew-deadline=4s",
    "--leader-elect-retry-period=1s",
)
# Three servers and two workers, by distribution.
THREE_AND_TWO = {"rke2": "three-and-two.yaml", "k3s": "three-and-two-k3s.yaml"}


def shipped(distribution: str = "rke2") -> list[Raw]:
    """The objects of our manifest for a distribution."""
    return list(load_all(files(__package__).joinpath(THREE_AND_TWO[distribution]).read_text()))


def for_demo(documents: list[Raw]) -> list[Raw]:
    """The objects of our manifest, whose snapshots of etcd go to a bucket of the emulated site, too, and whose cloud provider has
    the Lease of `LEASE`."""
    s3 = {"bucket": BUCKET, "cloudCredentialName": f"{CREDENTIAL.namespace}:{CREDENTIAL.name}"}
    for raw in documents:
        if raw["kind"] == "Cluster":
            rke = raw["spec"]["rkeConfig"]
            rke["etcd"] = {"s3": {**s3, "folder": name_of(raw)}}
            rke.setdefault("chartValues", {}).setdefault(PROVIDER, {})["extraArgs"] = list(LEASE)
    return documents
