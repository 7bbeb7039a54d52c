"""Parses the part of the POSIX shell language that bootstrap scripts are written in.

It gives a tree of frozen nodes; words stay raw, with their quotes and dollars, until `expand` expands
them. What it does not support is a `BadScript`, where a real shell reports a syntax error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


class BadScript(ValueError):
    """A syntax error; the message is the shell's."""

    label = "syntax error"


class NotSimulated(BadScript):
    """Valid syntax that this shell does not have; the message names it."""

    label = "not simulated"


@dataclass(frozen=True, slots=True)
class Redirect:
    """`fd op target`; for a here-document `body` is its text and `literal` means that it is not expanded."""

    fd: int
    op: str
    target: str
    body: str = ""
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
class Block:
    chains: tuple[Chain, ...] = ()


@dataclass(frozen=True, slots=True)
class If:
    arms: tuple[tuple[Block, Block], ...]
    otherwise: Block = field(default_factory=Block)


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


Node: TypeAlias = Simple | Pipeline | If | Loop | For | Group


@dataclass(slots=True)
class _Token:
    kind: str  # "word", "op", "redirect", "end"
    text: str
    fd: int = -1
    body: str = ""
    literal: bool = False


_OPERATORS = ("&&", "||", "&", "|", ";", "(", ")", "\n")
_REDIRECTS = ("<<-", "<<", ">>", ">&", "<&", "&>", ">", "<")


class _Lexer:
    """Cuts a script into tokens; words keep their quotes."""

    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n")
        self.at = 0
        self.tokens: list[_Token] = []
        self.heredocs: list[tuple[_Token, bool]] = []

    def run(self) -> list[_Token]:
        try:
            while self.at < len(self.text):
                self._step()
            self._read_heredocs()
            self.tokens.append(_Token("end", ""))
        except BadScript as error:
            # The commands before are valid and will be run; the parser fails here.
            self.tokens.append(_Token("error", str(error)))
        return self.tokens

    def _step(self) -> None:
        text, at = self.text, self.at
        character = text[at]
        if character in " \t":
            self.at += 1
        elif text.startswith("\\\n", at):
            self.at += 2
        elif character == "#":
            end = text.find("\n", at)
            self.at = len(text) if end < 0 else end
        elif (fd := self._descriptor()) is not None:
            self._redirect(*fd)
        elif operator := next((one for one in _OPERATORS if text.startswith(one, at)), ""):
            self.at += len(operator)
            self.tokens.append(_Token("op", operator))
            if operator == "\n":
                self._read_heredocs()
        else:
            self.tokens.append(_Token("word", self._word()))

    def _descriptor(self) -> tuple[int, str] | None:
        end = self.at
        while end < len(self.text) and self.text[end].isdigit():
            end += 1
        digits = self.text[self.at : end]
        for operator in _REDIRECTS:
            if self.text.startswith(operator, end):
                if operator == "&>" and digits:
                    return None
                self.at = end + len(operator)
                default = 0 if operator.startswith("<") else 1
                return (int(digits) if digits else default), operator
        return None

    def _redirect(self, fd: int, operator: str) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        token = _Token("redirect", self._word(), fd)
        token.body = operator
        self.tokens.append(token)
        if operator.startswith("<<"):
            self.heredocs.append((token, operator == "<<-"))

    def _read_heredocs(self) -> None:
        for token, strip in self.heredocs:
            delimiter = token.text
            token.literal = any(mark in delimiter for mark in "'\"\\")
            plain = delimiter.replace("'", "").replace('"', "").replace("\\", "")
            lines = []
            while True:
                if self.at >= len(self.text):
                    break  # shells warn and use the lines up to the end of the file
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                line = line.lstrip("\t") if strip else line
                if line == plain:
                    break
                lines.append(line + "\n")
            token.text = "".join(lines)
        self.heredocs = []

    def _word(self) -> str:
        start = self.at
        while self.at < len(self.text):
            character = self.text[self.at]
            if character in " \t\n;&|()<>":
                break
            self.at = skip_piece(self.text, self.at)
        return self.text[start : self.at]


def skip_piece(text: str, at: int) -> int:
    """The index behind the quoted string, expansion or plain character that starts at `at`."""
    character = text[at]
    if character == "\\":
        return min(at + 2, len(text))
    if character == "'":
        return _closing(text, at, "'")
    if character == '"':
        end = at + 1
        while end < len(text) and text[end] != '"':
            end = skip_piece(text, end) if text[end] in "\\$`" else end + 1
        if end >= len(text):
            raise BadScript("unterminated quoted string")
        return end + 1
    if character == "`":
        return _closing(text, at, "`")
    if text.startswith("$(", at):
        return _balanced(text, at + 1, "(", ")")
    if text.startswith("${", at):
        return _balanced(text, at + 1, "{", "}")
    return at + 1


def _closing(text: str, at: int, mark: str) -> int:
    end = text.find(mark, at + 1)
    if end < 0:
        raise BadScript("unterminated quoted string")
    return end + 1


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
    parser = _Parser(_Lexer(text).run())
    chains: list[Chain] = []
    try:
        while True:
            parser.separators()
            if parser.peek().kind == "end":
                return Block(tuple(chains)), None
            if parser.is_op(")"):
                raise BadScript(f"'{parser.peek().text}' unexpected")
            chains.append(parser.chain())
    except BadScript as error:
        return Block(tuple(chains)), error


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.at = 0

    def peek(self) -> _Token:
        token = self.tokens[self.at]
        if token.kind == "error":
            raise BadScript(token.text)
        return token

    def next_token(self) -> _Token:
        token = self.peek()
        self.at += token.kind != "end"
        return token

    def is_op(self, *texts: str) -> bool:
        return self.peek().kind == "op" and self.peek().text in texts

    def is_word(self, *texts: str) -> bool:
        return self.peek().kind == "word" and self.peek().text in texts

    def expect(self, text: str) -> None:
        token = self.next_token()
        if token.text != text:
            raise BadScript(f"'{token.text or 'end of file'}' unexpected (expecting '{text}')")

    def newlines(self) -> None:
        while self.is_op("\n", ";"):
            self.next_token()

    def separators(self) -> None:
        while self.is_op("\n", ";", "&"):
            self.next_token()

    def block(self, ends: tuple[str, ...]) -> Block:
        """Commands up to one of the reserved words or operators `ends`, which is not consumed."""
        chains: list[Chain] = []
        while True:
            self.separators()
            if self.peek().kind == "end" or (self.peek().kind in ("word", "op") and self.peek().text in ends):
                return Block(tuple(chains))
            if self.is_op(")"):
                return Block(tuple(chains))
            chains.append(self.chain())

    def chain(self) -> Chain:
        first = self.pipeline()
        rest: list[tuple[str, Pipeline]] = []
        while self.is_op("&&", "||"):
            operator = self.next_token().text
            while self.is_op("\n"):
                self.next_token()
            rest.append((operator, self.pipeline()))
        return Chain(first, tuple(rest))

    def pipeline(self) -> Pipeline:
        negated = False
        while self.is_word("!"):
            self.next_token()
            negated = not negated
        commands = [self.command()]
        while self.is_op("|"):
            self.next_token()
            while self.is_op("\n"):
                self.next_token()
            commands.append(self.command())
        return Pipeline(tuple(commands), negated)

    def command(self) -> Node:
        token = self.peek()
        if token.kind == "op" and token.text == "(":
            self.next_token()
            body = self.block((")",))
            self.expect(")")
            return Group(body, True, self.redirects())
        if token.kind == "word":
            match token.text:
                case "if":
                    return self.if_()
                case "while" | "until":
                    return self.loop()
                case "for":
                    return self.for_()
                case "case" | "function" | "select":
                    raise NotSimulated(token.text)
                case "{":
                    self.next_token()
                    body = self.block(("}",))
                    self.expect("}")
                    return Group(body, False, self.redirects())
                case "then" | "else" | "elif" | "fi" | "do" | "done" | "esac" | "}":
                    raise BadScript(f"'{token.text}' unexpected")
        return self.simple()

    def simple(self) -> Node:
        words: list[str] = []
        redirects: list[Redirect] = []
        while self.peek().kind in ("word", "redirect"):
            if self.peek().kind == "redirect":
                redirects.append(self.redirect())
            else:
                words.append(self.next_token().text)
                if len(words) == 1 and self.is_op("(") and self.tokens[self.at + 1].text == ")":
                    raise NotSimulated(f"function {words[0]}")
        if not words and not redirects:
            raise BadScript(f"'{self.peek().text or 'end of file'}' unexpected")
        return Simple(tuple(words), tuple(redirects))

    def redirect(self) -> Redirect:
        token = self.next_token()
        if token.body.startswith("<<"):
            return Redirect(token.fd, "<<", "", token.text, token.literal)
        return Redirect(token.fd, token.body, token.text)

    def redirects(self) -> tuple[Redirect, ...]:
        found = []
        while self.peek().kind == "redirect":
            found.append(self.redirect())
        return tuple(found)

    def if_(self) -> If:
        arms = []
        self.next_token()
        while True:
            condition = self.block(("then",))
            self.expect("then")
            arms.append((condition, self.block(("elif", "else", "fi"))))
            if not self.is_word("elif"):
                break
            self.next_token()
        otherwise = Block()
        if self.is_word("else"):
            self.next_token()
            otherwise = self.block(("fi",))
        self.expect("fi")
        return If(tuple(arms), otherwise)

    def loop(self) -> Loop:
        until = self.next_token().text == "until"
        condition = self.block(("do",))
        self.expect("do")
        body = self.block(("done",))
        self.expect("done")
        return Loop(condition, body, until)

    def for_(self) -> For:
        self.next_token()
        name = self.next_token().text
        words: list[str] = []
        self.newlines()
        if self.is_word("in"):
            self.next_token()
            while self.peek().kind == "word":
                words.append(self.next_token().text)
        else:
            words = ['"$@"']
        self.newlines()
        self.expect("do")
        body = self.block(("done",))
        self.expect("done")
        return For(name, tuple(words), body)
