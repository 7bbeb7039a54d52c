"""JSON in Go's words. The texts were printed by encoding/json of Go 1.26 for exactly these inputs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.core.json import dumps, loads
from windrow.nodedriver.go_compat.json import decode
from windrow.nodedriver.go_compat.shapes import DISK_INFO, STORED
from windrow.nodedriver.go_compat.syntax import DEEPEST, GoJsonError, check_syntax

SYNTAX = [
    (b"", "unexpected end of JSON input"),
    (b" ", "unexpected end of JSON input"),
    (b'{"a":1', "unexpected end of JSON input"),
    (b'"a', "unexpected end of JSON input"),
    (b"[1", "unexpected end of JSON input"),
    (b'{"a":1,}', "invalid character '}' looking for beginning of object key string"),
    (b"{1:2}", "invalid character '1' looking for beginning of object key string"),
    (b"[1,]", "invalid character ']' looking for beginning of value"),
    (b"[1 2]", "invalid character '2' after array element"),
    (b'{"a" 1}', "invalid character '1' after object key"),
    (b'{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
    (b"{}x", "invalid character 'x' after top-level value"),
    (b'{"a":1}}', "invalid character '}' after top-level value"),
    (b"tru", "invalid character ' ' in literal true (expecting 'e')"),
    (b"nulx", "invalid character 'x' in literal null (expecting 'l')"),
    (b"falsx", "invalid character 'x' in literal false (expecting 'e')"),
    (b"01", "invalid character '1' after top-level value"),
    (b"-x", "invalid character 'x' in numeric literal"),
    (b"1.x", "invalid character 'x' after decimal point in numeric literal"),
    (b"1e+", "invalid character ' ' in exponent of numeric literal"),
    (b'"\\x"', "invalid character 'x' in string escape code"),
    (b'"\\u12g4"', "invalid character 'g' in \\u hexadecimal character escape"),
    (b'"a\nb"', "invalid character '\\n' in string literal"),
    (b'"\x01"', "invalid character '\\x01' in string literal"),
    (b"'a'", "invalid character '\\'' looking for beginning of value"),
    (b"NaN", "invalid character 'N' looking for beginning of value"),
    (b"-Infinity", "invalid character 'I' in numeric literal"),
    ("é".encode(), "invalid character 'Ã' looking for beginning of value"),
    (b"\x7f", "invalid character '\\x7f' looking for beginning of value"),
]


@pytest.mark.parametrize(("text", "said"), SYNTAX, ids=[repr(text) for text, _ in SYNTAX])
def test_what_is_no_json_is_refused_in_go_s_words(text: bytes, said: str) -> None:
    with pytest.raises(GoJsonError) as error:
        decode(text, DISK_INFO)
    assert str(error.value) == said


FIELD = "json: cannot unmarshal {} into Go struct field {} of type {}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"disks":[{"size":"40"}]}', FIELD.format("string", "Disk.disks.size", "int")),
        ('{"disks":[{"size":1.5}]}', FIELD.format("number 1.5", "Disk.disks.size", "int")),
        ('{"disks":[{"size":1e2}]}', FIELD.format("number 1e2", "Disk.disks.size", "int")),
        (
            '{"disks":[{"size":99999999999999999999}]}',
            FIELD.format("number 99999999999999999999", "Disk.disks.size", "int"),
        ),
        ('{"disks":[{"bootOrder":-1}]}', FIELD.format("number -1", "Disk.disks.bootOrder", "uint")),
        ('{"disks":[{"hotPlugAble":"true"}]}', FIELD.format("string", "Disk.disks.hotPlugAble", "bool")),
        ('{"DISKS":[{"SIZE":true}]}', FIELD.format("bool", "Disk.disks.size", "int")),
        ('{"disks":{}}', FIELD.format("object", "DiskInfo.disks", "[]harvester.Disk")),
        ('{"disks":[5]}', FIELD.format("number", "DiskInfo.disks", "harvester.Disk")),
        ("[]", "json: cannot unmarshal array into Go value of type harvester.DiskInfo"),
        ('"x"', "json: cannot unmarshal string into Go value of type harvester.DiskInfo"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_in_go_s_words(text: str, said: str) -> None:
    with pytest.raises(GoJsonError) as error:
        decode(text.encode(), DISK_INFO)
    assert str(error.value) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"CPU":"2"}', FIELD.format("string", "targetDriver.CPU", "int")),
        ('{"SSHPort":"22"}', FIELD.format("string", "targetDriver.BaseDriver.SSHPort", "int")),
        ('{"DiskInfo":[]}', FIELD.format("array", "targetDriver.DiskInfo", "harvester.DiskInfo")),
        ('{"DiskInfo":{"disks":[{"size":"4"}]}}', FIELD.format("string", "Disk.DiskInfo.disks.size", "int")),
        ('{"IPAddress":5,"CPU":"x"}', FIELD.format("number", "targetDriver.BaseDriver.IPAddress", "string")),
        ("[]", "json: cannot unmarshal array into Go value of type harvester.targetDriver"),
    ],
)
def test_a_stored_value_of_the_wrong_type_is_refused_in_go_s_words(text: str, said: str) -> None:
    with pytest.raises(GoJsonError) as error:
        decode(text.encode(), STORED)
    assert str(error.value) == said


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("null", {}),
        ('{"disks":null}', {"disks": None}),
        ('{"Disks":[{"IMAGENAME":"a","unknown":[1]}]}', {"disks": [{"imageName": "a"}]}),
        ('{"disks":[],"disks":[{"size":1}]}', {"disks": [{"size": 1}]}),
        ('{"disks":[{"imageName":"\\ud800"}]}', {"disks": [{"imageName": "\ufffd"}]}),
        (b'{"disks":[{"imageName":"\xff"}]}', {"disks": [{"imageName": "\ufffd"}]}),
    ],
)
def test_what_go_tolerates_is_tolerated(text: str | bytes, found: Any) -> None:
    assert decode(text if isinstance(text, bytes) else text.encode(), DISK_INFO) == found


def test_endless_nesting_ends_in_go_s_words() -> None:
    with pytest.raises(GoJsonError, match=r"^exceeded max depth$"):
        decode(b"[" * 100_000, DISK_INFO)
    assert DEEPEST < 1000


@given(
    st.binary(max_size=40)
    | st.text(alphabet='{}[]",:truefalsn0123456789.eE+-\\u ', max_size=30).map(str.encode)
)
def test_any_bytes_end_in_a_value_or_in_go_s_words(text: bytes) -> None:
    said = "a value"
    try:
        decode(text, DISK_INFO)
    except GoJsonError as error:
        said = str(error)
    assert said


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda more: st.lists(more) | st.dictionaries(st.text(), more),
        max_leaves=10,
    )
)
def test_the_scanner_takes_what_a_writer_writes(value: Any) -> None:
    text = dumps(loads(dumps(value)))
    check_syntax(text)
