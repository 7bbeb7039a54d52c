"""All cases, put to both; what differs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.conformance.admission.asking import Answer, Question, Reference, ask_emulator
from tests.conformance.admission.cases import actions, balancers, settings, storage, vms, writers
from tests.conformance.admission.comparing import Difference, find_difference
from tests.conformance.admission.mutations import mutated
from tests.conformance.admission.others import LOAD_BALANCER, NETWORK, is_given
from tests.conformance.admission.products import Made, make_affinities, make_random
from tests.conformance.admission.world import ClusterDump, a_harvester, dump

from windrow.emulator.harvester import Harvester
from windrow.kubernetes.objects import Raw

SEED = 1
# That the emulator has by default first. For each there is a reference program, admission-<release>.
RELEASES = ("v1.8.2", "v1.8.1")
GROUPS = (
    "vm",
    "action",
    "claim",
    "image",
    "class",
    "secret",
    "key pair",
    "quota",
    "snapshot quota",
    "namespace",
    "template version",
    "migration",
    "setting",
)

TABLES: tuple[Callable[[ClusterDump], Iterator[Question]], ...] = (
    vms.questions,
    storage.questions,
    settings.questions,
    settings.setting_questions,
    settings.counted_questions,
    settings.network_questions,
    actions.questions,
    balancers.questions,
    writers.questions,
)
# Put to programs that are in no module that can be had, where a variable names one.
OTHER_GROUPS = {"load balancer": LOAD_BALANCER, "pool": LOAD_BALANCER, "network": NETWORK}

# NetworkAttachmentDefinitions are defined by their own project, not by Harvester's chart.
NETWORK_DEFINITION: Raw = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "network-attachment-definitions.k8s.cni.cncf.io"},
    "spec": {
        "group": "k8s.cni.cncf.io",
        "scope": "Namespaced",
        "names": {"kind": "NetworkAttachmentDefinition", "plural": "network-attachment-definitions"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "apiVersion": {"type": "string"},
                            "kind": {"type": "string"},
                            "metadata": {"type": "object"},
                            "spec": {"type": "object", "properties": {"config": {"type": "string"}}},
                        },
                    }
                },
            }
        ],
    },
}


@dataclass(frozen=True, slots=True)
class Result:
    question: Question
    real: Answer
    emulated: Answer
    difference: Difference | None


def all_questions(world: ClusterDump) -> list[Question]:
    made = (question for table in TABLES for question in table(world))
    return [one for one in made if one.group not in OTHER_GROUPS or is_given(OTHER_GROUPS[one.group])]


@dataclass(frozen=True, slots=True)
class Judged:
    """What the real code says about the objects of one combination of options."""

    made: Made
    answers: tuple[Answer, ...]

    @property
    def is_refused(self) -> bool:
        return any(not answer.is_allowed for answer in self.answers)

    def __str__(self) -> str:
        denials = [one.text for answer in self.answers for one in answer.denials]
        return f"combination {self.made.number}: {denials}\n    {dict(self.made.fields)}"


class Rig:
    """An emulated Harvester, and the reference program on a dump of it."""

    def __init__(self, harvester: Harvester, world: ClusterDump, reference: Reference) -> None:
        self.harvester, self.world, self.reference = harvester, world, reference

    async def compare(self, questions: Sequence[Question]) -> list[Result]:
        real = self.reference.ask_all(questions)
        return [
            _result(question, answer, await ask_emulator(self.harvester, question))
            for question, answer in zip(questions, real, strict=True)
        ]

    def mutations(self, results: Iterable[Result], numbers: Iterable[int], seed: int) -> list[Question]:
        """Mutations of the requests that the real code accepts."""
        valid = [
            one.question
            for one in results
            if one.real.is_allowed and one.question.operation in ("CREATE", "UPDATE")
        ]
        return [mutated(valid, number, seed) for number in numbers]

    async def check_products(self, count: int, seed: int) -> list[Judged]:
        """Our node driver's objects over random options."""
        return self._ask(await make_random(self.harvester, count, seed))

    async def check_affinities(self) -> list[Judged]:
        """Each affinity alone, in an otherwise usual machine."""
        return self._ask(await make_affinities(self.harvester))

    def _ask(self, made: Iterable[Made]) -> list[Judged]:
        return [Judged(one, tuple(self.reference.ask_all(one.questions))) for one in made]


def _result(question: Question, real: Answer, emulated: Answer) -> Result:
    return Result(question, real, emulated, find_difference(question, real, emulated))


@asynccontextmanager
async def a_rig(program: str, release: str) -> AsyncIterator[Rig]:
    async with a_harvester(release) as harvester:
        world = await dump(harvester, (NETWORK_DEFINITION,))
        with Reference(program, world) as reference:
            yield Rig(harvester, world, reference)


@dataclass(frozen=True, slots=True)
class Report:
    """A run of all cases, of mutations and of combinations of options."""

    cases: list[Result]
    mutations: list[Result]
    products: list[Judged]
    affinities: list[Judged]


async def run(
    program: str,
    release: str,
    *,
    mutations: int = 0,
    combinations: int = 0,
    seed: int = SEED,
    wanted: Callable[[Question], bool] = lambda question: True,
) -> Report:
    async with a_rig(program, release) as rig:
        cases = await rig.compare(list(filter(wanted, all_questions(rig.world))))
        changed = await rig.compare(rig.mutations(cases, range(mutations), seed))
        products = await rig.check_products(combinations, seed)
        return Report(cases, changed, products, await rig.check_affinities() if combinations else [])
