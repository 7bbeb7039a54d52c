"""The manager may be killed before and after any write, and nobody can tell afterwards.

For each phase of a small cluster's life every write is found by a life without deaths; then the life is told again
for each of them, once with the manager killed before it is sent and once after it was carried out but before its
answer was heard. A further sample does the same to a cluster of three servers, and to random instants.

The comparison is strict: at rest, the world must satisfy `invariants`; and over the whole life no object may have been
made that the undisturbed life did not make, not even one that was cleared away later.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from site import addsitedir

import pytest

from windrow.values.chance import Chance

from .crashes import AtInstant, AtWrite, When
from .phases import Life, Tale, tell

SEED = 20260101
# A dead manager costs its absence, and an order that nobody remembers is given again after two minutes.
LATE_S = 150.0

SMALL = {
    "birth": ("birth", "delete"),
    "grow": ("birth", "grow", "delete"),
    "shrink": ("birth", "grow", "shrink", "delete"),
    "lose a worker": ("birth", "lose a worker", "delete"),
    "delete": ("birth", "delete"),
}
LARGE = ("birth", "lose a server", "grow", "delete")


@pytest.fixture(scope="module")
def tellers() -> Iterator[ProcessPoolExecutor]:
    """Processes that tell tales side by side; each tale is a world of its own."""
    # A new process finds `tell` by the name that pytest gave its module, from the folder of all tests.
    tests = str(Path(__file__).parents[tell.__module__.count(".")])
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        min(4, os.cpu_count() or 1), context, initializer=addsitedir, initargs=(tests,)
    ) as pool:
        yield pool


def complaints(tale: Tale, life: Life, calm: Life) -> list[str]:
    """What sets this life apart from the calm one."""
    found = list(life.faults)
    if not found:
        found += [
            f"made {life.made[what]} times, not {calm.made[what]}: {what}"
            for what in life.made | calm.made
            if life.made[what] != calm.made[what]
        ]
        if life.seconds > calm.seconds + len(life.deaths) * (tale.down_s + LATE_S):
            found.append(f"took {life.seconds:.0f} s instead of {calm.seconds:.0f} s")
        if life.most_told > calm.most_told + len(life.deaths):
            found.append(f"one event was told {life.most_told} times")
    if len(life.deaths) != len(tale.fates):
        found.append(f"the manager died {len(life.deaths)} times instead of {len(tale.fates)}")
    return [f"{tale}: {complaint}" for complaint in found]


def judge(tales: Sequence[Tale], calm: Life, pool: ProcessPoolExecutor) -> None:
    found = [
        complaint
        for tale, life in zip(tales, pool.map(tell, tales, chunksize=2), strict=True)
        for complaint in complaints(tale, life, calm)
    ]
    assert not found, f"{len(found)} complaints:\n" + "\n".join(found)


def every_write(tale: Tale, calm: Life, phase: str) -> list[Tale]:
    chapter = calm.get_chapter(phase)
    whens: tuple[When, ...] = ("before", "after")
    return [
        replace(tale, fates=(AtWrite(number, when),))
        for number in range(chapter.first, chapter.last + 1)
        for when in whens
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("phase", SMALL)
def test_a_manager_killed_at_any_write_goes_on_as_if_nothing_had_happened(
    phase: str, tellers: ProcessPoolExecutor
) -> None:
    tale = Tale(SMALL[phase])
    calm = tell(tale)
    assert calm.faults == []
    tales = every_write(tale, calm, phase)
    print(f"{phase}: {len(tales)} deaths\n{calm.print_chapter(phase)}")
    judge(tales, calm, tellers)


@pytest.mark.timeout(600)
def test_a_manager_of_three_servers_killed_at_some_writes_keeps_all_members(
    tellers: ProcessPoolExecutor,
) -> None:
    tale = Tale(LARGE, servers=3, workers=1)
    calm = tell(tale)
    assert calm.faults == []
    chance = Chance(SEED)
    possible = [fated for phase in LARGE for fated in every_write(tale, calm, phase)]
    judge([possible[chance.integer(len(possible))] for _ in range(24)], calm, tellers)


@pytest.mark.timeout(600)
def test_a_manager_killed_at_fifty_instants_goes_on_as_if_nothing_had_happened(
    tellers: ProcessPoolExecutor,
) -> None:
    tale = Tale(SMALL["shrink"], servers=1, workers=1)
    calm = tell(tale)
    chance = Chance(SEED)
    tales = []
    for seed in range(25):
        instants = sorted(chance.between(0, calm.seconds) for _ in range(2))
        fates = tuple(AtInstant(at_s, chance.integer(12)) for at_s in instants)
        tales.append(replace(tale, fates=fates, seed=seed, down_s=chance.between(0.1, 30)))
    judge(tales, calm, tellers)
