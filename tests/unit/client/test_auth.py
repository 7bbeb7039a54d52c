import asyncio
import sys
from datetime import timedelta

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.client.auth import RequestCredentials, credential_for, run_plugin
from windrow.core.clock import format_time
from windrow.core.formats.json import dumps
from windrow.kubernetes.errors import Unreachable
from windrow.kubernetes.kubeconfig import ClientConfig, ExecConfig

V1 = "client.authentication.k8s.io/v1"


def answer(version=V1, **status):
    return dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})


def with_plugin(story, out, code=0, error=None, **spec):
    """Run `story(credential, clock, runs)`; each run of the plugin takes a second and prints `out(clock)`."""

    async def whole():
        clock, runs = LoopClock(), []

        async def run(spec, env):
            runs.append(dict(env))
            await asyncio.sleep(1)
            if error:
                raise error
            return code, out(clock), b"the reason"

        access = ClientConfig("https://h", exec=ExecConfig("plugin", **spec))
        return await story(credential_for(access, clock, str, {"HOME": "/"}, run), clock, runs)

    return run_driven(whole())


def test_many_requests_wait_for_one_run_of_the_plugin():
    async def story(credential, clock, runs):
        shown = await asyncio.gather(*[credential.get() for _ in range(10)])
        return {one.token for one in shown}, len(runs)

    assert with_plugin(story, lambda clock: answer(token="t")) == ({"t"}, 1)


def test_an_expired_credential_is_renewed():
    async def story(credential, clock, runs):
        for _ in range(3):
            await credential.get()
        await asyncio.sleep(3600)
        await credential.get()
        return len(runs)

    def out(clock):
        return answer(token="t", expirationTimestamp=format_time(clock.now() + timedelta(minutes=10)))

    assert with_plugin(story, out) == 2


def test_a_rejected_credential_is_renewed_once():
    async def story(credential, clock, runs):
        shown = await credential.get()
        credential.invalidate(shown)
        fresh = await credential.get()
        credential.invalidate(shown)
        await credential.get()
        return len(runs), fresh is shown

    assert with_plugin(story, lambda clock: answer(token="t")) == (2, False)


def test_a_plugin_may_return_a_certificate():
    async def story(credential, clock, runs):
        return await credential.get()

    shown = with_plugin(story, lambda clock: answer(clientCertificateData="C", clientKeyData="K"))

    assert shown == RequestCredentials(certificate="C", key="K")


def test_the_plugin_gets_the_exec_info_and_its_environment():
    async def story(credential, clock, runs):
        await credential.get()
        return runs[0]

    env = with_plugin(
        story, lambda clock: answer(token="t"), env=(("REGION", "x"),), provide_cluster_info=True
    )

    assert (env["HOME"], env["REGION"]) == ("/", "x")
    assert '"server":"https://h"' in env["KUBERNETES_EXEC_INFO"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"out": lambda clock: b"hello"}, "printed no ExecCredential"),
        ({"out": lambda clock: b"[]"}, "printed no ExecCredential"),
        ({"out": lambda clock: answer()}, "neither a token"),
        ({"out": lambda clock: answer(version="v2", token="t")}, "answered in v2"),
        ({"out": lambda clock: b"", "code": 3}, "code 3: the reason"),
        ({"out": lambda clock: b"", "error": FileNotFoundError(), "install_hint": "brew it"}, "brew it"),
    ],
)
def test_a_plugin_that_gives_no_credential_is_named_with_the_reason(options, words):
    async def story(credential, clock, runs):
        with pytest.raises(Unreachable) as caught:
            await credential.get()
        return str(caught.value)

    message = with_plugin(story, **options)

    assert words in message
    assert "'plugin'" in message


def test_a_token_file_is_read_again_when_it_is_old_or_rejected():
    tokens = iter(["one", "two", "three"])

    async def story():
        access = ClientConfig("https://h", token_file="/token")
        credential = credential_for(access, LoopClock(), lambda path: next(tokens) + "\n", {})
        first = await credential.get()
        again = await credential.get()
        await asyncio.sleep(61)
        aged = await credential.get()
        credential.invalidate(aged)
        return [shown.token for shown in (first, again, aged, await credential.get())]

    assert run_driven(story()) == ["one", "one", "two", "three"]


def test_a_token_file_that_is_just_being_replaced_does_no_harm():
    files = {"/token": "one"}

    async def story():
        access = ClientConfig("https://h", token_file="/token")

        def read(path):
            if path not in files:
                raise FileNotFoundError(path)
            return files[path]

        credential = credential_for(access, LoopClock(), read, {})
        await credential.get()
        files.clear()
        await asyncio.sleep(61)
        return (await credential.get()).token

    assert run_driven(story()) == "one"


async def test_a_plugin_is_a_program():
    spec = ExecConfig(sys.executable, ("-c", "import os; print(os.environ['SAY'])"))

    assert await run_plugin(spec, {"SAY": "hello"}) == (0, b"hello\n", b"")
