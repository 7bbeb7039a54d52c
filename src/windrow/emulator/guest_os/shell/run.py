"""Runs bootstrap scripts on a simulated machine: real control flow, modelled commands.

Words are expanded and branches taken as in `sh`; the commands are those of the table passed in. A command that is not
in the table is logged as "not simulated" and has no effect, because guessing would hide broken scripts.
"""

from __future__ import annotations

import contextlib
import fnmatch
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self

from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.shell.expand import ShellExit, WordExpansion
from windrow.emulator.guest_os.shell.parse import (
    BadScript,
    Block,
    Case,
    Chain,
    For,
    Function,
    Group,
    If,
    Loop,
    Node,
    Pipeline,
    Redirect,
    Simple,
    parse_script,
    parse_until_error,
)

NOT_FOUND = 127
_MAX_ITERATIONS = 100_000  # of one loop; a script that never pauses would otherwise stop the world


class _Return(ShellExit):
    pass


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class OutputStream(Protocol):
    """Destination of output: collected in a bytearray, or logged line by line."""

    def __iadd__(self, data: bytes | bytearray, /) -> Self: ...


class _LineWriter:
    """An output stream that logs each line as soon as it is complete."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self.log = log
        self.rest = b""

    def __iadd__(self, data: bytes | bytearray, /) -> Self:
        *lines, self.rest = (self.rest + bytes(data)).split(b"\n")
        for line in lines:
            self.log(line.decode("utf-8", "replace"))
        return self

    def flush(self) -> None:
        if self.rest:
            self.log(self.rest.decode("utf-8", "replace"))
            self.rest = b""


@dataclass(slots=True)
class Invocation:
    """One command about to run."""

    argv: list[str]
    shell: Shell
    stdin: bytes = b""
    out: OutputStream = field(default_factory=bytearray)
    err: OutputStream = field(default_factory=bytearray)

    @property
    def guest(self) -> GuestOS:
        return self.shell.guest

    @property
    def env(self) -> Mapping[str, str]:
        return self.shell.variables

    def print(self, text: str) -> None:
        self.out += (text + "\n").encode()

    def print_error(self, text: str) -> None:
        self.err += f"{self.argv[0]}: {text}\n".encode()


Command = Callable[[Invocation], Awaitable[int]]


class Shell:
    """One shell process: its variables, functions and arguments."""

    def __init__(
        self,
        guest: GuestOS,
        commands: Mapping[str, Command],
        variables: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        name: str = "sh",
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.guest = guest
        self.commands = commands
        self.variables: dict[str, str] = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root"}
        self.variables.update(variables or {})
        self.arguments = list(arguments)
        self.name = name
        self.log = log or guest.console
        self.functions: dict[str, Node] = {}
        self.expansion = WordExpansion(self)
        self.last_code = 0
        self.errexit = False
        self.nounset = False
        self._in_condition = 0

    async def run(
        self, text: str, stdin: bytes = b"", out: OutputStream | None = None, err: OutputStream | None = None
    ) -> int:
        """Run a script to its end and return its exit code; without streams its output is logged on the console."""
        lines = _LineWriter(self.log)
        block, error = parse_until_error(text)
        try:
            code = await self._block(
                block, stdin, lines if out is None else out, lines if err is None else err
            )
            if error is not None:
                raise error
            return code
        except BadScript as fault:
            self.log(f"{self.name}: syntax error: {fault}")
            return 2
        except ShellExit as end:
            return end.code
        except (_Break, _Continue):
            return 0
        finally:
            lines.flush()

    async def execute(
        self,
        argv: Sequence[str],
        stdin: bytes = b"",
        out: OutputStream | None = None,
        err: OutputStream | None = None,
    ) -> int:
        """Run one command without a shell's interpretation, as exec does."""
        lines = _LineWriter(self.log)
        try:
            return await self._dispatch(
                list(argv), stdin, lines if out is None else out, lines if err is None else err
            )
        except ShellExit as end:
            return end.code
        finally:
            lines.flush()

    def child(self, arguments: Sequence[str] = (), name: str = "") -> Shell:
        """A new process with the same variables."""
        made = Shell(self.guest, self.commands, self.variables, arguments, name or self.name, self.log)
        made.functions = dict(self.functions)
        return made

    async def substitute(self, text: str) -> str:
        """What a command in `$(…)` prints."""
        out, err = bytearray(), bytearray()
        try:
            self.last_code = await self.child(self.arguments)._block(parse_script(text), b"", out, err)
        except ShellExit as end:
            self.last_code = end.code
        for line in err.decode("utf-8", "replace").splitlines():
            self.log(line)
        return out.decode("utf-8", "replace").rstrip("\n")

    # -- nodes

    async def _block(self, block: Block, stdin: bytes, out: OutputStream, err: OutputStream) -> int:
        for chain in block.chains:
            self.last_code = await self._chain(chain, stdin, out, err)
        return self.last_code if block.chains else 0

    async def _chain(self, chain: Chain, stdin: bytes, out: OutputStream, err: OutputStream) -> int:
        tested = bool(chain.rest)
        self._in_condition += tested
        try:
            code = await self._pipeline(chain.first, stdin, out, err)
        finally:
            self._in_condition -= tested
        for place, (operator, pipeline) in enumerate(chain.rest):
            if (operator == "&&") != (code == 0):
                continue
            last = place == len(chain.rest) - 1
            self._in_condition += not last
            try:
                code = await self._pipeline(pipeline, stdin, out, err)
            finally:
                self._in_condition -= not last
            if last:
                return self._check_errexit(code, pipeline)
        return code if tested else self._check_errexit(code, chain.first)

    def _check_errexit(self, code: int, pipeline: Pipeline) -> int:
        if code and self.errexit and not self._in_condition and not pipeline.negated:
            raise ShellExit(code)
        return code

    async def _pipeline(self, pipeline: Pipeline, stdin: bytes, out: OutputStream, err: OutputStream) -> int:
        code = 0
        for place, node in enumerate(pipeline.commands):
            if place == len(pipeline.commands) - 1:
                code = await self._node(node, stdin, out, err)
            else:
                between = bytearray()
                inner = self.child(self.arguments) if len(pipeline.commands) > 1 else self
                with contextlib.suppress(ShellExit):
                    await inner._node(node, stdin, between, err)
                stdin = bytes(between)
        self.last_code = code
        return int(code == 0) if pipeline.negated else code

    async def _node(self, node: Node, stdin: bytes, out: OutputStream, err: OutputStream) -> int:
        match node:
            case Simple():
                return await self._simple(node, stdin, out, err)
            case Pipeline():
                return await self._pipeline(node, stdin, out, err)
            case If():
                for condition, body in node.arms:
                    if await self._condition(condition, stdin, out, err) == 0:
                        return await self._block(body, stdin, out, err)
                return await self._block(node.otherwise, stdin, out, err)
            case Loop():
                return await self._loop(node, stdin, out, err)
            case For():
                return await self._for(node, stdin, out, err)
            case Case():
                word = " ".join(await self.expansion.fields(node.word, split=False))
                for patterns, body in node.arms:
                    for pattern in patterns:
                        if fnmatch.fnmatchcase(
                            word, " ".join(await self.expansion.fields(pattern, split=False))
                        ):
                            return await self._block(body, stdin, out, err)
                return 0
            case Function():
                self.functions[node.name] = node.body
                return 0
            case Group():
                return await self._group(node, stdin, out, err)

    async def _condition(self, block: Block, stdin: bytes, out: OutputStream, err: OutputStream) -> int:
        self._in_condition += 1
        try:
            return await self._block(block, stdin, out, err)
        finally:
            self._in_condition -= 1

    async def _loop(self, node: Loop, stdin: bytes, out: OutputStream, err: OutputStream) -> int:
        code = 0
        for _ in range(_MAX_ITERATIONS):
            if (await self._condition(node.condition, stdin, out, err) == 0) == node.until:
                return code
            try:
                code = await self._block(node.body, stdin, out, err)
            except _Break:
                return 0
            except _Continue:
                continue
        self.log(f"{self.name}: a loop did not end after {_MAX_ITERATIONS} iterations; the script is aborted")
        raise ShellExit(1)

    async def _for(self, node: For, stdin: bytes, out: OutputStream, err: OutputStream) -> int:
        code = 0
        for value in [one for word in node.words for one in await self.expansion.fields(word)]:
            self.variables[node.name] = value
            try:
                code = await self._block(node.body, stdin, out, err)
            except _Break:
                break
            except _Continue:
                continue
        return code

    async def _group(self, node: Group, stdin: bytes, out: OutputStream, err: OutputStream) -> int:
        runner = self.child(self.arguments) if node.subshell else self
        runner.errexit, runner.nounset = self.errexit, self.nounset
        inner_out, inner_err = bytearray(), bytearray()
        redirects = [await self._expand_redirect(one) for one in node.redirects]
        for redirect, target in redirects:
            if redirect.op in ("<", "<<"):
                stdin = self._read_input(redirect, target)
        try:
            sinks = (inner_out, inner_err) if redirects else (out, err)
            code = await runner._block(node.body, stdin, *sinks)
        except ShellExit as end:
            if not node.subshell:
                raise
            code = end.code
        finally:
            self._write_redirects(redirects, inner_out, inner_err, out, err)
        return code

    # -- simple commands

    async def _simple(self, node: Simple, stdin: bytes, out: OutputStream, err: OutputStream) -> int:
        words = list(node.words)
        assignments: dict[str, str] = {}
        while words and (found := _ASSIGNMENT.match(words[0])):
            self.last_code = 0
            value = " ".join(await self.expansion.fields(words[0][found.end() :], split=False))
            assignments[found.group(1)] = value
            words.pop(0)
        substituted = self.last_code
        argv = [one for word in words for one in await self.expansion.fields(word)]
        redirects = [await self._expand_redirect(one) for one in node.redirects]
        for redirect, target in redirects:
            if redirect.op in ("<", "<<"):
                if redirect.op == "<" and self.guest.read(target) is None and target != "/dev/null":
                    err += f"{self.name}: cannot open {target}: No such file\n".encode()
                    return 1
                stdin = self._read_input(redirect, target)
        if not argv:
            self.variables.update(assignments)
            self._write_redirects(redirects, bytearray(), bytearray(), out, err)
            return substituted if assignments else 0
        before: dict[str, str | None] = {key: self.variables.get(key) for key in assignments}
        self.variables.update(assignments)
        inner_out, inner_err = bytearray(), bytearray()
        try:
            if not redirects:
                return await self._dispatch(argv, stdin, out, err)
            return await self._dispatch(argv, stdin, inner_out, inner_err)
        finally:
            if argv[0] not in ("export", "."):
                for key, old in before.items():
                    if old is None:
                        self.variables.pop(key, None)
                    else:
                        self.variables[key] = old
            self._write_redirects(redirects, inner_out, inner_err, out, err)

    async def _dispatch(self, argv: list[str], stdin: bytes, out: OutputStream, err: OutputStream) -> int:
        name = argv[0]
        if name in self.functions:
            return await self._function(argv, stdin, out, err)
        if name in _BUILTINS:
            return await self._builtin(argv, stdin, out, err)
        return await self._run_command(Invocation(argv, self, stdin, out, err))

    async def _run_command(self, call: Invocation) -> int:
        name = call.argv[0]
        path = self._find_program(name)
        command = self.commands.get(path) or self.commands.get(
            name.rsplit("/", 1)[-1] if _is_standard(name) else name
        )
        if command is not None:
            return await command(call)
        if path:
            return await self._script_file(path, call)
        if "/" in name:
            call.err += f"{self.name}: {name}: not found\n".encode()
            return NOT_FOUND
        self.guest.console(f"not simulated: {' '.join(call.argv)}")
        return 0

    def _find_program(self, name: str) -> str:
        if "/" in name:
            return name if self.guest.is_file(name) else ""
        for directory in self.variables.get("PATH", "").split(":"):
            if self.guest.is_file(f"{directory}/{name}"):
                return f"{directory}/{name}"
        return ""

    async def _script_file(self, path: str, call: Invocation) -> int:
        entry = self.guest.hardware.root.files[path]
        if not entry.mode & 0o111:
            call.err += f"{self.name}: {path}: Permission denied\n".encode()
            return 126
        if not entry.content.startswith(b"#!"):
            self.guest.console(f"not simulated: program {path}")
            return 0
        child = self.child(call.argv[1:], path)
        child.functions = {}
        return await child.run(entry.content.decode("utf-8", "replace"), call.stdin, call.out, call.err)

    async def _function(self, argv: list[str], stdin: bytes, out: OutputStream, err: OutputStream) -> int:
        before, self.arguments = self.arguments, argv[1:]
        try:
            return await self._node(self.functions[argv[0]], stdin, out, err)
        except _Return as end:
            return end.code
        finally:
            self.arguments = before

    async def _builtin(self, argv: list[str], stdin: bytes, out: OutputStream, err: OutputStream) -> int:
        name, rest = argv[0], argv[1:]
        match name:
            case ":" | "true" | "trap" | "wait" | "umask" | "ulimit" | "hash" | "cd":
                return 0
            case "false":
                return 1
            case "exit":
                raise ShellExit(int(rest[0]) if rest and rest[0].isdigit() else self.last_code)
            case "return":
                raise _Return(int(rest[0]) if rest and rest[0].isdigit() else self.last_code)
            case "break":
                raise _Break
            case "continue":
                raise _Continue
            case "set":
                return self._set(rest)
            case "export" | "local" | "readonly" | "declare":
                for word in rest:
                    key, sign, value = word.partition("=")
                    if sign:
                        self.variables[key] = value
                return 0
            case "unset":
                for word in rest:
                    self.variables.pop(word, None)
                return 0
            case "shift":
                count = int(rest[0]) if rest else 1
                self.arguments = self.arguments[count:]
                return 0
            case "read":
                line = stdin.split(b"\n", 1)[0].decode("utf-8", "replace")
                names = [word for word in rest if not word.startswith("-")] or ["REPLY"]
                for key, value in zip(
                    names, [*line.split(None, len(names) - 1), *[""] * len(names)], strict=False
                ):
                    self.variables[key] = value
                return 0 if stdin else 1
            case "eval":
                return await self._block(parse_script(" ".join(rest)), stdin, out, err)
            case "exec":
                if rest:
                    raise ShellExit(await self._dispatch(rest, stdin, out, err))
                return 0
            case "." | "source":
                text = self.guest.read(rest[0]) if rest else None
                if text is None:
                    err += f"{self.name}: .: cannot open {' '.join(rest)}: No such file\n".encode()
                    return 2
                return await self._block(parse_script(text.decode("utf-8", "replace")), stdin, out, err)
            case "command" | "type" | "which":
                return await self._command_builtin(rest, stdin, out, err)
            case _:
                raise AssertionError(name)

    async def _command_builtin(
        self, rest: list[str], stdin: bytes, out: OutputStream, err: OutputStream
    ) -> int:
        wanted = [word for word in rest if not word.startswith("-")]
        if "-v" not in rest and "-V" not in rest and wanted and rest[0] == wanted[0] and len(wanted) > 1:
            return await self._dispatch(wanted, stdin, out, err)
        for word in wanted:
            path = self._find_program(word)
            if path or word in self.commands or word in _BUILTINS or word in self.functions:
                out += f"{path or '/usr/bin/' + word}\n".encode()
            else:
                return 1
        return 0

    def _set(self, rest: list[str]) -> int:
        words = iter(rest)
        for word in words:
            if word == "--":
                self.arguments = list(words)
                return 0
            wanted = word.startswith("-")
            if word in ("-o", "+o"):
                option = next(words, "")
                self.errexit = wanted if option == "errexit" else self.errexit
                self.nounset = wanted if option == "nounset" else self.nounset
            elif word[:1] in "-+":
                self.errexit = wanted if "e" in word else self.errexit
                self.nounset = wanted if "u" in word else self.nounset
                if word.endswith("o"):
                    next(words, "")
        return 0

    # -- redirections

    async def _expand_redirect(self, redirect: Redirect) -> tuple[Redirect, str]:
        if redirect.op == "<<":
            return redirect, redirect.body if redirect.literal else await self.expansion.text(redirect.body)
        return redirect, " ".join(await self.expansion.fields(redirect.target, split=False))

    def _read_input(self, redirect: Redirect, target: str) -> bytes:
        return target.encode() if redirect.op == "<<" else (self.guest.read(target) or b"")

    def _write_redirects(
        self,
        redirects: Sequence[tuple[Redirect, str]],
        inner_out: bytearray,
        inner_err: bytearray,
        out: OutputStream,
        err: OutputStream,
    ) -> None:
        sinks: dict[int, str | int] = {1: 1, 2: 2}
        for redirect, target in redirects:
            if redirect.op in (">", ">>"):
                if redirect.op == ">" and not target.startswith("/dev/"):
                    self.guest.write(target, b"", self._mode_of(target))
                sinks[redirect.fd] = target
            elif redirect.op == "&>":
                if not target.startswith("/dev/"):
                    self.guest.write(target, b"", self._mode_of(target))
                sinks[1] = sinks[2] = target
            elif redirect.op == ">&" and target.isdigit():
                sinks[redirect.fd] = sinks.get(int(target), 1)
        for fd, data in ((1, inner_out), (2, inner_err)):
            sink = sinks[fd]
            if sink == 1:
                out += data
            elif sink == 2:
                err += data
            elif sink in ("/dev/console", "/dev/kmsg", "/dev/stderr", "/dev/stdout", "/dev/ttyS0"):
                for line in data.decode("utf-8", "replace").splitlines():
                    self.log(line)
            elif isinstance(sink, str) and not sink.startswith("/dev/"):
                self.guest.append(sink, bytes(data))

    def _mode_of(self, path: str) -> int:
        found = self.guest.hardware.root.files.get(path)
        return found.mode if found else 0o644


_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_BUILTINS = frozenset(
    {
        *(":", "true", "false", "trap", "wait", "umask", "ulimit", "hash", "cd", "exit", "return", "break"),
        *(
            "continue",
            "set",
            "export",
            "local",
            "readonly",
            "declare",
            "unset",
            "shift",
            "read",
            "eval",
            "exec",
        ),
        *(".", "source", "command", "type", "which"),
    }
)


def _is_standard(name: str) -> bool:
    return name.startswith(("/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/"))
