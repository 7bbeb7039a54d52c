"""Each YAML example of the guides is tried. Its keys say what it is; one that is of no known sort fails."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.cloud_init.examples import read_blocks
from tests.support.clock import run_driven
from tests.support.simulation import simulation

from windrow.app.check import check
from windrow.bootstrap.support_matrix.matrix import read_matrix
from windrow.cloudprovider import names as service_names
from windrow.core.formats.yaml import load_all
from windrow.csi.harvester.claims import LONGHORN
from windrow.csi.names import DRIVER, HOST_STORAGE_CLASS, HOST_VOLUME_MODE
from windrow.csi.requests import ignored_parameters, read_volume_parameters
from windrow.drivers.api import NODE_DRIVER, machine_config
from windrow.emulator.site import parse_inventory
from windrow.harvester.resources import IP_POOL
from windrow.kubernetes.objects import Raw, name_of, nested, new_object

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs/tutorial/first-cluster.md"
GUIDES = {page.stem: read_blocks(page) for page in sorted((ROOT / "docs/how-to").glob("*.md"))}
EXAMPLES = [(guide, number) for guide, texts in GUIDES.items() for number in range(len(texts))]
OF_SERVICES = {
    service_names.IPAM,
    service_names.NETWORK,
    service_names.PROJECT,
    service_names.PRIMARY_SERVICE,
    service_names.IP_POOL,
}
OF_CHARTS = {"HelmChart", "HelmChartConfig", "ClusterRole", "ClusterRoleBinding"}


def merged(base: Any, part: Any) -> Any:
    """`base` with what the fragment says; the items of its lists are added."""
    if isinstance(base, dict) and isinstance(part, dict):
        return {**base, **{key: merged(base.get(key), value) for key, value in part.items()}}
    return [*base, *part] if isinstance(base, list) and isinstance(part, list) else part


def annotations_in(raw: Raw) -> Raw:
    """Those of an object, or of a fragment of one."""
    return dict(nested(raw, "metadata", "annotations", default={}))


def list_configs_of_other_drivers(raw: Raw) -> list[Raw]:
    """An empty machine config for each that a pool of the Cluster names."""
    pools = nested(raw, "spec", "rkeConfig", "machinePools", default=[])
    refs = [pool["machineConfigRef"] for pool in pools]
    return [
        new_object(machine_config(ref["kind"]), ref["name"], raw["metadata"]["namespace"])
        for ref in refs
        if ref["kind"] != "HarvesterConfig"
    ]


def find_errors(fragments: Sequence[tuple[str, Raw]]) -> list[str]:
    """What is wrong with the tutorial's manifest once it has these fragments, each of a Cluster or a HarvesterConfig."""
    [text] = [one for one in read_blocks(TUTORIAL) if "kind: Cluster" in one]
    documents = load_all(text)
    for kind, part in fragments:
        documents = [merged(raw, part) if raw["kind"] == kind else raw for raw in documents]
    documents += [config for raw in documents for config in list_configs_of_other_drivers(raw)]
    return [one.message for result in asyncio.run(check(documents)) for one in result.errors]


def find_sort(text: str, raw: Raw) -> str:
    """What the document is for: "Cluster", "HarvesterConfig" and others."""
    kind, spec = raw.get("kind"), raw.get("spec") or {}
    if text.startswith("#cloud-config") or "write_files" in raw:
        return "user data"
    if kind in ("IPPool", "NodeDriver", "HarvesterConfig", "StorageClass", "PersistentVolumeClaim"):
        return str(kind)
    if kind in OF_CHARTS:
        return "manifest of the guest"
    if "hosts" in raw or "networks" in raw:
        return "inventory"
    if "newestHarvester" in raw:
        return "support matrix"
    if spec.get("type") == "LoadBalancer" or OF_SERVICES & annotations_in(raw).keys():
        return "Service"
    if raw.keys() & {"addressPools", "userData"}:
        return "fields of a HarvesterConfig"
    if raw.keys() & {"machinePools", "additionalManifest"}:
        return "rkeConfig"
    if raw.keys() & {"disable-cloud-controller", "cloud-provider-name"}:
        return "config of the distribution"
    if raw.keys() <= {"metadata", "spec"}:
        return "Cluster"
    return ""


@pytest.mark.parametrize(("guide", "number"), EXAMPLES, ids=[f"{one} {number}" for one, number in EXAMPLES])
def test_an_example_of_a_guide_is_understood_without_a_fault(guide: str, number: int) -> None:
    text = GUIDES[guide][number]
    fragments: list[tuple[str, Raw]] = []
    for raw in load_all(text):
        match find_sort(text, raw):
            case "Cluster":
                fragments.append(("Cluster", {"spec": {}, **raw, "kind": "Cluster"}))
            case "rkeConfig" if "machinePools" in raw:
                pools = [{**one, "name": f"other-{one['name']}"} for one in raw["machinePools"]]
                fragments.append(("Cluster", {"spec": {"rkeConfig": {"machinePools": pools}}}))
            case "rkeConfig":
                fragments.append(("Cluster", {"spec": {"rkeConfig": raw}}))
            case "config of the distribution":
                fragments.append(("Cluster", {"spec": {"rkeConfig": {"machineGlobalConfig": raw}}}))
            case "manifest of the guest":
                fragments.append(("Cluster", {"spec": {"rkeConfig": {"additionalManifest": text}}}))
            case "user data":
                fragments.append(("HarvesterConfig", {"userData": text}))
            case "HarvesterConfig" | "fields of a HarvesterConfig":
                fragments.append(("HarvesterConfig", {**raw, "metadata": {}}))
            case "inventory":
                parse_inventory(raw)
            case "support matrix":
                read_matrix(text)
            case "StorageClass" if raw["provisioner"] == DRIVER:
                assert (
                    ignored_parameters(
                        read_volume_parameters(raw["parameters"]), (HOST_STORAGE_CLASS, HOST_VOLUME_MODE)
                    )
                    == []
                )
            case "StorageClass":
                assert (raw["provisioner"], raw["parameters"]["migratable"]) == (LONGHORN, "false")
            case "PersistentVolumeClaim":
                assert raw["spec"]["resources"]["requests"]["storage"].endswith("Gi")
            case "IPPool" | "NodeDriver" | "Service":
                pass  # below
            case _:
                pytest.fail(f"of no known sort: {raw}")

    assert find_errors(fragments) == []


@pytest.mark.parametrize("guide", GUIDES)
def test_the_ip_pools_of_a_guide_are_accepted_together_and_are_those_that_its_services_name(
    guide: str,
) -> None:
    documents = [raw for text in GUIDES[guide] for raw in load_all(text)]
    pools = [raw for raw in documents if raw.get("kind") == "IPPool"]

    async def main() -> None:
        async with simulation(with_manager=False) as sim:
            await sim.harvester.preload(networks=["default/vlan-50"])
            for raw in pools:
                await sim.harvester_client.create(IP_POOL, deepcopy(raw))

    run_driven(main())
    named = [annotations_in(raw).get(service_names.IP_POOL, "") for raw in documents]
    assert {name for one in named for name in one.split(",") if name} <= set(map(name_of, pools))
    for raw in documents:
        if nested(raw, "spec", "type") == "LoadBalancer":
            assert OF_SERVICES.issuperset(annotations_in(raw))


def test_the_node_driver_of_the_guide_has_no_field_that_its_kind_does_not_have() -> None:
    [text] = [one for one in GUIDES["add-a-node-driver"] if "kind: NodeDriver" in one]
    [driver] = load_all(text.replace("0f3c…", "0f3c" * 16))

    async def main() -> None:
        async with simulation(with_manager=False) as sim:
            await sim.management_client.apply(
                NODE_DRIVER.ref(name_of(driver)), driver, "a-user", force=True, strict=True
            )

    run_driven(main())
