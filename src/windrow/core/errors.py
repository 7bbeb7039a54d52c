"""The base of all errors that a person can act on."""

from __future__ import annotations


class UserError(Exception):
    """`message` says what is wrong, with the objects' kinds and names; `hint` says what to do next.

    As text it is both on one line: `message; hint`.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(f"{message}; {hint}")
        self.message = message
        self.hint = hint
