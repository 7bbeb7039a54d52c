from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.cloudinit.document import BadUserData, Document, emit, parse
from windrow.core.formats.yaml import load

# PyYAML loses U+0085 and its like in plain keys; they are not used, and cloud-init loses them too.
texts = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")) | st.sampled_from("\n\t:#-'\""))
scalars = st.none() | st.booleans() | st.integers() | texts
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
)


def test_nothing_becomes_a_header_only() -> None:
    assert emit(parse("")) == "#cloud-config\n"


def test_the_jinja_header_stays_in_front() -> None:
    text = "## template: jinja\n#cloud-config\nhostname: '{{ v1.local_hostname }}'\n"
    assert emit(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("#!/bin/sh\necho hi\n", "a script"),
        ("Content-Type: multipart/mixed; boundary=x\n\n--x\n", "a MIME archive"),
        ("MIME-Version: 1.0\n", "a MIME archive"),
        ("#include\nhttps://example.org/a\n", "an include list"),
        ("#cloud-config-archive\n- type: text/plain\n", "a cloud-config archive"),
        ("## template: jinja\n#!/bin/sh\n", "a script"),
        ("From MAILER Thu Jan  1 00:00:00 1970\n", "a MIME archive"),
        ("#cloud-boothook\n#!/bin/sh\n", "a boothook"),
        ("#part-handler\n", "a part handler"),
        ("#upstart-job\n", "an upstart job"),
    ],
)
def test_other_forms_of_user_data_are_refused_by_name(text: str, form: str) -> None:
    with pytest.raises(BadUserData) as refused:
        parse(text)
    assert form in refused.value.message
    assert "runcmd" in refused.value.hint


@pytest.mark.parametrize("text", ["- a\n- b\n", "just words\n", "42\n", "I2Nsb3VkLWNvbmZpZ\n"])
def test_what_is_not_a_map_is_refused(text: str) -> None:
    with pytest.raises(BadUserData, match=r"not a map|neither base64 nor cloud-config"):
        parse(text)


def test_broken_yaml_is_refused_in_one_line() -> None:
    with pytest.raises(BadUserData, match="line 2") as refused:
        parse("a: 1\n  b: 2\n")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("written", ["0644", "'0644'", '"0644"', "420", "0o644"])
def test_permissions_are_written_as_text(written: str) -> None:
    emitted = emit(parse(f"write_files:\n- path: /a\n  permissions: {written}\n"))
    assert load(emitted)["write_files"][0]["permissions"] in ("0644", "0o644")


def test_a_boolean_is_no_file_mode() -> None:
    assert "permissions: true" in emit(parse("write_files:\n- path: /a\n  permissions: yes\n"))


@pytest.mark.parametrize(
    ("word", "meaning"),
    [
        ("yes", True),
        ("on", True),
        ("n", "n"),
        ("1:30", "1:30"),  # 90 in base 60 by YAML 1.1, which is never meant
        ("0755", 0o755),
        ("1e3", "1e3"),
        ("2026-01-01", date(2026, 1, 1)),
        ("~", None),
        ("'no'", "no"),
        ("'010'", "010"),
    ],
)
def test_yaml_words_mean_the_same_to_cloud_init_after_a_round_trip(word: str, meaning: Any) -> None:
    assert load(emit(parse(f"a: {word}\n"))) == {"a": meaning}


@pytest.mark.parametrize(
    "written",
    [
        "1e3",
        "0o17",
        "08",
        "0755",
        "1.0",
        "1.10",
        "1_000",
        "0x1F",
        ".inf",
        "1.0e+3",
        "2026-01-01",
        "'010'",
        '"08"',
        "'yes'",
    ],
)
def test_scalars_are_written_back_as_they_stood(written: str) -> None:
    assert emit(parse(f"a: {written}\n")) == f"#cloud-config\na: {written}\n"
    assert emit(parse(f"a: [{written}]\n")) == f"#cloud-config\na:\n- {written}\n"


@pytest.mark.parametrize("written", ["22:22", "10:30", "1:30:00", "-1:30", "1:30.5", "'22:22'"])
def test_two_numbers_with_a_colon_are_a_text(written: str) -> None:
    assert load(emit(parse(f"a: {written}\n"))) == {"a": written.strip("'")}
    assert load(emit(parse(f"{written}: a\n"))) == {written.strip("'"): "a"}


def test_of_several_documents_the_first_counts() -> None:
    first = parse("#cloud-config\n---\nhostname: a\n---\nhostname: b\n")
    assert first.data == {"hostname": "a"}
    assert first.has_more
    assert not parse("---\nhostname: a\n---\n").has_more


@given(st.dictionaries(texts.filter(lambda key: key != "write_files"), values, max_size=4))
def test_what_is_emitted_is_parsed_back(data: dict[str, Any]) -> None:
    assert parse(emit(Document(data))).data == data
