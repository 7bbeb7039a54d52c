from windrow.clusters.api.kinds import CLUSTER
from windrow.clusters.api.references import list_secret_references
from windrow.clusters.sources.credentials import SecretUsers

PROD, TEST = CLUSTER.ref("prod", "fleet"), CLUSTER.ref("test", "fleet")


def a_cluster(uid, credential, **rke):
    return {
        "metadata": {"name": "x", "namespace": "fleet", "uid": uid},
        "spec": {"cloudCredentialSecretName": credential, "rkeConfig": rke},
    }


def test_a_name_that_is_part_of_another_is_not_that_other():
    users = SecretUsers()
    users.update(PROD, a_cluster("u1", "ns:cc"))
    users.update(TEST, a_cluster("u2", "ns:cc-2"))

    assert users.find("ns:cc") == [PROD]


def test_credentials_of_pools_and_secret_references_count():
    users = SecretUsers()
    selectors = [{"config": {"cloud-provider-config": "secret://ns:guest"}}]
    pools = [{"cloudCredentialSecretName": "ns:other"}]
    users.update(PROD, a_cluster("u1", "ns:cc", machinePools=pools, machineSelectorConfig=selectors))

    assert users.find("ns:other") == users.find("ns:guest") == [PROD]


def test_a_secret_of_a_cluster_concerns_its_owner():
    users = SecretUsers()
    users.update(PROD, a_cluster("u1", "ns:cc"))

    assert users.find("fleet:prod-windrow-secrets", "u1") == [PROD]


def test_a_changed_or_deleted_cluster_leaves_no_reference_behind():
    users = SecretUsers()
    users.update(PROD, a_cluster("u1", "ns:cc"))
    users.update(PROD, a_cluster("u1", "ns:new"))
    assert users.find("ns:cc") == []

    users.update(PROD, None)
    assert users.find("ns:new") == users.find("", "u1") == []


def test_faulty_specs_name_no_secret():
    users = SecretUsers()
    users.update(PROD, {"metadata": {"uid": "u1"}, "spec": {"rkeConfig": {"machinePools": ["odd"]}}})
    users.update(TEST, {"metadata": {"uid": "u2"}, "spec": {"rkeConfig": {"machineSelectorConfig": [1]}}})

    assert users.find("ns:cc") == []


def test_the_credential_for_snapshots_on_s3_counts():
    raw = a_cluster("u", "cc", etcd={"s3": {"cloudCredentialName": "backup:s3"}})

    assert list_secret_references(raw) >= {"backup:s3"}
