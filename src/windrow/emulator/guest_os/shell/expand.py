"""Expansion of shell words: quotes, variables, command substitution, simple arithmetic, field splitting, file name patterns."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Awaitable, Callable
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


class WordExpansion:
    """Expands words in the state of one shell. `substitute` runs the text of `$(…)` and returns its output."""

    def __init__(
        self,
        guest: GuestOS,
        state: ShellState,
        log: Callable[[str], None],
        substitute: Callable[[str], Awaitable[str]],
    ) -> None:
        self.guest = guest
        self.state = state
        self.log = log
        self.substitute = substitute

    async def fields(self, word: str, *, split: bool = True) -> list[str]:
        """The fields that a raw word expands to."""
        fields: list[list[tuple[str, bool]]] = [[]]
        at = 0
        while at < len(word):
            end = skip_piece(word, at)
            piece = word[at:end]
            at = end
            if piece.startswith("'"):
                fields[-1].append((piece[1:-1], True))
            elif piece.startswith('"'):
                if piece == '"$@"':
                    for place, argument in enumerate(self.state.arguments):
                        if place:
                            fields.append([])
                        fields[-1].append((argument, True))
                    continue
                fields[-1].append((await self.text(piece[1:-1]), True))
            elif piece.startswith("\\"):
                fields[-1].append((piece[1:].replace("\n", ""), True))
            elif piece[0] in "$`":
                name_end = at
                if piece == "$":
                    found = _NAME.match(word, at)
                    if found is None:
                        fields[-1].append(("$", True))
                        continue
                    name_end = found.end()
                    piece = word[at - 1 : name_end]
                at = name_end
                value = await self._value(piece)
                if not split:
                    fields[-1].append((value, True))
                    continue
                parts = value.split()
                if value[:1].isspace() and fields[-1]:
                    fields.append([])
                for place, part in enumerate(parts):
                    if place:
                        fields.append([])
                    fields[-1].append((part, False))
                if value[-1:].isspace() and parts:
                    fields.append([])
            else:
                fields[-1].append((piece, False))
        return self._join_fields(fields, split)

    def _join_fields(self, fields: list[list[tuple[str, bool]]], split: bool) -> list[str]:
        made: list[str] = []
        for parts in fields:
            if not parts:
                continue
            text = "".join(part for part, _ in parts)
            pattern = "".join(_literal(part) if quoted else part for part, quoted in parts)
            if split and text.startswith("~"):
                text = "/root" + text[1:]
            if split and any(mark in part for part, quoted in parts for mark in "*?[" if not quoted):
                found = [path for path in self.guest.hardware.root.files if _glob(path, pattern)]
                made += sorted(found) or [text]
            else:
                made.append(text)
        return made

    async def text(self, text: str) -> str:
        """Text inside double quotes or a here-document."""
        out, at = "", 0
        while at < len(text):
            character = text[at]
            if character == "\\" and text[at + 1 : at + 2] in ("$", "`", '"', "\\", "\n"):
                out += text[at + 1].replace("\n", "")
                at += 2
            elif character == "`" or text.startswith(("$(", "${"), at):
                end = skip_piece(text, at)
                out += await self._value(text[at:end])
                at = end
            elif character == "$" and (found := _NAME.match(text, at + 1)):
                out += await self._value(text[at : found.end()])
                at = found.end()
            else:
                out += character
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

    def _variable(self, name: str) -> str:
        match name:
            case "?":
                return str(self.state.last_code)
            case "#":
                return str(len(self.state.arguments))
            case "@" | "*":
                return " ".join(self.state.arguments)
            case "$":
                return "4242"
            case "!":
                return ""
            case "0":
                return self.state.name
        if name.isdigit():
            place = int(name) - 1
            return self.state.arguments[place] if place < len(self.state.arguments) else ""
        if name not in self.state.variables and self.state.nounset:
            self.log(f"{self.state.name}: {name}: parameter not set")
            raise ShellExit(2)
        return self.state.variables.get(name, "")

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
        nounset, self.state.nounset = self.state.nounset, False
        try:
            value = self._variable(name)
        finally:
            self.state.nounset = nounset
        unset = (name not in self.state.variables and not name.isdigit()) or (
            operator.startswith(":") and not value
        )
        rest = await self.text(rest.replace('"', "").replace("'", ""))
        match operator.lstrip(":"):
            case "-":
                return rest if unset else value
            case "+":
                return "" if unset else rest
            case "=":
                if unset:
                    self.state.variables[name] = value = rest
                return value
            case "?":
                if unset:
                    self.log(f"{self.state.name}: {name}: {rest or 'parameter not set'}")
                    raise ShellExit(2)
                return value
        return value

    def _arithmetic(self, text: str) -> str:
        plain = re.sub(
            r"\$?([A-Za-z_]\w*)", lambda found: self.state.variables.get(found.group(1), "0") or "0", text
        )
        numbers = re.fullmatch(r"\s*(-?\d+)\s*(?:([-+*/%])\s*(-?\d+)\s*)?", plain)
        if numbers is None:
            self.guest.console(f"not simulated: $(({text}))")
            return "0"
        left, operator, right = int(numbers.group(1)), numbers.group(2), int(numbers.group(3) or 0)
        match operator:
            case "+":
                return str(left + right)
            case "-":
                return str(left - right)
            case "*":
                return str(left * right)
            case "/" | "%" if right:
                return str(left // right if operator == "/" else left % right)
        return str(left)


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!]")
_PARAMETER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!])(?:(:?[-+=?]|##?|%%?)(.*))?$", re.S)


def _literal(text: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", text)


def _glob(path: str, pattern: str) -> bool:
    return path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)
