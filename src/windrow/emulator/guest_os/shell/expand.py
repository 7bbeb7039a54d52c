"""Expansion of shell words: quotes, variables, command substitution, simple arithmetic, field splitting, file name patterns."""

from __future__ import annotations

import fnmatch
import itertools
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.shell.parse import BadScript, NotSimulated, skip_piece


class ShellExit(Exception):
    """The shell process ends with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@dataclass(slots=True)
class ShellState:
    """Variables, positional arguments and options of one shell process."""

    name: str = "sh"
    variables: dict[str, str] = field(default_factory=dict)
    arguments: list[str] = field(default_factory=list)
    last_code: int = 0
    errexit: bool = False
    nounset: bool = False


@dataclass(slots=True)
class WordExpansion:
    """Expands words in the state of one shell. `substitute` runs the text of `$(…)` and returns its output."""

    guest: GuestOS
    state: ShellState
    log: Callable[[str], None]
    substitute: Callable[[str], Awaitable[str]]

    def assign(self, values: Mapping[str, str]) -> None:
        """Set variables of the shell."""
        self.state.variables.update(values)
        self.guest.budget.check_words(self.state.variables.values())

    async def fields(self, word: str, *, split: bool = True) -> list[str]:
        """The fields that a raw word expands to."""
        pieces: list[tuple[str, bool] | None] = []  # text, and whether it is quoted; None ends a field
        at, size = 0, 0
        while at < len(word):
            self.guest.budget.check_size(size)
            end = skip_piece(word, at)
            piece = word[at:end]
            at = end
            if piece == '"$@"':
                for place, argument in enumerate(self.state.arguments):
                    if place:
                        pieces.append(None)
                    pieces.append((argument, True))
                    size += len(argument) + 64
            elif piece[0] in "'\"":
                pieces.append((piece[1:-1] if piece[0] == "'" else await self.text(piece[1:-1]), True))
                size += len(pieces[-1][0]) if pieces[-1] else 0
            elif piece[0] == "\\":
                pieces.append((piece[1:].replace("\n", ""), True))
            elif piece[0] in "$`" and piece != "$":
                value = await self._value(piece)
                size += 16 * len(value) if split else len(value)  # at worst each character is a field
                parts = re.findall(r"\s+|\S+", value) if split else [value]
                pieces += [None if split and part.isspace() else (part, not split) for part in parts]
            else:
                pieces.append((piece, False))
        fields: list[str] = []
        for is_end, parts_of_field in itertools.groupby(pieces, lambda piece: piece is None):
            if not is_end:
                await self.guest.budget.spend()
                fields += self._join([piece for piece in parts_of_field if piece is not None], split)
                self.guest.budget.check_words(fields[-1:])
        return fields

    def _join(self, parts: list[tuple[str, bool]], split: bool) -> list[str]:
        """One field of its parts, or the files that match it."""
        text = "".join(part for part, _ in parts)
        if not split:
            return [text]
        if text.startswith("~"):
            text = "/root" + text[1:]
        if not any(mark in part for part, quoted in parts for mark in "*?[" if not quoted):
            return [text]
        pattern = "".join(re.sub(r"([*?\[])", r"[\1]", part) if quoted else part for part, quoted in parts)
        return [path for path in self.guest.list_under("/") if _glob(path, pattern)] or [text]

    async def text(self, text: str) -> str:
        """Text inside double quotes or a here-document."""
        out, at = "", 0
        while at < len(text):
            self.guest.budget.check_size(len(out))
            if text[at] == "\\" and text[at + 1 : at + 2] in ("$", "`", '"', "\\", "\n"):
                out += text[at + 1].replace("\n", "")
                at += 2
            elif text[at] in "$`" and (end := skip_piece(text, at)) > at + 1:
                out += await self._value(text[at:end])
                at = end
            else:
                out += text[at]
                at += 1
        return out

    async def _value(self, piece: str) -> str:
        """The value of `$name`, `${…}`, `$(…)` or a backquoted command."""
        if piece.startswith("$(("):
            return self._arithmetic(piece[3:-2])
        if piece.startswith(("$(", "`")):
            text = piece[2:-1] if piece.startswith("$(") else piece[1:-1]
            return await self.substitute(text)
        if piece.startswith("${"):
            return await self._parameter(piece[2:-1])
        return self._variable(piece[1:])

    def _find(self, name: str) -> str | None:
        """The value of a variable, positional argument or special parameter; None when it is not set."""
        state = self.state
        if name.isdigit():
            return dict(enumerate([state.name, *state.arguments])).get(int(name))
        count, arguments = str(len(state.arguments)), " ".join(state.arguments)
        special = {
            "?": str(state.last_code),
            "#": count,
            "@": arguments,
            "*": arguments,
            "$": "4242",
            "!": "",
        }
        return special.get(name, state.variables.get(name))

    def _variable(self, name: str) -> str:
        value = self._find(name)
        if value is None and self.state.nounset:
            raise self._unset(name)
        return value or ""

    def _unset(self, name: str, why: str = "") -> ShellExit:
        self.log(f"{self.state.name}: {name}: {why or 'parameter not set'}")
        return ShellExit(2)

    async def _parameter(self, text: str) -> str:
        if text.startswith("#") and len(text) > 1:
            return str(len(self._variable(text[1:])))
        found = _PARAMETER.match(text)
        if found is None:
            raise BadScript(f"bad substitution ${{{text}}}")
        name, operator, rest = found.group(1), found.group(2), found.group(3)
        if not operator:
            return self._variable(name)
        if operator[0] in "#%":
            raise NotSimulated(f"${{{text}}}")
        value = self._find(name) or ""
        unset = self._find(name) is None or (operator.startswith(":") and not value)
        rest = await self.text(rest.replace('"', "").replace("'", ""))
        match operator.lstrip(":"):
            case "-":
                return rest if unset else value
            case "+":
                return "" if unset else rest
            case "=":
                if unset:
                    value = rest
                    self.assign({name: value})
            case "?":
                if unset:
                    raise self._unset(name, rest)
        return value

    def _arithmetic(self, text: str) -> str:
        """The value of one number, or of one operation on two: what counts the rounds of a loop."""
        plain = re.sub(r"\$?([A-Za-z_]\w*)", lambda name: self.state.variables.get(name[1]) or "0", text)
        found = re.fullmatch(r"\s*(-?\d{1,19})\s*(?:([-+*])\s*(-?\d{1,19})\s*)?", plain)
        if found is None:
            raise NotSimulated(f"$(({text}))")
        left, operator, right = int(found[1]), found[2] or "+", int(found[3] or 0)
        result = {"+": left + right, "-": left - right, "*": left * right}[operator]
        return str((result + 2**63) % 2**64 - 2**63)  # of 64 bits, as a shell's


_PARAMETER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!])(?:(:?[-+=?]|##?|%%?)(.*))?$", re.S)


def _glob(path: str, pattern: str) -> bool:
    return path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)
