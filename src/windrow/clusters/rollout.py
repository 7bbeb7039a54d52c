"""What was changed after birth and is not acted on in this release: said, never silently dropped.

A change is found by comparing the user's fields then and now, not rendered objects, so an upgrade of Windrow changes
nothing. New machines are made from what is asked now, except for the version: it stays that of the cluster.
"""

from __future__ import annotations

from windrow.clusters.reading import Pool
from windrow.clusters.seen import Seen


def find_changes(seen: Seen) -> tuple[str, ...]:
    """One sentence for each change that waits for a later release."""
    if not seen.standing.version:
        return ()
    found = []
    if seen.cluster.version and seen.cluster.version != seen.standing.version:
        found.append(f"kubernetesVersion is {seen.cluster.version}, the cluster runs {seen.standing.version}")
    found += [sentence for pool in seen.cluster.pools if (sentence := _configuration_change(pool, seen))]
    found += [sentence for pool in seen.cluster.pools if (sentence := _pool_change(pool, seen))]
    return tuple(found)


def _pool_change(pool: Pool, seen: Seen) -> str:
    if pool.options is None:
        return ""
    changed: set[str] = set()
    count = 0
    for machine in seen.of_pool(pool):
        then, now = dict(machine.record.options), dict(pool.options)
        keys = {key for key in then.keys() | now.keys() if then.get(key) != now.get(key)}
        changed |= keys
        count += bool(keys)
    if not changed:
        return ""
    return f"{', '.join(sorted(changed))} of {pool.config} changed since {count} machines of pool {pool.name} were made"


def _configuration_change(pool: Pool, seen: Seen) -> str:
    now = seen.revisions.get(pool.name, "")
    older = [m for m in seen.of_pool(pool) if m.record.revision and now and m.record.revision != now]
    return (
        f"the configuration changed since {len(older)} machines of pool {pool.name} were made"
        if older
        else ""
    )
