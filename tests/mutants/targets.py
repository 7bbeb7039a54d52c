"""Which files decide, which of them may let no mutant live, and which tests are asked about a file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path

from tests.mutants.loading import ROOT, module_of

# A module that more files of tests import than these is near to none of them.
MOST_NEAR = 6

# The deciding core: what creates, replaces, deletes, releases or grants. The nightly sample is taken from it.
CORE = (
    "apiserver/controllers/*",
    "apiserver/rbac.py",
    "apiserver/storage/*",
    "apiserver/verbs/delete.py",
    "client/leader_election.py",
    "cloudprovider/services/*",
    "cloudprovider/sweep.py",
    "clusters/*",
    "controller/*",
    "csi/fencing/*",
    "csi/harvester/*",
    "csi/idempotency.py",
    "harvester/identity.py",
    "machines/*",
    "nodedriver/vm/*",
)

# What admits disruptions, removes, proves ownership or releases: any mutant that lives here fails the run.
STRICT = (
    "apiserver/controllers/gc.py",
    "cloudprovider/services/removal.py",
    "cloudprovider/sweep.py",
    "clusters/change/rollout.py",
    "clusters/orphans.py",
    "clusters/plan/deletion.py",
    "clusters/plan/disruptions.py",
    "clusters/plan/load_balancers.py",
    "clusters/plan/operations/restore.py",
    "clusters/plan/unrecorded.py",
    "clusters/plan/updates/gates.py",
    "harvester/identity.py",
    "machines/plugin/ownership.py",
    "nodedriver/vm/ownership.py",
    "nodedriver/vm/remove.py",
)

# No mutants of these are run. This one looks through all processes of the machine for those to kill: a mutant of how it knows
# them ends everything that runs beside the tests.
UNSAFE = ("machines/plugin/process/orphans.py",)

# Nor of these: their tests run them in another process, which loads them as they are (a private mount namespace), or with
# gRPC, which does not live through a fork.
IN_ANOTHER_PROCESS = (
    "csi/mounts/linux/*",
    "csi/mounts/syscalls.py",
    "csi/server.py",
)

_CLUSTER_STORIES = (
    "tests/stories/test_cluster_life.py",
    "tests/stories/test_reclaimed_volumes.py",
    "tests/stories/test_released_volumes.py",
    "tests/stories/test_addresses.py",
    "tests/stories/test_another_harvester.py",
    "tests/stories/test_consent.py",
    "tests/stories/test_copies.py",
    "tests/stories/test_credentials.py",
    "tests/stories/test_endpoints.py",
    "tests/stories/test_etcd_restores.py",
    "tests/stories/test_etcd_snapshots.py",
    "tests/stories/test_held_addresses.py",
    "tests/stories/test_key_rotation.py",
    "tests/stories/test_late_creations.py",
    "tests/stories/test_namespace_deletion.py",
    "tests/stories/test_node_care.py",
    "tests/stories/test_predicted_changes.py",
    "tests/stories/test_orphan_load_balancers.py",
    "tests/stories/test_outages.py",
    "tests/stories/test_preflight.py",
    "tests/stories/test_refusals.py",
    "tests/stories/test_remains_on_harvester.py",
    "tests/stories/test_restarts.py",
    "tests/stories/test_rollouts.py",
    "tests/stories/test_server_deletion.py",
    "tests/stories/test_shapes.py",
    "tests/stories/test_updates.py",
    "tests/stories/test_vm_restarts.py",
)
_SERVICE_STORIES = (
    "tests/stories/test_load_balancers.py",
    "tests/stories/test_orphan_sweep.py",
    "tests/stories/test_server_deletion.py",
    "tests/stories/test_service_bad_input.py",
    "tests/stories/test_service_issues.py",
    "tests/stories/test_services.py",
)
# Those of the emulator that lean most on the types and the validation of the API server.
_ADMISSION_TESTS = (
    "tests/unit/emulator/test_claim_quotas.py",
    "tests/unit/emulator/test_definitions.py",
    "tests/unit/emulator/test_kubevirt_types.py",
    "tests/unit/emulator/test_object_validator.py",
    "tests/unit/emulator/test_settings.py",
    "tests/unit/emulator/test_vm_validator.py",
)
_VM_STORIES = (
    "tests/contract/test_machines.py",
    "tests/stories/test_harvester_machines.py",
    "tests/stories/test_vm_life.py",
    "tests/stories/test_vm_orders.py",
    "tests/stories/test_vm_shapes.py",
    "tests/stories/test_vm_trouble.py",
)

# Package, or a folder of it -> the tests that are asked first, and those that are asked about what these let live.
TESTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "app/describe": (
        ("tests/unit/app/describe", "tests/unit/cli/test_tree.py"),
        ("tests/stories/test_why.py",),
    ),
    "apiserver": (
        ("tests/unit/apiserver", "tests/contract/test_store.py"),
        ("tests/unit/app", *_ADMISSION_TESTS),
    ),
    "bootstrap": (("tests/unit/bootstrap",), ("tests/unit/clusters", *_CLUSTER_STORIES)),
    "client": (("tests/unit/client",), ("tests/contract/test_transport.py", *_CLUSTER_STORIES)),
    "cloudprovider": (("tests/unit/cloudprovider",), _SERVICE_STORIES),
    "clusters": (("tests/unit/clusters",), ("tests/unit/app/test_check.py", *_CLUSTER_STORIES)),
    "controller": (("tests/unit/controller",), _CLUSTER_STORIES),
    # Without those that start a server: gRPC's threads do not live on in a fork.
    "csi": (
        (
            "tests/unit/csi/harvester",
            "tests/unit/csi/test_arguments.py",
            "tests/unit/csi/test_controller.py",
            "tests/unit/csi/test_handles.py",
            "tests/unit/csi/test_idempotency.py",
            "tests/unit/csi/test_identity.py",
            "tests/unit/csi/test_node.py",
            "tests/unit/csi/test_nodes.py",
        ),
        ("tests/contract/test_volumes.py", "tests/stories/test_csi_stories.py"),
    ),
    "csi/fencing": (("tests/unit/csi/fencing",), ("tests/stories/test_csi_fencing.py",)),
    "csi/mounts": (
        (
            "tests/unit/csi/mounts/test_devices.py",
            "tests/unit/csi/mounts/test_readings.py",
            "tests/unit/csi/mounts/test_safety.py",
            "tests/unit/csi/mounts/test_shares.py",
        ),
        ("tests/unit/csi/test_node.py",),
    ),
    "core": (("tests/unit/core",), ("tests/unit/client", "tests/unit/clusters", "tests/unit/kubernetes")),
    "dashboard": (("tests/unit/dashboard",), ("tests/unit/app/test_dashboard.py",)),
    "harvester": (
        ("tests/unit/harvester", "tests/unit/nodedriver"),
        ("tests/unit/machines", "tests/unit/clusters", *_VM_STORIES),
    ),
    "kubernetes": (
        ("tests/unit/kubernetes",),
        ("tests/unit/client", "tests/unit/apiserver", "tests/unit/nodedriver"),
    ),
    "machines": (("tests/unit/machines",), (*_VM_STORIES, "tests/unit/clusters")),
    "nodedriver": (("tests/unit/nodedriver",), _VM_STORIES),
    "nodedriver/vm": (
        (
            "tests/unit/nodedriver/test_changes.py",
            "tests/unit/nodedriver/test_conditions.py",
            "tests/unit/nodedriver/test_edit.py",
            "tests/unit/nodedriver/test_ownership.py",
            "tests/unit/nodedriver/test_plan.py",
            "tests/unit/nodedriver/test_remove_operation.py",
            "tests/unit/nodedriver/test_vm_operations.py",
        ),
        ("tests/unit/nodedriver/test_operations.py", *_VM_STORIES),
    ),
}


def is_asked(path: str) -> bool:
    """Whether there are tests that can be asked about the file, and its mutants harm nothing but the tests."""
    known = path.endswith(".py") and any(path.startswith(f"{name}/") for name in TESTS)
    return known and not any(fnmatch(path, pattern) for pattern in (*UNSAFE, *IN_ANOTHER_PROCESS))


def group_of(path: str) -> str:
    """The entry of TESTS for the file: that of its folder, or else of its package."""
    return max((name for name in TESTS if path.startswith(f"{name}/")), key=len)


def list_stages(group: str, paths: Collection[str]) -> list[list[str]]:
    """The tests of a group, in the order in which they are asked about mutants of these files: those near to one of the files,
    then what else is asked first, then the rest one by one, so that in a short time some mutants are judged wholly."""
    first, rest = TESTS[group]
    texts = {test: (ROOT / test).read_text() for test in list_files(first)}
    near = sorted({test for path in paths for test in list_near(path, texts)})
    named = [test for test in rest if any(_is_named_after(test, path) for path in paths)]
    return [near, list(first), *([test] for test in dict.fromkeys((*named, *rest)))]


def list_files(paths: Iterable[str]) -> list[str]:
    """The files of tests at these paths and in these folders."""
    found = (
        file
        for path in paths
        for file in ((ROOT / path).rglob("test_*.py") if (ROOT / path).is_dir() else [ROOT / path])
    )
    return sorted({file.relative_to(ROOT).as_posix() for file in found})


def list_near(path: str, texts: Mapping[str, str]) -> list[str]:
    """Which of these tests have the name of the file, or import it, where few do."""
    module = module_of(path)
    importing = [test for test, text in texts.items() if module in text]
    return [
        test
        for test in texts
        if _is_named_after(test, path) or (test in importing and len(importing) <= MOST_NEAR)
    ]


def _is_named_after(test: str, path: str) -> bool:
    """test_machine_names.py is after names.py, test_endpoints.py after endpoint.py."""
    words, name = Path(test).stem.split("_")[1:], Path(path).stem.split("_")
    return {word.removesuffix("s") for word in name} <= {word.removesuffix("s") for word in words}


def is_core(path: str) -> bool:
    return any(fnmatch(path, pattern) for pattern in CORE)


def is_strict(path: str) -> bool:
    return any(fnmatch(path, pattern) for pattern in STRICT)
