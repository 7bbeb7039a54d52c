"""JSONPath templates as kubectl reads them: `{.items[*].metadata.name}`, with `range`, filters and quoted text.

    {.spec.pools[0].name}   {['a','b']}   {.items[-1:]}   {..name}   {.items[?(@.status.phase=="Ready")].metadata.name}
    {range .items[*]}{.metadata.name}{"\\n"}{end}

A template is text with actions in braces. The results of one action are printed with a space between; what is not there prints
nothing. Bounded: a template of some kilobytes, and as many results as `MAX_RESULTS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from windrow.core.formats.bounds import abbreviate
from windrow.core.formats.json import dumps

MAX_TEMPLATE = 4096
MAX_RESULTS = 100_000


class NotJsonPath(ValueError):
    """The text is no template. The message says where."""


@dataclass(frozen=True, slots=True)
class Text:
    """What is printed as it is."""

    text: str


@dataclass(frozen=True, slots=True)
class Field:
    """`.name`; `*` is every value."""

    name: str


@dataclass(frozen=True, slots=True)
class Index:
    """`[2]`, `[-1]`."""

    at: int


@dataclass(frozen=True, slots=True)
class Slice:
    """`[1:]`, `[:-1]`, `[::2]`."""

    first: int | None
    last: int | None
    step: int


@dataclass(frozen=True, slots=True)
class Deep:
    """`..`: the value and all below it."""


@dataclass(frozen=True, slots=True)
class Union:
    """`[0,2]`, `['a','b']`."""

    parts: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """`[?(@.a=="b")]`; `operator` is "" where only existence is asked."""

    left: Path
    operator: str
    right: Path | Text | None


Step: TypeAlias = "Field | Index | Slice | Deep | Union | Filter"


@dataclass(frozen=True, slots=True)
class Path:
    """Steps from the root, with `$`, or from the present value."""

    steps: tuple[Step, ...]
    is_rooted: bool = False


@dataclass(frozen=True, slots=True)
class Literal:
    """A quoted text or a number in an action."""

    value: Any


@dataclass(frozen=True, slots=True)
class Range:
    """`{range PATH}…{end}`."""

    path: Path
    body: tuple[Node, ...]


Node: TypeAlias = "Text | Path | Literal | Range"


def parse_jsonpath(template: str) -> tuple[Node, ...]:
    """The parts of the template. Raises NotJsonPath."""
    if len(template) > MAX_TEMPLATE:
        raise NotJsonPath(f"it has more than {MAX_TEMPLATE} characters")
    return _Parser(template).template()


def render_jsonpath(nodes: Sequence[Node], value: Any) -> str:
    """What the template prints of `value`. Raises NotJsonPath where that is more than is printed."""
    return "".join(_Printer(value).render(nodes, value))


class _Parser:
    """Reads a template from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def template(self) -> tuple[Node, ...]:
        stack: list[tuple[Path, list[Node]]] = []
        nodes: list[Node] = []
        while self._at < len(self._text):
            if not self._take("{"):
                nodes.append(Text(self._until("{")))
                continue
            action = self._action()
            if isinstance(action, Range):
                stack.append((action.path, nodes))
                nodes = []
            elif action is None:
                if not stack:
                    raise self._error("an end without a range")
                path, outer = stack.pop()
                nodes = [*outer, Range(path, tuple(nodes))]
            else:
                nodes += action
        if stack:
            raise self._error("a range without its end")
        return tuple(nodes)

    def _action(self) -> Range | list[Node] | None:
        """What stands in braces; None for `end`."""
        self._skip()
        if self._word("range"):
            path = self._path()
            self._close("}")
            return Range(path, ())
        if self._word("end"):
            self._close("}")
            return None
        parts: list[Node] = []
        while not self._take("}"):
            if self._at >= len(self._text):
                raise self._error("an action without its closing brace")
            parts.append(self._operand())
            self._skip()
        return parts

    def _operand(self) -> Node:
        here = self._peek()
        if here in "\"'":
            return Literal(self._quoted())
        if number := re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?").match(self._text, self._at):
            self._at = number.end()
            return Literal(_number(number[0]))
        return self._path()

    def _path(self) -> Path:
        self._skip()
        rooted = self._take("$")
        is_present = not rooted and self._take("@")
        steps: list[Step] = []
        while True:
            if self._take(".."):
                steps.append(Deep())
                if self._peek() not in ".[ })=!<>,":
                    steps.append(Field(self._name()))
            elif self._take("."):
                if self._peek() not in "[ })=!<>,":  # `{.}` is the value itself
                    steps.append(Field(self._name()))
            elif self._take("["):
                steps.append(self._bracket())
            elif steps or rooted or is_present or self._text[self._at - 1] == ".":
                return Path(tuple(steps), rooted)
            else:
                raise self._error("a path begins with a dot")

    def _name(self) -> str:
        """A field's name; a backslash before a character takes it as it is."""
        found = re.compile(r"(?:\\.|[^\s.\[\]{}()=!<>,'\"$@?:|&])+").match(self._text, self._at)
        if found is None:
            raise self._error("no name")
        self._at = found.end()
        return re.sub(r"\\(.)", r"\1", found[0])

    def _bracket(self) -> Step:
        self._skip()
        if self._take("?("):
            return self._filter()
        parts = [self._subscript()]
        self._skip()
        while self._take(","):
            self._skip()
            parts.append(self._subscript())
            self._skip()
        self._close("]")
        return parts[0] if len(parts) == 1 else Union(tuple(parts))

    def _subscript(self) -> Step:
        if self._peek() in "\"'":
            return Field(self._quoted())
        if self._take("*"):
            return Field("*")
        found = re.compile(r"(-?[0-9]*)(?:(:)(-?[0-9]*)(?::(-?[0-9]*))?)?").match(self._text, self._at)
        if found is None or not found[0] or found[0] == "-":
            name = self._name()
            return Field(name)
        self._at = found.end()
        first, is_slice, last, step = found.groups()
        if not is_slice:
            return Index(_whole(first))
        every = _whole(step) if step else 1
        if every <= 0:
            raise self._error("a step that is not positive")
        return Slice(_whole(first) if first else None, _whole(last) if last else None, every)

    def _filter(self) -> Step:
        left = self._path()
        self._skip()
        operator = next((one for one in ("==", "!=", "<=", ">=", "<", ">") if self._take(one)), "")
        self._skip()
        right = self._comparand() if operator else None
        self._skip()
        self._close(")")
        self._skip()
        self._close("]")
        return Filter(left, operator, right)

    def _comparand(self) -> Path | Text | None:
        for word in ("true", "false"):
            if self._word(word):
                return Text(word)
        found = self._operand()
        if isinstance(found, Literal):
            return Text(found.value if isinstance(found.value, str) else str(found.value))
        return found if isinstance(found, Path) else None

    def _quoted(self) -> str:
        quote = self._text[self._at]
        found = re.compile(rf"{quote}((?:\\.|[^\\{quote}])*){quote}", re.DOTALL).match(self._text, self._at)
        if found is None:
            raise self._error("a quote that is not closed")
        self._at = found.end()
        return re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[1]), found[1], flags=re.DOTALL)

    # -- characters

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1] or "}"

    def _take(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _word(self, word: str) -> bool:
        found = re.compile(rf"{word}(?![\w.\[-])").match(self._text, self._at)
        self._at = found.end() if found else self._at
        return found is not None

    def _skip(self) -> None:
        while self._text[self._at : self._at + 1].isspace():
            self._at += 1

    def _until(self, mark: str) -> str:
        end = self._text.find(mark, self._at)
        start, self._at = self._at, len(self._text) if end < 0 else end
        return self._text[start : self._at]

    def _close(self, mark: str) -> None:
        self._skip()
        if not self._take(mark):
            raise self._error(f"{mark!r} is wanted")

    def _error(self, what: str) -> NotJsonPath:
        rest = abbreviate(self._text[self._at :]) if self._text[self._at :] else "the end"
        return NotJsonPath(f"{what}, before {rest}")


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def _number(text: str) -> int | float:
    return float(text) if "." in text else _whole(text)


def _whole(text: str) -> int:
    if len(text) > 10:
        raise NotJsonPath(f"the number {abbreviate(text)} is too large")
    return int(text)


class _Printer:
    """Evaluates paths. `root` is what `$` means."""

    def __init__(self, root: Any) -> None:
        self._root, self._left = root, MAX_RESULTS

    def render(self, nodes: Sequence[Node], value: Any) -> Iterator[str]:
        for node in nodes:
            match node:
                case Text():
                    yield node.text
                case Literal():
                    yield _print(node.value)
                case Path():
                    yield " ".join(_print(one) for one in self.find(node, value))
                case Range():
                    for one in self.find(node.path, value):
                        yield from self.render(node.body, one)

    def find(self, path: Path, value: Any) -> list[Any]:
        found = [self._root if path.is_rooted else value]
        for step in path.steps:
            parts = step.parts if isinstance(step, Union) else (step,)
            found = [one for part in parts for value in found for one in self._step(part, value)]
            self._left -= len(found) + 1
            if self._left < 0:
                raise NotJsonPath(f"it has more than {MAX_RESULTS} results")
        return found

    def _step(self, step: Step, value: Any) -> Iterator[Any]:
        match step:
            case Field("*"):
                yield from _values(value)
            case Field():
                if isinstance(value, Mapping) and step.name in value:
                    yield value[step.name]
            case Index():
                if isinstance(value, list) and -len(value) <= step.at < len(value):
                    yield value[step.at]
            case Slice():
                if isinstance(value, list):
                    yield from value[step.first : step.last : step.step]
            case Filter():
                yield from (one for one in _values(value) if self._fits(step, one))
            case Deep():
                yield from self._deep(value)

    def _deep(self, value: Any) -> Iterator[Any]:
        """The value, then what is below it, level by level in each branch; no recursion of Python's."""
        stack = [value]
        while stack:
            here = stack.pop()
            self._left -= 1
            if self._left < 0:
                raise NotJsonPath(f"it has more than {MAX_RESULTS} results")
            if isinstance(here, Mapping | list):
                yield here
                stack += reversed(_values(here))

    def _fits(self, step: Filter, value: Any) -> bool:
        left = self.find(step.left, value)
        if not step.operator:
            return bool(left)
        right = (
            [step.right.text]
            if isinstance(step.right, Text)
            else self.find(step.right, value)
            if step.right
            else []
        )
        if len(left) != 1 or len(right) != 1:
            return False
        return _compare(step.operator, left[0], right[0])


_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: bool(a == b),
    "!=": lambda a, b: bool(a != b),
    "<": lambda a, b: bool(a < b),
    "<=": lambda a, b: bool(a <= b),
    ">": lambda a, b: bool(a > b),
    ">=": lambda a, b: bool(a >= b),
}


def _compare(operator: str, left: Any, right: Any) -> bool:
    """Numbers as numbers, all else by what it prints."""
    numbers = [one for one in map(_to_number, (left, right)) if one is not None]
    if len(numbers) == 2:
        return _COMPARE[operator](*numbers)
    return _COMPARE[operator](_print(left), _print(right))


def _to_number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value) if len(str(value)) <= 32 else None
    except ValueError:
        return None


def _values(value: Any) -> list[Any]:
    return (
        list(value.values()) if isinstance(value, Mapping) else list(value) if isinstance(value, list) else []
    )


def _print(value: Any) -> str:
    if isinstance(value, str):
        return value
    return dumps(_sorted(value)).decode()


def _sorted(value: Any) -> Any:
    """The value with the keys of its mappings in order, as Go prints them; objects of an API are not deep."""
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(one) for one in value] if isinstance(value, list) else value
