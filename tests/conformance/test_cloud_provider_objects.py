"""What the Go cloud provider and ours make of the same Services and nodes, and every field in which they differ.

With `-s` the requests of both are printed, too.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.conformance.cloud_provider_cases import ALL_SERVICES, FLAGGED, FLAGS, NODES
from tests.conformance.cloud_provider_objects import (
    DOCUMENT,
    NODES_HEADING,
    SERVICES_HEADING,
    Result,
    compare_outcomes,
    run_all_nodes,
    serve_all,
)
from tests.conformance.cloud_provider_rig import GO_PROVIDER, our_program, real_program
from tests.conformance.object_tables import assert_as_documented, read_documented_rows

pytestmark = pytest.mark.timeout(900)


def report_differences(name: str, go: Result, ours: Result) -> None:
    """What both asked, for a report."""
    for side in ("host_calls", "guest_calls"):
        one, other = getattr(go, side), getattr(ours, side)
        print(f"\n{name}, {side.replace('_', ' ')}: Go {one.total()}, ours {other.total()}")
        for what in sorted({*one, *other}):
            print(f"  {what:<50} {one[what]:>5} {other[what]:>5}")


async def test_services_come_out_as_the_table_says_and_no_other_way(tmp_path: Path) -> None:
    program = real_program(GO_PROVIDER)
    go, ours = await asyncio.gather(
        serve_all(program, tmp_path / "go"), serve_all(our_program(), tmp_path / "ours")
    )
    report_differences(f"{len(ALL_SERVICES)} cases of services", go, ours)

    assert_as_documented(compare_outcomes(go.outcomes, ours.outcomes), DOCUMENT, SERVICES_HEADING)


async def test_nodes_come_out_as_the_table_says_and_no_other_way(tmp_path: Path) -> None:
    go, ours = await asyncio.gather(
        all_nodes(real_program(GO_PROVIDER), tmp_path / "go"), all_nodes(our_program(), tmp_path / "ours")
    )
    report_differences(f"{len(go.outcomes)} cases of nodes", go, ours)

    assert_as_documented(compare_outcomes(go.outcomes, ours.outcomes), DOCUMENT, NODES_HEADING)


async def all_nodes(program: Path, folder: Path) -> Result:
    """All nodes under no flags, and some once more under each flag."""
    result = await run_all_nodes(program, folder, NODES)
    for flag, values in FLAGS.items():
        cases = {f"{name} under {flag}": NODES[name] for name in FLAGGED}
        result += await run_all_nodes(program, folder / flag, cases, *values)
    return result


@pytest.mark.parametrize("heading", [SERVICES_HEADING, NODES_HEADING])
def test_every_difference_has_a_reason(heading: str) -> None:
    rows = read_documented_rows(DOCUMENT, heading)
    assert rows
    assert all(rows.values())
