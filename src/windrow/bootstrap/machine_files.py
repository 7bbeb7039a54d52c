"""The document of a machine, and its files in the order that every distribution writes them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from shlex import quote
from typing import Any

from windrow.bootstrap.charts import chart_configs, list_credential_paths
from windrow.bootstrap.cloud_config import File, render_document
from windrow.bootstrap.install.unit import BOOT_COMMANDS, RUN_COMMANDS
from windrow.bootstrap.layout import Layout
from windrow.bootstrap.pki import list_ca_files
from windrow.bootstrap.registries import render_registries
from windrow.bootstrap.spec import BootstrapSpec, InvalidBootstrapSpec, require_joinable
from windrow.core.formats import yaml
from windrow.kubernetes.selectors import read_label_selector

FILE_SOURCES = ("secret", "configMap")
FILE_MODE = "0600"


def render_machine(
    spec: BootstrapSpec,
    layout: Layout,
    example: str,
    list_contradictions: Callable[[BootstrapSpec], Iterable[InvalidBootstrapSpec]],
    list_files: Callable[[BootstrapSpec], Iterable[File]],
) -> str:
    """The cloud-config document of a machine of any distribution, whose versions end in `example`.

    Raises InvalidBootstrapSpec for a machine that could never join, or whose keys contradict each other.
    """
    require_joinable(spec, layout.name, layout.title, example)
    for contradiction in list_contradictions(spec):
        raise contradiction
    files = list(list_files(spec))
    credential = layout.credential_file(spec)
    others: Iterable[str] = ()
    if any(file.path == credential for file in files):
        others = list_credential_paths(spec.chart_values, credential)
    copies = (_copy_where_none_is(credential, path) for path in others)
    return render_document(spec.hostname, files, bootcmd=BOOT_COMMANDS, runcmd=[*copies, *RUN_COMMANDS])


def _copy_where_none_is(source: str, target: str) -> tuple[str, ...]:
    """A command that leaves a file of the user's as it is, be it of userData, of machineSelectorFiles or of the image."""
    source, target = quote(source), quote(target)
    return "sh", "-c", f"[ -e {target} ] || install -D -m 0600 {source} {target}"


def list_machine_files(
    spec: BootstrapSpec,
    layout: Layout,
    config: Mapping[str, Any],
    credential: str,
    manifests: Iterable[File],
) -> Iterator[File]:
    """The configuration, the authorities of an init server, registries, the guest credential (`credential`, "" for none),
    and for a server with an API the `manifests`. Raises InvalidBootstrapSpec."""
    yield File(layout.config_file, yaml.dump(config))
    if spec.init_server:
        yield from list_ca_files(spec.secrets, layout.tls_directory(spec))
    authority = (spec.etcd.get("s3") or {}).get("endpointCA")
    if authority and layout.s3_ca_file in config.values():
        yield File(layout.s3_ca_file, authority)
    yield from render_registries(spec.registries, layout.config_directory)
    if spec.pod_security and spec.is_control_plane:
        yield File(layout.pod_security_file, yaml.dump(render_pod_security(spec.pod_security)))
    yield from list_selected_files(spec)
    if credential:
        yield File(layout.credential_file(spec), credential)
    if spec.is_control_plane:
        yield from manifests


def list_selected_files(spec: BootstrapSpec) -> Iterator[File]:
    """The files of `machineSelectorFiles` whose selector fits the machine. Raises InvalidBootstrapSpec where the content of
    one was not read."""
    for entry in spec.selector_files:
        if read_label_selector(entry.get("machineLabelSelector")).matches(spec.machine_labels):
            for source in entry.get("fileSources") or ():
                yield from _list_source_files(source, spec)


def _list_source_files(source: Mapping[str, Any], spec: BootstrapSpec) -> Iterator[File]:
    for kind in FILE_SOURCES:
        given = source.get(kind) or {}
        for item in (given.get("items") or ()) if given.get("name") else ():
            content = spec.file_contents.get((kind, given["name"], item["key"]))
            if content is None:
                raise InvalidBootstrapSpec(
                    f"file {item['path']} is key {item['key']!r} of {kind} {given['name']!r}, which was not read",
                    "create it beside the Cluster",
                )
            mode = item.get("permissions") or given.get("defaultPermissions") or FILE_MODE
            yield _file(item["path"], content, mode.rjust(4, "0"))


def _file(path: str, content: bytes, mode: str) -> File:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        text = ""
    if text and text.replace("\n", "").replace("\t", "").isprintable():
        return File(path, text, mode)
    return File(path, b64encode(content).decode(), mode, "b64")


# The templates that Rancher brings, by name, with the level that they set and the namespaces that it does not hold for.
POD_SECURITY: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "rancher-privileged": ("privileged", ()),
    "rancher-restricted": (
        "restricted",
        (
            "ingress-nginx",
            "kube-system",
            "cattle-system",
            "cattle-epinio-system",
            "cattle-fleet-system",
            "cattle-fleet-local-system",
            "longhorn-system",
            "cattle-neuvector-system",
            "cattle-monitoring-system",
            "rancher-alerting-drivers",
            "cis-operator-system",
            "cattle-csp-adapter-system",
            "cattle-externalip-system",
            "cattle-gatekeeper-system",
            "istio-system",
            "cattle-istio-system",
            "cattle-logging-system",
            "cattle-windows-gmsa-system",
            "cattle-sriov-system",
            "cattle-ui-plugin-system",
            "tigera-operator",
            "cattle-provisioning-capi-system",
        ),
    ),
}


def render_pod_security(template: str) -> dict[str, Any]:
    """The AdmissionConfiguration of a template, for the API server."""
    level, namespaces = POD_SECURITY[template]
    modes = dict.fromkeys(("enforce", "audit", "warn"), level)
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [
            {
                "name": "PodSecurity",
                "configuration": {
                    "apiVersion": "pod-security.admission.config.k8s.io/v1",
                    "kind": "PodSecurityConfiguration",
                    "defaults": {**modes, **{f"{mode}-version": "latest" for mode in modes}},
                    "exemptions": {"usernames": [], "runtimeClasses": [], "namespaces": list(namespaces)},
                },
            }
        ],
    }


def list_user_manifests(
    spec: BootstrapSpec, layout: Layout, chart_values: Mapping[str, Any]
) -> Iterator[File]:
    """What a server applies to the cluster by itself: the values of charts, and the user's own manifest, under the names
    that Rancher gives these files."""
    directory = layout.manifests_directory(spec)
    if chart_values:
        yield File(f"{directory}/managed-chart-config.yaml", yaml.dump_all(chart_configs(chart_values)))
    if spec.additional_manifest:
        yield File(f"{directory}/addons.yaml", spec.additional_manifest)
