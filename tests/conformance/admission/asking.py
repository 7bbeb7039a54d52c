"""Requests as values, and how they are put: to the emulator as a dry run, to the reference program as a line of JSON."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

from tests.conformance.admission.accepted import reworded
from tests.conformance.admission.others import others
from tests.conformance.admission.world import ClusterDump

from windrow.core.formats.json import loads
from windrow.emulator.harvester import Harvester
from windrow.kubernetes.objects import Raw
from windrow.kubernetes.requests import Request
from windrow.kubernetes.resources import ApiResource

USER = "admin"


@dataclass(frozen=True, slots=True)
class Question:
    """A request: `object` is None for a deletion, `old` for a creation. Of an action it is the options, and `old` the machine."""

    name: str  # of the case, unique within its group
    group: str  # "vm", "claim", …
    kind: ApiResource
    object: Raw | None
    old: Raw | None = None
    action: str = ""  # a subresource that does something: "start"

    @property
    def key(self) -> str:
        return f"{self.group}: {self.name}"

    @property
    def operation(self) -> str:
        if self.action:
            return "ACTION"
        if self.object is None:
            return "DELETE"
        return "CREATE" if self.old is None else "UPDATE"


# Harvester prints its own validator in place of the key pair's id, with the addresses of its memory.
_PRINTED_KEY_PAIR = re.compile(r"KeyPairID (&\{.*\}|\S+) is invalid,")


# Go's print of how two objects differ, which Kubernetes appends to a message.
_PRINTED_DIFFERENCE = re.compile(r"\n(.*\n)?", re.DOTALL)


# The order of a cache, which has none.
_USERS = re.compile(r"(?<=still used by VM\(s\) )[^\s,]+(?:, [^\s,]+)*")


def _readable(text: object) -> str:
    told = _PRINTED_DIFFERENCE.sub("", str(text or ""))
    told = _USERS.sub(lambda found: ", ".join(sorted(found[0].split(", "))), told)
    return _PRINTED_KEY_PAIR.sub("KeyPairID (printed) is invalid,", told)


@dataclass(frozen=True, slots=True)
class Denial:
    code: int
    text: str
    reason: str = ""
    causes: str = ""

    def reworded(self) -> Denial:
        return Denial(self.code, reworded(self.text), self.reason, reworded(self.causes))

    @classmethod
    def read(cls, status: Raw) -> Denial:
        """Without what Go prints of objects."""
        causes = [
            {**cause, "message": _readable(cause.get("message"))}
            for cause in (status.get("details") or {}).get("causes") or ()
        ]
        text = _readable(status.get("message"))
        if causes and not any("field" in cause for cause in causes):
            # KubeVirt's schema, in whose walk of Go's maps there is no order.
            told = ", ".join(cause["message"] for cause in causes)
            causes.sort(key=lambda cause: str(cause["message"]))
            text = text.replace(told, ", ".join(cause["message"] for cause in causes))
        return cls(
            int(status.get("code", 0)),
            text,
            str(status.get("reason", "")),
            json.dumps(causes, sort_keys=True) if causes else "",
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """The object that would be stored (None after a deletion), or the denials, of which a client sees one."""

    object: Raw | None = None
    denials: tuple[Denial, ...] = ()
    failure: str = ""  # of the reference program: the question could not be judged

    @property
    def is_allowed(self) -> bool:
        return not self.denials and not self.failure


def _requested(question: Question) -> Request:
    raw = question.object or question.old
    assert raw is not None
    if question.action:
        assert question.old is not None
        metadata = question.old["metadata"]
        path = f"{question.kind.path(metadata['namespace'], metadata['name'])}/{question.action}"
        return Request("PUT", path, (), json.dumps({**raw, "dryRun": ["All"]}).encode(), "application/json")
    metadata = raw["metadata"]
    method = {"CREATE": "POST", "UPDATE": "PUT", "DELETE": "DELETE"}[question.operation]
    name = "" if method == "POST" else metadata["name"]
    path = question.kind.path(metadata.get("namespace", ""), name)
    # In the order of keys in which the reference program decodes: Go's decoder tells the first of several mistyped fields.
    body = json.dumps(question.object, sort_keys=True).encode() if question.object is not None else b""
    return Request(method, path, (("dryRun", "All"),), body, "application/json")


async def ask_emulator(harvester: Harvester, question: Question) -> Answer:
    try:
        reply = await harvester.api.local(USER, ("system:masters",)).send(_requested(question))
    except Exception as error:  # over a socket the server answers 500; here the fault itself is wanted
        return Answer(denials=(Denial(500, f"the emulator failed: {type(error).__name__}: {error}"),))
    if reply.status >= 400:
        return Answer(denials=(Denial.read(loads(reply.body)),))
    return Answer(None if question.operation in ("ACTION", "DELETE") else loads(reply.body))


class Reference:
    """The reference program, started on a world; ends with the block."""

    def __init__(self, program: str, world: ClusterDump) -> None:
        self._folder = TemporaryDirectory()  # of the program's own files
        environment = {**os.environ, "ADMISSION_FOLDER": self._folder.name}
        self._log = Path(self._folder.name, "log")  # what the webhooks write
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
        # The definitions of Harvester's kinds, from its chart, lie beside the program.
        folders = [f"{path}.definitions" for path in (program, *(one.path for one in others()))]
        self._say(
            {
                "objects": list(world.objects.values()),
                "definitions": list(world.definitions),
                "folders": folders,
                "programs": [one.render() for one in others()],
            }
        )
        self._hear()

    def __enter__(self) -> Reference:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe(self._process.stdin).close()
        self._process.wait(30)
        self._pipe(self._process.stdout).close()
        self._folder.cleanup()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe

    def _say(self, value: Any) -> None:
        pipe = self._pipe(self._process.stdin)
        pipe.write(json.dumps(value) + "\n")
        pipe.flush()

    def _hear(self) -> Any:
        line = self._pipe(self._process.stdout).readline()
        assert line, (
            f"the reference program ended with {self._process.wait(30)}: {self._log.read_text()[-2000:]}"
        )
        return json.loads(line)

    def ask_all(self, questions: Sequence[Question]) -> list[Answer]:
        """The answers in order. A thread writes, so that the program need not wait for the next line."""
        writer = threading.Thread(target=self._ask, args=(questions,))
        writer.start()
        answers = [_read_answer(question, self._hear()) for question in questions]
        writer.join()
        return answers

    def _ask(self, questions: Sequence[Question]) -> None:
        for question in questions:
            self._say(
                {
                    "operation": question.operation,
                    "subresource": question.action,
                    "object": question.object,
                    "oldObject": question.old,
                    "user": USER,
                    "groups": ["system:masters", "system:authenticated"],
                }
            )


def _read_answer(question: Question, answered: Any) -> Answer:
    return Answer(
        answered.get("object") if question.object is not None else None,
        tuple(Denial.read(status) for status in answered.get("denials", ())),
        answered.get("failure", ""),
    )
