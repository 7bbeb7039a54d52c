"""Which deletions of VMs the account of the random edits finds unexplained."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.chaos.inventory import Vm
from tests.stories.edit_deletions import Cause, Causes, explain_deletions

SERVER = "https://10.0.0.7:9345"


def a_machine(name: str, pool: str = "w", through: str = "", *, is_ready: bool = False) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "True" if is_ready else "False"}]
    return {
        "metadata": {"name": name},
        "spec": {"pool": pool, "joinServer": through},
        "status": {"conditions": conditions, "addresses": ["10.0.0.7"] if name == "s1" else []},
    }


def a_plan(*replaced: str, **pools: int) -> Any:
    """What `windrow plan` showed: machines that are replaced, and by how many a pool becomes larger."""
    machines = [SimpleNamespace(machine=name, change="replace") for name in replaced]
    machines.append(SimpleNamespace(machine="w9", change="VM restart"))
    counts = [SimpleNamespace(pool=pool, count=count) for pool, count in pools.items()]
    return SimpleNamespace(pending=SimpleNamespace(machines=machines), pools=counts)


def explain(
    *names: str, plans: Any = (), struck: Any = (), is_restored: bool = False
) -> tuple[Any, list[str]]:
    machines = {name: a_machine(name) for name in ("w1", "w2", "w9")}
    machines |= {"s1": a_machine("s1", "s"), "n1": a_machine("n1", through=SERVER)}
    machines["n2"] = a_machine("n2", through=SERVER, is_ready=True)
    causes = Causes(plans, {"uid-asked"}, struck, machines, {"w1", "w2", "w9", "s1"}, is_restored)
    return explain_deletions([Vm("default", name, f"uid-{name}") for name in names], causes)


@pytest.mark.parametrize(
    ("name", "rest", "cause"),
    [
        ("asked", {}, Cause.BY_THE_RUN),
        ("w1", {"struck": {"w1"}}, Cause.STRUCK),
        ("s1", {"struck": {"s1"}, "is_restored": True}, Cause.RESTORED),
        ("w1", {"plans": [a_plan(), a_plan("w1")]}, Cause.REPLACED),
        ("n1", {"struck": {"s1"}}, Cause.LOST_SERVER),
        ("w1", {"plans": [a_plan(w=-1)]}, Cause.SMALLER_POOL),
    ],
)
def test_a_deletion_has_the_first_cause_that_holds_of_it(name: str, rest: Any, cause: Cause) -> None:
    assert explain(name, **rest) == ({name: cause}, [])


@pytest.mark.parametrize(
    ("name", "rest", "age"),
    [
        ("w1", {}, "was there before"),
        ("w9", {"plans": [a_plan("w1")]}, "was there before"),
        ("w1", {"plans": [a_plan(w=1, s=-1)]}, "was there before"),
        ("n2", {"struck": {"s1"}}, "was made in this step"),  # it was Ready
        ("n1", {"struck": {"w1"}}, "was made in this step"),
    ],
)
def test_a_deletion_without_a_cause_is_a_fault(name: str, rest: Any, age: str) -> None:
    _, faults = explain(name, **rest)

    assert faults == [
        f"VirtualMachine {name} of pool w was deleted, and nothing asked for that; it {age}",
    ]


def test_of_a_pool_that_becomes_smaller_no_more_machines_go_than_the_plans_showed() -> None:
    explained, faults = explain("w1", "w2", "w9", plans=[a_plan(w=-1), a_plan("w2", w=-1)])

    assert explained == {"w1": Cause.SMALLER_POOL, "w2": Cause.REPLACED, "w9": Cause.SMALLER_POOL}
    assert faults == []
    assert len(explain("w1", "w9", plans=[a_plan("w2", w=-1)])[1]) == 1
