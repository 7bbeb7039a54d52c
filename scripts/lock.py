"""Write the lock files, or check that they are those of the present inputs.

    python scripts/lock.py             compile what is out of date, keeping the versions that still fit
    python scripts/lock.py --upgrade   compile all with the newest versions
    python scripts/lock.py --check     exit 1 and say why when an input changed since its lock file was written

A lock file names each package by version and hashes, for every platform, and holds no address: a user who installs
chooses the registry. Its first line holds the hash of its inputs, so the check needs no network. That the files
are complete shows at installation, which refuses a package without a hash.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
MARK = "# inputs: sha256:"

# Lock file -> (inputs, further arguments). What runs is locked first; the tools must agree with it.
LOCKS = {
    "setup.txt": (["requirements/setup.in"], []),
    "run.txt": (["pyproject.toml"], ["--extra", "all"]),
    "dev.txt": (["requirements/dev.in"], ["--constraint", "requirements/run.txt"]),
    "docs.txt": (
        ["requirements/docs.in"],
        ["--constraint", "requirements/run.txt", "--constraint", "requirements/dev.txt"],
    ),
}


def inputs_hash(inputs: list[str]) -> str:
    """The hash of what decides a lock file: requirements, not comments or other settings."""
    digest = hashlib.sha256()
    for name in inputs:
        text = (ROOT / name).read_text()
        if name.endswith(".toml"):
            project = tomllib.loads(text)["project"]
            wanted = [project["requires-python"], *project["dependencies"]]
            wanted += [
                f"{extra}: {line}"
                for extra, lines in project["optional-dependencies"].items()
                for line in lines
            ]
        else:
            wanted = [line for line in text.splitlines() if line and not line.startswith("#")]
        digest.update("\n".join([name, *sorted(wanted), ""]).encode())
    return digest.hexdigest()


def problems() -> list[str]:
    found = []
    for lock, (inputs, _) in LOCKS.items():
        path = FOLDER / lock
        text = path.read_text() if path.exists() else ""
        if not text.startswith(f"{MARK}{inputs_hash(inputs)}\n"):
            found.append(
                f"requirements/{lock} was not made from the present {', '.join(inputs)}; run: make lock"
            )
        if "://" in text:
            found.append(f"requirements/{lock} holds an address; run: make lock")
        for entry in re.split(r"\n(?=\S)", text):
            if "==" in entry and "--hash=sha256:" not in entry:
                found.append(f"requirements/{lock} pins {entry.split()[0]} without a hash; run: make lock")
    return found


def compile_lock(lock: str, inputs: list[str], extra: list[str], upgrade: bool) -> None:
    uv = Path(sys.executable).with_name("uv")
    command = [str(uv), "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"]
    command += [
        "--generate-hashes",
        "--no-emit-index-url",
        "--no-emit-find-links",
        "--no-annotate",
        "--no-header",
    ]
    command += [*extra, *(["--upgrade"] if upgrade else []), *inputs, "--output-file", f"requirements/{lock}"]
    subprocess.run(command, cwd=ROOT, check=True)
    path = FOLDER / lock
    path.write_text(f"{MARK}{inputs_hash(inputs)}\n{path.read_text()}")


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        found = problems()
        print("\n".join(found) or f"Lock files: {len(LOCKS)} up to date.")
        return 1 if found else 0
    if arguments not in ([], ["--upgrade"]):
        print(__doc__)
        return 2
    for lock, (inputs, extra) in LOCKS.items():
        compile_lock(lock, inputs, extra, upgrade=bool(arguments))
    return main(["--check"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
