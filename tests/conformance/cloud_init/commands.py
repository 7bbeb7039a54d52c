"""Commands of Debian's cloud-init, one after the other, run by Debian's own Python.

    python3 commands.py '[["init", "--local"], ["init"]]'

Each runs the program itself, in a process that need not import it once more. Prints exit code and output of each as JSON.
"""

import json
import os
import runpy
import sys
import tempfile

import cloudinit.cmd.main
import cloudinit.config.schema
import cloudinit.distros.debian
import cloudinit.sources.DataSourceNoCloud
import cloudinit.stages  # noqa: F401

PROGRAM = "/usr/bin/cloud-init"


def run(arguments: list[str]) -> tuple[int, str]:
    with tempfile.TemporaryFile() as output:
        pid = os.fork()
        if pid == 0:
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            sys.argv = [PROGRAM, *arguments]
            runpy.run_path(PROGRAM, run_name="__main__")
            sys.exit(0)
        _, status = os.waitpid(pid, 0)
        output.seek(0)
        return os.waitstatus_to_exitcode(status), output.read().decode("utf-8", "replace")


if __name__ == "__main__":
    print(json.dumps([run(arguments) for arguments in json.loads(sys.argv[1])]))
