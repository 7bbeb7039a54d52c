"""Which cloud provider a K3s cluster runs, and the keys of K3s that follow from it.

K3s has no `cloud-provider-name`; the name is Rancher's and RKE2's, and is translated here:

| `cloud-provider-name` | Meaning |
|---|---|
| absent | `harvester` where machines of the cluster are VMs of Harvester, otherwise as `none` |
| `harvester` | K3s' own cloud controller and servicelb are off, kubelets wait for a provider, our charts are installed |
| `external` | K3s' own cloud controller is off, kubelets wait for a provider, which the user brings |
| `none`, empty | K3s' own cloud controller and servicelb stay, and nothing is installed |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from windrow.bootstrap.node_config import CLOUD_PROVIDER_NAME, HARVESTER, list_disabled, list_of
from windrow.bootstrap.spec import InvalidBootstrapSpec

EXTERNAL = "external"
NONE = ""
SERVICE_LB = "servicelb"
_KUBELET_ARG = "cloud-provider"


def find_cloud_provider(config: Mapping[str, Any], on_harvester: bool) -> str:
    """The provider of the table above; another text is a name that K3s cannot run."""
    if CLOUD_PROVIDER_NAME not in config:
        return HARVESTER if on_harvester else NONE
    name = str(config[CLOUD_PROVIDER_NAME] or "")
    return NONE if name == "none" else name


def node_keys(provider: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that every node has for `provider`. The user's list in `config` is kept and extended."""
    given = [str(value) for value in list_of(config.get("kubelet-arg"))]
    if provider == NONE or any(_names_provider(value) for value in given):
        return {}
    return {"kubelet-arg": [*given, f"{_KUBELET_ARG}={EXTERNAL}"]}


def server_keys(provider: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that servers have for `provider`. The user's list in `config` is kept and extended."""
    keys: dict[str, Any] = {}
    if provider != NONE:
        keys["disable-cloud-controller"] = True
    if provider == HARVESTER and SERVICE_LB not in (disabled := list_disabled(config)):
        # Both would answer services of type LoadBalancer.
        keys["disable"] = [*disabled, SERVICE_LB]
    return keys


def list_contradictions(
    provider: str, config: Mapping[str, Any], charts: Iterable[str]
) -> Iterator[InvalidBootstrapSpec]:
    """What in `config` cannot be with `provider`, of which we install `charts`."""
    if provider not in (HARVESTER, EXTERNAL, NONE):
        yield InvalidBootstrapSpec(
            f"cloud-provider-name is {provider!r}, and K3s brings no such cloud provider",
            "write harvester; or external, and bring the provider in additionalManifest; or none for K3s' own",
        )
        return
    if provider == NONE:
        return
    if is_false(config.get("disable-cloud-controller")):
        yield InvalidBootstrapSpec(
            f"the cloud provider is {provider}, and disable-cloud-controller is false, which leaves K3s' own "
            "cloud controller beside it",
            "remove disable-cloud-controller, or write cloud-provider-name: none to have K3s' own alone",
        )
    for value in map(str, list_of(config.get("kubelet-arg"))):
        if _names_provider(value) and value.partition("=")[2] != EXTERNAL:
            yield InvalidBootstrapSpec(
                f"the cloud provider is {provider}, and kubelet-arg has {value!r}",
                f"remove it; with this provider kubelets have {_KUBELET_ARG}={EXTERNAL}",
            )
    if (names := ", ".join(charts)) and is_true(config.get("disable-helm-controller")):
        yield InvalidBootstrapSpec(
            f"disable-helm-controller is set, and the Helm controller is to install {names}",
            "remove it, or write cloud-provider-name: external and install the charts by other means",
        )


def is_true(value: Any) -> bool:
    """Whether the flag is on, as YAML or as text."""
    return str(value).lower() == "true"


def is_false(value: Any) -> bool:
    """Whether the flag is written, and off."""
    return str(value).lower() == "false"


def _names_provider(kubelet_arg: str) -> bool:
    return kubelet_arg.lstrip("-").partition("=")[0] == _KUBELET_ARG
