"""The kubeconfig that kubectl reads: which file it is, and its change under kubectl's own lock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from windrow.cli import exit_codes
from windrow.cli.context import CliContext
from windrow.cli.errors import CliError, not_utf8
from windrow.cli.kubeconfig_merge import Merged
from windrow.cli.paths import read_text_file
from windrow.core.files import make_private_directory, open_private, write_private


def find_kubeconfig_file(context: CliContext) -> Path:
    """Where kubectl writes a new entry: the first file of KUBECONFIG that exists, else its last; ~/.kube/config without
    it. Raises CliError where there is no home directory either."""
    named = [context.cwd / name for name in context.env.get("KUBECONFIG", "").split(os.pathsep) if name]
    if named:
        return next((path for path in named if path.exists()), named[-1])
    if home := context.env.get("HOME"):
        return Path(home) / ".kube" / "config"
    raise CliError(
        "No kubeconfig to change: neither KUBECONFIG nor HOME is set.",
        "Name the file: --file FILE",
        exit_codes.USAGE,
    )


def change_kubeconfig(path: Path, shown: str, change: Callable[[str], Merged]) -> Merged:
    """Write what `change` makes of the file's text, the whole of it or nothing, mode 0600; a file that is not there is an
    empty text. A link stays, and leads to the new file. Raises CliError, OSError."""
    if path.exists() and not path.is_file():
        raise CliError(f"{shown} is no file.", "Name a kubeconfig.", exit_codes.REFUSED)
    make_private_directory(path.parent)
    with _locked(path, shown):
        text = _read(path, shown)
        changed = change(text)
        if changed.text != text:
            write_private(path.resolve(), changed.text)
    return changed


def _read(path: Path, shown: str) -> str:
    if not path.exists():
        return ""
    try:
        return read_text_file(path, shown)
    except UnicodeDecodeError as error:
        raise not_utf8(shown) from error


@contextmanager
def _locked(path: Path, shown: str) -> Iterator[None]:
    """Hold the lock that kubectl takes, `FILE.lock`, which is there for as long as a program writes the file."""
    lock = path.with_name(f"{path.name}.lock")
    try:
        os.close(open_private(lock, os.O_WRONLY | os.O_EXCL))
    except FileExistsError as error:
        raise CliError(
            f"{shown} is being changed by another program: {lock} exists.",
            "Try again; where no program changes it any more, remove that lock file.",
            exit_codes.FAILED,
        ) from error
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
