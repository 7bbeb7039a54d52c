"""Rendering of requests: LoadBalancers for Harvester, patches for Services. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windrow.cloudprovider import names
from windrow.cloudprovider.services.actions import PatchService, RemoveFinalizer, UpdateLoadBalancer
from windrow.cloudprovider.services.readings import Service
from windrow.cloudprovider.services.state import ClusterSettings
from windrow.harvester.resources import LOAD_BALANCER
from windrow.kubernetes.objects import Raw, new_object


def render_load_balancer(service: Service, settings: ClusterSettings, guest_uid: str = "") -> Raw:
    """The LoadBalancer of `service`, as it is created, with the uid of the guest if that is known."""
    said = {
        names.LB_NETWORK: service.network,
        names.LB_PROJECT: service.project,
        names.LB_NAMESPACE: service.project_namespace,
        names.LB_CLUSTER: settings.cluster,
        names.FIXED_NETWORK: service.network,
    }
    if settings.management_network:
        said[names.MANAGEMENT_NETWORK] = settings.management_network
    if guest_uid:
        said[names.GUEST_MARK] = guest_uid
    spec: Raw = {"ipam": service.mode, "workloadType": "cluster"}
    if service.pool and not service.uses_dhcp:
        spec["ipPool"] = service.pool
    return new_object(
        LOAD_BALANCER,
        settings.name_for(service),
        settings.namespace,
        labels={
            names.LB_OF_CLUSTER: settings.cluster,
            names.LB_OF_NAMESPACE: service.namespace,
            names.LB_OF_SERVICE: service.name,
        },
        annotations=said,
        spec=spec,
    )


def render_load_balancer_update(action: UpdateLoadBalancer, guest_uid: str = "") -> Raw:
    """The whole LoadBalancer with the changes, and all other fields as they were read.

    One without a mark, as the Go program makes them, gets that of the guest along with the changes.
    """
    raw: Raw = dict(action.balancer.raw)
    metadata = dict(raw["metadata"])
    mark = {names.GUEST_MARK: guest_uid} if guest_uid else {}
    if action.annotations or mark:
        metadata["annotations"] = {**mark, **_merged(metadata.get("annotations") or {}, action.annotations)}
    raw["metadata"] = metadata
    if action.pool is not None:
        spec = {key: value for key, value in (raw.get("spec") or {}).items() if key != "ipPool"}
        raw["spec"] = {**spec, "ipPool": action.pool} if action.pool else spec
    if action.address is not None:
        raw["status"] = {**(raw.get("status") or {}), "address": action.address}
    return raw


def is_updated(action: UpdateLoadBalancer, annotations: Mapping[str, str], pool: str, address: str) -> bool:
    """Whether Harvester kept the changes; its webhook may have overwritten them."""
    return (
        all(annotations.get(key) == value for key, value in action.annotations.items())
        and action.pool in (None, pool)
        and action.address in (None, address)
    )


def _merged(before: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    merged = {**before, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def render_service_patch(service: Service, action: PatchService) -> Raw:
    """A merge patch, which conflicts where the service has changed: a list of finalizers is replaced as a whole."""
    finalizers = [*service.finalizers, names.FINALIZER] if action.add_finalizer else None
    return _patch(service, action.annotations, action.labels, finalizers)


def render_finalizer_removal(service: Service, action: RemoveFinalizer) -> Raw:
    finalizers = [one for one in service.finalizers if one != names.FINALIZER]
    return _patch(service, action.annotations, action.labels, finalizers)


def _patch(
    service: Service,
    annotations: Mapping[str, str | None],
    labels: Mapping[str, str | None],
    finalizers: list[str] | None,
) -> Raw:
    metadata: dict[str, Any] = {"resourceVersion": service.version}
    if annotations:
        metadata["annotations"] = dict(annotations)
    if labels:
        metadata["labels"] = dict(labels)
    if finalizers is not None:
        metadata["finalizers"] = finalizers or None
    return {"metadata": metadata}


def render_cleared_status(service: Service) -> Raw:
    return {
        "metadata": {"resourceVersion": service.version},
        "status": {"loadBalancer": {"ingress": None}},
    }
