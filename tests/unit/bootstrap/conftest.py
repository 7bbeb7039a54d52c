from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from windrow.bootstrap.pki import new_cluster_secrets
from windrow.bootstrap.spec import BootstrapSpec, ClusterSecrets, GuestCredential, Role

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def now() -> datetime:
    return NOON


@pytest.fixture(scope="session")
def cluster_secrets() -> ClusterSecrets:
    return new_cluster_secrets(NOON)


@pytest.fixture
def a_spec(cluster_secrets: ClusterSecrets) -> Callable[..., BootstrapSpec]:
    """Makes the first server of a cluster with Harvester's cloud provider; a test names what differs."""

    def make(**changes: Any) -> BootstrapSpec:
        spec: dict[str, Any] = {
            "cluster": "prod",
            "hostname": "prod-pool1-abcde-fghij",
            "machine_uid": "5d0c1a6e-machine",
            "version": "v1.35.1+rke2r1",
            "roles": frozenset(Role),
            "secrets": cluster_secrets,
            "init_server": True,
            "global_config": {"cloud-provider-name": "harvester"},
            "guest_credential": GuestCredential("apiVersion: v1\nkind: Config\ntoken: hunter2hunter2\n"),
        }
        return BootstrapSpec(**(spec | changes))

    return make


@pytest.fixture
def a_joiner(a_spec: Callable[..., BootstrapSpec]) -> Callable[..., BootstrapSpec]:
    def make(*roles: Role, **changes: Any) -> BootstrapSpec:
        joining = {"init_server": False, "join_server": "https://10.0.0.5:9345", "roles": frozenset(roles)}
        return a_spec(**(joining | changes))

    return make
