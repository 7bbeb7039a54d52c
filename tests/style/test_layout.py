"""A folder can be read at one look: few modules, each with one subject."""

from __future__ import annotations

from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src" / "windrow"
MOST_MODULES = 14
FOLDERS = sorted({path.parent for path in SOURCE.rglob("*.py")})


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(SOURCE.parent)))
def test_a_folder_has_few_modules(folder: Path):
    modules = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")

    assert len(modules) <= MOST_MODULES, modules
