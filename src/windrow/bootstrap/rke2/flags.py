"""The configuration keys that RKE2 has, by release, and warnings about others.

`config_keys.json` is made of the command-line definitions at the newest release of each line; `rke2 server --help` and
`rke2 agent --help` print all of them but the hidden ones. A new line is added by comparing these with the file.

An unknown key of a configuration file is skipped with a line in the log, by servers and agents (v1.22.4 on). It is written all
the same, with a warning, since it may be newer than this list: a key may come with any patch release.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from windrow.bootstrap.config.keys import ConfigKeys
from windrow.bootstrap.node_config import CLOUD_PROVIDER_CONFIG, CLOUD_PROVIDER_NAME, HARVESTER, list_of
from windrow.bootstrap.spec import InvalidBootstrapSpec
from windrow.core.formats.bounds import abbreviate
from windrow.core.formats.version import Version

KEYS = ConfigKeys("windrow.bootstrap.rke2", "RKE2", agents_skip=True)
# What `cni` may be, in the releases of KEYS; "multus" before one of them.
NETWORK_PLUGINS = ("calico", "canal", "cilium", "flannel", "none")
MULTUS = "multus"
# What `cloud-provider-name` may be: its own charts, one that the user brings, what kubelets once had built in, and none.
CLOUD_PROVIDERS = (
    HARVESTER,
    "rancher-vsphere",
    "external",
    "aws",
    "azure",
    "gce",
    "openstack",
    "vsphere",
    "none",
)


def list_provider_contradictions(config: Mapping[str, Any]) -> Iterator[InvalidBootstrapSpec]:
    """A cloud provider that nothing brings, so that no Node would be initialized."""
    name = str(config.get(CLOUD_PROVIDER_NAME) or "")
    if name and name not in CLOUD_PROVIDERS:
        near = get_close_matches(name.lower(), CLOUD_PROVIDERS, 1)
        yield InvalidBootstrapSpec(
            f"{CLOUD_PROVIDER_NAME} is {abbreviate(name)}, and RKE2 brings no such cloud provider",
            f"did you mean {near[0]}?"
            if near
            else "write harvester; or external, and bring the provider in additionalManifest",
        )


def list_network_contradictions(
    config: Mapping[str, Any], version: Version
) -> Iterator[InvalidBootstrapSpec]:
    """A network plugin with which no server starts. Lines newer than KEYS may bring others."""
    chosen = [name for one in list_of(config.get("cni")) for name in str(one).replace(" ", "").split(",")]
    if KEYS.is_newer(version):
        return
    for name in chosen:
        if name not in (*NETWORK_PLUGINS, MULTUS):
            near = get_close_matches(name, NETWORK_PLUGINS, 1)
            known = f"{', '.join(NETWORK_PLUGINS[:-1])} or {NETWORK_PLUGINS[-1]}"
            hint = f"did you mean {near[0]}?" if near else f"write {known}"
            yield InvalidBootstrapSpec(
                f"cni is {abbreviate(name)}, and RKE2 starts no server with another than {known}", hint
            )
    if chosen == [MULTUS]:
        yield InvalidBootstrapSpec(
            "cni is multus alone, and RKE2 starts no server without a network plugin beside it",
            "write another one behind it, such as multus,canal",
        )


def check_config(config: Mapping[str, Any], version: Version) -> list[str]:
    """Warnings about the user's keys for RKE2 `version`, each with a hint."""
    foreign = KEYS.sibling_only()
    warnings = [f"{key!r} is a key of K3s, which RKE2 skips; remove it" for key in config if key in foreign]
    warnings += KEYS.check([key for key in config if key not in foreign], version)
    if config.get(CLOUD_PROVIDER_CONFIG) and not config.get(CLOUD_PROVIDER_NAME):
        warnings.append(f"{CLOUD_PROVIDER_CONFIG!r} means nothing without {CLOUD_PROVIDER_NAME!r}; set both")
    if config.get(CLOUD_PROVIDER_NAME) and config.get("node-external-ip"):
        warnings.append(
            f"RKE2 refuses 'node-external-ip' beside {CLOUD_PROVIDER_NAME!r}; remove it, the provider sets addresses"
        )
    if config.get("profile"):
        warnings.append(
            f"profile {config['profile']!r} needs a user 'etcd' and kernel settings before RKE2 starts; "
            "have the image or the user data bring them"
        )
    return warnings
