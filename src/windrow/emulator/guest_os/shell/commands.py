"""Commands of simulated machines for files, text and tests. The table is extended by systemctl, curl and rke2."""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import posixpath
import re
from collections.abc import Callable, Iterable

from windrow.emulator.guest_os.shell.run import Command, Invocation, Streams


def _operands(call: Invocation, valued: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """(options, operands) of a call; options in `valued` consume the next word."""
    options: list[str] = []
    operands: list[str] = []
    words = iter(call.argv[1:])
    with_value = set(valued)
    for word in words:
        if word == "--":
            operands += words
        elif word.startswith("-") and len(word) > 1:
            options.append(word)
            if word in with_value:
                options.append(next(words, ""))
        else:
            operands.append(word)
    return options, operands


def _mode(text: str, old: int) -> int:
    if text.isdigit():
        return int(text, 8)
    bits = {"r": 0o444, "w": 0o222, "x": 0o111}
    who = {"u": 0o700, "g": 0o070, "o": 0o007, "a": 0o777, "": 0o777}
    for clause in text.split(","):
        found = re.fullmatch(r"([ugoa]*)([-+=])([rwxX]*)", clause)
        if found is None:
            continue
        mask = 0
        for one in found.group(1) or "a":
            mask |= who[one]
        wanted = 0
        for one in found.group(3).lower():
            wanted |= bits[one]
        wanted &= mask
        match found.group(2):
            case "+":
                old |= wanted
            case "-":
                old &= ~wanted
            case _:
                old = (old & ~mask) | wanted
    return old


async def _echo(call: Invocation) -> int:
    words, end = call.argv[1:], "\n"
    while words and words[0] in ("-n", "-e", "-ne", "-en"):
        end = "" if "n" in words[0] else end
        words = words[1:]
    call.write((" ".join(words) + end).encode())
    return 0


async def _printf(call: Invocation) -> int:
    if len(call.argv) < 2:
        return 1
    template = call.argv[1].replace("\\n", "\n").replace("\\t", "\t")
    words = call.argv[2:]
    while True:
        used = 0

        def fill(found: re.Match[str], words: list[str] = words) -> str:
            nonlocal used
            if found.group(0) == "%%":
                return "%"
            used += 1
            return words[used - 1] if used <= len(words) else ""

        call.write(re.sub(r"%%|%[-0-9.]*[sdibqc]", fill, template).encode())
        words = words[used:]
        if not words or not used:
            return 0


async def _cat(call: Invocation) -> int:
    _, operands = _operands(call)
    code = 0
    for path in operands or ["-"]:
        content = call.stdin if path == "-" else call.guest.read(path)
        if content is None:
            call.print_error(f"{path}: No such file or directory")
            code = 1
        else:
            call.write(content)
    return code


async def _mkdir(call: Invocation) -> int:
    for path in _operands(call, ("-m",))[1]:
        call.guest.make_directory(path)
    return 0


async def _rm(call: Invocation) -> int:
    options, operands = _operands(call)
    force = any("f" in option for option in options)
    code = 0
    for path in operands:
        if not call.guest.remove(path) and not force:
            call.print_error(f"cannot remove '{path}': No such file or directory")
            code = 1
    return code


async def _copy(call: Invocation) -> int:
    options, operands = _operands(call, ("-m", "-o", "-g", "-t"))
    move = call.argv[0].endswith("mv")
    if call.argv[0].endswith("install") and "-d" in options:
        for path in operands:
            call.guest.make_directory(path)
        return 0
    if len(operands) < 2:
        call.print_error("missing file operand")
        return 1
    mode = int(options[options.index("-m") + 1], 8) if "-m" in options else None
    *sources, target = operands
    for source in sources:
        if not await _copy_one(call, source, target, move, mode, many=len(sources) > 1):
            return 1
    return 0


async def _copy_one(
    call: Invocation, source: str, target: str, move: bool, mode: int | None, *, many: bool
) -> bool:
    guest = call.guest
    files = (
        {source: guest.hardware.root.files[source]}
        if guest.is_file(source)
        else {name: guest.hardware.root.files[name] for name in guest.list_under(source)}
    )
    if not files and not guest.is_directory(source):
        call.print_error(f"cannot stat '{source}': No such file or directory")
        return False
    inside = many or target.endswith("/") or guest.is_directory(target)
    base = posixpath.join(target, posixpath.basename(source.rstrip("/"))) if inside else target
    for name, entry in files.items():
        where = base + name[len(source.rstrip("/")) :] if name != source else base
        guest.write(where, entry.content, mode if mode is not None else entry.mode, entry.owner)
    if move:
        guest.remove(source)
    return True


async def _link(call: Invocation) -> int:
    _, operands = _operands(call)
    if len(operands) == 2 and (entry := call.guest.hardware.root.files.get(operands[0])) is not None:
        call.guest.write(operands[1], entry.content, entry.mode, entry.owner)
    return 0


async def _touch(call: Invocation) -> int:
    for path in _operands(call)[1]:
        if not call.guest.exists(path):
            call.guest.write(path, b"")
    return 0


async def _chmod(call: Invocation) -> int:
    operands = [word for word in call.argv[1:] if word not in ("-R", "-v", "-f")]
    if len(operands) < 2:
        return 1
    code = 0
    for path in operands[1:]:
        names = [path] if call.guest.is_file(path) else call.guest.list_under(path)
        if not names and not call.guest.is_directory(path):
            call.print_error(f"cannot access '{path}': No such file or directory")
            code = 1
        for name in names:
            entry = call.guest.hardware.root.files[name]
            entry.mode = _mode(operands[0], entry.mode)
    return code


async def _chown(call: Invocation) -> int:
    operands = [word for word in call.argv[1:] if not word.startswith("-")]
    for path in operands[1:]:
        for name in [path] if call.guest.is_file(path) else call.guest.list_under(path):
            call.guest.hardware.root.files[name].owner = operands[0]
    return 0


async def _sleep(call: Invocation) -> int:
    units = {"s": 1, "m": 60, "h": 3600}
    for word in call.argv[1:]:
        number = word.rstrip("smh")
        await call.guest.sleep(float(number or 0) * units.get(word[-1:], 1))
    return 0


async def _tee(call: Invocation) -> int:
    options, operands = _operands(call)
    for path in operands:
        if path.startswith("/dev/"):
            continue
        if "-a" in options:
            call.guest.append(path, call.stdin)
        else:
            call.guest.write(path, call.stdin)
    call.write(call.stdin)
    return 0


async def _grep(call: Invocation) -> int:
    options, operands = _operands(call, ("-e", "-m"))
    flags = "".join(option.lstrip("-") for option in options)
    if not operands:
        return 2
    pattern = re.escape(operands[0]) if "F" in flags else operands[0]
    texts = [call.stdin] if len(operands) == 1 else [call.guest.read(path) or b"" for path in operands[1:]]
    lines = [line for text in texts for line in text.decode("utf-8", "replace").splitlines()]
    expression = re.compile(f"^(?:{pattern})$" if "x" in flags else pattern, re.I if "i" in flags else 0)
    found = [line for line in lines if bool(expression.search(line)) != ("v" in flags)]
    if "q" not in flags:
        for line in found:
            call.print(line)
    return 0 if found else 1


async def _digest(call: Invocation) -> int:
    options, operands = _operands(call)
    algorithm = call.argv[0].rsplit("/", 1)[-1].removesuffix("sum")
    if "-c" in options or "--check" in options:
        text = call.stdin if not operands or operands == ["-"] else (call.guest.read(operands[0]) or b"")
        code = 0 if text.strip() else 1
        for line in text.decode().splitlines():
            wanted, _, path = line.partition("  ")
            path = path.lstrip("*")
            content = call.guest.read(path)
            good = content is not None and hashlib.new(algorithm, content).hexdigest() == wanted
            call.print(f"{path}: {'OK' if good else 'FAILED'}")
            code = code if good else 1
        return code
    code = 0
    for path in operands or ["-"]:
        content = call.stdin if path == "-" else call.guest.read(path)
        if content is None:
            call.print_error(f"{path}: No such file or directory")
            code = 1
            continue
        call.print(f"{hashlib.new(algorithm, content).hexdigest()}  {path}")
    return code


async def _base64(call: Invocation) -> int:
    options, operands = _operands(call, ("-w",))
    content = call.guest.read(operands[0]) if operands and operands[0] != "-" else call.stdin
    if content is None:
        return 1
    if "-d" in options or "--decode" in options:
        try:
            call.write(base64.b64decode(b"".join(content.split()), validate=True))
        except binascii.Error:
            call.print_error("invalid input")
            return 1
        return 0
    call.write(base64.b64encode(content) + b"\n")
    return 0


async def _gunzip(call: Invocation) -> int:
    try:
        call.write(gzip.decompress(call.stdin))
    except OSError:
        call.print_error("not in gzip format")
        return 1
    return 0


async def _cut(call: Invocation) -> int:
    options, _ = _operands(call, ("-d", "-f"))
    mark, fields = "\t", "1"
    words = iter(options)
    for word in words:
        if word.startswith("-d"):
            mark = word[2:] or next(words, " ")
        elif word.startswith("-f"):
            fields = word[2:] or next(words, "1")
    for line in call.stdin.decode().splitlines():
        parts = line.split(mark)
        wanted = [int(one) for one in fields.split(",") if one.isdigit()]
        call.print(mark.join(parts[one - 1] for one in wanted if one <= len(parts)))
    return 0


async def _test(call: Invocation) -> int:
    words = call.argv[1:]
    if call.argv[0] in ("[", "[["):
        closing = {"[": "]", "[[": "]]"}[call.argv[0]]
        if not words or words[-1] != closing:
            call.print_error(f"missing '{closing}'")
            return 2
        words = words[:-1]
    return 0 if _evaluate_test(call, words) else 1


def _evaluate_test(call: Invocation, words: list[str]) -> bool:
    for joint, both in (("-o", any), ("||", any), ("-a", all), ("&&", all)):
        if joint in words[1:-1] and len(words) > 3:
            place = words.index(joint)
            return bool(both((_evaluate_test(call, words[:place]), _evaluate_test(call, words[place + 1 :]))))
    if words[:1] == ["!"]:
        return not _evaluate_test(call, words[1:])
    match words:
        case []:
            return False
        case [word]:
            return bool(word)
        case ["-z", word]:
            return not word
        case ["-n", word]:
            return bool(word)
        case [("-e" | "-L" | "-h" | "-S"), path]:
            return call.guest.exists(path)
        case [("-f" | "-r" | "-w"), path]:
            return call.guest.is_file(path)
        case ["-x", path]:
            entry = call.guest.hardware.root.files.get(posixpath.normpath(path))
            return entry is not None and bool(entry.mode & 0o111)
        case ["-d", path]:
            return call.guest.is_directory(path)
        case ["-s", path]:
            return bool(call.guest.read(path))
        case [left, ("=" | "=="), right]:
            return left == right
        case [left, "!=", right]:
            return left != right
        case [left, ("-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge") as operator, right]:
            try:
                return _COMPARISONS[operator](int(left), int(right))
            except ValueError:
                return False
    call.guest.console(f"not simulated: test {' '.join(words)}")
    return False


_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda left, right: left == right,
    "-ne": lambda left, right: left != right,
    "-lt": lambda left, right: left < right,
    "-le": lambda left, right: left <= right,
    "-gt": lambda left, right: left > right,
    "-ge": lambda left, right: left >= right,
}


async def _hostname(call: Invocation) -> int:
    call.print(call.guest.hostname)
    return 0


async def _hostnamectl(call: Invocation) -> int:
    if len(call.argv) > 2 and call.argv[1] in ("set-hostname", "hostname"):
        call.guest.write("/etc/hostname", (call.argv[2] + "\n").encode())
    return 0


async def _uname(call: Invocation) -> int:
    call.print("x86_64" if "-m" in call.argv else "6.8.0-60-generic" if "-r" in call.argv else "Linux")
    return 0


async def _sh(call: Invocation) -> int:
    words = call.argv[1:]
    child = call.shell.child((), call.argv[0])
    while words and words[0].startswith("-") and words[0] not in ("-", "-c", "-s"):
        if "c" in words[0]:
            words[0] = "-c"
            break
        child.state.errexit |= "e" in words[0]
        child.state.nounset |= "u" in words[0]
        words = words[1:]
    if words[:1] == ["-c"]:
        child.state.arguments = words[3:]
        return await child.run(words[1] if len(words) > 1 else "", call.streams)
    if not words or words[0] in ("-", "-s"):
        child.state.arguments = [word for word in words[1:] if word != "-"]
        return await child.run(
            call.stdin.decode("utf-8", "replace"), Streams(b"", call.streams.out, call.streams.err)
        )
    text = call.guest.read(words[0])
    if text is None:
        call.print_error(f"cannot open {words[0]}: No such file")
        return 127
    child.state.arguments, child.state.name = words[1:], words[0]
    return await child.run(text.decode("utf-8", "replace"), call.streams)


async def _env(call: Invocation) -> int:
    words = call.argv[1:]
    child = call.shell.child()
    while words and (words[0].startswith("-") or "=" in words[0]):
        key, sign, value = words.pop(0).partition("=")
        if sign and not key.startswith("-"):
            child.state.variables[key] = value
    return await child.execute(words, call.streams) if words else 0


async def _run_rest(call: Invocation) -> int:
    """`sudo`, `nohup`, `time`, `timeout 5 …`: run the rest."""
    words = call.argv[1:]
    while words and (
        words[0].startswith("-") or (call.argv[0].endswith("timeout") and re.match(r"\d", words[0]))
    ):
        words.pop(0)
    return await call.shell.child().execute(words, call.streams) if words else 0


async def _no_effect(call: Invocation) -> int:
    """Accepted without effect: it changes nothing that is simulated."""
    return 0


async def _mktemp(call: Invocation) -> int:
    path = f"/tmp/tmp.{call.guest.host.rng.name_suffix(10)}"
    if "-d" in call.argv:
        call.guest.make_directory(path)
    else:
        call.guest.write(path, b"", 0o600)
    call.print(path)
    return 0


async def _dirname(call: Invocation) -> int:
    call.print(posixpath.dirname(call.argv[1]) or ".")
    return 0


async def _basename(call: Invocation) -> int:
    call.print(
        posixpath.basename(call.argv[1].rstrip("/")).removesuffix(call.argv[2] if len(call.argv) > 2 else "")
    )
    return 0


async def _date(call: Invocation) -> int:
    call.print(str(int(call.guest.now().timestamp())) if "+%s" in call.argv else call.guest.now().isoformat())
    return 0


_NO_EFFECT = (
    "sync modprobe swapoff swapon ufw iptables setenforce restorecon logger groupadd usermod "
    "chattr update-ca-certificates timedatectl udevadm resolvectl netplan cloud-init dhclient stat"
)
FILE_AND_TEXT_COMMANDS: dict[str, Command] = {
    **dict.fromkeys(_NO_EFFECT.split(), _no_effect),
    "echo": _echo,
    "printf": _printf,
    "cat": _cat,
    "mkdir": _mkdir,
    "rm": _rm,
    "rmdir": _rm,
    "cp": _copy,
    "mv": _copy,
    "install": _copy,
    "ln": _link,
    "touch": _touch,
    "chmod": _chmod,
    "chown": _chown,
    "chgrp": _chown,
    "sleep": _sleep,
    "tee": _tee,
    "grep": _grep,
    "egrep": _grep,
    "sha256sum": _digest,
    "sha1sum": _digest,
    "md5sum": _digest,
    "base64": _base64,
    "gunzip": _gunzip,
    "cut": _cut,
    "test": _test,
    "[": _test,
    "[[": _test,
    "hostname": _hostname,
    "hostnamectl": _hostnamectl,
    "uname": _uname,
    "sh": _sh,
    "bash": _sh,
    "dash": _sh,
    "env": _env,
    "sudo": _run_rest,
    "nohup": _run_rest,
    "timeout": _run_rest,
    "nice": _run_rest,
    "mktemp": _mktemp,
    "dirname": _dirname,
    "basename": _basename,
    "date": _date,
    "shred": _rm,
}
