"""Runs bootstrap scripts on a simulated machine: real control flow, modelled commands.

Words are expanded and branches taken as in `sh`; the commands are those of the table passed in. A command that is not
in the table is logged as "not simulated" and has no effect, because guessing would hide broken scripts. `case`,
functions, `${name#pattern}` and arithmetic beyond one operation are refused by name: no bootstrap needs them.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Protocol, Self, TypeVar

from windrow.emulator.guest_os.binaries import command_key, read_binary
from windrow.emulator.guest_os.budget import KILLED, DiskFull, ScriptBudget, ScriptKilled
from windrow.emulator.guest_os.notifier import result_unless
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.shell.expand import ShellExit, ShellState, WordExpansion
from windrow.emulator.guest_os.shell.parse import (
    BadScript,
    Block,
    Chain,
    For,
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

T = TypeVar("T")
NOT_FOUND = 127
TERMINATION_LOG = "/dev/termination-log"  # of a container, by default
_MAX_LINE = 64 * 1024  # of a line of the console, before it is shown without its end


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class TimedOut(Exception):
    """The time that `timeout` gave is over."""


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
        if len(self.rest) > _MAX_LINE:
            self.flush()
        return self

    def flush(self) -> None:
        if self.rest:
            self.log(self.rest.decode("utf-8", "replace"))
            self.rest = b""


class _Pipe:
    """Collected output, which is paid for until it is closed."""

    def __init__(self, budget: ScriptBudget) -> None:
        self.budget = budget
        self.data = bytearray()

    def __iadd__(self, data: bytes | bytearray, /) -> Self:
        self.data += data
        self.budget.pipe(len(data))
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.budget.pipe(-len(self.data))


class _Writer:
    """An output stream that hands on each piece of output at once."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self.write = write

    def __iadd__(self, data: bytes | bytearray, /) -> Self:
        self.write(bytes(data))
        return self


@dataclass(slots=True)
class Streams:
    """Standard input, output and error of a command."""

    stdin: bytes = b""
    out: OutputStream = field(default_factory=bytearray)
    err: OutputStream = field(default_factory=bytearray)


@dataclass(slots=True)
class Invocation:
    """One command about to run."""

    argv: list[str]
    shell: Shell
    streams: Streams = field(default_factory=Streams)

    @property
    def guest(self) -> GuestOS:
        return self.shell.guest

    @property
    def env(self) -> Mapping[str, str]:
        return self.shell.state.variables

    @property
    def stdin(self) -> bytes:
        return self.streams.stdin

    def write(self, data: bytes) -> None:
        self.streams.out += data

    def write_file(self, path: str, content: bytes, mode: int = 0o644, owner: str = "root:root") -> None:
        """Raises DiskFull."""
        self.guest.budget.check_disk(len(content))
        self.guest.write(path, content, mode, owner)

    def print(self, text: str) -> None:
        self.write((text + "\n").encode())

    def print_error(self, text: str) -> None:
        self.streams.err += f"{self.argv[0]}: {text}\n".encode()


Command = Callable[[Invocation], Awaitable[int]]


class Shell:
    """One shell process. Without streams, output is logged on the console."""

    def __init__(
        self,
        guest: GuestOS,
        commands: Mapping[str, Command],
        variables: Mapping[str, str] | None = None,
        name: str = "sh",
        log: Callable[[str], None] | None = None,
    ) -> None:
        self.guest = guest
        self.commands = commands
        self.log = log or guest.console
        default = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root"}
        self.state = ShellState(name, {**default, **(variables or {})})
        self._expansion = WordExpansion(guest, self.state, self.log, self._substitute)
        self._in_condition = 0
        self.deadline: timedelta | None = None  # of the monotonic clock, set by `timeout`
        self._parent: Shell | None = None
        self._depth = 0

    async def run(self, script: str | Sequence[str], streams: Streams | None = None) -> int:
        """Run a script to its end, or one command (a list of words) as exec does; return the exit code."""
        lines = _LineWriter(self.log)
        streams = streams or Streams(b"", lines, lines)
        try:
            if not isinstance(script, str):
                return await self._dispatch(list(script), streams)
            block, error = parse_until_error(script)
            code = await self._block(block, streams)
            if error is not None:
                raise error
            return code
        except BadScript as error:
            self.log(f"{self.state.name}: {error.label}: {error}")
            return 2
        except ShellExit as end:
            return end.code
        except (_Break, _Continue):
            return 0
        except ScriptKilled as killed:
            if self._parent is not None:
                raise
            self.log(f"{self.state.name}: {killed}")
            return KILLED
        finally:
            lines.flush()

    def child(self, arguments: Sequence[str] | None = None, name: str = "") -> Shell:
        """A new process with the same variables, and the same arguments where none are given."""
        made = Shell(self.guest, self.commands, self.state.variables, name or self.state.name, self.log)
        made._parent, made._depth, made.deadline = self, self._depth, self.deadline
        made.state.arguments = list(self.state.arguments if arguments is None else arguments)
        return made

    async def within_deadline(self, work: Awaitable[T]) -> T:
        """The result of `work`. Raises TimedOut when the deadline comes first."""
        if self.deadline is None:
            return await work
        done: list[T] = []

        async def run() -> bool:
            done.append(await work)
            return True

        left = (self.deadline - self.guest.monotonic()).total_seconds() * self.guest.host.time_scale
        if await result_unless(run(), self.guest.sleep(max(left, 0.001))) is None:
            raise TimedOut
        return done[0]

    async def _substitute(self, text: str) -> str:
        with _Pipe(self.guest.budget) as out, _Pipe(self.guest.budget) as err:
            try:
                self.state.last_code = await self.child()._block(parse_script(text), Streams(b"", out, err))
            except ShellExit as end:
                self.state.last_code = end.code
            for line in err.data.decode("utf-8", "replace").splitlines():
                self.log(line)
            return out.data.decode("utf-8", "replace").rstrip("\n")

    # -- nodes

    async def _block(self, block: Block, streams: Streams) -> int:
        self._depth += 1
        try:
            self.guest.budget.check_depth(self._depth)
            for chain in block:
                self.state.last_code = await self._chain(chain, streams)
        finally:
            self._depth -= 1
        return self.state.last_code if block else 0

    async def _chain(self, chain: Chain, streams: Streams) -> int:
        tested = bool(chain.rest)
        with self._condition(tested):
            code = await self._pipeline(chain.first, streams)
        for place, (operator, pipeline) in enumerate(chain.rest):
            if (operator == "&&") != (code == 0):
                continue
            last = place == len(chain.rest) - 1
            with self._condition(not last):
                code = await self._pipeline(pipeline, streams)
            if last:
                return self._check_errexit(code, pipeline)
        return code if tested else self._check_errexit(code, chain.first)

    @contextlib.contextmanager
    def _condition(self, holds: bool = True) -> Iterator[None]:
        self._in_condition += holds
        try:
            yield
        finally:
            self._in_condition -= holds

    def _check_errexit(self, code: int, pipeline: Pipeline) -> int:
        if code and self.state.errexit and not self._in_condition and not pipeline.negated:
            raise ShellExit(code)
        return code

    async def _pipeline(self, pipeline: Pipeline, streams: Streams) -> int:
        *others, last = pipeline.commands
        stdin = streams.stdin
        for node in others:
            with _Pipe(self.guest.budget) as between:
                with contextlib.suppress(ShellExit):
                    await self.child()._node(node, Streams(stdin, between, streams.err))
                stdin = bytes(between.data)
        code = self.state.last_code = await self._node(last, replace(streams, stdin=stdin))
        return int(code == 0) if pipeline.negated else code

    async def _node(self, node: Node, streams: Streams) -> int:
        await self.guest.budget.spend(len(streams.stdin))
        try:
            return await self._run_node(node, streams)
        except _MissingInput as error:
            return self._fail(streams, f"cannot open {error}: No such file", 1)
        except DiskFull:
            return self._fail(streams, "write error: No space left on device", 1)

    def _fail(self, streams: Streams, why: str, code: int) -> int:
        streams.err += f"{self.state.name}: {why}\n".encode()
        return code

    async def _run_node(self, node: Node, streams: Streams) -> int:
        match node:
            case Simple():
                return await self._simple(node, streams)
            case If():
                for condition, body in node.arms:
                    if await self._holds(condition, streams):
                        return await self._block(body, streams)
                return await self._block(node.otherwise, streams)
            case Loop():
                return await self._loop(node, streams)
            case For():
                return await self._for(node, streams)
            case Group():
                return await self._group(node, streams)

    async def _holds(self, condition: Block, streams: Streams) -> bool:
        with self._condition():
            return await self._block(condition, streams) == 0

    async def _loop(self, node: Loop, streams: Streams) -> int:
        code = 0
        while True:
            await self.guest.budget.spend()
            if await self._holds(node.condition, streams) == node.until:
                return code
            try:
                code = await self._block(node.body, streams)
            except _Break:
                return 0
            except _Continue:
                continue

    async def _for(self, node: For, streams: Streams) -> int:
        code = 0
        for value in await self._words(node.words):
            await self.guest.budget.spend()
            self._expansion.assign({node.name: value})
            try:
                code = await self._block(node.body, streams)
            except _Break:
                break
            except _Continue:
                continue
        return code

    async def _group(self, node: Group, streams: Streams) -> int:
        runner = self.child() if node.subshell else self
        runner.state.errexit, runner.state.nounset = self.state.errexit, self.state.nounset
        inner = await self._redirected(node.redirects, streams)
        try:
            return await runner._block(node.body, inner)
        except ShellExit as end:
            if not node.subshell:
                raise
            return end.code

    # -- simple commands

    async def _simple(self, node: Simple, streams: Streams) -> int:
        words = list(node.words)
        assignments: dict[str, str] = {}
        while words and (found := _ASSIGNMENT.match(words[0])):
            self.state.last_code = 0
            value = " ".join(await self._expansion.fields(words[0][found.end() :], split=False))
            assignments[found.group(1)] = value
            words.pop(0)
        substituted = self.state.last_code
        argv = await self._words(words)
        variables = self.state.variables
        before = {key: variables.get(key) for key in assignments}
        self._expansion.assign(assignments)
        try:
            inner = await self._redirected(node.redirects, streams)
            if not argv:
                return substituted if assignments else 0
            return await self._dispatch(argv, inner)
        finally:
            if argv and argv[0] not in ("export", "."):
                for key, old in before.items():
                    variables.pop(key, None)
                    if old is not None:
                        variables[key] = old

    async def _words(self, words: Sequence[str]) -> list[str]:
        """The words of a command or of a `for`, expanded."""
        found: list[str] = []
        for word in words:
            found += await self._expansion.fields(word)
            self.guest.budget.check_words(found)
        return found

    async def _dispatch(self, argv: list[str], streams: Streams) -> int:
        call = Invocation(argv, self, streams)
        return await (self._builtin(call) if argv[0] in _BUILTINS else self._run_command(call))

    async def _run_command(self, call: Invocation) -> int:
        name = call.argv[0]
        path = self._find_program(name)
        standard = name.startswith(("/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/"))
        command = self.commands.get(path) or self.commands.get(name.rsplit("/", 1)[-1] if standard else name)
        if command is not None:
            return await command(call)
        if path:
            return await self._script_file(path, call)
        if "/" in name:
            return self._fail(call.streams, f"{name}: not found", NOT_FOUND)
        self.guest.console(f"not simulated: {' '.join(call.argv)}")
        return 0

    def _find_program(self, name: str) -> str:
        if "/" in name:
            return name if self.guest.is_file(name) else ""
        for directory in self.state.variables.get("PATH", "").split(":"):
            if self.guest.is_file(f"{directory}/{name}"):
                return f"{directory}/{name}"
        return ""

    async def _script_file(self, path: str, call: Invocation) -> int:
        entry = self.guest.find(path)
        if entry is None or not entry.mode & 0o111:
            return self._fail(call.streams, f"{path}: Permission denied", 126)
        if not entry.content.startswith(b"#!"):
            return await self._binary(path, entry.content, call)
        child = self.child(call.argv[1:], path)
        return await child.run(entry.content.decode("utf-8", "replace"), call.streams)

    async def run_binary(self, call: Invocation) -> int:
        """Run the simulated program whose binary is found under the call's name."""
        path = self._find_program(call.argv[0])
        return await self._binary(path, self.guest.read(path) or b"", call)

    async def _binary(self, path: str, content: bytes, call: Invocation) -> int:
        command = self.commands.get(command_key(read_binary(content)[0]))
        if command is None:
            self.guest.console(f"not simulated: program {path}")
            return 0
        return await command(Invocation([path, *call.argv[1:]], self, call.streams))

    async def _builtin(self, call: Invocation) -> int:
        name, *rest = call.argv
        match name:
            case "exit":
                raise ShellExit(int(rest[0]) if rest and rest[0].isdigit() else self.state.last_code)
            case "break":
                raise _Break
            case "continue":
                raise _Continue
            case "set":
                return self._set(rest)
            case "export" | "readonly" | "declare":
                pairs = (word.partition("=") for word in rest)
                self._expansion.assign({key: value for key, sign, value in pairs if sign})
                return 0
            case "unset":
                for word in rest:
                    self.state.variables.pop(word, None)
                return 0
            case "shift":
                count = int(rest[0]) if rest and rest[0].isdigit() else 1
                self.state.arguments = self.state.arguments[count:]
                return 0
            case "exec":
                if rest:
                    raise ShellExit(await self._dispatch(rest, call.streams))
                return 0
            case "." | "source":
                text = self.guest.read(rest[0]) if rest else None
                if text is None:
                    return self._fail(call.streams, f".: cannot open {' '.join(rest)}: No such file", 2)
                return await self._block(parse_script(text.decode("utf-8", "replace")), call.streams)
            case "command" | "type" | "which":
                return await self._command_builtin(call, rest)
            case _:
                raise AssertionError(name)

    async def _command_builtin(self, call: Invocation, rest: list[str]) -> int:
        wanted = [word for word in rest if not word.startswith("-")]
        if "-v" not in rest and "-V" not in rest and wanted and rest[0] == wanted[0] and len(wanted) > 1:
            return await self._dispatch(wanted, call.streams)
        for word in wanted:
            path = self._find_program(word)
            if not (path or word in self.commands or word in _BUILTINS):
                return 1
            call.print(path or f"/usr/bin/{word}")
        return 0

    def _set(self, rest: list[str]) -> int:
        words = iter(rest)
        for word in words:
            if word == "--":
                self.state.arguments = list(words)
                return 0
            wanted = word.startswith("-")
            if word in ("-o", "+o"):
                option = next(words, "")
                self.state.errexit = wanted if option == "errexit" else self.state.errexit
                self.state.nounset = wanted if option == "nounset" else self.state.nounset
            elif word[:1] in "-+":
                self.state.errexit = wanted if "e" in word else self.state.errexit
                self.state.nounset = wanted if "u" in word else self.state.nounset
                if word.endswith("o"):
                    next(words, "")
        return 0

    # -- redirections

    async def _redirected(self, redirects: Sequence[Redirect], streams: Streams) -> Streams:
        """The streams inside of `redirects`. Raises _MissingInput."""
        inner = replace(streams)
        for redirect in redirects:
            target = await self._expand_redirect(redirect)
            match redirect.op:
                case "<<":
                    inner.stdin = target.encode()
                case "<":
                    content = b"" if target == "/dev/null" else self.guest.read(target)
                    if content is None:
                        raise _MissingInput(target)
                    inner.stdin = content
                case "&>":
                    inner.out = inner.err = self._open(target)
                case ">" | ">>" if redirect.fd == 2:
                    inner.err = self._open(target, redirect.op)
                case ">" | ">>" if redirect.fd == 1:
                    inner.out = self._open(target, redirect.op)
                case ">&" if redirect.fd == 2 and target == "1":
                    inner.err = inner.out
                case ">&" if redirect.fd == 1 and target == "2":
                    inner.out = inner.err
        return inner

    async def _expand_redirect(self, redirect: Redirect) -> str:
        if redirect.op == "<<":
            return redirect.target if redirect.literal else await self._expansion.text(redirect.target)
        return " ".join(await self._expansion.fields(redirect.target, split=False))

    def _open(self, path: str, op: str = ">") -> OutputStream:
        if path in ("/dev/console", "/dev/kmsg", "/dev/stderr", "/dev/stdout", "/dev/ttyS0"):
            return _Writer(
                lambda data: [self.log(line) for line in data.decode("utf-8", "replace").splitlines()]
            )
        if path.startswith("/dev/") and path != TERMINATION_LOG:
            return _Writer(lambda data: None)
        if op == ">":
            found = self.guest.find(path)
            self.guest.budget.check_disk(0)
            self.guest.write(path, b"", found.mode if found else 0o644)
        return _Writer(lambda data: self._append(path, data))

    def _append(self, path: str, data: bytes) -> None:
        self.guest.budget.check_disk(len(data))
        self.guest.append(path, data)


class _MissingInput(Exception):
    """The file of a `<` redirection does not exist."""


_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_BUILTIN_NAMES = (
    "exit break continue set export readonly declare unset shift exec . source command type which"
)
_BUILTINS = frozenset(_BUILTIN_NAMES.split())
