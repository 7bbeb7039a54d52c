from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.clock import LoopClock, run_driven

from windrow.apiserver.server import ApiServer
from windrow.apiserver.storage.memory import MemoryStore
from windrow.app.cluster_roles import cluster_roles, install_cluster_roles
from windrow.app.options import ServeOptions
from windrow.app.serve import RancherPresent, read_outside_access, refuse_if_rancher_present
from windrow.client.client import Client
from windrow.core.rng import Rng
from windrow.kubernetes.kubeconfig import SERVICE_ACCOUNT_DIR, BadKubeconfig
from windrow.kubernetes.objects import labels_of, name_of, new_object
from windrow.kubernetes.resources import CLUSTER_ROLE, CLUSTER_ROLE_BINDING, LEASE


def with_lease(holder: str | None) -> None:
    async def story() -> None:
        api = ApiServer(MemoryStore(), LoopClock(), Rng(1))
        client = Client(api.local())
        if holder is not None:
            spec = {"holderIdentity": holder} if holder else {}
            await client.create(LEASE, new_object(LEASE, "cattle-controllers", "kube-system", spec=spec))
        await refuse_if_rancher_present(client)

    run_driven(story())


def test_a_kubernetes_without_rancher_is_free():
    with_lease(None)


def test_a_rancher_that_has_left_is_no_hindrance():
    with_lease("")


def test_beside_a_rancher_at_work_the_manager_does_not_start():
    with pytest.raises(RancherPresent, match="a Rancher manages clusters here") as refused:
        with_lease("rancher-1")

    assert "windrow serve --state-dir DIR" in refused.value.hint


# --- in a pod -------------------------------------------------------------------------------------------------------

POD = {"KUBERNETES_SERVICE_HOST": "10.43.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_in_a_pod_the_manager_is_the_pod_s_service_account(tmp_path: Path):
    files = {f"{SERVICE_ACCOUNT_DIR}/ca.crt": "the CA", f"{SERVICE_ACCOUNT_DIR}/token": "t"}

    access = read_outside_access(ServeOptions(tmp_path, in_cluster=True, env=POD), files.__getitem__)

    assert (access.server, access.ca) == ("https://10.43.0.1:443", "the CA")
    assert access.token_file == f"{SERVICE_ACCOUNT_DIR}/token"  # read again, as the kubelet renews it


def test_outside_a_pod_it_is_told_that_there_is_no_pod(tmp_path: Path):
    with pytest.raises(BadKubeconfig, match="this is not a pod"):
        read_outside_access(ServeOptions(tmp_path, in_cluster=True))


# --- roles for people -----------------------------------------------------------------------------------------------


def test_roles_that_are_as_they_should_be_are_read_and_not_written(caplog: pytest.LogCaptureFixture):
    async def story() -> list[str]:
        api = ApiServer(MemoryStore(), LoopClock(), Rng(1), authorize="rbac")
        await install_cluster_roles(Client(api.local()))
        admin = Client(api.local())
        names = [name_of(role) for role in cluster_roles()]
        rules = [
            {
                "apiGroups": [CLUSTER_ROLE.group],
                "resources": ["clusterroles"],
                "resourceNames": names,
                "verbs": ["get"],
            }
        ]
        await admin.create(CLUSTER_ROLE, {**new_object(CLUSTER_ROLE, "reader"), "rules": rules})
        role = {"apiGroup": CLUSTER_ROLE.group, "kind": "ClusterRole", "name": "reader"}
        subject = {"apiGroup": CLUSTER_ROLE.group, "kind": "User", "name": "manager"}
        binding = new_object(CLUSTER_ROLE_BINDING, "reader")
        await admin.create(CLUSTER_ROLE_BINDING, {**binding, "roleRef": role, "subjects": [subject]})
        await install_cluster_roles(Client(api.local("manager", ())))
        warned_before = list(caplog.messages)
        await admin.patch(CLUSTER_ROLE.ref(names[0]), {"rules": []})
        await install_cluster_roles(Client(api.local("manager", ())))
        assert warned_before == []
        return caplog.messages

    [warned] = run_driven(story())
    assert "ClusterRole windrow-view is not applied" in warned


def test_a_role_that_was_changed_is_mended_by_who_may():
    async def story() -> None:
        api = ApiServer(MemoryStore(), LoopClock(), Rng(1))
        client = Client(api.local())
        for change in ({"rules": []}, {"metadata": {"labels": None}}):
            await install_cluster_roles(client)
            for wanted in cluster_roles():
                await client.patch(CLUSTER_ROLE.ref(name_of(wanted)), change)
            await install_cluster_roles(client)
            for wanted in cluster_roles():
                found = await client.get(CLUSTER_ROLE.ref(name_of(wanted)))
                assert (found["rules"], labels_of(found)) == (wanted["rules"], labels_of(wanted))

    run_driven(story())
