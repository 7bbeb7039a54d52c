"""Write the pages of docs/reference that are made from the code they describe, or check that they are up to date.

python scripts/reference.py           write them
python scripts/reference.py --check   exit 1 and name those that differ
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from windrow.app.clock import SystemClock
from windrow.app.metrics.api_server import ApiServerMetrics
from windrow.app.metrics.emulator import EmulatorMetrics
from windrow.bootstrap.config.values import KINDS, TEXTS_END
from windrow.bootstrap.immutable_config import IMMUTABLE_KEYS, ImmutableKey
from windrow.cli import exit_codes, main
from windrow.cli.context import CliContext
from windrow.cloudprovider.cmd.flag_table import SECTIONS, shown
from windrow.cloudprovider.metrics import Metrics
from windrow.clusters.api.kinds import crds
from windrow.clusters.api.manifest.annotations import ANNOTATIONS
from windrow.clusters.api.manifest.supported_fields import (
    CLUSTER_FIELDS,
    HARVESTER_CONFIG_FIELDS,
    OnChange,
)
from windrow.clusters.change.fields import NOT_YET, POOL, on_change_of_option
from windrow.clusters.metrics.manager import ManagerMetrics
from windrow.clusters.plan.disruptions import GATE_NAMES
from windrow.core.formats import json_schema
from windrow.core.formats.json import pretty
from windrow.drivers.api import crds as driver_crds
from windrow.emulator.delays import Delays
from windrow.emulator.guest_os.delays import GuestDelays
from windrow.nodedriver.options import OPTIONS
from windrow.nodedriver.schema import harvester_config_crd
from windrow.probes.metrics import Registry

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
MADE = "<!-- Made by `make docs` from the code; change it there. -->\n"


# The commands below a noun.
INNER = {"machine": ("list",), "driver": ("list", "show", "add", "enable", "disable", "remove")}


def help_of(*words: str) -> str:
    out = io.StringIO()
    context = CliContext({}, Path(), io.StringIO(), out, out, lambda: datetime.now(UTC))
    main.run([*words, "--help"], context)
    return out.getvalue().rstrip()


def cli() -> str:
    parts = ["# Command line\n", MADE]
    parts.append(
        "`windrow COMMAND --help` prints the same. Commands for clusters stand alone; for the rest the noun comes first.\n"
        "Every command takes `--verbose`, which prints logs and tracebacks. Answers go to standard output and notes to\n"
        "standard error. Colours and live views appear on a terminal only; `NO_COLOR` switches colours off there.\n"
        "Exit codes: [exit-codes.md](exit-codes.md).\n"
    )
    parts.append(f"```text\n{help_of()}\n```\n")
    for command in main.COMMANDS.values():
        parts.append(f"## windrow {command.name}\n\n```text\n{help_of(command.name)}\n```\n")
        for inner in INNER.get(command.name, ()):
            parts.append(
                f"### windrow {command.name} {inner}\n\n```text\n{help_of(command.name, inner)}\n```\n"
            )
    return "\n".join(parts)


def exit_code_page() -> str:
    rows = "\n".join(f"| {code} | {meaning} |" for code, meaning in exit_codes.MEANING.items())
    return (
        f"# Exit codes\n\n{MADE}\nThe same for every command. A code never changes its meaning, so scripts may rely on it.\n\n"
        f"| Code | Meaning |\n|---|---|\n{rows}\n\n"
        "A failure prints two lines on standard error for each error: the message, and after an arrow the\n"
        "hint.\n"
    )


def harvester_config() -> str:
    changes = {
        "live": "nothing; used from the next look on",
        "restart": "takes effect at the machine's next start",
        "roll": "needs a new machine",
        "new_only": "new machines only",
    }
    rows = "\n".join(
        f"| `{one.field}` | {one.form} | {f'`{one.default}`' if one.default not in ('', None) else ''} | "
        f"{changes[one.change]} | {one.usage} |"
        for one in OPTIONS
    )
    return (
        f"# HarvesterConfig\n\n{MADE}\n"
        "Kind `HarvesterConfig` of `rke-machine-config.cattle.io/v1`: what the machines of a pool are like. The fields\n"
        "stand at the top level, as Rancher writes them. Every value may be a string; structured values may be JSON in\n"
        "a string or YAML. The same table gives the node driver its flags: `cpuCount` is `--harvester-cpu-count` and\n"
        "`HARVESTER_CPU_COUNT`.\n\n"
        "| Field | Form | Default | A change | What it is |\n|---|---|---|---|---|\n"
        f"{rows}\n\n"
        "Forms: *encoded* is text that may be base64; *gib* and *mib* are whole numbers of that unit, or a quantity\n"
        "such as `4Gi`; *structure* is JSON in a string, or the structure itself; *affinity* is a Kubernetes Affinity,\n"
        "also in base64.\n\n"
        "`addressPools` is a field of the cluster manager's own, and no option of the driver:\n"
        "[Give machines fixed addresses](../how-to/give-machines-addresses.md).\n"
    )


def _described(schema: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str, str]]:
    for name, inner in (schema.get("properties") or {}).items():
        here = f"{path}.{name}" if path else name
        kind = str(inner.get("type", "any"))
        of = inner.get("items") or {}
        if inner.get("description"):
            yield (
                here,
                f"list of {of.get('type', 'object')}" if kind == "array" else kind,
                str(inner["description"]),
            )
        yield from _described(of if kind == "array" else inner, f"{here}[]" if kind == "array" else here)


def _paths(schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Every field below a schema: a list of objects and a map as its fields, anything else as itself."""
    for name, inner in (schema.get("properties") or {}).items():
        here = f"{path}.{name}" if path else name
        of, keyed = inner.get("items") or {}, inner.get("additionalProperties") or {}
        below = [
            *_paths(inner, here),
            *_paths(of, f"{here}[]"),
            *(_paths(keyed, f"{here}.*") if keyed is not True else ()),
        ]
        yield from below or [here]


def manifest() -> str:
    parts = [
        "# Fields of a manifest\n",
        MADE,
        "What becomes of each field that Rancher's Cluster and HarvesterConfig have. *works*: the test that shows it, below\n"
        "`tests/`. *no effect*: it is accepted and kept, for this reason; where it is set, `windrow check`, `windrow apply`,\n"
        "`status.warnings` and the condition `Accepted` (reason `ValidWithWarnings`) say so. *refused*: a Cluster that sets it\n"
        "is not built. A field that stands in neither table is unknown and refused, too.\n\n"
        "`[]` is each item of a list, `*` each key of a map; a row stands for all fields below it that have no row of their own.\n\n"
        "A pool's `labels` and `taints` are given to machines when they are made: after a change, Nodes that exist keep\n"
        "theirs, which `windrow apply` and `windrow check` say.\n",
    ]
    cluster = crds()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    config = harvester_config_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for kind, table, paths in (
        ("Cluster", CLUSTER_FIELDS, _paths(cluster, "spec")),
        ("HarvesterConfig", HARVESTER_CONFIG_FIELDS, _paths(config)),
    ):
        rows = []
        for path in sorted(paths):
            effect, why = table.find(path) or ("unknown", "")
            rows.append(f"| `{path}` | {effect} | {f'`{why}`' if effect == 'works' else why} |")
        parts.append(f"## {kind}\n\n| Field | | Test or reason |\n|---|---|---|\n" + "\n".join(rows) + "\n")
    parts += [_immutable_keys(), _key_kinds()]
    rows = [
        f"| {kind} | `{name}` | {one.about} | `{one.test}` |"
        for kind, found in ANNOTATIONS.items()
        for name, one in found.items()
    ]
    parts.append(
        "## Annotations\n\nWhat users write. `windrow check` and `windrow apply` warn of any other of `windrow.io/` on a Cluster\nor a HarvesterConfig, and on the latter of any of `harvesterhci.io/`, for none reaches its VMs; and of one that is written as a label.\n\n"
        "| On | Annotation | What it does | Test |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"
    )
    return "\n".join(parts)


_CARRIED_OUT = "stories/test_fields_carried_out.py::test_what_is_planned_of_"


def changes() -> str:
    """Every field, what a change of it means for machines that exist, and the test that proves it."""
    rows = [
        _change_row(path, row, f"{_CARRIED_OUT}a_field_is_done[{path}]")
        if path not in _OTHER_CHANGES
        else _change_row(path, row, _OTHER_CHANGES[path])
        for path, row in sorted(CLUSTER_FIELDS.changes.items())
    ]
    options = [
        _change_row(
            option.field,
            on_change_of_option(option.field, option.change),
            f"{_CARRIED_OUT}an_option_is_done[{option.field}]",
        )
        for option in OPTIONS
        if option.field in HARVESTER_CONFIG_FIELDS.works
    ]
    pools = _change_row(
        "addressPools",
        on_change_of_option("addressPools"),
        f"{_CARRIED_OUT}an_option_is_done[addressPools]",
    )
    head = "| Field | Change | Why | Carried out | Test |\n|---|---|---|---|---|\n"
    return "\n".join(
        [
            "# What a change of a field means\n",
            MADE,
            "What a change of each field means for machines that exist; [how updates go](../explanation/updates.md). `windrow plan FILE`\n"
            "shows it of your cluster before you apply, `status.pendingChanges` afterwards. Of several changes of one machine the most\n"
            "disruptive counts. Tests are below `tests/`: but for one, each carries the change out on the emulator, and what was done is what was planned.\n\n"
            "*none*: no machine has it. *new machines only*: machines that exist keep theirs. *live*: through the API of the cluster, nothing\n"
            "restarts. *service restart*: the machine's RKE2 or K3s, one machine after the other. *VM restart*: the VM stops and starts.\n"
            "*replace*: another machine takes its place. *refused*: it is told, and nothing is changed.\n\n"
            "A row stands for all fields below it that have no row of their own. Keys of `machineGlobalConfig` and `machineSelectorConfig` that\n"
            "servers alone read restart no worker, and what [a cluster keeps](manifest.md#what-a-cluster-keeps) is refused.\n",
            f"## Cluster\n\n{head}" + "\n".join(rows) + "\n",
            "## HarvesterConfig\n\nDisks that only become larger are a VM restart. Of machine configs of other drivers every field is *replace*.\n\n"
            f"{head}" + "\n".join([*options, pools]) + "\n",
        ]
    )


_PLANNED = "unit/clusters/test_change_of_fields.py::test_a_change_of_a_field_means_what_its_row_says"
# Another driver is a program, which no cluster of the tests has.
_OTHER_CHANGES = {f"{POOL}.machineConfigRef.kind": f"{_PLANNED}[{POOL}.machineConfigRef.kind]"}


def _change_row(path: str, row: OnChange, test: str) -> str:
    carried_out = (
        "not yet" if row.change in NOT_YET else "yes" if row.change not in ("none", "refused") else ""
    )
    return f"| `{path}` | {row.change} | {row.because} | {carried_out} | `{test}` |"


def _immutable_keys() -> str:
    rows = "\n".join(
        f"| `{key.name}` | {_default(key, 'rke2')} | {_default(key, 'k3s')} | {key.why} |"
        for key in IMMUTABLE_KEYS
    )
    return (
        "## What a cluster keeps\n\nServers of one cluster must share these keys, wherever they are written; `status.immutableConfig` records them when the\n"
        "first server begins. Until its API server has answered, another value is taken: that server, and what joins it, is deleted and\n"
        "created anew. From then on another value is refused: `windrow apply` and `windrow check` print it with the value\n"
        "that the cluster began with, and the condition `Accepted` is False. The cluster goes on: existing machines as they are, new ones with\n"
        "the recorded value, since a server with another one would not join. Only where `datastore-endpoint` is added or removed no machine\n"
        "is made. The same holds for `dataDirectories.k8sDistro`. For another value, make a new Cluster.\n\n"
        "The distribution of `kubernetesVersion` is kept in the same way, and its version does not go back. An endpoint is kept with a\n"
        "warning. `token` and `agent-token` are Windrow's own: a value is warned of and not used. A cluster of an earlier release is\n"
        "recorded once all its servers have the present configuration; where pools of servers have different values, it is warned of and\n"
        "not recorded.\n\n"
        "| Key | Default of RKE2 | Default of K3s | Why |\n|---|---|---|---|\n" + rows + "\n"
    )


_KIND_TITLES = {
    "switch": "`true` or `false`",
    "number": "a whole number",
    "duration": "a duration with its unit, `5m0s`",
    "texts": "one text or a list of texts",
}


def _key_kinds() -> str:
    """What the keys of RKE2 and K3s take."""
    rows = []
    for kind, title in _KIND_TITLES.items():
        keys = sorted(key for key, one in KINDS.items() if one == kind)
        ends = ", ".join(f"all that end with `{end}`" for end in TEXTS_END)
        listed = ", ".join(f"`{key}`" for key in keys) + (f"; {ends}" if kind == "texts" else "")
        rows.append(f"| {title} | {listed} |")
    rows.append("| one text | all others |")
    return (
        "## Values of the distribution's keys\n\nThe keys in `machineGlobalConfig` and `machineSelectorConfig` are RKE2's and K3s'. A value of another kind than its key takes is\n"
        "refused, with what to write: a machine would not start with it, or would take a part of it. A key that the release does not\n"
        "have is a warning. `write-kubeconfig-mode` without quotes is one, too, since YAML reads `0644` as the number 420.\n\n"
        "| Value | Keys |\n|---|---|\n" + "\n".join(rows) + "\n"
    )


def _default(key: ImmutableKey, distribution: str) -> str:
    if distribution not in key.defaults:
        return "no such key"
    return f"`{key.defaults[distribution]}`" if key.defaults[distribution] else ""


def _kind(crd: Mapping[str, Any]) -> str:
    spec = crd["spec"]
    version = spec["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    rows = "\n".join(f"| `{path}` | {kind} | {words} |" for path, kind, words in _described(schema))
    columns = version.get("additionalPrinterColumns", ())
    shown = ", ".join(column["name"] for column in columns if not column.get("priority"))
    wide = ", ".join(column["name"] for column in columns if column.get("priority"))
    return (
        f"## {spec['names']['kind']}\n\n`{spec['group']}/{version['name']}`. {schema.get('description', '').strip()}\n\n"
        f"`kubectl get {spec['names']['plural']}` shows: {shown}. With `-o wide` also: {wide}.\n\n"
        f"| Field | Type | What it is |\n|---|---|---|\n{rows}\n"
    )


def kinds() -> str:
    return "\n".join(
        [
            "# Cluster, Machine and NodeDriver\n",
            MADE,
            "Fields without a line of their own are Rancher's; [manifest.md](manifest.md) says of each what becomes of it. See\n"
            "also [HarvesterConfig](harvester-config.md).\n",
            *(_kind(crd) for crd in (*crds(), *driver_crds())),
        ]
    )


def delays() -> str:
    host = "\n".join(
        f"| `{name}` | {seconds:g} s | {why} |" for name, (seconds, why) in Delays().reasons().items()
    )
    guest = "\n".join(
        f"| `{one.name}` | {getattr(GuestDelays(), one.name):g} s |" for one in fields(GuestDelays)
    )
    return (
        f"# Delays of the emulator\n\n{MADE}\n"
        "How long things take in the emulator, as on hardware; `--time-scale N` divides each by N. “Reference” is the\n"
        "collection of facts that Windrow was written from.\n\n"
        f"## Harvester\n\n| Delay | Takes | Why |\n|---|---|---|\n{host}\n\n"
        "## Guests\n\nReasons stand beside the numbers in `src/windrow/emulator/guest_os/delays.py`.\n\n"
        f"| Delay | Takes |\n|---|---|\n{guest}\n"
    )


def _metric_rows(registry: Registry) -> str:
    rows = "\n".join(
        f"| `{one.name}` | {one.type} | {', '.join(f'`{label}`' for label in one.labels)} | {one.help} |"
        for one in sorted(registry.metrics, key=lambda one: one.name)
    )
    return f"| Metric | Type | Labels | What it counts |\n|---|---|---|---|\n{rows}\n"


def metrics() -> str:
    manager, api = ManagerMetrics(SystemClock()).registry, Registry()
    ApiServerMetrics(api, None)
    return (
        f"# Metrics\n\n{MADE}\n{METRICS_HEAD}\n"
        f"## The cluster manager\n\n{_metric_rows(manager)}\n"
        "Values of `reason` in `windrow_disruptions_total` and `windrow_disruptions_held`: "
        f"{', '.join(f'`{reason}`' for reason in sorted(GATE_NAMES))}.\n\n"
        f"## The embedded management API, on the same page\n\n{_metric_rows(api)}\n"
        f"## `windrow emulate`\n\nBeside those of its API server:\n\n{_metric_rows(_emulators())}"
    )


def _emulators() -> Registry:
    found, api = EmulatorMetrics(None).registry, Registry()
    ApiServerMetrics(api, None)
    shared = {one.name for one in api.metrics}
    found.metrics = [one for one in found.metrics if one.name not in shared]
    return found


METRICS_HEAD = """`windrow serve` has the page `/metrics` on its management API, in Prometheus' text format:

    kubectl --kubeconfig windrow-state/manager.yaml get --raw /metrics

It names the Clusters of all tenants, so it is for whom the API's RBAC allows to `get` that path. No role of tenants includes it.
Prometheus gets a ServiceAccount with ClusterRole `windrow-metrics-reader`:

    kubectl -n default create serviceaccount prometheus
    kubectl create clusterrolebinding prometheus --clusterrole windrow-metrics-reader --serviceaccount default:prometheus
    kubectl -n default create token prometheus --duration 8760h

`windrow serve --metrics-bind-address HOST:PORT` serves `/metrics` on a port of its own as well, with TLS, beside `/healthz`, `/livez`
and `/readyz`. With `--kubeconfig` that is the only place: tokens are reviewed in that Kubernetes, for which the manager needs ClusterRole
`system:auth-delegator`. `windrow emulate` has `/metrics` on the emulated Harvester's API.

[Alerts and what to do](../how-to/alerts.md); the rules, a board for Grafana and the scrape configuration are in `deploy/monitoring`.

**Cardinality.** No series has the name of a Machine. A Cluster that is well has three or four series (phase, machines by phase,
end of certificates), one more for each condition that is not True, and one for each pool whose breaker has tripped. With 1,000 Clusters
and 10,000 Machines that are 3,000 series, a page of 300 kB, and at most 10,000 of one metric: what is beyond is left out, and
`windrow_metrics_dropped_series` says how many. Reasons and conditions are those of the objects; what is no CamelCase word counts as
`Other`.
"""


def cloud_provider_flags() -> str:
    tables = []
    for section, flags in SECTIONS.items():
        rows = "\n".join(
            f"| `{shown(flag.name)}` | {flag.type} | {f'`{flag.default}`' if flag.default else ''} | {flag.about} |"
            for flag in flags
            if flag.has_effect
        )
        if rows:
            tables.append(
                f"## {section}\n\n| Flag | Type | Default | What it does |\n|---|---|---|---|\n{rows}\n"
            )
    idle = sorted(f"`--{flag.name}`" for flags in SECTIONS.values() for flag in flags if not flag.has_effect)
    return (
        f"# Flags and metrics of `harvester-cloud-provider`\n\n{MADE}\n"
        "[The rest of its reference](cloud-provider.md).\n\n"
        + "\n".join(tables)
        + "\n## Accepted without effect\n\n"
        "The Go program takes them, so an existing `extraArgs` keeps working; the log names those that are given.\n\n"
        f"{', '.join(idle)}\n\n"
        f"## Metrics\n\n{_metric_rows(Metrics().registry)}\n"
    )


def emulator_differences() -> str:
    """From the list that the comparison itself reads (tests/conformance/admission/accepted.py)."""
    lines = (ROOT / "tests/conformance/admission/accepted-differences.txt").read_text().splitlines()
    rows = []
    for line in lines:
        if line and not line.startswith("#"):
            what, _, why = line.partition(" | ")
            rows.append(f"| `{what.replace('|', chr(92) + '|')}` | {why} |")
    return (
        f"# Where the emulator's admission differs from the real one\n\n{MADE}\n"
        "`make admission` puts the same requests to the emulator and to the webhooks of Harvester and KubeVirt, built from\n"
        "their Go modules, for each release that it knows: about 1,400 cases, 5,000 random changes of valid objects. Verdict,\n"
        "code, text and stored object are compared. It ends with a line for each release, `v1.8.2: N equal, M accepted, K unexpected`.\n"
        "These differences are accepted; `words:` is a pattern whose finds count as the same text.\n\n"
        f"| Difference | Why |\n|---|---|\n{chr(10).join(rows)}\n\n{NOT_SERVED}"
    )


NOT_SERVED = """\
LoadBalancers, IPPools and networks are compared where the webhooks of the load balancer and of the network controller are
[named](../../CONTRIBUTING.md), since no Go module has them; the other kinds in CI, each time.

## What is not there

| Harvester has | The emulator | Why |
|---|---|---|
| its own API under `/v1/harvester`, with `?action=start` and so on for machines, `export` and `snapshot` for volumes, `upload` for images, `POST /v1/harvester/kubeconfig` | answers 404, as an API server does of a path that it does not have | It is the back end of Harvester's UI, with schemas, links and sessions; none of the products here calls it. What its actions of machines do, the subresources of `subresources.kubevirt.io` do, which are there. Of Terraform's provider, `harvester_image` with `source_type = "upload"` and `harvester_bootstrap` need it |
| settings that are checked against VLAN configurations, certificates, a backup target or disks | takes their values | It has none of these |
| a limit of the size of a namespace's and a VM's snapshots (`harvesterhci.io` ResourceQuota) | stores it, and takes any VolumeSnapshot | Longhorn's engines, whose snapshots are counted, are not simulated |
| `status.volumeRequests` of a VM for a moment after `addvolume`, before 1.8 | changes template and instance at once | What follows is the same |

## kube-vip

The emulator's kube-vip does what versions before 1.2, and since, were seen to do (tests/conformance/kube_vip_scenes.py). Two things
are undecided. **Another address of a Service, changed with an election per service** (`svc_election`), is announced or not, once so and
once otherwise, by one release and between 1.2.2 and 1.2.3, with the milliseconds at which the endpoints change. The emulator does
what was seen more often: before 1.2 the new address is not announced, since 1.2 it is. **A Service that gets its address while its
annotation is empty**, emptied on the way to its address, is announced at once, or never on a busy machine. No product here rests on
either: the cloud provider has kube-vip pass over a Service until its address is there.
"""


PAGES = {
    "differences-emulator.md": emulator_differences,
    "cli.md": cli,
    "exit-codes.md": exit_code_page,
    "harvester-config.md": harvester_config,
    "kinds.md": kinds,
    "manifest.md": manifest,
    "changes.md": changes,
    "delays.md": delays,
    "cloud-provider-flags.md": cloud_provider_flags,
    "metrics.md": metrics,
}


def schemas() -> Iterator[tuple[str, str]]:
    """The file of each kind, and one for a file with documents of any of them."""
    definitions = [*crds(), harvester_config_crd(), *driver_crds()]
    for crd in definitions:
        yield f"schemas/{json_schema.file_name(crd)}", pretty(json_schema.kind_schema(crd))
    anything = {"$schema": json_schema.DRAFT, "title": "Kinds of the management API"}
    names = [{"$ref": json_schema.file_name(crd)} for crd in definitions]
    yield "schemas/all.json", pretty({**anything, "oneOf": names})


def made_files() -> Iterator[tuple[str, str]]:
    """Each file below docs/reference, and its text."""
    for name, page in PAGES.items():
        yield name, page().rstrip() + "\n"
    for name, text in schemas():
        yield name, text.rstrip() + "\n"


def run(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__)
        return 2
    stale = []
    for name, text in made_files():
        path = FOLDER / name
        if path.exists() and path.read_text() == text:
            continue
        stale.append(name)
        if not arguments:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    said = "differ from the code; run: make docs" if arguments else "written"
    print(
        f"docs/reference: {', '.join(stale)} {said}"
        if stale
        else f"Reference: {len(PAGES)} pages up to date."
    )
    return 1 if stale and arguments else 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
