"""What a configuration key of RKE2 or K3s takes: true or false, a number, a duration, texts, or one text.

Both read their configuration file into flags of the command line: a list becomes the flag again and again, of which a flag of one
text keeps the last, and a map becomes text of its own that no flag reads. So a value of another kind ends the process, or is not
what its user meant. A key that is not listed is taken for one text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from windrow.core.formats.bounds import abbreviate

Kind = Literal["switch", "number", "duration", "texts", "text"]

_SWITCHES = """
    alsologtostderr debug tls-san-security disable-agent disable-selinux flannel-ipv6-masq flannel-external-ip cluster-init
    cluster-reset etcd-expose-metrics etcd-disable-snapshots etcd-snapshot-compress etcd-s3 etcd-s3-skip-ssl-verify
    etcd-s3-insecure disable-scheduler disable-cloud-controller disable-kube-proxy disable-network-policy
    disable-helm-controller disable-apiserver disable-controller-manager disable-etcd embedded-registry multi-cluster-cidr
    nonroot-devices no-flannel prime supervisor-metrics with-node-id docker disable-default-registry-endpoint
    disable-apiserver-lb rootless prefer-bundled-bin selinux protect-kernel-defaults enable-pprof secrets-encryption kine-tls
    enable-servicelb node-name-from-cloud-provider-metadata
"""
_PORTS = "https-listen-port supervisor-port apiserver-port advertise-port lb-server-port"
_NUMBERS = f"{_PORTS} etcd-snapshot-retention etcd-s3-retention v"
_DURATIONS = "etcd-s3-timeout etcd-snapshot-reconcile-interval"
_TEXTS = """
    tls-san node-label node-taint node-ip node-external-ip node-internal-dns node-external-dns cluster-cidr service-cidr
    cluster-dns disable cni ingress-controller airgap-extra-registry control-plane-resource-requests
    control-plane-resource-limits control-plane-probe-configuration
"""
# Keys with one of these ends take texts.
TEXTS_END = ("-arg", "-extra-env", "-extra-mount")
KINDS: Mapping[str, Kind] = {
    **dict.fromkeys(_SWITCHES.split(), "switch"),
    **dict.fromkeys(_NUMBERS.split(), "number"),
    **dict.fromkeys(_DURATIONS.split(), "duration"),
    **dict.fromkeys(_TEXTS.split(), "texts"),
}
# By key, with the names that releases of any age know; another one ends the process.
CHOICES: Mapping[str, tuple[str, ...]] = {
    "egress-selector-mode": ("agent", "cluster", "pod", "disabled"),
    "etcd-s3-bucket-lookup-type": ("auto", "dns", "path"),
    "secrets-encryption-provider": ("aescbc", "secretbox"),
}

_MODE = "write-kubeconfig-mode"
# What Go takes for a boolean.
_TRUTH = frozenset({"1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"})
_NUMBER = re.compile(r"[0-9]{1,9}")
_DURATION = re.compile(r"0|([0-9]{1,9}(\.[0-9]{1,9})?(ns|us|µs|ms|s|m|h)){1,6}")
_OCTAL = re.compile(r"[0-7]{3,5}")
_COLON = re.compile(r"-{0,2}[a-z0-9-]+\s*:\s")
MAX_PORT = 65535

# What is wrong with a value, in words that follow the name of its key, and what to write.
Fault = tuple[str, str]


def kind_of(key: str) -> Kind:
    return "texts" if key.endswith(TEXTS_END) else KINDS.get(key, "text")


def find_fault(key: str, value: Any) -> Fault | None:
    """Why no machine takes the value for the key; None where it may. Nothing at all, as YAML has it behind a bare key, is not
    set."""
    if value is None:
        return None
    match kind_of(key):
        case "switch":
            return (
                None
                if str(value) in _TRUTH
                else (_is(value, "neither true nor false"), "write true or false")
            )
        case "number":
            return _find_fault_of_number(key, value)
        case "duration":
            is_fine = not isinstance(value, bool) and _DURATION.fullmatch(str(value))
            return (
                None
                if is_fine
                else (_is(value, "no duration"), "write it with its unit, such as 300s or 5m0s")
            )
        case "texts":
            return next(_list_faults_of_texts(key, value), None)
        case "text":
            return _find_fault_of_text(key, value)


def _find_fault_of_number(key: str, value: Any) -> Fault | None:
    if isinstance(value, bool) or not _NUMBER.fullmatch(str(value)):
        return _is(value, "no number"), "write a whole number, such as 5"
    if key in _PORTS.split() and int(value) > MAX_PORT:
        return _is(value, "no port"), f"write a number up to {MAX_PORT}"
    return None


def _list_faults_of_texts(key: str, value: Any) -> Iterator[Fault]:
    if isinstance(value, Mapping):
        yield "is a map, and takes a list of texts", f"write {key}: [{_as_entries(key, value)}]"
        return
    for one in value if isinstance(value, list | tuple) else [value]:
        if isinstance(one, Mapping):
            yield "has a map as an entry, and takes texts", f"write {key}: [{_as_entries(key, one)}]"
        elif isinstance(one, bool | list | tuple):
            yield _has(one, "no text"), f"write {key}: [{_example(key)}]"
        elif key.endswith("-arg") and _COLON.match(str(one)):
            yield (
                _has(one, "with : where a flag has ="),
                f"write {re.sub(_COLON, _with_equals, str(one), count=1)}",
            )


def _with_equals(found: re.Match[str]) -> str:
    return found[0].rstrip().removesuffix(":").rstrip() + "="


def _find_fault_of_text(key: str, value: Any) -> Fault | None:
    if isinstance(value, Mapping):
        return "is a map, and takes one text", f"write {key}: TEXT"
    if isinstance(value, list | tuple):
        if len(value) < 2:
            return _find_fault_of_text(key, value[0]) if value else None
        return f"is a list of {len(value)}, and takes one text: the last one counts", "write that alone"
    if isinstance(value, bool):
        return _is(value, "no text"), "write a text"
    if key == _MODE and not _OCTAL.fullmatch(str(value)):
        return _is(value, "no file mode"), 'write it with quotes, such as "0640"'
    return None


def find_doubt(key: str, value: Any) -> Fault | None:
    """Why a value may not be what its user meant, or not be known to the release; None where nothing is to tell."""
    if isinstance(value, list | tuple) and len(value) == 1:
        return find_doubt(key, value[0])
    if key == _MODE and isinstance(value, int) and _OCTAL.fullmatch(str(value)) and value < 0o1000:
        meant = f"{value:04o}"
        fault = f"is the number {value}, as YAML reads {meant} without quotes, and machines take it for the mode {value}"
        return fault, f'write "{meant}" if that is meant, else "0{value}", with quotes'
    choices = CHOICES.get(key)
    if choices and value is not None and str(value) not in choices:
        return _is(value, "none that is known"), f"write {', '.join(choices[:-1])} or {choices[-1]}"
    return None


def _is(value: Any, what: str) -> str:
    return f"is {_shown(value)}, which is {what}"


def _has(value: Any, what: str) -> str:
    return f"has {_shown(value)}, {what}"


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else abbreviate(str(value))


def _example(key: str) -> str:
    return "max-pods=250" if key.endswith("-arg") else "TEXT"


MAX_ENTRIES = 3  # of a map, in a hint


def _as_entries(key: str, value: Mapping[str, Any]) -> str:
    """The entries of a map as the list that was meant, as far as they are plain."""
    sign = "=" if not key.endswith("-extra-mount") else ":"
    plain = [f"{name}{sign}{one}" for name, one in value.items() if isinstance(one, str | int)]
    if not plain or len(plain) < len(value) or any(len(one) > 60 for one in plain):
        return _example(key)
    shown = ", ".join(plain[:MAX_ENTRIES])
    return shown + (", …" if len(plain) > MAX_ENTRIES else "")
