"""A memory holds no credential and no path of this host, and the driver gets back what it had."""

from __future__ import annotations

import base64
import gzip
import json
import re
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.machines.plugin.sanitizer import SecretSanitizer
from windrow.machines.port import synthetic_uid

STORE = Path("/var/lib/windrow/machines/uid-1")


def a_sanitizer(driver: str = "noop", **credential: str) -> SecretSanitizer:
    return SecretSanitizer(driver, credential, STORE, STORE / "user-data")


def test_credential_values_are_replaced_by_field_names_and_restored() -> None:
    config = {
        "Key": "s3cret-key",
        "Deep": [{"url": "https://u:s3cret-key@host/"}],
        "Basic": "czNjcmV0LWtleQ==",
    }
    sanitized = a_sanitizer(key="s3cret-key").sanitize(config)

    assert "s3cret-key" not in str(sanitized)
    assert "czNjcmV0" not in str(sanitized)
    assert a_sanitizer(key="s3cret-key").restore(sanitized) == {**config, "StorePath": str(STORE)}


def test_a_credential_without_its_line_end_is_removed_from_longer_text_too() -> None:
    config = {"Url": "https://u:s3cret-key@host/", "Basic": "Basic czNjcmV0LWtleQo="}
    sanitizer = a_sanitizer(key="s3cret-key\n")
    sanitized = sanitizer.sanitize(config)

    assert "s3cret" not in str(sanitized)
    assert "czNjcmV0" not in str(sanitized)
    assert sanitizer.restore(sanitized).items() >= config.items()


@pytest.mark.parametrize(
    "secret",
    ["credential", "credential\n", "${windrow:", "windrow:credential:key", "windrow:document", "document"],
)
def test_a_credential_that_is_a_word_of_placeholders_is_removed_and_restored(secret: str) -> None:
    config = {
        "Key": secret,
        "Url": f"https://u:{secret}@host/{secret}",
        "Both": f"{secret} {DOCUMENT} {secret}",
        "Basic": f"Basic {b64(secret.encode())}",
    }
    sanitizer = replace(of_a_document(DOCUMENT), credential={"key": secret})
    sanitized = sanitizer.sanitize(config)

    assert secret not in [re.sub(r"\$\{windrow:[^}]*\}", "", text) for text in sanitized.values()]
    assert sanitizer.restore(sanitized).items() >= config.items()


def test_a_credential_that_reads_as_a_placeholder_is_restored_as_it_is() -> None:
    credential = {"user": "${windrow:credential:key}", "key": "s3cret-key"}
    config = {"Auth": "${windrow:credential:key}:s3cret-key"}
    sanitizer = a_sanitizer(**credential)

    assert sanitizer.restore(sanitizer.sanitize(config)).items() >= config.items()


def test_a_rotated_credential_takes_effect() -> None:
    sanitized = a_sanitizer(key="s3cret-key").sanitize({"Key": "s3cret-key"})
    assert a_sanitizer(key="another").restore(sanitized)["Key"] == "another"


def test_a_short_value_is_only_replaced_as_a_whole() -> None:
    sanitized = a_sanitizer(zone="a").sanitize({"Zone": "a", "Name": "banana"})
    assert sanitized["Name"] == "banana"
    assert a_sanitizer(zone="b").restore(sanitized)["Zone"] == "b"


def test_paths_of_this_host_are_removed_and_restored() -> None:
    config = {
        "StorePath": str(STORE),
        "SSHKeyPath": f"{STORE}/machines/m/id_rsa",
        "File": f"{STORE}/user-data",
    }
    sanitized = a_sanitizer().sanitize(config)

    assert sanitized == {"StorePath": "", "SSHKeyPath": "", "File": ""}
    assert a_sanitizer().restore(sanitized)["StorePath"] == str(STORE)


def test_a_kubeconfig_is_removed_entirely() -> None:
    sanitizer = a_sanitizer("harvester", kubeconfigContent="apiVersion: v1\n")
    sanitized = sanitizer.sanitize({"KubeConfigContent": "decoded differently", "CPU": 2})

    assert sanitized == {"KubeConfigContent": "", "CPU": 2}
    assert sanitizer.restore(sanitized)["KubeConfigContent"] == "apiVersion: v1\n"


def test_a_foreign_driver_does_not_see_our_keys_and_our_own_does() -> None:
    memory = {"WindrowMachineUID": "uid-1", "Id": "i-1"}
    assert "WindrowMachineUID" not in a_sanitizer().restore(memory)
    assert a_sanitizer("harvester").restore(memory)["WindrowMachineUID"] == "uid-1"


def test_a_machine_of_the_go_driver_is_not_identified_by_owner_annotations() -> None:
    marks = {"WindrowMachineUID": "uid-1", "WindrowClusterUID": "c-1"}
    restored = a_sanitizer("harvester").restore(
        {**marks, "WindrowVMUID": synthetic_uid("harvester", "uid-1")}
    )
    assert {restored[key] for key in (*marks, "WindrowVMUID")} == {""}

    made = {**marks, "WindrowVMUID": "0c7a"}
    assert a_sanitizer("harvester").restore(made).items() >= made.items()


DOCUMENT = "#cloud-config\nwrite_files:\n- content: 'token: \"s3cret-of-the-cluster\"'\n"


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def folded(text: str) -> str:
    return "\n".join(textwrap.wrap(text, 20))


def of_a_document(document: str) -> SecretSanitizer:
    return replace(a_sanitizer(), document=document)


def forms_of(document: str) -> dict[str, str]:
    return {
        "text": document,
        "trimmed": document.strip(),
        "within": f"header\n{document}footer",
        "base64": b64(document.encode()),
        "base64, trimmed": b64(document.strip().encode()),
        "without padding": b64(document.encode()).rstrip("="),
        "data URL": f"data:text/plain;base64,{b64(document.encode())}",
        "JSON": json.dumps({"user-data": document}),
    }


@pytest.mark.parametrize("form", forms_of(""))
@pytest.mark.parametrize("more", ["", "x", "xx"])
def test_the_bootstrap_document_is_removed_and_restored_while_the_machine_is_created(
    form: str, more: str
) -> None:
    document = DOCUMENT + more
    config = {"UserData": forms_of(document)[form], "Deep": [{"it": forms_of(document)[form]}]}
    sanitized = of_a_document(document).sanitize(config)

    assert not holds_secret(sanitized)
    assert of_a_document(document).restore(sanitized).items() >= config.items()
    assert (
        of_a_document(another := "#another\n" + document).restore(sanitized)["UserData"]
        == forms_of(another)[form]
    )
    assert a_sanitizer().restore(sanitized)["UserData"] == sanitized["UserData"]


@pytest.mark.parametrize(
    ("form", "around"),
    [
        ("text", ""),
        ("trimmed", ""),
        ("within", "header\nfooter"),
        ("base64", ""),
        ("base64, trimmed", ""),
        ("without padding", ""),
        ("data URL", "data:text/plain;base64,"),
        ("JSON", '{"user-data": ""}'),
    ],
)
@pytest.mark.parametrize("document", [DOCUMENT, DOCUMENT + "x"])
def test_of_a_bootstrap_document_no_letter_is_recorded(form: str, around: str, document: str) -> None:
    sanitized = of_a_document(document).sanitize({"UserData": forms_of(document)[form]})
    assert re.sub(r"\$\{windrow:[^}]*\}", "", sanitized["UserData"]) == around


@pytest.mark.parametrize(
    "text",
    [
        folded(b64(DOCUMENT.encode())),
        b64(f"..{DOCUMENT}..".encode()),
        f"x:{b64(f'.{DOCUMENT}..'.encode())}",
        b64(gzip.compress(f"a{DOCUMENT}b".encode())),
        base64.urlsafe_b64encode(DOCUMENT.encode()).decode(),
        b64(gzip.compress(DOCUMENT.encode(), 1)),
    ],
)
def test_a_value_that_packs_the_document_is_removed_entirely(text: str) -> None:
    sanitized = of_a_document(DOCUMENT).sanitize({"UserData": text})
    assert sanitized["UserData"].startswith("${windrow:document:")
    assert sanitized["UserData"].endswith("}")


@pytest.mark.parametrize("before", ["", ".", ".."])
def test_a_credential_within_a_packed_document_hides_nothing_of_the_rest(before: str) -> None:
    """A driver that packs its wrapper and the document in base64, at an offset where the credential's base64 occurs."""
    key = "abcdefghijkl"  # of 3n characters, so that its base64 is whole at a fitting offset
    document = f"#cloud-config\n{before}{key}\nruncmd: [install --token s3cret-of-the-cluster]\n"
    packed = b64(f"<{document}>".encode())
    sanitizer = replace(of_a_document(document), credential={"key": key})
    sanitized = sanitizer.sanitize({"UserData": packed, "Line": folded(packed)})

    assert not holds_secret(sanitized)
    assert sanitized["UserData"] == sanitized["Line"] == "${windrow:document:lost}"


@pytest.mark.parametrize("before", ["", "x", "xx"])
def test_a_credential_within_other_base64_is_removed_with_the_whole_value(before: str) -> None:
    config = {"Auth": b64(f"{before}s3cret-key12:and more".encode())}
    sanitized = a_sanitizer(key="s3cret-key12\n").sanitize(config)
    assert sanitized == {"Auth": "${windrow:credential:lost}"}


def test_the_base64_of_a_short_value_is_replaced_as_a_whole_only() -> None:
    config = {"Zone": b64(b"abc"), "Image": "YWJj-server"}
    sanitizer = a_sanitizer(zone="abc")
    sanitized = sanitizer.sanitize(config)

    assert sanitized == {"Zone": "${windrow:credential:base64:zone}", "Image": "YWJj-server"}
    assert sanitizer.restore(sanitized).items() >= config.items()


def test_what_is_no_document_stays_as_it_is() -> None:
    config = {
        "Script": "#cloud-config\n",
        "Blob": b64(gzip.compress(b"something")),
        "Odd": "H4sI!",
        "Empty": "",
    }
    assert of_a_document(DOCUMENT).sanitize(config) == config
    assert of_a_document("#cloud-config\n").sanitize(config) == config


def holds_secret(config: dict[str, Any]) -> bool:
    """Whether the document's token is in there, as far as a reader would look."""
    text = json.dumps(config)
    packed = [gzip.decompress(base64.b64decode(each)) for each in re.findall(r"H4sI[\w+/=]+", text)]
    plain = [base64.b64decode(each[: len(each) // 4 * 4]) for each in re.findall(r"[\w+/]{8,}", text)]
    return any(b"s3cret-of" in each for each in [text.encode(), *packed, *plain])


values: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(config=st.dictionaries(st.text(), values, max_size=5), secret=st.text(min_size=8))
def test_no_configuration_keeps_a_long_secret_in_its_values(config: dict[str, Any], secret: str) -> None:
    config = {**config, "Key": secret, "In": f"<{secret}>", "B": base64.b64encode(secret.encode()).decode()}
    sanitizer = a_sanitizer(key=secret)
    sanitized = sanitizer.sanitize(config)

    assert sanitized["Key"] != secret
    restored = sanitizer.restore(sanitized)
    assert {key: restored[key] for key in ("Key", "In", "B")} == {
        key: config[key] for key in ("Key", "In", "B")
    }


def test_a_document_of_forty_letters_may_hold_a_secret_and_a_shorter_one_cannot() -> None:
    forty = "#cloud-config\nruncmd: [install -t s3cret]"
    assert len(forty) == 41
    for document, is_removed in ((forty[:40], True), (forty[:39], False)):
        sanitized = of_a_document(document).sanitize({"UserData": document})
        assert (sanitized["UserData"] != document) is is_removed


def test_a_configuration_gets_no_key_that_it_did_not_have() -> None:
    assert a_sanitizer("harvester").sanitize({"MachineName": "m"}) == {"MachineName": "m"}
