"""Exit codes. Documented in docs/reference/exit-codes.md; scripts rely on them, so they never change meaning."""

from __future__ import annotations

OK = 0
FAILED = 1  # it was tried and did not succeed: a check did not hold, a machine failed, or a defect of ours
USAGE = 2  # the command line could not be understood
REFUSED = 3  # the input is not acceptable; nothing was changed
NOT_FOUND = 4  # what was named does not exist
UNREACHABLE = 5  # a server could not be reached, or did not accept the credential
TIMED_OUT = 6  # --timeout passed first; what was ordered goes on
INTERRUPTED = 130  # Ctrl-C; for demo also SIGTERM or SIGHUP

MEANING = {
    OK: "done, and everything looked at held",
    FAILED: "tried, and did not succeed",
    USAGE: "the command line could not be understood",
    REFUSED: "the input was refused; nothing was changed",
    NOT_FOUND: "what was named does not exist",
    UNREACHABLE: "a server could not be reached, or refused the credential",
    TIMED_OUT: "the time given with --timeout passed first",
    INTERRUPTED: "interrupted by Ctrl-C before it was done, `demo` also by SIGTERM or SIGHUP (`serve` and `emulate` "
    "end so with 0; `demo --keep`, once it has played, with 0 or 1, by its checks)",
}
