"""The programs of guests write the log in the form that their flag asks for."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator

import pytest

from windrow.app import cloud_provider
from windrow.app.csi import driver
from windrow.cloudprovider.options import Options as CloudProviderOptions
from windrow.csi.cmd.arguments import Options as DriverOptions


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def a_cloud_provider(format: str) -> str:
    cloud_provider.configure_logs(CloudProviderOptions(log_format=format))
    return cloud_provider.PROGRAM


def a_driver(format: str) -> str:
    driver._configure_logs(DriverOptions(log_format=format))
    return driver.PROGRAM


@pytest.mark.parametrize("configure", [a_cloud_provider, a_driver])
def test_json_is_one_object_a_line(configure: Callable[[str], str], capsys: pytest.CaptureFixture[str]):
    name = configure("json")

    logging.getLogger(name).info("two\nlines")

    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["msg"] == "two\nlines"
    assert json.loads(line)["logger"] == name


@pytest.mark.parametrize("configure", [a_cloud_provider, a_driver])
def test_text_stays_what_it_was(configure: Callable[[str], str], capsys: pytest.CaptureFixture[str]):
    name = configure("text")

    logging.getLogger(name).info("one")

    assert capsys.readouterr().err.rstrip().endswith(" info: one")
