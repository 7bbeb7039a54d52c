"""Parses the part of the POSIX shell language that bootstrap scripts are written in.

It gives a tree of nodes; words stay raw, with their quotes and dollars, until `expand` expands
them. What it does not support is a `BadScript`, where a real shell reports a syntax error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias


class BadScript(ValueError):
    """A syntax error; the message is the shell's."""

    label = "syntax error"


class NotSimulated(BadScript):
    """Valid syntax that this shell does not have; the message names it."""

    label = "not simulated"


@dataclass(slots=True)
class Redirect:
    """`fd op target`; of a here-document (`<<`), `target` is the text, and `literal` means that it is not expanded."""

    fd: int
    op: str
    target: str
    literal: bool = False


@dataclass(frozen=True, slots=True)
class Simple:
    words: tuple[str, ...]
    redirects: tuple[Redirect, ...] = ()


@dataclass(frozen=True, slots=True)
class Pipeline:
    commands: tuple[Node, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Chain:
    """Pipelines joined by && and ||; `rest` holds (operator, pipeline)."""

    first: Pipeline
    rest: tuple[tuple[str, Pipeline], ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    arms: tuple[tuple[Block, Block], ...]
    otherwise: Block


@dataclass(frozen=True, slots=True)
class Loop:
    condition: Block
    body: Block
    until: bool = False


@dataclass(frozen=True, slots=True)
class For:
    name: str
    words: tuple[str, ...]
    body: Block


@dataclass(frozen=True, slots=True)
class Group:
    body: Block
    subshell: bool = False
    redirects: tuple[Redirect, ...] = ()


Block: TypeAlias = tuple[Chain, ...]
Node: TypeAlias = Simple | If | Loop | For | Group


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # "word", "op", "redirect", "end"; "error" where the text cannot be cut further
    text: str
    redirect: Redirect | None = None


_BLANK = re.compile(r"(?:[ \t]|\\\n|#[^\n]*)+")
_REDIRECT = re.compile(r"(?:(\d*)(<<-?|>>|>&|<&|>|<)|(&>))[ \t]*")
_OPERATOR = re.compile(r"&&|\|\||[&|;()\n]")
_WORD_END = frozenset(" \t\n;&|()<>")


class _Lexer:
    """Cuts a script into tokens; words keep their quotes."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.at = 0
        self.heredocs: list[Redirect] = []

    def tokens(self) -> Iterator[_Token]:
        try:
            while self.at < len(self.text):
                if not self._skip(_BLANK):
                    yield self._next()
            self._read_heredocs()
            yield _Token("end", "")
        except BadScript as error:
            # The commands before are valid and will be run; the parser fails here.
            yield _Token("error", str(error))

    def _skip(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found

    def _next(self) -> _Token:
        if found := self._skip(_REDIRECT):
            digits, operator, both = found.groups()
            default = 0 if (operator or "").startswith("<") else 1
            redirect = Redirect(int(digits or default), operator or both, self._word())
            if redirect.op.startswith("<<"):
                self.heredocs.append(redirect)
            return _Token("redirect", "", redirect)
        if found := self._skip(_OPERATOR):
            if found.group() == "\n":
                self._read_heredocs()
            return _Token("op", found.group())
        return _Token("word", self._word())

    def _word(self) -> str:
        start = self.at
        while self.at < len(self.text) and self.text[self.at] not in _WORD_END:
            self.at = skip_piece(self.text, self.at)
        return self.text[start : self.at]

    def _read_heredocs(self) -> None:
        """Put the text of each here-document that the last line named in the place of its delimiter."""
        for redirect in self.heredocs:
            delimiter = re.sub(r"['\"\\]", "", redirect.target)
            redirect.literal = delimiter != redirect.target
            lines = []
            while self.at < len(self.text):  # shells warn and use the lines up to the end of the file
                end = self.text.find("\n", self.at) + 1 or len(self.text)
                line = self.text[self.at : end].removesuffix("\n")
                self.at = end
                if redirect.op == "<<-":
                    line = line.lstrip("\t")
                if line == delimiter:
                    break
                lines.append(line + "\n")
            redirect.op, redirect.target = "<<", "".join(lines)
        self.heredocs = []


def skip_piece(text: str, at: int) -> int:
    """The index behind the quoted string, expansion or plain character that starts at `at`."""
    character = text[at]
    if character == "\\":
        return min(at + 2, len(text))
    if character in "'`":
        end = text.find(character, at + 1)
        if end < 0:
            raise BadScript("unterminated quoted string")
        return end + 1
    if character == '"':
        end = at + 1
        while end < len(text) and text[end] != '"':
            end = skip_piece(text, end) if text[end] in "\\$`" else end + 1
        if end >= len(text):
            raise BadScript("unterminated quoted string")
        return end + 1
    if text.startswith("$(", at):
        return _balanced(text, at + 1, "(", ")")
    if text.startswith("${", at):
        return _balanced(text, at + 1, "{", "}")
    found = _VARIABLE.match(text, at)
    return found.end() if found else at + 1


_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!])")


def _balanced(text: str, at: int, opening: str, closing: str) -> int:
    depth = 0
    while at < len(text):
        character = text[at]
        if character in "'\"\\`":
            at = skip_piece(text, at)
            continue
        depth += (character == opening) - (character == closing)
        at += 1
        if depth == 0:
            return at
    raise BadScript(f"missing '{closing}'")


def parse_script(text: str) -> Block:
    """The commands of a script. Raises BadScript."""
    block, error = parse_until_error(text)
    if error is not None:
        raise error
    return block


def parse_until_error(text: str) -> tuple[Block, BadScript | None]:
    """The commands before the first syntax error, and that error. A shell has run them when it finds the error."""
    parser = _Parser(list(_Lexer(text).tokens()))
    chains: list[Chain] = []
    try:
        for chain in parser.chains():
            chains.append(chain)
        if parser.is_next(")"):
            raise BadScript("')' unexpected")
    except BadScript as error:
        return tuple(chains), error
    return tuple(chains), None


_RESERVED = frozenset({"then", "else", "elif", "fi", "do", "done", "esac", "}"})


@dataclass(slots=True)
class _Parser:
    tokens: list[_Token]
    at: int = 0

    def peek(self) -> _Token:
        token = self.tokens[self.at]
        if token.kind == "error":
            raise BadScript(token.text)
        return token

    def next_token(self) -> _Token:
        token = self.peek()
        self.at += token.kind != "end"
        return token

    def is_next(self, *texts: str) -> bool:
        """Whether one of these operators or reserved words is next."""
        return self.peek().kind in ("op", "word") and self.peek().text in texts

    def accept(self, *texts: str) -> str:
        """Consume one of these operators or reserved words; "" when none is next."""
        return self.next_token().text if self.is_next(*texts) else ""

    def expect(self, text: str) -> None:
        token = self.next_token()
        if token.text != text:
            raise BadScript(f"'{token.text or 'end of file'}' unexpected (expecting '{text}')")

    def skip(self, *texts: str) -> None:
        while self.accept(*texts):
            pass

    def chains(self, *ends: str) -> Iterator[Chain]:
        """Commands up to one of the reserved words or operators `ends`, or a ")", which is not consumed."""
        while True:
            self.skip("\n", ";", "&")
            if self.peek().kind == "end" or self.is_next(")", *ends):
                return
            yield self.chain()

    def block(self, *ends: str) -> Block:
        return tuple(self.chains(*ends))

    def enclosed(self, opening: str, closing: str) -> Block:
        """`opening`, commands, `closing`."""
        self.expect(opening)
        block = self.block(closing)
        self.expect(closing)
        return block

    def chain(self) -> Chain:
        first = self.pipeline()
        rest: list[tuple[str, Pipeline]] = []
        while operator := self.accept("&&", "||"):
            self.skip("\n")
            rest.append((operator, self.pipeline()))
        return Chain(first, tuple(rest))

    def pipeline(self) -> Pipeline:
        negated = False
        while self.accept("!"):
            negated = not negated
        commands = [self.command()]
        while self.accept("|"):
            self.skip("\n")
            commands.append(self.command())
        return Pipeline(tuple(commands), negated)

    def command(self) -> Node:
        token = self.peek()
        if token.kind in ("op", "word"):
            match token.text:
                case "(":
                    return Group(self.enclosed("(", ")"), True, self.redirects())
                case "{":
                    return Group(self.enclosed("{", "}"), False, self.redirects())
                case "if":
                    return self.redirected(self.if_())
                case "while" | "until":
                    return self.redirected(self.loop())
                case "for":
                    return self.redirected(self.for_())
                case "case" | "function" | "select":
                    raise NotSimulated(token.text)
                case text if text in _RESERVED:
                    raise BadScript(f"'{text}' unexpected")
        return self.simple()

    def redirected(self, node: Node) -> Node:
        """The node, in a group with the redirections that follow it."""
        redirects = self.redirects()
        return Group((Chain(Pipeline((node,))),), False, redirects) if redirects else node

    def simple(self) -> Node:
        words: list[str] = []
        redirects: list[Redirect] = []
        while (token := self.peek()).kind in ("word", "redirect"):
            self.next_token()
            if token.redirect is not None:
                redirects.append(token.redirect)
                continue
            words.append(token.text)
            if len(words) == 1 and self.is_next("(") and self.tokens[self.at + 1].text == ")":
                raise NotSimulated(f"function {words[0]}")
        if not words and not redirects:
            raise BadScript(f"'{token.text or 'end of file'}' unexpected")
        return Simple(tuple(words), tuple(redirects))

    def redirects(self) -> tuple[Redirect, ...]:
        found = []
        while (redirect := self.peek().redirect) is not None:
            found.append(redirect)
            self.next_token()
        return tuple(found)

    def if_(self) -> If:
        arms = []
        while self.accept("if", "elif"):
            condition = self.block("then")
            self.expect("then")
            arms.append((condition, self.block("elif", "else", "fi")))
        otherwise = self.block("fi") if self.accept("else") else ()
        self.expect("fi")
        return If(tuple(arms), otherwise)

    def loop(self) -> Loop:
        until = self.next_token().text == "until"
        return Loop(self.block("do"), self.enclosed("do", "done"), until)

    def for_(self) -> For:
        self.next_token()
        name = self.next_token().text
        words = ['"$@"']
        self.skip("\n", ";")
        if self.accept("in"):
            words = []
            while self.peek().kind == "word":
                words.append(self.next_token().text)
        self.skip("\n", ";")
        return For(name, tuple(words), self.enclosed("do", "done"))
