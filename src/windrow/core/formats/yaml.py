"""YAML 1.1, as Kubernetes tools and cloud-init read it, by PyYAML. The only module that imports it.

The plugin process has PyYAML's pure files only; elsewhere its C loader is used.

Both loaders compose a document by recursion: libyaml's on the C stack, where 25 kB of `[` end the process. Aliases and
merge keys let a few lines stand for more than all memory. Therefore a text is read twice: first as a stream of events,
which needs no stack and stops at the first bound that is exceeded (depth, values with each alias counted as what it
stands for), and only then is anything built.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from windrow.core.formats.bounds import abbreviate
from windrow.core.formats.json import MAX_DEPTH

# More than any manifest or cloud-config has; PyYAML takes about 20 µs for each.
MAX_VALUES = 50_000
# Conversion from base 10 and 60 takes quadratic time, and so does the recognition of the latter.
_MAX_NUMBER_LENGTH = 1000
_NUMBER = re.compile(r"[-+]?[0-9.][0-9_.:]*")


class NotYaml(ValueError):
    """The text is not YAML. The message may quote a word of it; `position` quotes nothing."""

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.position = where


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as a literal block, so that scripts and certificates stay readable."""


# YAML reads these as line breaks and returns them as "\n", unless they are escaped between double quotes.
_UNUSUAL_LINE_BREAKS = frozenset("\x85\u2028\u2029")


def _represent_str(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = '"' if _UNUSUAL_LINE_BREAKS & set(value) else "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _represent_str)


_LONG_NUMBER = f"it has a number of more than {_MAX_NUMBER_LENGTH} characters; text belongs in quotes"


class _BoundedNumbers:
    """Mixed into a loader: numbers of more than `_MAX_NUMBER_LENGTH` characters are refused."""

    def construct_number(self, node: yaml.ScalarNode) -> Any:
        if len(node.value) > _MAX_NUMBER_LENGTH:
            raise NotYaml(_LONG_NUMBER)
        is_float = node.tag.endswith(":float")
        constructor: Any = yaml.SafeLoader
        return (constructor.construct_yaml_float if is_float else constructor.construct_yaml_int)(self, node)


def _bounded(loader: Any) -> Any:
    """A subclass of the loader with bounded numbers."""
    made: Any = type(f"Bounded{loader.__name__}", (_BoundedNumbers, loader), {})
    for name in ("int", "float"):
        made.add_constructor(f"tag:yaml.org,2002:{name}", made.construct_number)
    return made


_Loader: Any = _bounded(getattr(yaml, "CSafeLoader", yaml.SafeLoader))

# What PyYAML raises for text that it has no value for, besides its own errors: `!!bool maybe`, `!!int ""`, `!!timestamp x`.
_ERRORS = (
    yaml.YAMLError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    TypeError,
    RecursionError,
)


def load(text: str | bytes) -> Any:
    """The one document in `text` (None when empty), which is finite and bounded. Raises NotYaml."""
    try:
        _check_bounds(text)
        return yaml.load(text, Loader=_Loader)
    except NotYaml:
        raise
    except _ERRORS as error:
        raise _not_yaml(error) from error


def load_all(text: str | bytes) -> list[Any]:
    """Every document in `text` that is not empty; the bounds are those of all together. Raises NotYaml."""
    try:
        _check_bounds(text)
        return [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except NotYaml:
        raise
    except _ERRORS as error:
        raise _not_yaml(error) from error


def load_unique(text: str | bytes) -> list[Any]:
    """`load_all` of a text that a person writes. Raises NotYaml, also where a mapping has a key twice: the last would win."""
    found = load_all(text)
    _check_keys(text)
    return found


class _Sizes:
    """How many values have begun, each alias counted as what it stands for; and those of each anchor."""

    def __init__(self) -> None:
        self.total = 0
        self.parents: list[tuple[str, int]] = []  # anchor and total before it, of each open list and mapping
        self.anchors: dict[str, int] = {}

    def add(self, count: int) -> None:
        self.total += count
        if self.total > MAX_VALUES:
            raise NotYaml(
                f"it has more than {MAX_VALUES} values, with each alias counted as what it stands for"
            )

    def begin(self, anchor: str | None) -> None:
        self.parents.append((anchor or "", self.total))
        self.add(1)
        if len(self.parents) > MAX_DEPTH:
            raise NotYaml(f"it is nested more than {MAX_DEPTH} levels deep")

    def end(self) -> None:
        anchor, before = self.parents.pop()
        if anchor:
            self.anchors[anchor] = self.total - before

    def alias(self, anchor: str | None) -> None:
        if any(name == anchor for name, _ in self.parents):
            raise NotYaml("an alias is inside the value that it is an alias of")
        self.add(self.anchors.get(anchor or "", 1))


def _check_bounds(text: str | bytes) -> None:
    """Raise NotYaml for a text beyond the bounds, in time that the bounds limit; other errors as PyYAML raises them."""
    sizes = _Sizes()
    for event in yaml.parse(text, Loader=_Loader):
        match event:
            case yaml.ScalarEvent():
                sizes.add(1)
                if (
                    len(event.value) > _MAX_NUMBER_LENGTH
                    and event.implicit[0]
                    and _NUMBER.fullmatch(event.value)
                ):
                    raise NotYaml(_LONG_NUMBER)
                if event.anchor:
                    sizes.anchors[event.anchor] = 1
            case yaml.CollectionStartEvent():
                sizes.begin(event.anchor)
            case yaml.CollectionEndEvent():
                sizes.end()
            case yaml.AliasEvent():
                sizes.alias(event.anchor)
            case yaml.DocumentStartEvent():
                sizes.add(1)
                sizes.anchors.clear()


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not come. `keys` are those of a mapping, with their lines."""

    is_mapping: bool
    keys: dict[str, int] = field(default_factory=dict)
    takes_key: bool = True


def _check_keys(text: str | bytes) -> None:
    """Raise NotYaml for the first key that its mapping has already. Merge keys may be repeated."""
    parents: list[_Open] = []
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionEndEvent):
            parents.pop()
        if not isinstance(event, yaml.NodeEvent):
            continue
        parent = parents[-1] if parents else None
        if parent is not None and parent.is_mapping:
            if parent.takes_key and isinstance(event, yaml.ScalarEvent) and event.value != "<<":
                line = event.start_mark.line + 1 if event.start_mark is not None else 0
                first = parent.keys.get(event.value)
                if first is not None:
                    raise NotYaml(
                        f"line {line} has the key {abbreviate(event.value)}, which its mapping has in line {first} already"
                    )
                parent.keys[event.value] = line
            parent.takes_key = not parent.takes_key
        if isinstance(event, yaml.CollectionStartEvent):
            parents.append(_Open(isinstance(event, yaml.MappingStartEvent)))


def _not_yaml(error: Exception) -> NotYaml:
    """The error without PyYAML's placeholder for the file's name, and without the quoted line, which may hold a token."""
    for mark in (getattr(error, "context_mark", None), getattr(error, "problem_mark", None)):
        if isinstance(mark, yaml.Mark):
            mark.buffer = None
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
    return NotYaml(re.sub(r'\bin "<(?:unicode|byte) string>",', "at", str(error)), where)


def dump(value: Any, *, sort: bool = False, ascii_only: bool = False) -> str:
    """`value` as block-style YAML, keys in the order given unless `sort`; with `ascii_only` all else is escaped."""
    return str(
        yaml.dump(
            value,
            Dumper=_Dumper,
            sort_keys=sort,
            allow_unicode=not ascii_only,
            default_flow_style=False,
            width=4096,
        )
    )


def dump_all(values: list[Any]) -> str:
    """The documents in `values`, separated by `---`."""
    return "---\n".join(dump(value) for value in values)


# --- scalars as written


class WrittenText(str):
    """A text with the quotes that it was written in ("" for none)."""

    __slots__ = ("quotes",)
    quotes: str


class WrittenInt(int):
    """A whole number with the text that it was written as: `0755`, `1_000`."""

    written: str


class WrittenFloat(float):
    """A number with the text that it was written as: `1.10`, `.inf`."""

    written: str


class _WrittenLoader(_Loader):  # type: ignore[misc]
    """Builds scalars that `dump` writes as they were written.

    `22:22` is a number of base 60 in YAML 1.1 only, and meant as one in no cloud-config: it is the text "22:22".
    """

    def construct_written_text(self, node: yaml.ScalarNode) -> Any:
        text = WrittenText(self.construct_yaml_str(node))
        text.quotes = node.style if node.style in ("'", '"') else ""
        return text

    def construct_written_number(self, node: yaml.ScalarNode) -> Any:
        if ":" in node.value:
            text = WrittenText(node.value)
            text.quotes = "'"
            return text
        number = self.construct_number(node)
        made: WrittenInt | WrittenFloat
        made = WrittenFloat(number) if isinstance(number, float) else WrittenInt(number)
        made.written = node.value
        return made


_WrittenLoader.add_constructor("tag:yaml.org,2002:str", _WrittenLoader.construct_written_text)
for _name in ("int", "float"):
    _WrittenLoader.add_constructor(f"tag:yaml.org,2002:{_name}", _WrittenLoader.construct_written_number)


def load_first_as_written(text: str | bytes) -> tuple[Any, bool]:
    """The first document in `text` (None when empty), and whether more follow. `dump` writes its numbers and quoted
    texts as they were written. Raises NotYaml, also for what follows."""
    try:
        _check_bounds(text)
        documents = yaml.load_all(text, Loader=_WrittenLoader)
        return next(documents, None), any(each is not None for each in documents)
    except NotYaml:
        raise
    except _ERRORS as error:
        raise _not_yaml(error) from error


def _represent_written_text(dumper: yaml.SafeDumper, value: WrittenText) -> yaml.Node:
    if value.quotes and "\n" not in value and not _UNUSUAL_LINE_BREAKS & set(value):
        return dumper.represent_scalar("tag:yaml.org,2002:str", str(value), style=value.quotes)
    return _represent_str(dumper, str(value))


_Dumper.add_representer(WrittenText, _represent_written_text)
_Dumper.add_representer(
    WrittenInt, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:int", value.written)
)
_Dumper.add_representer(
    WrittenFloat, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:float", value.written)
)


# --- where things are written


@dataclass(frozen=True, slots=True)
class WrittenValue:
    """Where a value of the top mapping stands in its text: from `start` to `end`. `items` are the places of the dashes of a
    list that is written with dashes, in column `column`; of any other value there are none."""

    start: int
    end: int
    is_empty: bool
    column: int = 0
    items: tuple[int, ...] = ()


def find_values(text: str) -> dict[str, WrittenValue]:
    """The values of the top mapping by their keys; {} for a text that is none. Raises NotYaml.

    For changes that leave the rest of a text as it is. Who changes it has to read it again, and compare.
    """
    try:
        _check_bounds(text)
        top = yaml.compose(text, Loader=_Loader)
    except NotYaml:
        raise
    except _ERRORS as error:
        raise _not_yaml(error) from error
    pairs = top.value if isinstance(top, yaml.MappingNode) else ()
    return {key.value: _find_value(text, value) for key, value in pairs if isinstance(key, yaml.ScalarNode)}


def _find_value(text: str, node: Any) -> WrittenValue:
    start, end = node.start_mark.index, node.end_mark.index
    if not isinstance(node, yaml.SequenceNode) or node.flow_style or not node.value:
        return WrittenValue(start, end, is_empty=not node.value)
    dashes = tuple(text.rfind("-", start, item.start_mark.index) for item in node.value)
    return WrittenValue(start, end, False, node.start_mark.column, dashes)
