"""Compile the driver, and every module it can reach, into the table that the one-file driver starts from.

    python freeze.py ENTRY OUT NAME=FOLDER...

ENTRY is the module whose imports are followed; each NAME=FOLDER says where a top-level package lies; all else comes
from the standard library of the interpreter that runs this. That must be the one that is linked, because compiled
code is only good for the version that made it. OUT receives `frozen.bin` (the code), `frozen.S` and `frozen.c` (which
put it into the program) and `modules.txt`.

The imports are read, not run: a module counts as reached when any reached module names it anywhere, in a function or
behind a condition, so nothing can be missing at run time because a test did not come by. What would then come along
for nothing (debuggers, test tools, other systems) is named in `LEFT_OUT`.

The result depends on the text of the modules alone: code is compiled with fixed file names, and marshalled in a form
that does not record how often a value happened to be shared.
"""

from __future__ import annotations

import ast
import importlib._bootstrap_external
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import dataclass_code

# Reached by no import statement.
ALWAYS = (
    "encodings.utf_8",
    "encodings.ascii",
    "encodings.latin_1",
    # The codec of host names, in `socket` and `ssl`.
    "encodings.idna",
    # Imported by the interpreter's own C code: to tell of an error, and to read a date.
    "traceback",
    "_strptime",
)

# Never imported by a driver, though some module names them. A name stands for everything below it, too.
LEFT_OUT = {
    # Twins in Python of modules that are compiled in.
    "_pydatetime", "_pydecimal", "_pyio", "_py_abc", "_pylong", "_py_warnings", "_pyrepl",
    # The start of the interpreter, which it holds frozen itself.
    "importlib._bootstrap", "importlib._bootstrap_external",
    # Only loaded where PyYAML was compiled with a C library.
    "yaml.cyaml",
    # Tools for people: command lines, logs, debuggers, documentation, tests, profilers.
    "argparse", "logging", "pdb", "bdb", "cmd", "code", "codeop", "doctest", "unittest", "pydoc", "pydoc_data", "optparse", "getopt", "trace",
    "tracemalloc", "cProfile", "profile", "pstats", "rlcompleter", "readline", "test", "idlelib", "lib2to3",
    # Packages and their data; nothing is installed beside the driver.
    "importlib.metadata", "importlib.resources", "importlib.readers", "importlib.simple", "pkgutil", "zipimport", "zipfile",
    "pip", "ensurepip", "venv", "sysconfig", "_sysconfigdata", "site", "sitecustomize", "usercustomize", "runpy",
    # Other ways to run things at once.
    "asyncio", "multiprocessing", "concurrent",
    # Archives, databases, desktop, networks of other kinds.
    "bz2", "lzma", "gzip", "zlib", "tarfile", "shutil", "pickle", "_compat_pickle", "shelve", "dbm", "sqlite3", "ctypes",
    "tkinter", "turtle", "xml", "xmlrpc", "html", "webbrowser", "http.server", "http.cookiejar", "ftplib", "email",
    "mimetypes", "smtplib", "imaplib", "poplib", "nntplib", "gettext", "curses", "decimal", "fractions",
    "statistics",
    # Other systems.
    "nt", "ntpath", "nturl2path", "winreg", "_winapi", "msvcrt", "org", "java", "_ios_support", "_apple_support",
    "_android_support",
}  # fmt: skip

# Guarded there.
EXPECTED = {"yaml.cyaml"}


@dataclass(frozen=True, slots=True)
class Module:
    name: str
    path: Path
    tree: ast.Module
    text: bytes
    named_by: str

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


class Finder:
    """Where a module's text lies, if it has one."""

    def __init__(self, roots: Mapping[str, Path], library: Path) -> None:
        self.roots, self.library = roots, library

    def find(self, name: str) -> Path | None:
        top, *below = name.split(".")
        stem = self.roots.get(top, self.library / top).joinpath(*below)
        for path in (stem / "__init__.py", stem.with_name(f"{stem.name}.py")):
            if path.is_file():
                return path
        return None


def is_left_out(name: str) -> bool:
    parts = name.split(".")
    return any(".".join(parts[:end]) in LEFT_OUT for end in range(1, len(parts) + 1))


def reach(entry: str, finder: Finder) -> dict[str, Module]:
    """The entry, and every module with a text that it can import, by name."""
    found: dict[str, Module] = {}
    waiting = [(name, "the interpreter") for name in ALWAYS] + [(entry, "the program")]
    while waiting:
        name, by = waiting.pop()
        if not name or name in found or is_left_out(name):
            continue
        path = finder.find(name)
        if path is None and name == entry:
            raise SystemExit(f"there is no module {name}")
        if path is None:
            continue
        text = path.read_bytes()
        found[name] = module = Module(name, path, ast.parse(text, str(path)), text, by)
        waiting.append((name.rpartition(".")[0], name))
        waiting += [(each, name) for each in imports(module)]
        _check_ours(module, finder)
    return dict(sorted(found.items()))


def _check_ours(module: Module, finder: Finder) -> None:
    """Stop where a module of ours imports what will not be there.

    What is left out is left out because the standard library's use of it was looked at; ours would be a mistake.
    """
    if module.name.split(".")[0] not in finder.roots:
        return
    for name in imports(module):
        if is_left_out(name) and name not in EXPECTED:
            raise SystemExit(f"{module.name} imports {name}, which freeze.py leaves out of the driver")
        folder = finder.roots.get(name.split(".")[0])
        known = folder is None or finder.find(name) or finder.find(name.rpartition(".")[0])
        if not known:
            raise SystemExit(f"{module.name} imports {name}, and there is no such module")


def imports(module: Module) -> Iterator[str]:
    """Every name the module's text might mean by an import; some are no modules."""
    package = module.name if module.is_package else module.name.rpartition(".")[0]
    for node in statements(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every node, but for what only a type checker or another system reads, or a module run as a program."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) in NEVER_TRUE:
            waiting = node.orelse
            yield from waiting
            for part in waiting:
                yield from statements(part)
            continue
        yield node
        yield from statements(node)


NEVER_TRUE = {
    "TYPE_CHECKING",
    "typing.TYPE_CHECKING",
    "__name__ == '__main__'",
    "sys.platform == 'win32'",
    "_mswindows",
    "os.name == 'nt'",
}


def prepared_dataclasses(modules: dict[str, Module], roots: Mapping[str, Path]) -> dict[str, bytes]:
    """`dataclasses` and the table that it looks its methods up in; see `dataclass_code`."""
    plain = modules.get("dataclasses")
    if plain is None:
        return {}
    ours = [name for name in modules if name.split(".")[0] in roots]
    codes = dataclass_code.overheard(ours, sorted({str(folder.parent) for folder in roots.values()}))
    changed = replace(plain, text=dataclass_code.with_lookup(plain.text))
    table = dataclass_code.lookup_module(codes)
    return {"dataclasses": compiled(changed), dataclass_code.NAME: dataclass_code.stable(table)}


def compiled(module: Module) -> bytes:
    """The module's code: no docstrings, no asserts, no path of this machine; line numbers only in ours.

    A traceback names the function in the library, and the line in our code that called it; the numbers of the library
    alone would make every process bigger by 0.3 MB.
    """
    code = compile(module.text, f"<frozen {module.name}>", "exec", optimize=2, dont_inherit=True)
    ours = module.name.startswith("windrow.")
    return dataclass_code.stable(code if ours else dataclass_code.without_lines(code))


def render_table(blobs: Mapping[str, bytes], packages: set[str]) -> str:
    lines = [
        "/* Written by scripts/driver/freeze.py. */",
        "#include <Python.h>",
        "extern const unsigned char windrow_frozen_code[];",
        "const struct _frozen windrow_frozen[] = {",
    ]
    start = 0
    for name, blob in blobs.items():
        lines.append(f'  {{"{name}", windrow_frozen_code + {start}, {len(blob)}, {int(name in packages)}}},')
        start += len(blob)
    return "\n".join([*lines, "  {0, 0, 0, 0},", "};", ""])


ASSEMBLY = """\
/* Written by scripts/driver/freeze.py. */
  .section .rodata
  .balign 64
  .global windrow_frozen_code
  .type windrow_frozen_code, @object
windrow_frozen_code:
  .incbin "frozen.bin"
  .size windrow_frozen_code, . - windrow_frozen_code
  .section .note.GNU-stack,"",@progbits
"""


def main(arguments: Sequence[str]) -> int:
    entry, out, *pairs = arguments
    roots = {name: Path(folder) for name, _, folder in (pair.partition("=") for pair in pairs)}
    library = Path(importlib._bootstrap_external.__file__ or "").parent.parent
    modules = reach(entry, Finder(roots, library))
    blobs = {name: compiled(module) for name, module in modules.items()}
    blobs = dict(sorted((blobs | prepared_dataclasses(modules, roots)).items()))
    reasons = {name: module.named_by for name, module in modules.items()}
    folder = Path(out)
    (folder / "frozen.bin").write_bytes(b"".join(blobs.values()))
    (folder / "frozen.S").write_text(ASSEMBLY)
    (folder / "frozen.c").write_text(
        render_table(blobs, {name for name, module in modules.items() if module.is_package})
    )
    (folder / "modules.txt").write_text(
        "".join(f"{name} {len(blob)} ({reasons.get(name, 'the build')})\n" for name, blob in blobs.items())
    )
    print(f"frozen: {len(blobs)} modules, {sum(map(len, blobs.values())) / 1e6:.2f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
