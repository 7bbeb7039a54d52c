from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from windrow.bootstrap.authorities import new_cluster_secrets
from windrow.bootstrap.intent import ClusterSecrets, GuestCredential, NodeIntent, Role

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def now() -> datetime:
    return NOON


@pytest.fixture(scope="session")
def cluster_secrets() -> ClusterSecrets:
    return new_cluster_secrets(NOON)


@pytest.fixture
def an_intent(cluster_secrets: ClusterSecrets) -> Callable[..., NodeIntent]:
    """Makes the first server of a cluster with Harvester's cloud provider; a test names what differs."""

    def make(**changes: Any) -> NodeIntent:
        intent: dict[str, Any] = {
            "cluster": "prod",
            "hostname": "prod-pool1-abcde-fghij",
            "machine_uid": "5d0c1a6e-machine",
            "version": "v1.35.1+rke2r1",
            "roles": frozenset(Role),
            "secrets": cluster_secrets,
            "first": True,
            "global_config": {"cloud-provider-name": "harvester"},
            "guest_credential": GuestCredential("apiVersion: v1\nkind: Config\ntoken: hunter2hunter2\n"),
        }
        return NodeIntent(**(intent | changes))

    return make


@pytest.fixture
def a_joiner(an_intent: Callable[..., NodeIntent]) -> Callable[..., NodeIntent]:
    def make(*roles: Role, **changes: Any) -> NodeIntent:
        joining = {"first": False, "server": "https://10.0.0.5:9345", "roles": frozenset(roles)}
        return an_intent(**(joining | changes))

    return make
