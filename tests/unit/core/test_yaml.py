import subprocess
import sys

import pytest
import yaml as pyyaml
from hypothesis import given
from hypothesis import strategies as st

from windrow.core.formats import yaml

TEXTS = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]), st.sampled_from("\n\r\t \x85\u2028\u2029\ufeff:#'\"-|>")
    )
)


@given(st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(), st.booleans(), st.none(), st.lists(TEXTS))))
def test_what_is_written_reads_back_unchanged(value: dict[str, object]) -> None:
    assert yaml.load(yaml.dump(value)) == value


def test_text_is_written_as_it_is_unless_all_is_to_be_escaped() -> None:
    assert yaml.dump({"name": "Zürich"}) == "name: Zürich\n"
    assert yaml.dump({"name": "Zürich"}, ascii_only=True) == 'name: "Z\\xFCrich"\n'


def test_text_of_several_lines_is_written_as_a_block() -> None:
    assert yaml.dump({"script": "a\nb\n"}) == "script: |\n  a\n  b\n"


def test_text_that_looks_like_something_else_is_quoted() -> None:
    assert yaml.dump({"mode": "0640", "on": "yes"}) == "mode: '0640'\n'on': 'yes'\n"


def test_keys_keep_their_order_unless_sorted() -> None:
    assert yaml.dump({"b": 1, "a": 2}) == "b: 1\na: 2\n"
    assert yaml.dump({"b": 1, "a": 2}, sort=True) == "a: 2\nb: 1\n"


def test_documents_are_separated_and_empty_ones_left_out() -> None:
    assert yaml.load_all(yaml.dump_all([{"a": 1}, {"b": 2}]) + "---\n") == [{"a": 1}, {"b": 2}]


@pytest.mark.parametrize("text", ["a: [", "\tx", "a: b: c", "!!python/object:os.system {}"])
def test_what_is_no_yaml_is_refused(text: str) -> None:
    with pytest.raises(yaml.NotYaml):
        yaml.load(text)


@pytest.mark.parametrize("text", ["a: [", b"a: ["])
def test_the_position_of_an_error_quotes_nothing(text: str | bytes) -> None:
    with pytest.raises(yaml.NotYaml, match=r"line \d") as refused:
        yaml.load(text)

    assert "string>" not in str(refused.value)


def test_an_error_names_line_and_column_and_never_quotes_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for loader in (pyyaml.SafeLoader, yaml._Loader):
        monkeypatch.setattr(yaml, "_Loader", loader)
        for text in ('a:\n  token: "secret\n', "a:\n  token: secret: x\n"):
            with pytest.raises(yaml.NotYaml, match="at line") as caught:
                yaml.load(text)
            assert "secret" not in str(caught.value)


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
MERGES = "a0: &a0 {x: 1, y: 2}\n" + "".join(
    f"a{n}: &a{n}\n  <<: [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)
)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("&a [*a]", "inside the value that it is an alias of"),
        ("x: &a\n  y:\n  - z: *a\n", "inside the value that it is an alias of"),
        ("&a !!pairs [b: *a]", "inside the value that it is an alias of"),
        (BOMB, "more than 50000 values"),
        ("[" * 200 + "*a" + "]" * 200, "undefined alias"),
        ("[" * 201 + "]" * 201, "more than 200 levels deep"),
        ("- " * 201, "more than 200 levels deep"),
        ("- a\n" * 60_000, "more than 50000 values"),
        ("---\n" * 60_000, "more than 50000 values"),
        (MERGES, "more than 50000 values"),
        ("1" + ":1" * 2000, "a number of more than 1000 characters"),
        ("!!int '" + "1" * 2000 + "'", "a number of more than 1000 characters"),
    ],
)
def test_a_document_without_an_end_or_beyond_the_bounds_is_refused(text: str, why: str) -> None:
    for form in (text, text.encode()):
        with pytest.raises(yaml.NotYaml, match=why):
            yaml.load(form)
        with pytest.raises(yaml.NotYaml, match=why):
            yaml.load_all(form)


def test_aliases_expand_to_their_anchors() -> None:
    assert yaml.load("a: &a {x: 1}\nb: *a\nc: [*a, *a]\n") == {
        "a": {"x": 1},
        "b": {"x": 1},
        "c": [{"x": 1}] * 2,
    }


@pytest.mark.parametrize("unit", ["[", "{a: ", "? ", "- ", "[\n"])
@pytest.mark.parametrize("size", [25_000, 3_000_000])
@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
def test_a_deep_document_ends_no_process(unit: str, size: int, loader: str) -> None:
    """In a process of its own: what is tested against is a fault of the C stack."""
    code = (
        "import yaml as y; from windrow.core.formats import yaml\n"
        f"yaml._Loader = y.{loader}\n"
        f"for read in yaml.load, yaml.load_all:\n"
        f"    try: read({unit!r} * {size // len(unit)})\n"
        f"    except yaml.NotYaml as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("nested more than 200 levels deep") == 2


@pytest.mark.parametrize(
    "text", ["!!bool maybe", "!!int ''", "!!float ''", "!!timestamp x", "1" + ":10" * 300 + ".5"]
)
def test_values_for_which_pyyaml_has_no_error_of_its_own_are_refused(text: str) -> None:
    with pytest.raises(yaml.NotYaml):
        yaml.load(text)


def test_long_text_is_no_number() -> None:
    assert yaml.load(f"a: {'f' * 5000}\nb: '{'1' * 5000}'\n") == {"a": "f" * 5000, "b": "1" * 5000}


def test_depth_and_number_of_values_up_to_the_bounds_are_read() -> None:
    assert yaml.load("[" * 200 + "]" * 200)
    assert len(yaml.load("- a\n" * 49_000)) == 49_000


def test_a_key_that_a_mapping_has_twice_is_told_with_both_lines() -> None:
    text = "a: {b: 1}\nc:\n  - b: 1\n    d: 2\n  - b: 1\n    b: 3\n"

    with pytest.raises(yaml.NotYaml, match="line 6 has the key 'b', which its mapping has in line 5 already"):
        yaml.load_unique(text)

    assert yaml.load_all(text) == [{"a": {"b": 1}, "c": [{"b": 1, "d": 2}, {"b": 3}]}]


@pytest.mark.parametrize(
    "text",
    [
        "a: {b: b}\nb: [b, b, {b: 1}]\n---\na: 1\n",
        "x: &x {a: 1}\ny: &y {b: 2}\nz: {<<: *x, c: 3}\nw:\n  <<: *x\n  <<: *y\n",
        "a: a\nb: {}\nc: []\nd: 1\n",
    ],
)
def test_a_key_may_be_in_several_mappings_and_among_values(text: str) -> None:
    assert yaml.load_unique(text) == yaml.load_all(text)
