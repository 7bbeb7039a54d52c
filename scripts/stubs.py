"""Write the messages of the Container Storage Interface from their description, or check that they are up to date.

python scripts/stubs.py           write csi_pb2.py and csi_pb2.pyi beside csi.proto
python scripts/stubs.py --check   exit 1 and name those that differ
"""

from __future__ import annotations

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

SOURCES = Path(__file__).resolve().parent.parent / "src"
FOLDER = Path("windrow/protocols/csi")
MADE = (FOLDER / "csi_pb2.py", FOLDER / "csi_pb2.pyi")


def compile_messages(target: Path) -> None:
    arguments = ["protoc", f"-I{SOURCES}", f"-I{files('grpc_tools') / '_proto'}"]
    arguments += [f"--python_out={target}", f"--pyi_out={target}", str(SOURCES / FOLDER / "csi.proto")]
    if protoc.main(arguments) != 0:
        sys.exit("csi.proto cannot be compiled; its errors stand above")


def outdated() -> list[Path]:
    """Those that differ from what the description gives now."""
    with tempfile.TemporaryDirectory() as folder:
        compile_messages(Path(folder))
        return [
            made
            for made in MADE
            if not (SOURCES / made).exists()
            or (Path(folder) / made).read_bytes() != (SOURCES / made).read_bytes()
        ]


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        found = outdated()
        print(
            "\n".join(f"src/{made} is not what csi.proto gives; run: make stubs" for made in found)
            or f"Messages of csi.proto: {len(MADE)} files up to date."
        )
        return 1 if found else 0
    if arguments:
        print(__doc__)
        return 2
    compile_messages(SOURCES)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
