"""`windrow demo` with a cluster of every shape: each comes up, loses machines, heals and leaves nothing.

One list: distributions, releases of Harvester, addresses, roles and endpoints. `make test-long` runs those of CI; the whole
list, for a night, is `make test ARGS="-m long tests/e2e/test_demo_shapes.py"`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.test_demo import WITH_LOSSES, WITH_RESTORE, names, report_of

MANIFESTS = Path(__file__).parent / "shapes"
INVENTORY = """
hosts:
- {name: server-1, cpu: 16, memory: 64Gi, region: eu-west, zone: zone-1}
- {name: server-2, cpu: 16, memory: 64Gi, region: eu-west, zone: zone-2}
- {name: server-3, cpu: 16, memory: 64Gi, region: eu-west, zone: zone-3}
networks:
- {name: default/vlan-50, cidr: 10.20.0.0/16}
"""
# The demo's pool has IPv4, so no service is made where pods have IPv6 alone, and no pod can be asked for its volume.
ASKED_FOR_IT = {"volume-written", "volume-survives"}
WITHOUT_SERVICE = {name for name in WITH_LOSSES - ASKED_FOR_IT if not name.startswith("service-")}


@dataclass(frozen=True)
class Shape:
    """A manifest of MANIFESTS, else the shipped one; flags; the checks that are made, by default all that it allows; and what
    the timeline must say."""

    name: str
    flags: tuple[str, ...] = ()
    fewer_checks: frozenset[str] = frozenset()
    told: tuple[str, ...] = ()
    in_ci: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def manifest(self) -> Path:
        return MANIFESTS / f"{self.name}.yaml"

    @property
    def checks(self) -> frozenset[str]:
        # Of the manifests only the shipped one names a bucket, and has more than one worker.
        return self.fewer_checks or frozenset(WITH_LOSSES if self.manifest.exists() else WITH_RESTORE)


def of_harvester(version: str, *, in_ci: bool = False) -> Shape:
    """On small hosts and a network of its own, so that the inventory counts, too."""
    flags = ("--harvester-version", version, "--inventory", "site.yaml")
    return Shape(f"harvester-{version}", flags, told=(f"an emulated Harvester v{version}",), in_ci=in_ci)


SHAPES = [
    Shape("rke2"),
    Shape("k3s", ("--distro", "k3s"), in_ci=True),
    of_harvester("1.6", in_ci=True),  # it differs most
    of_harvester("1.7"),
    of_harvester("1.8"),
    of_harvester("1.9"),
    Shape("dual-stack", in_ci=True),
    Shape("ipv6-only", fewer_checks=frozenset(WITHOUT_SERVICE)),
    Shape("static-two-cards"),
    Shape("static-two-cards-k3s"),
    Shape("roles-apart"),
    Shape("roles-apart-k3s"),
    Shape("endpoint-name", told=("api.orchard.example passes 6443", "api.orchard.example passes 9345")),
    Shape("endpoint-address-k3s", told=("192.168.50.30 passes 6443",)),
    Shape(
        "endpoint-names-roles-apart-k3s",
        told=("api.orchard.example passes 6443", "join.orchard.example passes 6443"),
        in_ci=True,
    ),
    Shape("endpoint-load-balancer"),
    Shape("endpoint-load-balancer-k3s"),
]


CASES = [
    pytest.param(shape, marks=() if shape.in_ci else pytest.mark.nightly, id=shape.name) for shape in SHAPES
]


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shape", CASES)
def test_a_cluster_of_this_shape_comes_up_heals_and_leaves_nothing(shape: Shape, tmp_path: Path) -> None:
    (tmp_path / "site.yaml").write_text(INVENTORY)
    given = ("-f", str(shape.manifest)) if shape.manifest.exists() else ()
    report = report_of(tmp_path, *given, *shape.flags)

    assert names(report) == shape.checks
    timeline, skipped = report["timeline"], report["notApplicable"]
    assert isinstance(timeline, list)
    assert isinstance(skipped, list)
    # What was not checked is told; three servers have etcd, so none is the last.
    assert {one["name"] for one in skipped} == WITH_RESTORE - shape.checks | {"last-etcd-member-kept"}
    for text in shape.told:
        assert any(text in entry["what"] for entry in timeline), text


def test_every_manifest_is_in_the_list() -> None:
    found = {path.stem for path in MANIFESTS.glob("*.yaml")}

    assert len(found) > 10
    assert found <= {shape.name for shape in SHAPES}
