"""Secrets leave a text, and what the text is about stays."""

from __future__ import annotations

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.machines.plugin.process.redaction import Redactor

ENCODERS = (b64encode, urlsafe_b64encode)


def test_names_and_addresses_stay_readable_and_secrets_do_not() -> None:
    kubeconfig = (
        "server: https://harvester.example.org:6443\npassword: hunter2\ntoken: 'kubeconfig-user:x4b2'\n"
        "name: c1-pool1-abcde-fghij\npath: /etc/rancher/rke2/config.yaml\nkey: QmFzZTY0IGRhdGEgaGVyZQ==\n"
    )
    hide = Redactor([kubeconfig, "s3cret"], ["c1-pool1-abcde-fghij"])

    plain = "https://harvester.example.org:6443 refuses c1-pool1-abcde-fghij /etc/rancher/rke2/config.yaml"
    assert hide(plain) == plain
    assert hide("hunter2 kubeconfig-user:x4b2 QmFzZTY0IGRhdGEgaGVyZQ== s3cret") == "… … … …"


DOCUMENT = """#cloud-config
chpasswd:
  list: |
    root:hunter2!
  expire: false
users:
- name: a
  plain_text_passwd: Pa55word!
- {name: b, passwd: "two words"}
- {name: c, passwd: 'three of them'}
runcmd:
- echo 'admin:from-a-pipe' | chpasswd
- helm install app nginx:latest
write_files:
- content: |
    K3S_TOKEN=abc123def
    agent-token: s3cr3t-agent
    {"secretKey": "of-a-json"}
"""


@pytest.mark.parametrize(
    "secret",
    [
        "hunter2!",
        "Pa55word!",
        "two words",
        "three of them",
        "from-a-pipe",
        "abc123def",
        "s3cr3t-agent",
        "of-a-json",
    ],
)
def test_named_passwords_and_tokens_are_redacted(secret: str) -> None:
    assert Redactor([DOCUMENT])(f"it is {secret} here") == "it is … here"


@pytest.mark.parametrize(
    ("word", "is_hidden"),
    [
        ("abcdefgh12345678", True),  # 16 letters with a digit
        ("abcdefgh1234567", False),
        ("abcdefghijklmnop", False),
        ("abcdefghijklmnopqrstuvwx", True),  # 24 without
        ("abcdefghijklmnopqrstuvw", False),
        ("abcdefgh12345678:", False),  # a key
        ("/abcdefgh/12345678", False),
        ("https://abcdefgh1234", False),
    ],
)
def test_a_long_word_of_a_document_is_a_secret_unless_it_is_an_address_a_path_or_a_key(
    word: str, is_hidden: bool
) -> None:
    told = Redactor([f"first {word} last"])(f"it is {word}")
    assert told == ("it is …" if is_hidden else f"it is {word}")


def test_a_secret_of_fewer_than_six_letters_stays_as_it_would_hide_half_of_every_line() -> None:
    assert Redactor(["abcdef"])("abcdef abcde") == "… abcde"
    assert Redactor(["abcde"])("abcdef abcde") == "abcdef abcde"


def test_other_text_of_a_document_stays() -> None:
    plain = "helm install app nginx:latest fails on write_files with expire: false"
    assert Redactor([DOCUMENT])(plain) == plain


@given(before=st.binary(max_size=20), behind=st.binary(max_size=20), encode=st.sampled_from(ENCODERS))
def test_a_secret_in_base64_is_hidden_wherever_it_begins(
    before: bytes, behind: bytes, encode: Callable[[bytes], bytes]
) -> None:
    secret = "s3cret?>~of~the~cluster"
    told = Redactor([secret])(encode(before + secret.encode() + behind).decode())

    assert "…" in told
    letters = encode(before + b"\0" * len(secret) + behind).decode().rstrip("=")
    assert len(told.rstrip("=")) <= len(letters) - 4 * len(secret) // 3 + 3


@given(kept=st.integers(1, 63))
def test_of_a_secret_that_is_cut_off_nothing_shows(kept: int) -> None:
    secrets = [bytes(range(48, 112)).decode(), "first second"]
    told = Redactor(secrets).redact_truncated(f"told: {secrets[0][:kept]}")

    assert told == ("told: …" if kept >= 4 else f"told: {secrets[0][:kept]}")


def test_a_cut_behind_a_secret_that_overlaps_another_leaves_neither() -> None:
    assert Redactor(["one-two-three", "three-four-five"]).redact_truncated("x one-two-three-fo") == "x …"


def test_of_two_secrets_the_longer_is_hidden_whole() -> None:
    assert Redactor(["abcdef", "abcdef-ghijkl"])("abcdef-ghijkl abcdef") == "… …"


def test_a_beginning_of_a_secret_in_the_middle_of_a_text_is_not_its_end() -> None:
    assert Redactor(["s3cret-long"]).redact_truncated("it: s3cr- and s3cre") == "it: s3cr- and …"
    assert Redactor(["s3cret-long"]).redact_truncated("it: s3cr- and more") == "it: s3cr- and more"
