"""Scripts run on a simulated machine as sh would run them."""

from __future__ import annotations

import asyncio
import base64
import gzip

import pytest
from tests.support.clock import run_driven

from windrow.emulator.guest_os.delays import GuestDelays
from windrow.emulator.guest_os.hardware import Disk, Hardware
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.shell.commands import FILE_AND_TEXT_COMMANDS
from windrow.emulator.guest_os.shell.parse import BadScript, parse_script
from windrow.emulator.guest_os.shell.run import Shell

from .testbed import MachineTestbed

GZIPPED = base64.b64encode(gzip.compress(b"hello\n", mtime=0)).decode()
NOT_GZIP = "gunzip: -: not in gzip format, cut off, or larger than the simulation unpacks"


def run(script: str, files: dict[str, str] | None = None, **variables: str) -> tuple[int, list[str], GuestOS]:
    """(exit code, console lines, machine) of a script."""

    async def scenario() -> tuple[int, list[str], GuestOS]:
        testbed = MachineTestbed()
        host = testbed.offline_host("m")
        hardware = Hardware("default", "m", "uid", "uid", "", "", (), Disk())
        guest = GuestOS(hardware, host, GuestDelays(), lambda work, name: None)
        for path, text in (files or {}).items():
            guest.write(path, text.encode(), 0o755 if text.startswith("#!") else 0o644)
        code = await Shell(guest, FILE_AND_TEXT_COMMANDS, variables).run(script)
        return code, [line[11:] for line in host.lines], guest

    return run_driven(scenario())


@pytest.mark.parametrize(
    ("script", "lines"),
    [
        ("echo one two", ["one two"]),
        ("echo 'a  b' \"c  d\" e\\ f", ["a  b c  d e f"]),
        ("a=1; b=$a$a; echo \"$b\" '$b' ${b}x", ["11 $b 11x"]),
        ("echo ${none:-fallback} ${none-x} ${set:+y}", ["fallback x"]),
        ("v=v1.35.1+rke2r1; echo ${#v}", ["14"]),
        ("printf '1\\n2\\n3\\n' > /f; tail -n 2 /f", ["2", "3"]),
        ("printf '1\\n2\\n' | tail", ["1", "2"]),
        ("free=$(df -k --output=avail / | tail -n 1); echo $free", [str(30 << 20)]),
        ('words="a b"; for w in $words "$words"; do echo "<$w>"; done', ["<a>", "<b>", "<a b>"]),
        ("if [ -f /none ]; then echo yes; elif [ 1 -lt 2 ]; then echo less; else echo no; fi", ["less"]),
        ("false || echo rescued; true && echo went on", ["rescued", "went on"]),
        ("i=0; while [ $i -lt 3 ]; do i=$((i+1)); echo $i; done", ["1", "2", "3"]),
        ("i=0; until [ $i = 2 ]; do i=$((i + 1)); done; echo $i", ["2"]),
        ("for i in 1 2 3; do [ $i = 2 ] && continue; [ $i = 3 ] && break; echo $i; done", ["1"]),
        ("echo $(echo inner) `echo old`", ["inner old"]),
        ("printf '%s=%s\\n' a 1 b 2", ["a=1", "b=2"]),
        ("echo one | cat", ["one"]),
        ("cat <<EOF\nhost $HOST\nEOF\n", ["host m"]),
        ("cat <<EOF\nno end\n", ["no end"]),
        ("cat <<'EOF'\nhost $HOST\nEOF\n", ["host $HOST"]),
        ("set -- a 'b c'; echo $# \"$2\"; shift; echo $1", ["2 b c", "b c"]),
        ("! false && echo not", ["not"]),
        ("(exit 4); echo $?", ["4"]),
        ("echo a  # a comment", ["a"]),
        ('[ -n "" ] || [ a = a -a b = b ] && echo and', ["and"]),
        ("echo hello > /dev/null; echo shown >&2", ["shown"]),
        ("sh -c 'echo $0 $1' name arg", ["sh arg"]),
        ("X=1 sh -c 'echo $X'; echo \"[$X]\"", ["1", "[]"]),
        ("set -- a; echo ${1-x} ${2-x} ${?:-x}", ["a x 0"]),
        ('set -- a b; for w in "<$@>" x$1; do echo $w; done', ["<a b>", "xa"]),
        ("for w in a b; do echo $w; done > /out; echo then; cat < /out", ["then", "a", "b"]),
        (
            "for run in 'sudo -u root' 'nice -n 10' 'timeout -k 5 10s' 'env A=b'; do $run echo ran; done",
            ["ran"] * 4,
        ),
        ("{ echo out; echo err >&2; } > /f 2>&1; true >> /f; cat /f; echo no > /dev/null", ["out", "err"]),
        ("sh -euo pipefail -c 'false; echo no'; echo $?", ["1"]),
        (
            "printf 'one\\ntwo\\n' > /f; grep -e one /f; grep -c x /none || echo none",
            ["one", "grep: /none: No such file or directory", "none"],
        ),
        ("echo a:b:c:d | cut -d: -f2", ["b"]),
        ("printf 'a b c\\nlone\\n' | cut -d ' ' -f 3,1", ["a c", "lone"]),
        ("printf 'a:b:c\\nlone\\n' > /f; cut -s -d: -f2- /f", ["b:c"]),
        ("echo v1.35.1+rke2r1 | cut -c2-5; echo abc | cut -c -2", ["1.35", "ab"]),
        ("cut -f x; echo $?", ["cut: you must specify a list of bytes, characters, or fields", "1"]),
        (f"echo {GZIPPED} | base64 -d | gunzip", ["hello"]),
        (
            f"echo {GZIPPED} | base64 -d > /f.gz; zcat /f.gz; gunzip /f.gz; cat /f; [ -f /f.gz ] || echo gone",
            ["hello", "hello", "gone"],
        ),
        ("echo plain | gunzip; echo $?", [NOT_GZIP, "1"]),
    ],
)
def test_what_a_script_prints(script: str, lines: list[str]):
    assert run(script, HOST="m")[1] == lines


def test_files_are_written_appended_copied_and_removed():
    code, _, guest = run(
        "mkdir -p /etc/x && echo one > /etc/x/a && echo two >> /etc/x/a && cp /etc/x/a /etc/x/b && mv /etc/x/a /etc/c\n"
        "chmod 0600 /etc/c; chmod +x /etc/x/b; rm -rf /none"
    )

    assert code == 0
    assert (guest.read("/etc/c"), guest.read("/etc/x/a"), guest.read("/etc/x/b")) == (
        b"one\ntwo\n",
        None,
        b"one\ntwo\n",
    )
    assert guest.hardware.root.files["/etc/c"].mode == 0o600
    assert guest.hardware.root.files["/etc/x/b"].mode == 0o755


def test_errexit_ends_a_script_but_not_inside_a_condition():
    code, lines, _ = run("set -e\nif false; then :; fi\nfalse || true\necho here\nfalse\necho never\n")

    assert (code, lines) == (1, ["here"])


def test_nounset_ends_a_script_that_uses_what_is_not_there():
    code, lines, _ = run("set -u\necho ${a:-fine}\necho $a\n")

    assert code == 2
    assert lines == ["fine", "sh: a: parameter not set"]


def test_a_script_file_needs_its_permission():
    assert run("/opt/a.sh x", {"/opt/a.sh": "#!/bin/sh\necho got $1"})[1] == ["got x"]
    assert run("chmod 0644 /opt/a.sh; /opt/a.sh", {"/opt/a.sh": "#!/bin/sh\n"})[0] == 126
    assert run("sh /opt/none.sh")[0] == 127


def test_checksums_are_real():
    good = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    files = {"/abc": "abc"}

    assert run(f'echo "{good}  /abc" | sha256sum -c -', files)[0] == 0
    assert run(f'echo "{good[:-1]}e  /abc" | sha256sum -c -', files)[0] == 1


def test_an_unknown_command_is_logged_without_effect():
    code, lines, _ = run("fancytool --now; echo $?")

    assert lines == ["not simulated: fancytool --now", "0"]
    assert code == 0


def test_a_path_to_nothing_is_not_found():
    assert run("/usr/local/bin/none")[0] == 127


@pytest.mark.parametrize(
    "script",
    ["if true; then echo", "echo 'open", "fi", "echo $(date"],
)
def test_a_syntax_error_ends_a_script_when_the_shell_gets_there(script: str):
    with pytest.raises(BadScript):
        parse_script(script)
    code, lines, _ = run("echo first\n" + script)
    assert (code, lines[0]) == (2, "first")
    assert "syntax error" in lines[1]


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("case a in a) echo b;; esac", "case"),
        ("greet() { echo hi; }; greet", "function greet"),
        ("function greet { echo hi; }", "function"),
        ("v=v1.35; echo ${v#v}", "${v#v}"),
        ("v=v1.35; echo ${v%%.*}", "${v%%.*}"),
        ("echo $((7 / 2))", "$((7 / 2))"),
    ],
)
def test_syntax_that_no_bootstrap_needs_is_refused_by_name(script: str, named: str):
    assert run("echo first\n" + script)[:2] == (2, ["first", f"sh: not simulated: {named}"])


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("cp /etc//x /y && cat /y", "x"),
        ("chmod 600 /etc//x && echo done", "done"),
        ("grep '*' /etc/x || echo failed", "grep: *: no argument for repetition operator: *"),
        ("sleep soon || echo failed", "sleep: invalid time interval 'soon'"),
        ("shift x; echo done", "done"),
        ("install -m u=rw /etc/x /y && cat /y", "x"),
    ],
)
def test_odd_arguments_do_not_end_the_machine(script: str, line: str):
    assert run(script, {"/etc/x": "x\n"})[1][0] == line


def test_a_missing_input_file_fails_the_command_alone():
    assert run("cat < /none; echo $?; { cat; } < /none || echo next")[1] == [
        "sh: cannot open /none: No such file",
        "1",
        "sh: cannot open /none: No such file",
        "next",
    ]


def test_sleeping_takes_the_machines_time():
    async def scenario() -> float:
        testbed = MachineTestbed(time_scale=10)
        hardware = Hardware("default", "m", "uid", "uid", "", "", (), Disk())
        guest = GuestOS(hardware, testbed.offline_host("m"), GuestDelays(), lambda work, name: None)
        start = testbed.clock.now()
        await Shell(guest, FILE_AND_TEXT_COMMANDS).run("sleep 30; sleep 1m")
        return (testbed.clock.now() - start).total_seconds()

    assert run_driven(scenario()) == pytest.approx(9)


# -- a script that would not end, or fill the memory of the emulator -------------------------------------------------

STEPS = "sh: Killed: 50000 steps without a pause; the simulation runs no more"
WORDS = "sh: Out of memory: Killed, more than 1 MiB in words and variables"
DOUBLED = "x=aaaaaaaaaaaaaaaa; while true; do x=$x$x; "


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("while true; do ( while true; do true; done ); done; echo on", STEPS),
        (DOUBLED + "done; echo on", WORDS),
        ("( " + DOUBLED + "done ) || echo rescued; echo on", WORDS),
        ('set -- a; while true; do set -- "$@" "$@"; done; echo on', STEPS),
        ("echo $(echo 'sh /a' > /a; sh /a)", "sh: Killed: more than 40 nested commands"),
    ],
)
def test_nothing_in_a_script_survives_what_the_script_is_killed_for(
    script: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windrow.emulator.guest_os.budget._STEPS_PER_S", 0)
    monkeypatch.setattr("windrow.emulator.guest_os.budget.MAX_STEPS", 2000)
    code, lines, _ = run(script)
    assert (code, lines) == (137, [line.replace("50000", "2000")])


def test_a_script_that_pauses_runs_for_as_long_as_it_likes() -> None:
    code, lines, _ = run(
        "i=0; while [ $i -lt 100 ]; do for j in 1 2 3; do true; done; sleep 1; i=$((i+1)); done; echo $i"
    )
    assert (code, lines) == (0, ["100"])


def test_other_tasks_run_while_a_script_does_not_pause() -> None:
    async def scenario() -> int:
        host = MachineTestbed().offline_host("m")
        hardware = Hardware("default", "m", "uid", "uid", "", "", (), Disk())
        guest = GuestOS(hardware, host, GuestDelays(), lambda work, name: None)
        script = asyncio.create_task(Shell(guest, FILE_AND_TEXT_COMMANDS).run("while true; do true; done"))
        turns = 0
        while not script.done() and turns < 20:
            await asyncio.sleep(0)
            turns += 1
        script.cancel()
        return turns

    assert run_driven(scenario()) == 20


def test_a_full_disk_is_an_error_of_the_command_that_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windrow.emulator.guest_os.budget.MAX_DISK", 1 << 20)
    code, lines, _ = run(
        "x=aaaaaaaaaaaaaaaa; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do x=$x$x; done\n"
        "mkdir /d; for i in 1 2 3 4 5 6; do echo $x > /d/$i || echo full; done; rm -r /d; echo x > /f && echo on"
    )
    assert (code, lines[-1]) == (0, "on")
    assert lines[-3:-1] == ["sh: write error: No space left on device", "full"]


def test_arithmetic_is_of_64_bits() -> None:
    assert run("i=9223372036854775807; echo $((i+1))")[1] == ["-9223372036854775808"]
