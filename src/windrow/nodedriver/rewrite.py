"""Replacing what a machine reads at its next start, above all to scrub secrets from it."""

from __future__ import annotations

from windrow.cloudinit.document import BadUserData
from windrow.harvester.cloud_init_secret import USER_DATA, read_cloud_init_secret, secret_data, secret_ref
from windrow.harvester.identity import is_marked
from windrow.kubernetes import requests
from windrow.nodedriver.configuration import Configuration
from windrow.nodedriver.observe import find
from windrow.nodedriver.problems import Problem, Refused
from windrow.nodedriver.steps import Call, Talk
from windrow.nodedriver.user_data import render_user_data


def rewrite(configuration: Configuration, bootstrap: str, *, agent: bool = True) -> Talk[None]:
    """Merge the user's document with `bootstrap` anew and put it into the machine's Secret.

    Network data, password and keys stay as they were. May be repeated; writes only where something differs.
    """
    ref = secret_ref(configuration.vm_namespace, configuration.machine_name)
    there = yield from find(ref, "see what the machine reads at its next start")
    if there is None or not is_marked(there, configuration.cluster_uid, configuration.machine_uid):
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
    if read_cloud_init_secret(there).user_data == user_data:
        return
    change = {"data": {USER_DATA: secret_data(user_data)[USER_DATA]}}
    yield Call(requests.merge_patch(ref, change), f"replace the cloud-init of {configuration.machine_name}")
