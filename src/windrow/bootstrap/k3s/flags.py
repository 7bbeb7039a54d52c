"""The configuration keys that K3s has, by release, and warnings about others.

`config_keys.json` is made of the command-line definitions at the newest release of each line; `k3s server --help` and
`k3s agent --help` print all of them but the hidden ones. A new line is added by comparing these with the file.

A server skips an unknown key of its configuration file, an agent does not start with it. So servers get it all the same, with
a warning, since it may be newer than this list, and agents get the keys that the list has for them (a drop-in file of
`machineSelectorFiles` brings another). Keys of RKE2 that K3s has in no release are not written at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from windrow.bootstrap.config.keys import MANAGED, ConfigKeys
from windrow.bootstrap.k3s.cloud_provider import is_true
from windrow.bootstrap.node_config import CLOUD_PROVIDER_CONFIG, CLOUD_PROVIDER_NAME
from windrow.core.formats.version import Version

# Joining machines and Windrow reach a server on one port, and a machine is judged by its Node.
PORTS = frozenset({"https-listen-port", "supervisor-port", "apiserver-port"})
_PACKAGED = ("coredns", "local-storage", "metrics-server", "runtimes", "servicelb", "traefik")
KEYS = ConfigKeys(
    "windrow.bootstrap.k3s",
    "K3s",
    agents_skip=False,
    managed=MANAGED | PORTS | {"cluster-init", "disable-agent"},
    cures={f"disable-{name}": f"write disable: [{name}]" for name in _PACKAGED}
    | {"no-deploy": "write its values as disable: […]", "no-flannel": "write flannel-backend: none"},
)
# Keys of RKE2 that K3s has not, but that mean something here.
TRANSLATED = frozenset({CLOUD_PROVIDER_NAME, CLOUD_PROVIDER_CONFIG})

_CURES = {
    "cni": "K3s brings flannel: choose its backend in flannel-backend, or write flannel-backend: none and bring another "
    "network in additionalManifest",
    "ingress-controller": "K3s brings Traefik, and disable: [traefik] leaves it out",
    "enable-servicelb": "K3s' servicelb is on unless disable names it",
    "profile": "K3s has no such profile: set protect-kernel-defaults, secrets-encryption, and the files of audit and "
    "admission in kube-apiserver-arg",
    "audit-policy-file": "write it as kube-apiserver-arg: [audit-policy-file=…, audit-log-path=…]",
    "pod-security-admission-config-file": "write it as kube-apiserver-arg: [admission-control-config-file=…]",
}
_STATIC_PODS = ("-extra-env", "-extra-mount", "-image")


def dropped_keys() -> frozenset[str]:
    """The keys that no configuration file gets as the user wrote them."""
    return KEYS.managed | KEYS.sibling_only()


def check_config(config: Mapping[str, Any], version: Version) -> list[str]:
    """Warnings about the names of the user's keys for K3s `version`, each with a hint."""
    foreign = KEYS.sibling_only()
    warnings = list(_check_foreign(sorted(foreign & config.keys() - TRANSLATED)))
    # What Windrow would write itself is no reason for a warning.
    rest = [
        key for key in config if key not in foreign and not (key == "cluster-init" and is_true(config[key]))
    ]
    return warnings + KEYS.check(rest, version)


def _check_foreign(found: list[str]) -> Iterator[str]:
    for key in found:
        if key.endswith(_STATIC_PODS):
            cure = (
                "remove it: K3s runs the components in its own process, and their flags are in the …-arg keys"
            )
        else:
            cure = _CURES.get(key, "remove it")
        yield f"{key!r} is a key of RKE2 that K3s has not, so it is left out; {cure}"
