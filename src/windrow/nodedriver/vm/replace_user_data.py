"""Replacing a machine's cloud-init user data, which it reads at its next boot; above all to scrub secrets."""

from __future__ import annotations

from windrow.cloudinit.document import BadUserData
from windrow.harvester.cloud_init_secret import USER_DATA, read_cloud_init_secret, secret_data, secret_ref
from windrow.harvester.identity import is_owned_by
from windrow.harvester.problems import Problem
from windrow.kubernetes import requests
from windrow.nodedriver.config import Configuration
from windrow.nodedriver.effects import Call, Operation
from windrow.nodedriver.errors import Refused
from windrow.nodedriver.user_data import render_user_data
from windrow.nodedriver.vm.observe import find_object


def replace_user_data(configuration: Configuration, bootstrap: str, *, agent: bool = True) -> Operation[None]:
    """Merge the user's document with `bootstrap` again and put it into the machine's Secret.

    Network data, password and keys stay as they were. May be repeated; writes only where something differs.
    """
    ref = secret_ref(configuration.vm_namespace, configuration.machine_name)
    existing = yield from find_object(ref, "read the cloud-init Secret")
    if existing is None or not is_owned_by(existing, configuration.cluster_uid, configuration.machine_uid):
        raise Refused(
            Problem(
                f"machine {configuration.machine_name} has no cloud-init Secret {ref.namespace}/{ref.name} of its own",
                "there is nothing to rewrite; replace the machine if it has to start again",
            )
        )
    try:
        user_data = render_user_data(configuration, bootstrap, agent=agent)
    except BadUserData as bad:
        raise Refused(Problem(bad.message, bad.hint, "userData")) from bad
    if read_cloud_init_secret(existing).user_data == user_data:
        return
    change = {"data": {USER_DATA: secret_data(user_data)[USER_DATA]}}
    yield Call(requests.merge_patch(ref, change), f"replace the cloud-init of {configuration.machine_name}")
