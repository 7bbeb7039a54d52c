"""Nothing that lies around, and no variable meant for a Python, changes what the one-file driver does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from scripts.driver.host import TOKENS, Host, a_harvester

from windrow.protocols.dockermachine import RUNNING

# What a module that lies in the way would do.
TRAP = "import os\nos.write(2, b'trapped')\nos._exit(3)\n"
TRAPS = (
    "json",
    "ssl",
    "socket",
    "yaml",
    "sitecustomize",
    "usercustomize",
    "encodings/__init__",
    "windrow/__init__",
)


def test_modules_and_variables_for_another_python_are_not_heeded(driver: Path, tmp_path: Path) -> None:
    for name in TRAPS:
        path = tmp_path / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(TRAP)
    variables = {
        **dict.fromkeys(("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "HOME"), str(tmp_path)),
        **dict.fromkeys(
            ("PYTHONVERBOSE", "PYTHONINSPECT", "PYTHONDEBUG", "PYTHONUTF8", "PYTHONPROFILEIMPORTTIME"), "1"
        ),
        "PYTHONSTARTUP": str(tmp_path / "json.py"),
        "PYTHONWARNINGS": "error",
        "PYTHONIOENCODING": "ebcdic",
        "OPENSSL_CONF": str(tmp_path / "json.py"),
        "LC_ALL": "C",
    }

    with (
        a_harvester() as harvester,
        subprocess.Popen(
            [driver], env=TOKENS | variables, cwd=tmp_path,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        with Host(process.stdout.readline()) as host:
            host.ask("SetConfigRaw", harvester.configuration())
            assert host.ask("GetState") == RUNNING
            host.close_plugin()
        _, told = process.communicate(timeout=15)

    assert "trapped" not in told
    assert "import" not in told
    assert process.returncode == 0


def test_it_starts_with_its_three_streams_closed(driver: Path) -> None:
    def close_all() -> None:
        for descriptor in (0, 1, 2):
            os.close(descriptor)

    done = subprocess.run([driver], env={}, cwd="/", preexec_fn=close_all, check=False, timeout=5)

    assert done.returncode == 1
