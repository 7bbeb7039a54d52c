from __future__ import annotations

from typing import Any

import pytest

from windrow.bootstrap.config.values import CHOICES, KINDS, find_doubt, find_fault, kind_of
from windrow.bootstrap.k3s.flags import KEYS as K3S_KEYS
from windrow.bootstrap.rke2.flags import KEYS as RKE2_KEYS

KEYS = RKE2_KEYS.find() | K3S_KEYS.find()


def test_each_key_that_has_a_kind_or_choices_is_one_of_a_distribution() -> None:
    assert set(KINDS) - KEYS == set()
    assert set(CHOICES) - KEYS == set()


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("disable-kube-proxy", "switch"),
        ("etcd-snapshot-retention", "number"),
        ("etcd-s3-timeout", "duration"),
        ("tls-san", "texts"),
        ("kubelet-arg", "texts"),
        ("etcd-extra-env", "texts"),
        ("kube-apiserver-extra-mount", "texts"),
        ("cluster-domain", "text"),
        ("of-a-later-release", "text"),
    ],
)
def test_a_key_takes_one_kind_of_value(key: str, kind: str) -> None:
    assert kind_of(key) == kind


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("debug", True),
        ("debug", "false"),
        ("debug", 1),
        ("debug", None),
        ("etcd-snapshot-retention", 5),
        ("etcd-snapshot-retention", "5"),
        ("etcd-snapshot-retention", None),
        ("lb-server-port", 65535),
        ("etcd-s3-timeout", "5m0s"),
        ("etcd-s3-timeout", "1.5h"),
        ("etcd-s3-timeout", 0),
        ("tls-san", "api.example.org"),
        ("tls-san", ["api.example.org", "10.0.0.1"]),
        ("tls-san", []),
        ("tls-san", None),
        ("cni", "multus,canal"),
        ("kubelet-arg", ["max-pods=250", "--v=2", "feature-gates=A=true"]),
        (
            "kubelet-arg",
            ["eviction-hard=imagefs.available<5%,nodefs.available<5%", "protect-kernel-defaults"],
        ),
        ("kube-apiserver-arg", ["audit-log-format=a: b", "oidc-issuer-url=https://id.example.org:8443"]),
        ("cluster-domain", "orchard.local"),
        ("cluster-domain", ["orchard.local"]),
        ("cluster-domain", []),
        ("etcd-s3-folder", 2026),
        ("etcd-s3-folder", ""),
        ("write-kubeconfig-mode", "0644"),
        ("write-kubeconfig-mode", "640"),
        ("write-kubeconfig-mode", 644),
        ("of-a-later-release", "x"),
        ("egress-selector-mode", "disabled"),
        ("egress-selector-mode", ["agent"]),
        ("egress-selector-mode", None),
    ],
)
def test_values_that_machines_take_are_nothing_to_tell(key: str, value: Any) -> None:
    assert (find_fault(key, value), find_doubt(key, value)) == (None, None)


@pytest.mark.parametrize(
    ("key", "value", "fault", "hint"),
    [
        ("debug", "ture", "is 'ture', which is neither true nor false", "write true or false"),
        ("debug", [True], "is '[True]', which is neither true nor false", "write true or false"),
        ("debug", {"a": 1}, "is \"{'a': 1}\", which is neither true nor false", "write true or false"),
        ("nonroot-devices", "", "is '', which is neither true nor false", "write true or false"),
        ("etcd-snapshot-retention", "five", "is 'five', which is no number", "write a whole number, such as 5"),
        ("etcd-snapshot-retention", -1, "is '-1', which is no number", "write a whole number, such as 5"),
        ("etcd-snapshot-retention", 2.5, "is '2.5', which is no number", "write a whole number, such as 5"),
        ("etcd-snapshot-retention", True, "is true, which is no number", "write a whole number, such as 5"),
        ("lb-server-port", 65536, "is '65536', which is no port", "write a number up to 65535"),
        ("etcd-s3-timeout", 300, "is '300', which is no duration", "write it with its unit, such as 300s or 5m0s"),
        ("etcd-s3-timeout", False, "is false, which is no duration", "write it with its unit, such as 300s or 5m0s"),
        ("kubelet-arg", {"max-pods": 250}, "is a map, and takes a list of texts", "write kubelet-arg: [max-pods=250]"),
        ("kubelet-arg", [{"max-pods": 250, "v": 2}], "has a map as an entry, and takes texts", "write kubelet-arg: [max-pods=250, v=2]"),
        ("kubelet-arg", {"a": 1, "b": 2, "c": 3, "d": 4}, "is a map, and takes a list of texts", "write kubelet-arg: [a=1, b=2, c=3, …]"),
        ("kubelet-arg", {"a": {"b": 1}}, "is a map, and takes a list of texts", "write kubelet-arg: [max-pods=250]"),
        ("kubelet-arg", {"a": "x" * 60}, "is a map, and takes a list of texts", "write kubelet-arg: [max-pods=250]"),
        ("tls-san", {}, "is a map, and takes a list of texts", "write tls-san: [TEXT]"),
        ("etcd-extra-mount", {"/a": "/b"}, "is a map, and takes a list of texts", "write etcd-extra-mount: [/a:/b]"),
        ("tls-san", [True], "has true, no text", "write tls-san: [TEXT]"),
        ("disable", False, "has false, no text", "write disable: [TEXT]"),
        ("tls-san", [["a"]], "has \"['a']\", no text", "write tls-san: [TEXT]"),
        ("kubelet-arg", ["v=2", "max-pods: 250"], "has 'max-pods: 250', with : where a flag has =", "write max-pods=250"),
        ("cluster-domain", {"a": "b"}, "is a map, and takes one text", "write cluster-domain: TEXT"),
        ("cluster-domain", [{"a": "b"}], "is a map, and takes one text", "write cluster-domain: TEXT"),
        ("cluster-domain", ["a", "b"], "is a list of 2, and takes one text: the last one counts", "write that alone"),
        ("profile", True, "is true, which is no text", "write a text"),
        ("write-kubeconfig-mode", 384, "is '384', which is no file mode", 'write it with quotes, such as "0640"'),
        ("write-kubeconfig-mode", "rw-r--r--", "is 'rw-r--r--', which is no file mode", 'write it with quotes, such as "0640"'),
    ],
)  # fmt: skip
def test_a_value_of_another_kind_is_a_fault_with_what_was_wanted(
    key: str, value: Any, fault: str, hint: str
) -> None:
    assert find_fault(key, value) == (fault, hint)


def test_a_file_mode_without_quotes_and_a_name_that_is_not_known_are_doubtful() -> None:
    mode = find_doubt("write-kubeconfig-mode", 420)
    assert mode == (
        "is the number 420, as YAML reads 0644 without quotes, and machines take it for the mode 420",
        'write "0644" if that is meant, else "0420", with quotes',
    )
    assert find_doubt("write-kubeconfig-mode", "420") is None
    assert find_doubt("write-kubeconfig-mode", 511) is not None
    assert find_doubt("write-kubeconfig-mode", 1000) is None
    assert find_doubt("egress-selector-mode", "agents") == (
        "is 'agents', which is none that is known",
        "write agent, cluster, pod or disabled",
    )
