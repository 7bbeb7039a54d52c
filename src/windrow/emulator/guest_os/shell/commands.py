"""Commands of simulated machines for files, text and tests. The table is extended by systemctl, curl and kubectl."""

from __future__ import annotations

import base64
import binascii
import hashlib
import operator
import posixpath
import re
import zlib
from collections.abc import Callable, Collection, Sequence
from itertools import zip_longest

from windrow.core.formats.regex import BadPattern, TextTooLong, matches
from windrow.emulator.guest_os.shell.run import Command, Invocation, Streams, TimedOut

FILE_AND_TEXT_COMMANDS: dict[str, Command] = {}


def _command(*names: str) -> Callable[[Command], Command]:
    """Enter a function into the table under these names."""

    def register(function: Command) -> Command:
        FILE_AND_TEXT_COMMANDS.update(dict.fromkeys(names, function))
        return function

    return register


def parse_options(
    words: Sequence[str], valued: Collection[str] = (), *, interleaved: bool = True
) -> tuple[dict[str, str], list[str]]:
    """(options, operands) of a command line. Options are named without dashes; those in `valued` have a value.

    With `interleaved` false the options end at the first operand, as for `sudo` and `env`.
    """
    options: dict[str, str] = {}
    operands: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            operands += rest
        elif word.startswith("--"):
            name, sign, value = word[2:].partition("=")
            options[name] = next(rest, "") if name in valued and not sign else value
        elif word.startswith("-") and len(word) > 1:
            for end, letter in enumerate(word[1:], start=2):
                options[letter] = ""
                if letter in valued:
                    options[letter] = word[end:] or next(rest, "")
                    break
        else:
            operands.append(word)
            if not interleaved:
                operands += rest
    return options, operands


def _read_inputs(call: Invocation, paths: Sequence[str]) -> tuple[list[tuple[str, bytes]], int]:
    """Path and content of each file, standard input for "-" or without paths; and the exit code for missing ones."""
    found: list[tuple[str, bytes]] = []
    code = 0
    for path in paths or ["-"]:
        content = call.stdin if path == "-" else call.guest.read(path)
        if content is None:
            call.print_error(f"{path}: No such file or directory")
            code = 1
        else:
            found.append((path, content))
            call.guest.budget.check_input(sum(len(content) for _, content in found))
    return found, code


# -- text


@_command("echo")
async def _echo(call: Invocation) -> int:
    words, end = call.argv[1:], "\n"
    while words and words[0] in ("-n", "-e", "-ne", "-en"):
        end = "" if "n" in words[0] else end
        words = words[1:]
    call.write((" ".join(words) + end).encode())
    return 0


@_command("printf")
async def _printf(call: Invocation) -> int:
    if len(call.argv) < 2:
        return 1
    template = call.argv[1].replace("\\n", "\n").replace("\\t", "\t").replace("%%", "\0")
    parts, words = re.split(r"%[-0-9.]*[sdibqc]", template), call.argv[2:]
    # The template is used again until all words are printed.
    count = len(parts) - 1
    for start in range(0, max(len(words), 1), count or len(words) or 1):
        printed = zip_longest(parts, words[start : start + count], fillvalue="")
        call.write("".join(part + word for part, word in printed).replace("\0", "%").encode())
    return 0


@_command("cat")
async def _cat(call: Invocation) -> int:
    contents, code = _read_inputs(call, parse_options(call.argv[1:])[1])
    for _, content in contents:
        call.write(content)
    return code


@_command("tail")
async def _tail(call: Invocation) -> int:
    """The last lines of each file; what else it can is not simulated."""
    options, operands = parse_options(call.argv[1:], ("n", "lines"))
    count = options.get("n") or options.get("lines") or "10"
    contents, code = _read_inputs(call, operands)
    for _, content in contents:
        lines = content.splitlines(keepends=True)
        call.write(
            b"".join(lines[len(lines) - min(int(count), len(lines)) :] if count.isdecimal() else lines)
        )
    return code


@_command("tee")
async def _tee(call: Invocation) -> int:
    options, operands = parse_options(call.argv[1:])
    for path in operands:
        if not path.startswith("/dev/"):
            old = call.guest.read(path) or b"" if "a" in options else b""
            found = call.guest.find(path) if old else None
            call.write_file(path, old + call.stdin, found.mode if found else 0o644)
    call.write(call.stdin)
    return 0


@_command("grep", "egrep")
async def _grep(call: Invocation) -> int:
    options, operands = parse_options(call.argv[1:], "em")
    if "e" in options:
        operands = [options["e"], *operands]
    if not operands:
        return 2
    pattern = re.escape(operands[0]) if "F" in options else operands[0]
    pattern = ("(?i)" if "i" in options else "") + (f"^(?:{pattern})$" if "x" in options else pattern)
    contents, _ = _read_inputs(call, operands[1:])
    lines = [line for _, content in contents for line in content.decode("utf-8", "replace").splitlines()]
    try:
        found = [line for line in lines if matches(pattern, line) != ("v" in options)]
    except (BadPattern, TextTooLong) as error:
        call.print_error(f"{pattern}: {error}")
        return 2
    for line in found if "q" not in options else ():
        call.print(line)
    return 0 if found else 1


@_command("sha256sum", "sha1sum", "md5sum")
async def _digest(call: Invocation) -> int:
    options, operands = parse_options(call.argv[1:])
    algorithm = posixpath.basename(call.argv[0]).removesuffix("sum")
    contents, code = _read_inputs(call, operands)
    if not options.keys() & {"c", "check"}:
        for path, content in contents:
            call.print(f"{hashlib.new(algorithm, content).hexdigest()}  {path}")
        return code
    lines = [line for _, content in contents for line in content.decode("utf-8", "replace").splitlines()]
    for line in lines:
        wanted, _, path = line.partition("  ")
        path = path.lstrip("*")
        listed = call.guest.read(path)
        good = listed is not None and hashlib.new(algorithm, listed).hexdigest() == wanted
        call.print(f"{path}: {'OK' if good else 'FAILED'}")
        code = code if good else 1
    return code if lines else 1


@_command("base64")
async def _base64(call: Invocation) -> int:
    options, operands = parse_options(call.argv[1:], "w")
    contents, code = _read_inputs(call, operands[:1])
    for _, content in contents:
        if not options.keys() & {"d", "decode"}:
            call.write(base64.b64encode(content) + b"\n")
            continue
        try:
            call.write(base64.b64decode(b"".join(content.split()), validate=True))
        except binascii.Error:
            call.print_error("invalid input")
            return 1
    return code


_GZIP = 16 + zlib.MAX_WBITS
_MAX_PLAIN = 64 * 1024 * 1024  # a user's data decides what is unpacked


@_command("gunzip", "zcat")
async def _gunzip(call: Invocation) -> int:
    """Standard input or one file to standard output; a file is replaced by what it holds without `-c`."""
    options, operands = parse_options(call.argv[1:])
    contents, code = _read_inputs(call, operands[:1])
    for path, content in contents:
        stream = zlib.decompressobj(wbits=_GZIP)
        try:
            plain = stream.decompress(content, _MAX_PLAIN)
        except zlib.error:
            plain = b""
        if not stream.eof:
            call.print_error(f"{path}: not in gzip format, cut off, or larger than the simulation unpacks")
            return 1
        if path == "-" or "c" in options or call.argv[0].endswith("zcat"):
            call.write(plain)
        else:
            call.write_file(path.removesuffix(".gz"), plain)
            call.guest.remove(path)
    return code


@_command("cmp")
async def _cmp(call: Invocation) -> int:
    options, operands = parse_options(call.argv[1:])
    contents, code = _read_inputs(call, operands[:2])
    if code or len(contents) < 2:
        return 2
    (first, left), (second, right) = contents
    if left == right:
        return 0
    if "s" not in options:
        call.print(f"{first} {second} differ")
    return 1


_CUT_RANGE = r"(\d{1,9}-?|\d{1,9}-\d{1,9}|-\d{1,9})"


def _cut_indexes(fields: str, count: int) -> list[int]:
    """Which of `count` parts a list such as `1,3-` names, in order and once each."""
    wanted: set[int] = set()
    for first, dash, last in (part.partition("-") for part in fields.split(",")):
        start, end = int(first or 1), int(last or count) if dash else int(first or 0)
        wanted.update(range(max(start, 1), min(end, count) + 1))
    return [number - 1 for number in sorted(wanted)]


@_command("cut")
async def _cut(call: Invocation) -> int:
    options, operands = parse_options(call.argv[1:], "dfcb")
    listed = next((options[letter] for letter in "fcb" if letter in options), "")
    if not re.fullmatch(rf"{_CUT_RANGE}(,{_CUT_RANGE})*", listed):
        call.print_error("you must specify a list of bytes, characters, or fields")
        return 1
    contents, code = _read_inputs(call, operands)
    mark = options.get("d", "\t") if "f" in options else ""
    for line in b"".join(content for _, content in contents).decode("utf-8", "replace").splitlines():
        parts = line.split(mark) if mark else list(line)
        if not mark or len(parts) > 1:
            call.print(mark.join(parts[index] for index in _cut_indexes(listed, len(parts))))
        elif "s" not in options:  # a line without the delimiter is printed whole
            call.print(line)
    return code


# -- files


def _mode(text: str, old: int) -> int:
    """The mode after `chmod text`: octal, or clauses such as `u+x,go-rwx`."""
    if text.isdigit():
        return int(text, 8)
    bits = {"r": 0o444, "w": 0o222, "x": 0o111, "X": 0o111}
    masks = {"u": 0o700, "g": 0o070, "o": 0o007, "a": 0o777}
    for who, sign, what in re.findall(r"([ugoa]*)([-+=])([rwxX]*)", text):
        mask = sum(masks[one] for one in set(who)) if who and "a" not in who else 0o777
        wanted = mask & sum(bits[one] for one in set(what.replace("X", "x")))
        old = {"+": old | wanted, "-": old & ~wanted, "=": (old & ~mask) | wanted}[sign]
    return old


@_command("mkdir")
async def _mkdir(call: Invocation) -> int:
    for path in parse_options(call.argv[1:], "m")[1]:
        call.guest.budget.check_disk(len(path))
        call.guest.make_directory(path)
    return 0


@_command("rm", "rmdir", "shred")
async def _rm(call: Invocation) -> int:
    options, operands = parse_options(call.argv[1:])
    code = 0
    for path in operands:
        if not call.guest.remove(path) and not options.keys() & {"f", "force"}:
            call.print_error(f"cannot remove '{path}': No such file or directory")
            code = 1
    return code


@_command("cp", "mv", "install")
async def _copy(call: Invocation) -> int:
    options, operands = parse_options(call.argv[1:], "mogt")
    guest, program = call.guest, posixpath.basename(call.argv[0])
    if program == "install" and "d" in options:
        for path in operands:
            guest.make_directory(path)
        return 0
    if len(operands) < 2:
        call.print_error("missing file operand")
        return 1
    *sources, target = operands
    into = len(sources) > 1 or target.endswith("/") or guest.is_directory(target)
    for source in map(posixpath.normpath, sources):
        files = {name: found for name in guest.list_files(source) if (found := guest.find(name))}
        if not files and not guest.is_directory(source):
            call.print_error(f"cannot stat '{source}': No such file or directory")
            return 1
        base = posixpath.join(target, posixpath.basename(source)) if into else target
        for name, entry in files.items():
            mode = _mode(options["m"], 0) if "m" in options else entry.mode
            call.write_file(base + name.removeprefix(source), entry.content, mode, entry.owner)
        if program == "mv":
            guest.remove(source)
    return 0


@_command("ln")
async def _link(call: Invocation) -> int:
    _, operands = parse_options(call.argv[1:])
    if len(operands) == 2 and (entry := call.guest.find(operands[0])) is not None:
        call.write_file(operands[1], entry.content, entry.mode, entry.owner)
    return 0


@_command("touch")
async def _touch(call: Invocation) -> int:
    for path in parse_options(call.argv[1:])[1]:
        if not call.guest.exists(path):
            call.write_file(path, b"")
    return 0


@_command("chmod")
async def _chmod(call: Invocation) -> int:
    mode, *paths = [word for word in call.argv[1:] if word not in ("-R", "-v", "-f")] or [""]
    code = 0 if paths else 1
    for path in paths:
        if not call.guest.exists(path):
            call.print_error(f"cannot access '{path}': No such file or directory")
            code = 1
        for name in call.guest.list_files(path):
            if entry := call.guest.find(name):
                entry.mode = _mode(mode, entry.mode)
    return code


@_command("chown", "chgrp")
async def _chown(call: Invocation) -> int:
    _, operands = parse_options(call.argv[1:])
    for path in operands[1:]:
        for name in call.guest.list_files(path):
            if entry := call.guest.find(name):
                entry.owner = operands[0]
    return 0


@_command("mktemp")
async def _mktemp(call: Invocation) -> int:
    path = f"/tmp/tmp.{call.guest.host.rng.name_suffix(10)}"
    if "-d" in call.argv:
        call.guest.make_directory(path)
    else:
        call.write_file(path, b"", 0o600)
    call.print(path)
    return 0


@_command("dirname")
async def _dirname(call: Invocation) -> int:
    call.print(posixpath.dirname(call.argv[1]) or ".")
    return 0


@_command("basename")
async def _basename(call: Invocation) -> int:
    suffix = call.argv[2] if len(call.argv) > 2 else ""
    call.print(posixpath.basename(call.argv[1].rstrip("/")).removesuffix(suffix))
    return 0


# -- tests

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    f"-{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}


@_command("test", "[", "[[")
async def _test(call: Invocation) -> int:
    name, *words = call.argv
    if name != "test":
        closing = name.replace("[", "]")
        if words[-1:] != [closing]:
            call.print_error(f"missing '{closing}'")
            return 2
        words = words[:-1]
    return 0 if _evaluate_test(call, words) else 1


def _evaluate_test(call: Invocation, words: list[str]) -> bool:
    for joint, both in (("-o", any), ("-a", all)):
        if joint in words[1:-1] and len(words) > 3:
            place = words.index(joint)
            return both([_evaluate_test(call, words[:place]), _evaluate_test(call, words[place + 1 :])])
    guest = call.guest
    match words:
        case ["!", *rest]:
            return not _evaluate_test(call, rest)
        case []:
            return False
        case [word] | ["-n", word]:
            return bool(word)
        case ["-z", word]:
            return not word
        case [("-e" | "-L" | "-h" | "-S"), path]:
            return guest.exists(path)
        case [("-f" | "-r" | "-w"), path]:
            return guest.is_file(path)
        case ["-x", path]:
            entry = guest.find(path)
            return entry is not None and bool(entry.mode & 0o111)
        case ["-d", path]:
            return guest.is_directory(path)
        case ["-s", path]:
            return bool(guest.read(path))
        case [left, ("=" | "=="), right]:
            return left == right
        case [left, "!=", right]:
            return left != right
        case [left, comparison, right] if comparison in _COMPARISONS:
            try:
                return _COMPARISONS[comparison](int(left), int(right))
            except ValueError:
                return False
    guest.console(f"not simulated: test {' '.join(words)}")
    return False


# -- the system


@_command("sleep")
async def _sleep(call: Invocation) -> int:
    for word in call.argv[1:]:
        span = _seconds(word)
        if span is None:
            call.print_error(f"invalid time interval '{word}'")
            return 1
        await call.shell.within_deadline(call.guest.sleep(span))
    return 0


@_command("hostname")
async def _hostname(call: Invocation) -> int:
    call.print(call.guest.hostname)
    return 0


@_command("hostnamectl")
async def _hostnamectl(call: Invocation) -> int:
    if len(call.argv) > 2 and call.argv[1] in ("set-hostname", "hostname"):
        call.guest.write("/etc/hostname", (call.argv[2] + "\n").encode())
    return 0


@_command("uname")
async def _uname(call: Invocation) -> int:
    call.print("x86_64" if "-m" in call.argv else "6.8.0-60-generic" if "-r" in call.argv else "Linux")
    return 0


@_command("date")
async def _date(call: Invocation) -> int:
    now = call.guest.now()
    call.print(str(int(now.timestamp())) if "+%s" in call.argv else now.isoformat())
    return 0


@_command("false")
async def _false(call: Invocation) -> int:
    return 1


_NO_EFFECT = (
    ": true trap wait umask ulimit hash cd "
    "sync modprobe swapoff swapon ufw iptables setenforce restorecon logger groupadd usermod "
    "chattr update-ca-certificates timedatectl udevadm resolvectl netplan cloud-init dhclient stat"
)


@_command(*_NO_EFFECT.split())
async def _no_effect(call: Invocation) -> int:
    """Accepted without effect: it changes nothing that is simulated."""
    return 0


# -- commands that run others


@_command("sh", "bash", "dash")
async def _sh(call: Invocation) -> int:
    options, words = parse_options(call.argv[1:], "o", interleaved=False)
    child, streams = call.shell.child((), call.argv[0]), call.streams
    child.state.errexit, child.state.nounset = "e" in options, "u" in options
    if "c" in options:
        text, child.state.arguments = (words or [""])[0], words[2:]
    elif "s" in options or words[:1] in ([], ["-"]):
        text, child.state.arguments = (
            call.stdin.decode("utf-8", "replace"),
            [one for one in words if one != "-"],
        )
        streams = Streams(b"", streams.out, streams.err)
    elif call.guest.is_file(words[0]):
        text = call.guest.read_text(words[0])
        child.state.name, *child.state.arguments = words
    else:
        call.print_error(f"cannot open {words[0]}: No such file")
        return 127
    return await child.run(text, streams)


@_command("env")
async def _env(call: Invocation) -> int:
    _, words = parse_options(call.argv[1:], "u", interleaved=False)
    child = call.shell.child()
    while words and "=" in words[0]:
        key, _, value = words.pop(0).partition("=")
        child.state.variables[key] = value
    return await child.run(words, call.streams) if words else 0


_WITH_VALUE = {"sudo": "ugh", "nice": "n", "timeout": "ks"}


@_command("sudo", "nohup", "timeout", "nice")
async def _run_rest(call: Invocation) -> int:
    """Run the rest, without the options; with `timeout` at most for its duration."""
    name = posixpath.basename(call.argv[0])
    _, words = parse_options(call.argv[1:], _WITH_VALUE.get(name, ""), interleaved=False)
    if name == "timeout" and words:
        span = _seconds(words.pop(0))
        if span is None:
            call.print_error("invalid time interval")
            return _TIMEOUT_FAILED
        if words and span > 0:
            return await _run_within(span, call, words)
    return await call.shell.child().run(words, call.streams) if words else 0


_TIMED_OUT, _TIMEOUT_FAILED = 124, 125


async def _run_within(span: float, call: Invocation, words: list[str]) -> int:
    """Run a command, which is killed when it sleeps, or waits for a service, for longer than `span` seconds."""
    child = call.shell.child()
    due = call.guest.monotonic() + call.guest.scaled(span)
    child.deadline = due if child.deadline is None else min(due, child.deadline)
    try:
        return await child.run(words, call.streams)
    except TimedOut:
        if child.deadline != due:
            raise  # of an outer timeout
        return _TIMED_OUT


def _seconds(text: str) -> float | None:
    """A duration as `sleep` and `timeout` take it."""
    found = re.fullmatch(r"(\d*\.?\d+)([smhd]?)", text)
    return float(found[1]) * {"m": 60, "h": 3600, "d": 86400}.get(found[2], 1) if found else None


# What `df` says is left where nothing is said of it: of the 40 GiB that a Node has.
FREE_KIB = 30 << 20


@_command("df")
async def _df(call: Invocation) -> int:
    """`df -k --output=avail PATH`: what is left on the root disk, by its state "free KiB"."""
    options, _ = parse_options(call.argv[1:])
    if options.get("output") != "avail":
        call.guest.console(f"not simulated: {' '.join(call.argv)}")
        return 0
    call.print("   Avail")
    call.print(str(call.guest.hardware.root.state.get("free KiB", FREE_KIB)))
    return 0
