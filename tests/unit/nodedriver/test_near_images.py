"""An image that does not exist, and the one that was meant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from windrow.harvester.problems import Problem
from windrow.harvester.resources import IMAGE
from windrow.kubernetes.errors import Forbidden, KubeError, NotFound
from windrow.kubernetes.objects import Raw, new_object
from windrow.kubernetes.requests import Request
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.devices import DiskSpec, NicSpec
from windrow.nodedriver.effects import Gather
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.validate.references import check
from windrow.nodedriver.vm.create import ensure_created

UPLOAD = "upload it to Harvester, or name another"
Answer = Raw | KubeError


def image(name: str, shown: str, namespace: str = "default") -> Raw:
    return new_object(IMAGE, name, namespace, spec={"displayName": shown})


def find_image_problems(name: str, answer: Callable[[Request], Answer]) -> list[Problem]:
    """Those of a machine with this image, on a Harvester that has no image of that name. `answer` has its lists of images."""
    operation = check(
        [
            Configuration(
                vm_namespace="default",
                disk_info=(DiskSpec(image=name, size_gib=40),),
                network_info=(NicSpec(network="n"),),
            )
        ]
    )
    answers: Any = None
    while True:
        try:
            effect = operation.send(answers)
        except StopIteration as end:
            return [one for one in end.value if one.field == "diskInfo"]
        assert isinstance(effect, Gather)
        answers = [_answer(request, answer) for request in effect.requests]


def _answer(request: Request, answer: Callable[[Request], Answer]) -> Answer:
    name = request.path.rpartition("/")[2]
    if name == IMAGE.plural:
        return answer(request)
    if IMAGE.plural in request.path:
        return NotFound("not found", status=404, details={"name": name})
    return Forbidden("no", status=403)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("leap-mirco", "write default/leap-micro"),
        ("default/leap-mirco", "write default/leap-micro"),
        ("noble-server.img", "write default/image-x7k2p, which Harvester shows as noble-server.img"),
        ("image-x7k2q", "write default/image-x7k2p, which Harvester shows as noble-server.img"),
        ("windows", UPLOAD),
    ],
)
def test_an_image_of_a_near_name_or_display_name_is_named(name: str, hint: str) -> None:
    items = [image("leap-micro", "leap-micro"), image("image-x7k2p", "noble-server.img"), image("plain", "")]

    [found] = find_image_problems(name, lambda request: {"items": items})

    assert found.message == f"image default/{name.removeprefix('default/')} does not exist"
    assert found.hint == hint


def test_an_image_of_another_namespace_is_not_meant() -> None:
    [found] = find_image_problems("leap", lambda request: {"items": [image("leap", "leap", "other")]})

    assert found.hint == UPLOAD


def test_who_may_not_list_images_is_told_what_is_missing() -> None:
    [found] = find_image_problems("leap", lambda request: Forbidden("no", status=403))

    assert found.hint == UPLOAD


def test_a_machine_that_is_refused_for_its_image_is_told_the_one_that_was_meant() -> None:
    operation = ensure_created(
        Configuration(machine_name="m", vm_namespace="default", disk_info=(DiskSpec(image="leap-mirco"),)),
        "#cloud-config",
    )
    items = [image("leap-micro", "leap-micro")]

    def answer_all() -> None:
        effect = operation.send(None)
        while True:
            if isinstance(effect, Gather):
                answers = [_answer(request, lambda request: {"items": items}) for request in effect.requests]
                effect = operation.send(answers)
            else:
                effect = operation.throw(NotFound("no VM", status=404, details={"name": "m"}))

    with pytest.raises(Refused) as refused:
        answer_all()

    [found] = refused.value.problems
    assert (found.message, found.hint) == (
        "image default/leap-mirco does not exist",
        "write default/leap-micro",
    )
