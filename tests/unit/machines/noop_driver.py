"""A foreign docker-machine driver: its machines are entries in the JSON file that NOOP_WORLD names.

It has a flag of every type and one for user data, config keys of its own, and nothing of Windrow. `token` is its
secret: "wrong" is rejected, and with "silent" calls block. The file may have `delay` (seconds that Create takes), `slow`
(seconds that it takes to tell its config once it has a machine), `broken` (the error of every call but the local ones),
`refuses` (why Create creates nothing), `stillborn` (Create creates a machine that never runs) and `by_name` (machines are found
by name, not by id).
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.unit.machines.driver_server import Refusal, serve

from windrow.protocols import dockermachine as wire

FLAGS = (
    wire.Flag("string", "noop-region", "where", "NOOP_REGION", "north"),
    wire.Flag("int", "noop-size", "how big", "NOOP_SIZE", 2),
    wire.Flag("bool", "noop-spot", "whether it may vanish", "NOOP_SPOT", False),
    wire.Flag("strings", "noop-tag", "words about it", "NOOP_TAG", ("a", "b")),
    wire.Flag("string", "noop-token", "the secret", "NOOP_TOKEN", ""),
    wire.Flag("string", "noop-userdata", "path of the user data", "NOOP_USERDATA", ""),
)


class Noop:
    def __init__(self) -> None:
        self.path = Path(os.environ["NOOP_WORLD"])
        self.config: dict[str, Any] = {"Region": "", "InstanceId": "", "Token": "", "Basic": "", "Tags": []}

    @contextmanager
    def world(self) -> Iterator[dict[str, Any]]:
        """The machines, for this process alone; what is done to them is written."""
        if self.config["Token"] == "silent":
            time.sleep(600)
        with self.path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            world = json.loads(self.path.read_text())
            if world.get("broken"):
                raise Refusal(world["broken"])
            if self.config["Token"] in ("", "wrong"):
                raise Refusal("401 Unauthorized: the token is not valid")
            yield world
            temporary = self.path.with_suffix(".new")
            temporary.write_text(json.dumps(world))
            temporary.replace(self.path)  # tests read it without the lock

    def mine(self, world: dict[str, Any]) -> dict[str, Any]:
        found = self.config["InstanceId"]
        if world.get("by_name"):
            names = {each["config"]["MachineName"]: key for key, each in world["machines"].items()}
            found = names.get(self.config["MachineName"], "")
            self.config["InstanceId"] = found
        machine = world["machines"].get(found)
        if machine is None:
            raise Refusal(f"machine {self.config['MachineName']} was not found")
        return machine  # type: ignore[no-any-return]

    def set_config(self, raw: bytes) -> None:
        self.config |= json.loads(raw)

    def get_config(self, _: Any) -> bytes:
        if self.config["InstanceId"]:
            time.sleep(json.loads(self.path.read_text()).get("slow", 0))
        return json.dumps(self.config).encode()

    def set_flags(self, value: Any) -> None:
        values = wire.read_options(value)
        if values["noop-size"] == 13:
            raise Refusal("size 13 is unlucky")
        token = str(values["noop-token"])
        self.config |= {
            "Region": values["noop-region"],
            "Size": values["noop-size"],
            "Spot": values["noop-spot"],
            "Tags": values["noop-tag"],
            "Token": token,
            "Basic": base64.b64encode(token.encode()).decode(),
            "UserDataFile": values["noop-userdata"],
        }

    def pre_create_check(self, _: Any) -> None:
        with self.world():
            print(f"checking with token {self.config['Token']}", flush=True)

    def create(self, _: Any) -> None:
        document = Path(self.config["UserDataFile"]).read_text()
        with self.world() as world:
            if world.get("refuses"):
                raise Refusal(world["refuses"])
            self.config["InstanceId"] = f"i-{len(world['made'])}"
            world["made"].append(self.config["MachineName"])
            delay, stillborn = world.get("delay", 0), world.get("stillborn")
            machine = {"config": dict(self.config), "document": document, "ip": "198.51.100.7"}
            # It comes to run by itself, whether anybody waits for it or not.
            machine |= {"runs_at": time.time() + delay, "state": wire.ERROR if stillborn else wire.RUNNING}
            world["machines"][self.config["InstanceId"]] = machine
        if stillborn:
            raise Refusal("no capacity in region")
        time.sleep(delay)
        with self.world() as world:
            self.mine(world)
        self.config["IPAddress"] = "198.51.100.7"

    def remove(self, _: Any) -> None:
        with self.world() as world:
            if world.get("by_name"):
                self.mine(world)
            world["machines"].pop(self.config["InstanceId"], None)

    def turn(self, state: int) -> None:
        with self.world() as world:
            self.mine(world)["state"] = state

    def state(self, _: Any) -> int:
        with self.world() as world:
            machine = self.mine(world)
        is_young = machine["state"] == wire.RUNNING and time.time() < machine["runs_at"]
        return wire.STARTING if is_young else int(machine["state"])

    def address(self, _: Any) -> str:
        with self.world() as world:
            return str(self.mine(world)["ip"])


def main() -> None:
    noop = Noop()
    serve(
        {
            "GetCreateFlags": lambda _: wire.write_flags(FLAGS),
            "SetConfigRaw": noop.set_config,
            "GetConfigRaw": noop.get_config,
            "SetConfigFromFlags": noop.set_flags,
            "PreCreateCheck": noop.pre_create_check,
            "Create": noop.create,
            "Remove": noop.remove,
            "Start": lambda _: noop.turn(wire.RUNNING),
            "Stop": lambda _: noop.turn(wire.STOPPED),
            "Restart": lambda _: noop.turn(wire.RUNNING),
            "GetState": noop.state,
            "GetIP": noop.address,
            "DriverName": lambda _: "noop",
        }
    )
