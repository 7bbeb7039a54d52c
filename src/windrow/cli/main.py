"""`windrow`: the table of commands, and what all of them share.

A command's module, and whatever it needs, is imported when the command is called: `--help` stays fast.
"""

from __future__ import annotations

import argparse
import importlib
import os
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NoReturn

from windrow.cli import exit_codes, options
from windrow.cli.context import CliContext, process_context


@dataclass(frozen=True, slots=True)
class Command:
    """`module` (in windrow.cli.commands) has `arguments(parser)` and `run(args, context) -> exit code`."""

    name: str
    module: str
    summary: str
    long_running: bool = False  # serves until it is interrupted


GROUPS: dict[str, tuple[Command, ...]] = {
    "Try it": (Command("demo", "demo", "watch a cluster come up, lose machines and heal"),),
    "Run it": (
        Command(
            "emulate", "servers.emulate", "run an emulated Harvester on this computer", long_running=True
        ),
        Command(
            "serve", "servers.serve", "run the management API and the cluster manager", long_running=True
        ),
        Command("dashboard", "dashboard", "print a link that signs a browser in to the pages of serve"),
        Command("backup", "servers.backup", "write the manager's database and CA to a file"),
        Command("restore", "servers.restore", "put back a backup of a manager's database; restore a cluster"),
    ),
    "Clusters": (
        Command("get", "inspect.get", "list images, networks, pools, classes or hosts of a Harvester"),
        Command("create", "manifests.create", "create a cluster from a few answers, or print its manifest"),
        Command("check", "manifests.check", "report what is wrong with a manifest; change nothing"),
        Command("plan", "manifests.plan", "show what a manifest or a cluster changes of its machines"),
        Command("apply", "manifests.apply", "create or change the objects of a manifest"),
        Command("import", "manifests.import_", "print a manifest without fields that Rancher's server set"),
        Command("status", "status", "show clusters, pools, machines, and what each waits for"),
        Command("why", "inspect.why", "show why a cluster or machine is not Ready, to the first cause"),
        Command("describe", "inspect.describe", "show all about one cluster or machine"),
        Command("logs", "inspect.logs", "print what the manager logged about a cluster"),
        Command("events", "inspect.events", "show the events of clusters and their machines"),
        Command("scale", "scale", "set the number of machines in a pool"),
        Command("pause", "changes.pause", "hold the changes of a cluster's machines"),
        Command("resume", "changes.resume", "go on with them"),
        Command("rotate", "changes.rotate", "rotate certificates, encryption keys or the server token"),
        Command("kubeconfig", "kubeconfig", "print the kubeconfig of a cluster"),
        Command("delete", "delete", "delete a cluster, its machines and their disks"),
    ),
    "Details": (
        Command("machine", "machine", "list machines"),
        Command("snapshot", "snapshot", "create, list, restore and delete snapshots of etcd"),
        Command("driver", "driver", "list, add, enable, disable and remove node drivers"),
        Command("addon", "addon", "print a Harvester credential for a cluster made by hand"),
        Command(
            "support-bundle",
            "inspect.support_bundle",
            "write objects, events and logs without secrets to a file",
        ),
        Command("docs", "docs", "list the documentation, or print a page of it"),
        Command("version", "version", "print the version, its commit and Python's version"),
        Command("completion", "completion", "print a completion script for bash, zsh or fish"),
    ),
}

COMMANDS = {one.name: one for group in GROUPS.values() for one in group}

FIRST_STEPS = """First steps:
  windrow demo                a whole cluster on this computer
  windrow docs first-cluster  the demo's steps by hand
  windrow COMMAND --help      options and examples of a command"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Names an option's argument once, `-o, --output FORMAT`, and breaks no line within a name such as `--time-scale`."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {self._format_args(action, action.dest.upper())}"


class _Subcommands(argparse._SubParsersAction):  # type: ignore[type-arg]  # which argparse does not allow at run time
    """Subcommands whose help begins with what they do, as the list of them has it."""

    def add_parser(self, name: str, **settings: Any) -> Any:
        summary = str(settings.get("help") or "")
        return super().add_parser(
            name, **{"description": f"{summary[:1].upper()}{summary[1:]}." if summary else None, **settings}
        )


class _Parser(argparse.ArgumentParser):
    """Prints to the context; an error is two lines, the message and the hint."""

    def __init__(self, context: CliContext, **settings: Any) -> None:
        width = min(context.width, 80)
        super().__init__(
            formatter_class=lambda prog: _Help(prog, width=width, max_help_position=26),
            allow_abbrev=False,
            **settings,
        )
        self.color = False  # Python 3.14 would colour the help
        self._context = context

    def _print_message(self, message: str, file: Any = None) -> None:
        if message:
            self._context.out.write(message)

    def add_subparsers(self, **settings: Any) -> Any:
        settings["parser_class"] = partial(_Parser, self._context)
        settings["action"] = _Subcommands
        return super().add_subparsers(**settings)

    def error(self, message: str) -> NoReturn:
        self._context.print_note(f"{self.prog}: {message}")
        self._context.print_note(f"→ {self._find_hint(message)}")
        raise SystemExit(exit_codes.USAGE)

    def _find_hint(self, message: str) -> str:
        _, is_surplus, words = message.partition("unrecognized arguments: ")
        takes_files = "--filename" in self._option_string_actions
        if is_surplus and takes_files and not any(word.startswith("-") for word in words.split()):
            return f"Write -f {words}"
        return f"See its options: {self.prog} --help"


def render_help() -> list[str]:
    """The lines of `windrow --help`."""
    lines = ["Kubernetes clusters on Harvester HCI.", "", "  windrow COMMAND [options]", ""]
    for group, commands in GROUPS.items():
        lines += [f"{group}:", *(f"  {one.name:<14} {one.summary}" for one in commands), ""]
    lines += FIRST_STEPS.splitlines()
    return lines


def _unknown_command(word: str, context: CliContext) -> int:
    import difflib

    near = difflib.get_close_matches(word, COMMANDS, 1)
    context.print_note(f"windrow: unknown command {word!r}")
    context.print_note(f"→ Did you mean: windrow {near[0]}" if near else "→ See the commands: windrow --help")
    return exit_codes.USAGE


def _parser_for(command: Command, module: Any, context: CliContext) -> _Parser:
    """The command's parser. Its help is the module's docstring: paragraphs, then examples."""
    head, _, examples = (module.__doc__ or command.summary).partition("\nExamples:\n")
    width = min(context.width, 80)
    parser = _Parser(
        context,
        prog=f"windrow {command.name}",
        description="\n\n".join(
            textwrap.fill(part, width, break_on_hyphens=False) for part in head.strip().split("\n\n")
        ),
        epilog=f"examples:\n{examples.rstrip()}" if examples else None,
    )
    module.arguments(parser)
    options.add_verbose(parser)
    return parser


def command_parsers(context: CliContext) -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Name, summary and parser of each command."""
    for command in COMMANDS.values():
        module = importlib.import_module(f"windrow.cli.commands.{command.module}")
        yield command.name, command.summary, _parser_for(command, module, context)


def _run_command(command: Command, arguments: Sequence[str], context: CliContext, verbose: bool) -> int:
    try:
        module = importlib.import_module(f"windrow.cli.commands.{command.module}")
        args = _parser_for(command, module, context).parse_args(arguments)
        _configure_logs(command, context, verbose, getattr(args, "log_format", "text"))
        return int(module.run(args, context))
    except Exception as error:
        return _report_error(error, context, verbose)


def _configure_logs(command: Command, context: CliContext, verbose: bool, format: str) -> None:
    """Logs go to standard error, a line each. `serve` and `emulate` print warnings, and `serve` what it does: its Events;
    the other commands report their own errors, so they log with `--verbose` only."""
    import logging

    from windrow.core.logs import new_formatter

    printed = command.long_running or verbose
    handler = logging.StreamHandler(context.err) if printed else logging.NullHandler()
    handler.setFormatter(new_formatter(format, tracebacks=verbose))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler], force=True)
    if command.name == "serve":
        logging.getLogger("windrow.client.events").setLevel(logging.INFO)


def _report_error(error: Exception, context: CliContext, verbose: bool) -> int:
    from windrow.cli.errors import render_error, to_cli_error

    if isinstance(error, BrokenPipeError):
        raise error
    if verbose:
        import traceback

        traceback.print_exception(error, file=context.err)
    shown = to_cli_error(error)
    for line in render_error(shown):
        context.print_note(line)
    return shown.code


def run(argv: Sequence[str], context: CliContext) -> int:
    """Run one command line and return its exit code."""
    words = [word for word in argv if word != "--verbose"]  # may stand anywhere on the command line
    verbose = "--verbose" in argv
    match words:
        case [] | ["--help" | "-h" | "help"]:
            for line in render_help():
                context.print(line)
            return exit_codes.OK
        case ["help", word, *_]:
            words = [word, "--help"]
        case ["--version", *_]:
            words = ["version"]
    command = COMMANDS.get(words[0])
    if command is None:
        return _unknown_command(words[0], context)
    try:
        return _run_command(command, words[1:], context, verbose)
    except SystemExit as end:
        return int(end.code or 0)
    except KeyboardInterrupt:
        if command.long_running:  # Ctrl-C is the way to end it
            if not _logs_as_json(words):  # standard error is the log, which a program reads
                context.print_note("Stopped.")
            return exit_codes.OK
        context.print_note("Interrupted.")
        return exit_codes.INTERRUPTED


def _logs_as_json(words: Sequence[str]) -> bool:
    return "--log-format=json" in words or ("--log-format", "json") in pairwise(words)


def main() -> int:
    """The console script."""
    import sys

    context = process_context()
    try:
        code = run(sys.argv[1:], context)
        context.out.flush()
    except BrokenPipeError:  # `windrow … | head` closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.OK
    return code
