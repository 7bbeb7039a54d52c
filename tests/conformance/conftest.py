"""Finds the reference programs: programs that we did not write, built by `scripts/reference-programs`; shares what runs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from tests.conformance.kube_vip_scenes import NEW, OLD
from tests.conformance.real_cluster import Cluster, a_real_cluster

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def reference_program() -> Callable[[str], str]:
    """Finds the program of that name; the test is skipped, saying what to type, where it was not built."""
    found = subprocess.run(
        [str(ROOT / "scripts/reference-programs"), "--where"], capture_output=True, text=True, check=True
    )
    where = Path(found.stdout.strip())

    def find(name: str) -> str:
        if not (where / name).exists():
            pytest.skip(f"{name} is not built; run scripts/reference-programs (needs Go)")
        return str(where / name)

    return find


@pytest.fixture(scope="session")
def kube_vip(reference_program: Callable[[str], str]) -> str:
    """The program: WINDROW_KUBE_VIP, else the one that scripts/reference-programs built (it needs Go 1.26)."""
    return os.environ.get("WINDROW_KUBE_VIP") or reference_program("kube_vip")


@pytest.fixture(scope="session")
def versions() -> str:
    """The range of versions that it is of: NEW unless WINDROW_KUBE_VIP_VERSION says a version before 1.2."""
    major, minor = os.environ.get("WINDROW_KUBE_VIP_VERSION", "1.2").lstrip("v").split(".")[:2]
    return NEW if (int(major), int(minor)) >= (1, 2) else OLD


# --- clusters of real programs, which tests of several files use one after the other ----------------------------------

_RUNNING = pytest.StashKey[dict[str, tuple[ExitStack, Cluster]]]()


def _shared(request: pytest.FixtureRequest, start: Callable[[], AbstractContextManager[Cluster]]) -> Cluster:
    """What `start` makes, until the first test that does not ask for this fixture."""
    kept = request.session.stash.setdefault(_RUNNING, {})
    name = str(request.fixturename)
    if name not in kept:
        with ExitStack() as stack:
            cluster = stack.enter_context(start())
            kept[name] = stack.pop_all(), cluster
    return kept[name][1]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    try:
        yield
    finally:
        kept = item.session.stash.get(_RUNNING, {})
        for name in [name for name in kept if name not in getattr(nextitem, "fixturenames", ())]:
            kept.pop(name)[0].close()


@pytest.fixture
def cluster(
    request: pytest.FixtureRequest,
    reference_program: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Cluster:
    """A store and an API server."""
    return _shared(request, lambda: a_real_cluster(reference_program, tmp_path_factory.mktemp("cluster")))


@pytest.fixture
def managed_cluster(
    request: pytest.FixtureRequest,
    reference_program: Callable[[str], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Cluster:
    """A store, an API server and a controller manager."""
    return _shared(
        request,
        lambda: a_real_cluster(reference_program, tmp_path_factory.mktemp("managed"), managed=True),
    )
