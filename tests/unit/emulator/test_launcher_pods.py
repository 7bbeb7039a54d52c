"""What a virt-launcher pod says of its VM."""

from __future__ import annotations

import pytest

from windrow.emulator.vms.instances.launcher_pods import render_pod
from windrow.kubernetes.objects import annotations_of, labels_of


@pytest.mark.parametrize(
    ("name", "hostname", "label"),
    [
        ("node-1", None, "node-1"),
        ("node-1", "web", "web"),
        ("node-1.example", None, "node-1"),
        ("n" * 70, None, "n" * 63),
    ],
    ids=["name", "hostname", "dots", "long"],
)
def test_kubevirt_s_label_has_the_host_name_of_the_guest_and_the_annotation_the_name_of_the_vm(
    name: str, hostname: str | None, label: str
) -> None:
    spec = {"domain": {}, **({"hostname": hostname} if hostname else {})}
    labels = {"vm.kubevirt.io/name": name}
    metadata = {"name": name, "namespace": "default", "uid": "u", "labels": labels}

    pod = render_pod({"metadata": metadata, "spec": spec}, "virt-launcher-x")

    assert labels_of(pod)["vm.kubevirt.io/name"] == pod["spec"]["hostname"] == label
    assert annotations_of(pod)["kubevirt.io/domain"] == name
