"""The files of a machine, in the order that every distribution writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from windrow.bootstrap.charts import chart_configs
from windrow.bootstrap.cloud_config import File
from windrow.bootstrap.layout import Layout
from windrow.bootstrap.pki import list_ca_files
from windrow.bootstrap.registries import render_registries
from windrow.bootstrap.spec import BootstrapSpec
from windrow.core.formats import yaml


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
    if authority and spec.is_etcd:
        yield File(layout.s3_ca_file, authority)
    yield from render_registries(spec.registries, layout.config_directory)
    if credential:
        yield File(layout.credential_file(spec), credential)
    if spec.is_control_plane:
        yield from manifests


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
