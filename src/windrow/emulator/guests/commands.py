"""The commands that simulated machines know: files, text, tests. Others join their table: systemctl, curl, rke2."""

from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import posixpath
import re
from collections.abc import Callable, Iterable

from windrow.emulator.guests.shell import Call, Command


def _operands(call: Call, valued: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """(options, operands) of a call; options in `valued` swallow the next word."""
    options: list[str] = []
    operands: list[str] = []
    words = iter(call.argv[1:])
    takes = set(valued)
    for word in words:
        if word == "--":
            operands += words
        elif word.startswith("-") and len(word) > 1:
            options.append(word)
            if word in takes:
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


async def _echo(call: Call) -> int:
    words, end = call.argv[1:], "\n"
    while words and words[0] in ("-n", "-e", "-ne", "-en"):
        end = "" if "n" in words[0] else end
        words = words[1:]
    call.out += (" ".join(words) + end).encode()
    return 0


async def _printf(call: Call) -> int:
    if len(call.argv) < 2:
        return 1
    shape = call.argv[1].replace("\\n", "\n").replace("\\t", "\t")
    words = call.argv[2:]
    while True:
        used = 0

        def fill(found: re.Match[str], words: list[str] = words) -> str:
            nonlocal used
            if found.group(0) == "%%":
                return "%"
            used += 1
            return words[used - 1] if used <= len(words) else ""

        call.out += re.sub(r"%%|%[-0-9.]*[sdibqc]", fill, shape).encode()
        words = words[used:]
        if not words or not used:
            return 0


async def _cat(call: Call) -> int:
    _, operands = _operands(call)
    code = 0
    for path in operands or ["-"]:
        content = call.stdin if path == "-" else call.box.read(path)
        if content is None:
            call.complain(f"{path}: No such file or directory")
            code = 1
        else:
            call.out += content
    return code


async def _mkdir(call: Call) -> int:
    for path in _operands(call, ("-m",))[1]:
        call.box.make_directory(path)
    return 0


async def _rm(call: Call) -> int:
    options, operands = _operands(call)
    force = any("f" in option for option in options)
    code = 0
    for path in operands:
        if not call.box.remove(path) and not force:
            call.complain(f"cannot remove '{path}': No such file or directory")
            code = 1
    return code


async def _copy(call: Call) -> int:
    options, operands = _operands(call, ("-m", "-o", "-g", "-t"))
    move = call.argv[0].endswith("mv")
    if call.argv[0].endswith("install") and "-d" in options:
        for path in operands:
            call.box.make_directory(path)
        return 0
    if len(operands) < 2:
        call.complain("missing file operand")
        return 1
    mode = int(options[options.index("-m") + 1], 8) if "-m" in options else None
    *sources, target = operands
    for source in sources:
        if not await _copy_one(call, source, target, move, mode, many=len(sources) > 1):
            return 1
    return 0


async def _copy_one(
    call: Call, source: str, target: str, move: bool, mode: int | None, *, many: bool
) -> bool:
    box = call.box
    files = (
        {source: box.hardware.root.files[source]}
        if box.is_file(source)
        else {name: box.hardware.root.files[name] for name in box.list_under(source)}
    )
    if not files and not box.is_directory(source):
        call.complain(f"cannot stat '{source}': No such file or directory")
        return False
    inside = many or target.endswith("/") or box.is_directory(target)
    base = posixpath.join(target, posixpath.basename(source.rstrip("/"))) if inside else target
    for name, entry in files.items():
        where = base + name[len(source.rstrip("/")) :] if name != source else base
        box.write(where, entry.content, mode if mode is not None else entry.mode, entry.owner)
    if move:
        box.remove(source)
    return True


async def _link(call: Call) -> int:
    _, operands = _operands(call)
    if len(operands) == 2 and (entry := call.box.hardware.root.files.get(operands[0])) is not None:
        call.box.write(operands[1], entry.content, entry.mode, entry.owner)
    return 0


async def _touch(call: Call) -> int:
    for path in _operands(call)[1]:
        if not call.box.exists(path):
            call.box.write(path, b"")
    return 0


async def _chmod(call: Call) -> int:
    operands = [word for word in call.argv[1:] if word not in ("-R", "-v", "-f")]
    if len(operands) < 2:
        return 1
    code = 0
    for path in operands[1:]:
        names = [path] if call.box.is_file(path) else call.box.list_under(path)
        if not names and not call.box.is_directory(path):
            call.complain(f"cannot access '{path}': No such file or directory")
            code = 1
        for name in names:
            entry = call.box.hardware.root.files[name]
            entry.mode = _mode(operands[0], entry.mode)
    return code


async def _chown(call: Call) -> int:
    operands = [word for word in call.argv[1:] if not word.startswith("-")]
    for path in operands[1:]:
        for name in [path] if call.box.is_file(path) else call.box.list_under(path):
            call.box.hardware.root.files[name].owner = operands[0]
    return 0


async def _sleep(call: Call) -> int:
    units = {"s": 1, "m": 60, "h": 3600}
    for word in call.argv[1:]:
        number = word.rstrip("smh")
        await call.box.pause(float(number or 0) * units.get(word[-1:], 1))
    return 0


async def _tee(call: Call) -> int:
    options, operands = _operands(call)
    for path in operands:
        if path.startswith("/dev/"):
            continue
        if "-a" in options:
            call.box.append(path, call.stdin)
        else:
            call.box.write(path, call.stdin)
    call.out += call.stdin
    return 0


async def _grep(call: Call) -> int:
    options, operands = _operands(call, ("-e", "-m"))
    flags = "".join(option.lstrip("-") for option in options)
    if not operands:
        return 2
    pattern = re.escape(operands[0]) if "F" in flags else operands[0]
    texts = [call.stdin] if len(operands) == 1 else [call.box.read(path) or b"" for path in operands[1:]]
    lines = [line for text in texts for line in text.decode("utf-8", "replace").splitlines()]
    expression = re.compile(f"^(?:{pattern})$" if "x" in flags else pattern, re.I if "i" in flags else 0)
    found = [line for line in lines if bool(expression.search(line)) != ("v" in flags)]
    if "q" not in flags:
        for line in found:
            call.print(line)
    return 0 if found else 1


async def _digest(call: Call) -> int:
    options, operands = _operands(call)
    algorithm = call.argv[0].rsplit("/", 1)[-1].removesuffix("sum")
    if "-c" in options or "--check" in options:
        text = call.stdin if not operands or operands == ["-"] else (call.box.read(operands[0]) or b"")
        code = 0 if text.strip() else 1
        for line in text.decode().splitlines():
            wanted, _, path = line.partition("  ")
            path = path.lstrip("*")
            content = call.box.read(path)
            good = content is not None and hashlib.new(algorithm, content).hexdigest() == wanted
            call.print(f"{path}: {'OK' if good else 'FAILED'}")
            code = code if good else 1
        return code
    code = 0
    for path in operands or ["-"]:
        content = call.stdin if path == "-" else call.box.read(path)
        if content is None:
            call.complain(f"{path}: No such file or directory")
            code = 1
            continue
        call.print(f"{hashlib.new(algorithm, content).hexdigest()}  {path}")
    return code


async def _base64(call: Call) -> int:
    options, operands = _operands(call, ("-w",))
    content = call.box.read(operands[0]) if operands and operands[0] != "-" else call.stdin
    if content is None:
        return 1
    if "-d" in options or "--decode" in options:
        try:
            call.out += base64.b64decode(b"".join(content.split()), validate=True)
        except binascii.Error:
            call.complain("invalid input")
            return 1
        return 0
    call.out += base64.b64encode(content) + b"\n"
    return 0


async def _gunzip(call: Call) -> int:
    try:
        call.out += gzip.decompress(call.stdin)
    except OSError:
        call.complain("not in gzip format")
        return 1
    return 0


async def _cut(call: Call) -> int:
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


async def _test(call: Call) -> int:
    words = call.argv[1:]
    if call.argv[0] in ("[", "[["):
        closing = {"[": "]", "[[": "]]"}[call.argv[0]]
        if not words or words[-1] != closing:
            call.complain(f"missing '{closing}'")
            return 2
        words = words[:-1]
    return 0 if _holds(call, words) else 1


def _holds(call: Call, words: list[str]) -> bool:
    for joint, both in (("-o", any), ("||", any), ("-a", all), ("&&", all)):
        if joint in words[1:-1] and len(words) > 3:
            place = words.index(joint)
            return bool(both((_holds(call, words[:place]), _holds(call, words[place + 1 :]))))
    if words[:1] == ["!"]:
        return not _holds(call, words[1:])
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
            return call.box.exists(path)
        case [("-f" | "-r" | "-w"), path]:
            return call.box.is_file(path)
        case ["-x", path]:
            entry = call.box.hardware.root.files.get(posixpath.normpath(path))
            return entry is not None and bool(entry.mode & 0o111)
        case ["-d", path]:
            return call.box.is_directory(path)
        case ["-s", path]:
            return bool(call.box.read(path))
        case [left, ("=" | "=="), right]:
            return left == right
        case [left, "!=", right]:
            return left != right
        case [left, ("-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge") as operator, right]:
            try:
                return _NUMBERS[operator](int(left), int(right))
            except ValueError:
                return False
    call.box.console(f"not simulated: test {' '.join(words)}")
    return False


_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda left, right: left == right,
    "-ne": lambda left, right: left != right,
    "-lt": lambda left, right: left < right,
    "-le": lambda left, right: left <= right,
    "-gt": lambda left, right: left > right,
    "-ge": lambda left, right: left >= right,
}


async def _hostname(call: Call) -> int:
    call.print(call.box.hostname)
    return 0


async def _hostnamectl(call: Call) -> int:
    if len(call.argv) > 2 and call.argv[1] in ("set-hostname", "hostname"):
        call.box.write("/etc/hostname", (call.argv[2] + "\n").encode())
    return 0


async def _uname(call: Call) -> int:
    call.print("x86_64" if "-m" in call.argv else "6.8.0-60-generic" if "-r" in call.argv else "Linux")
    return 0


async def _sh(call: Call) -> int:
    words = call.argv[1:]
    child = call.shell.child((), call.argv[0])
    child.functions = {}
    while words and words[0].startswith("-") and words[0] not in ("-", "-c", "-s"):
        if "c" in words[0]:
            words[0] = "-c"
            break
        child.errexit |= "e" in words[0]
        child.nounset |= "u" in words[0]
        words = words[1:]
    if words[:1] == ["-c"]:
        child.arguments = words[3:]
        return await child.run(words[1] if len(words) > 1 else "", call.stdin, call.out, call.err)
    if not words or words[0] in ("-", "-s"):
        child.arguments = [word for word in words[1:] if word != "-"]
        return await child.run(call.stdin.decode("utf-8", "replace"), b"", call.out, call.err)
    text = call.box.read(words[0])
    if text is None:
        call.complain(f"cannot open {words[0]}: No such file")
        return 127
    child.arguments, child.name = words[1:], words[0]
    return await child.run(text.decode("utf-8", "replace"), call.stdin, call.out, call.err)


async def _env(call: Call) -> int:
    words = call.argv[1:]
    child = call.shell.child(call.shell.arguments)
    while words and (words[0].startswith("-") or "=" in words[0]):
        key, sign, value = words.pop(0).partition("=")
        if sign and not key.startswith("-"):
            child.variables[key] = value
    return await child.execute(words, call.stdin, call.out, call.err) if words else 0


async def _passing(call: Call) -> int:
    """`sudo`, `nohup`, `time`, `timeout 5 …`: run the rest."""
    words = call.argv[1:]
    while words and (
        words[0].startswith("-") or (call.argv[0].endswith("timeout") and re.match(r"\d", words[0]))
    ):
        words.pop(0)
    return (
        await call.shell.child(call.shell.arguments).execute(words, call.stdin, call.out, call.err)
        if words
        else 0
    )


async def _accepted(call: Call) -> int:
    """Changes something that the simulation does not look at."""
    return 0


async def _mktemp(call: Call) -> int:
    path = f"/tmp/tmp.{call.box.wires.rng.name_suffix(10)}"
    if "-d" in call.argv:
        call.box.make_directory(path)
    else:
        call.box.write(path, b"", 0o600)
    call.print(path)
    return 0


async def _dirname(call: Call) -> int:
    call.print(posixpath.dirname(call.argv[1]) or ".")
    return 0


async def _basename(call: Call) -> int:
    call.print(
        posixpath.basename(call.argv[1].rstrip("/")).removesuffix(call.argv[2] if len(call.argv) > 2 else "")
    )
    return 0


async def _date(call: Call) -> int:
    call.print(str(int(call.box.now().timestamp())) if "+%s" in call.argv else call.box.now().isoformat())
    return 0


FILES_AND_TEXT: dict[str, Command] = {
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
    "sudo": _passing,
    "nohup": _passing,
    "timeout": _passing,
    "nice": _passing,
    "mktemp": _mktemp,
    "dirname": _dirname,
    "basename": _basename,
    "date": _date,
    "sync": _accepted,
    "modprobe": _accepted,
    "swapoff": _accepted,
    "swapon": _accepted,
    "ufw": _accepted,
    "iptables": _accepted,
    "setenforce": _accepted,
    "restorecon": _accepted,
    "logger": _accepted,
    "groupadd": _accepted,
    "usermod": _accepted,
    "chattr": _accepted,
    "update-ca-certificates": _accepted,
    "timedatectl": _accepted,
    "udevadm": _accepted,
    "resolvectl": _accepted,
    "netplan": _accepted,
    "shred": _rm,
    "cloud-init": _accepted,
    "dhclient": _accepted,
    "stat": _accepted,
}
