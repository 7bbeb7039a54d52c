"""ClusterRoles for the kinds of the management API, aggregated into the roles admin, edit and view of Kubernetes.

With one of these in a namespace an account has it for Clusters, machine configs, Machines and ETCDSnapshots there. What the cluster
manager records is its own: no role here writes a status or creates a Machine. NodeDrivers are programs that the manager
runs, so that only cluster-admin writes them.
"""

from __future__ import annotations

import logging
from typing import Any

from windrow.client.client import Client
from windrow.clusters.api.kinds import CLUSTER, ETCD_SNAPSHOT, HARVESTER_CONFIG, MACHINE
from windrow.drivers.api import NODE_DRIVER
from windrow.kubernetes.errors import Forbidden
from windrow.kubernetes.objects import Raw, labels_of, name_of, new_object
from windrow.kubernetes.resources import CLUSTER_ROLE, ApiResource

log = logging.getLogger(__name__)

READ = ["get", "list", "watch"]
CHANGE = ["delete", "deletecollection", "patch", "update"]
VIEW, EDIT, METRICS_READER = "windrow-view", "windrow-edit", "windrow-metrics-reader"


def cluster_roles() -> list[Raw]:
    """The ClusterRoles `windrow-view`, `windrow-edit`, and for Prometheus `windrow-metrics-reader`, which no other one includes."""
    configs = {"apiGroups": [HARVESTER_CONFIG.group], "resources": ["*"]}  # of every node driver
    view = [
        _rule(CLUSTER, READ),
        {**configs, "verbs": READ},
        _rule(MACHINE, READ),
        _rule(ETCD_SNAPSHOT, READ),
        _rule(NODE_DRIVER, READ),
    ]
    edit = [
        _rule(CLUSTER, ["create", *CHANGE]),
        {**configs, "verbs": ["create", *CHANGE]},
        _rule(MACHINE, CHANGE),
        # What they say is the guest's word; deleting one deletes the snapshot.
        _rule(ETCD_SNAPSHOT, ["delete", "deletecollection"]),
    ]
    metrics = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    return [
        _role(VIEW, view, "view", "edit", "admin"),
        _role(EDIT, edit, "edit", "admin"),
        _role(METRICS_READER, [metrics]),
    ]


def _rule(kind: ApiResource, verbs: list[str]) -> dict[str, Any]:
    return {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": verbs}


def _role(name: str, rules: list[dict[str, Any]], *into: str) -> Raw:
    labels = {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in into}
    return {**new_object(CLUSTER_ROLE, name, labels=labels), "rules": rules}


async def install_cluster_roles(api: Client) -> None:
    """Apply the ClusterRoles that are not there as they should be. May be repeated.

    In another Kubernetes the manager may lack the right, and then goes on. Under the account of its chart, which brings them,
    it may read these and write none: to write a role one needs every right in it.
    """
    for role in cluster_roles():
        try:
            if not await _is_installed(api, role):
                await api.apply(CLUSTER_ROLE.ref(name_of(role)), role, "windrow", force=True)
        except Forbidden as error:
            log.warning(
                "ClusterRole %s is not applied: %s; roles admin, edit and view do not include Clusters until "
                "an administrator applies it",
                name_of(role),
                error,
            )


async def _is_installed(api: Client, role: Raw) -> bool:
    """Whether the role is there with these rules and labels; False where it may not be read."""
    try:
        found = await api.find(CLUSTER_ROLE.ref(name_of(role)))
    except Forbidden:
        return False
    if found is None:
        return False
    return found.get("rules") == role["rules"] and labels_of(role).items() <= labels_of(found).items()
