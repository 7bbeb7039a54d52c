"""Secrets leave a text, and what the text is about stays."""

from __future__ import annotations

from windrow.machines.redaction import Redaction


def test_names_and_addresses_stay_readable_and_secrets_do_not() -> None:
    kubeconfig = (
        "server: https://harvester.example.org:6443\npassword: hunter2\ntoken: 'kubeconfig-user:x4b2'\n"
        "name: c1-pool1-abcde-fghij\npath: /etc/rancher/rke2/config.yaml\nkey: QmFzZTY0IGRhdGEgaGVyZQ==\n"
    )
    hide = Redaction([kubeconfig, "s3cret"], ["c1-pool1-abcde-fghij"])

    plain = "https://harvester.example.org:6443 refuses c1-pool1-abcde-fghij /etc/rancher/rke2/config.yaml"
    assert hide(plain) == plain
    assert hide("hunter2 kubeconfig-user:x4b2 QmFzZTY0IGRhdGEgaGVyZQ== s3cret") == "… … … …"
