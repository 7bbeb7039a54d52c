"""The keys of a distribution that a cluster keeps as it began with them.

All servers must share them. Where the distribution compares them, a server that joins with another value stops with
"critical configuration value mismatch" (reference/04 §7.7); where it does not, that server gives the cluster another network
plugin, or other addresses, under what runs there. Machines that exist keep their configuration, so that none of these keys
can be changed once the first server has begun.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from windrow.bootstrap.node_config import CLOUD_PROVIDER_NAME, HARVESTER, list_disabled, list_of
from windrow.core.formats.cidr import NotAddress, Range

MAX_NETWORKS = 16
_TRUE = frozenset({"true", "t", "1"})  # as Go reads a flag
# Which place of the network of services the DNS service has.
_DNS_PLACE = 10

# From key, configuration, default and cloud provider to the value as it is compared.
_Read = Callable[[str, Mapping[str, Any], str, str], str]


def _text(key: str, config: Mapping[str, Any], default: str, provider: str) -> str:
    return str(config.get(key) or default)


def _flag(key: str, config: Mapping[str, Any], default: str, provider: str) -> str:
    given = config.get(key)
    text = default if given in (None, "") else str(given)
    return str(text.lower() in _TRUE).lower()


def _names(key: str, config: Mapping[str, Any], default: str, provider: str) -> str:
    return ",".join(_list_texts(config.get(key))) or default


def _networks(key: str, config: Mapping[str, Any], default: str, provider: str) -> str:
    return ",".join(map(_plain_range, _list_texts(config.get(key) or default)))


def _dns_servers(key: str, config: Mapping[str, Any], default: str, provider: str) -> str:
    given = _list_texts(config.get(key))
    return ",".join(map(_plain_range, given)) or ",".join(_find_dns_servers(config))


def _cloud_provider(key: str, config: Mapping[str, Any], default: str, provider: str) -> str:
    return provider


def _no_cloud_controller(key: str, config: Mapping[str, Any], default: str, provider: str) -> str:
    """A cloud provider turns the distribution's own controller off."""
    return "true" if provider else _flag(key, config, default, provider)


def _service_lb(key: str, config: Mapping[str, Any], default: str, provider: str) -> str:
    """Of the components that are disabled, the one about which servers must agree."""
    return str(provider == HARVESTER or "servicelb" in list_disabled(config)).lower()


def _is_set(key: str, config: Mapping[str, Any], default: str, provider: str) -> str:
    return "set" if config.get(key) else ""


def _list_texts(value: Any) -> list[str]:
    """The values of a flag that takes several, in a list or with commas; more than the cluster could have are left out."""
    texts = (part.strip() for one in list_of(value)[:MAX_NETWORKS] for part in str(one).split(","))
    return [text for text in texts if text][:MAX_NETWORKS]


def _plain_range(text: str) -> str:
    try:
        return str(Range.parse(text))
    except NotAddress:
        return text


def _find_dns_servers(config: Mapping[str, Any]) -> list[str]:
    found = []
    for text in _list_texts(config.get("service-cidr") or SERVICE_NETWORK):
        try:
            network = Range.parse(text)
        except NotAddress:
            continue
        if network.size > _DNS_PLACE:
            found.append(str(network.first + _DNS_PLACE))
    return found


POD_NETWORK, SERVICE_NETWORK = "10.42.0.0/16", "10.43.0.0/16"


@dataclass(frozen=True, slots=True)
class ImmutableKey:
    """One key. `defaults` are by distribution; one that is not there has no such key. The value of a secret one is neither
    recorded nor printed, only whether it is set."""

    name: str
    why: str
    defaults: Mapping[str, str]
    read: _Read = _text
    is_secret: bool = False

    @property
    def is_free_text(self) -> bool:
        """Whether its value is recorded, and may be of any length: networks are few, and read elsewhere."""
        return not self.is_secret and self.read not in (_networks, _dns_servers)

    def find_value(self, config: Mapping[str, Any], distribution: str, provider: str) -> str:
        """The value that a server with `config` has, as values are compared: equal ones have one text."""
        return self.read(self.name, config, self.defaults[distribution], provider)

    def describe(self, config: Mapping[str, Any], distribution: str, provider: str) -> str:
        """The value for sentences: as it is written, else what it is then; "" for none."""
        given = config.get(self.name)
        if self.is_secret:
            return "set" if given else ""
        if self.read is _cloud_provider:
            return provider
        if given not in (None, "", [], {}):
            return str(given).lower() if isinstance(given, bool) else ",".join(_list_texts(given))
        if self.read is _dns_servers:
            return ",".join(_find_dns_servers(config))
        return self.defaults[distribution]


def _both(default: str) -> Mapping[str, str]:
    return {"rke2": default, "k3s": default}


_EQUAL = "servers compare it, and one with another value does not join"
IMMUTABLE_KEYS = (
    ImmutableKey(
        "cluster-cidr", "its Nodes and pods have their addresses of it", _both(POD_NETWORK), _networks
    ),
    ImmutableKey(
        "service-cidr", "its services have their addresses of it", _both(SERVICE_NETWORK), _networks
    ),
    ImmutableKey("cluster-dns", "its pods ask this address for names", _both(""), _dns_servers),
    ImmutableKey("cluster-domain", "the names of its services end with it", _both("cluster.local")),
    ImmutableKey("cni", "its pods are connected by it", {"rke2": "canal"}, _names),
    ImmutableKey("flannel-backend", "its pods are connected by it", {"k3s": "vxlan"}),
    ImmutableKey("flannel-external-ip", _EQUAL, {"k3s": "false"}, _flag),
    ImmutableKey("flannel-ipv6-masq", _EQUAL, {"k3s": "false"}, _flag),
    ImmutableKey("disable-network-policy", _EQUAL, {"k3s": "false"}, _flag),
    ImmutableKey("disable-helm-controller", _EQUAL, {"k3s": "false"}, _flag),
    ImmutableKey("disable-kube-proxy", _EQUAL, _both("false"), _flag),
    ImmutableKey(CLOUD_PROVIDER_NAME, "its Nodes are initialized by it", _both(""), _cloud_provider),
    ImmutableKey("disable-cloud-controller", _EQUAL, _both("false"), _no_cloud_controller),
    ImmutableKey("disable", "servers compare whether it has servicelb", {"k3s": ""}, _service_lb),
    ImmutableKey("enable-servicelb", _EQUAL, {"rke2": "false"}, _flag),
    ImmutableKey("egress-selector-mode", _EQUAL, _both("agent")),
    ImmutableKey("embedded-registry", _EQUAL, _both("false"), _flag),
    ImmutableKey("supervisor-metrics", _EQUAL, _both("false"), _flag),
    ImmutableKey("secrets-encryption", _EQUAL, {"rke2": "true", "k3s": "false"}, _flag),
    ImmutableKey("datastore-endpoint", "its objects are where it began", _both(""), _is_set, is_secret=True),
)


def list_immutable_keys(distribution: str) -> list[ImmutableKey]:
    """Those that the distribution has; none of an unknown one."""
    return [key for key in IMMUTABLE_KEYS if distribution in key.defaults]
