"""Changes of the spec that this release does not apply to existing machines: reported, never silently dropped.

A change is found by comparing the user's fields then and now, not rendered objects, so an upgrade of Windrow changes
nothing. New machines are created from the present spec, except for the version: it stays that of the cluster.
"""

from __future__ import annotations

from windrow.clusters.api.cluster import Pool
from windrow.clusters.state import ClusterState


def list_pending_changes(state: ClusterState) -> tuple[str, ...]:
    """One sentence for each change that waits for a later release."""
    if not state.recorded.version:
        return ()
    found = []
    if state.cluster.version and state.cluster.version != state.recorded.version:
        found.append(
            f"kubernetesVersion is {state.cluster.version}, the cluster runs {state.recorded.version}"
        )
    found += [sentence for pool in state.cluster.pools if (sentence := _configuration_change(pool, state))]
    found += [sentence for pool in state.cluster.pools if (sentence := _pool_change(pool, state))]
    return tuple(found)


def _pool_change(pool: Pool, state: ClusterState) -> str:
    if pool.options is None:
        return ""
    changed: set[str] = set()
    count = 0
    for machine in state.of_pool(pool):
        then, now = dict(machine.record.options), dict(pool.options)
        keys = {key for key in then.keys() | now.keys() if then.get(key) != now.get(key)}
        changed |= keys
        count += bool(keys)
    if not changed:
        return ""
    return f"{', '.join(sorted(changed))} of {pool.config_name} changed since {count} machines of pool {pool.name} were made"


def _configuration_change(pool: Pool, state: ClusterState) -> str:
    now = state.config_hashes.get(pool.name, "")
    older = [m for m in state.of_pool(pool) if m.record.config_hash and now and m.record.config_hash != now]
    return (
        f"the configuration changed since {len(older)} machines of pool {pool.name} were made"
        if older
        else ""
    )
