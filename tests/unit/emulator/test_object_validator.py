"""Refusals of volumes, images, classes, key pairs, networks and templates, word by word: Harvester 1.8.1."""

from __future__ import annotations

import pytest

from windrow.core.formats.json import dumps, loads
from windrow.emulator import kinds
from windrow.emulator.admission import claims, images, networks, object_validator, storage_classes
from windrow.emulator.preload import PLACEHOLDER_KEY
from windrow.emulator.release import Release
from windrow.emulator.system import render_storage_class
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import new_object
from windrow.kubernetes.resources import SECRET

from .objects import a_claim, a_vm, an_image, listers_of

PREFIX = 'admission webhook "validator.harvesterhci.io" denied the request: '


def text_of(check, *arguments):
    """The text of the denial without its prefix, and its code."""
    with pytest.raises(KubeError) as denial:
        check(*arguments)
    refusal = denial.value
    return refusal.message.removeprefix(PREFIX), refusal.status


# --- volumes ------------------------------------------------------------------------------------------------------


def test_a_claim_in_use_by_a_vm_cannot_be_deleted():
    claim = a_claim("m-1-disk-0")
    assert claims.check_claim_removal(claim, listers_of(claim)) is None

    text = "can not delete the volume m-1-disk-0 which is currently attached to VM: ns/m-1"
    assert (text, 409) == text_of(claims.check_claim_removal, claim, listers_of(claim, a_vm()))

    owned = a_claim("other")
    owned["metadata"]["ownerReferences"] = [{"kind": "VirtualMachine", "name": "m-1"}]
    text = "can not delete the volume other which is currently owned by these VMs: m-1"
    assert (text, 422) == text_of(claims.check_claim_removal, owned, listers_of(owned, a_vm()))


def test_a_volume_of_a_vm_that_is_being_deleted_may_go():
    claim, vm = a_claim("m-1-disk-0"), a_vm()
    vm["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"

    assert claims.check_claim_removal(claim, listers_of(claim, vm)) is None


def test_a_golden_image_s_claim_stays_while_its_image_is_there():
    claim = a_claim("golden")
    claim["metadata"]["annotations"] = {"harvesterhci.io/goldenImage": "true"}
    assert claims.check_claim_removal(claim, listers_of(claim)) is None

    image = an_image("golden")
    assert text_of(claims.check_claim_removal, claim, listers_of(claim, image)) == (
        "can not delete golden image PVC",
        422,
    )

    plain = a_claim("golden")
    assert text_of(claims.check_claim_update, plain, claim, listers_of()) == (
        "can not remove golden image annotation from PVC ns/golden",
        422,
    )


def test_a_claim_that_is_exported_cannot_be_deleted():
    claim = a_claim("c")
    image = an_image("i", sourceType="export-from-volume", pvcName="c", pvcNamespace="ns")

    text = "can not delete volume c which is exporting for image ns/i"
    assert (text, 422) == text_of(claims.check_claim_removal, claim, listers_of(claim, image))


@pytest.mark.parametrize("name", ["longhorn-static", "vmstate-persistence"])
def test_two_classes_are_harvesters_own(name):
    claim = a_claim("c")
    claim["spec"]["storageClassName"] = name
    text = f"can not create volume with the reserved storage class {name}"
    assert (text, 422) == text_of(claims.check_claim, claim, listers_of())

    claim["spec"]["storageClassName"] = "gone"
    assert claims.check_claim(claim, listers_of()) is None


def test_a_claim_grows_while_a_vm_runs_only_where_its_provisioner_can():
    def sized(size, provisioner="driver.longhorn.io"):
        claim = a_claim("m-1-disk-0")
        claim["spec"] = {"resources": {"requests": {"storage": size}}}
        claim["metadata"]["annotations"] = {"volume.kubernetes.io/storage-provisioner": provisioner}
        return claim

    lvm = "lvm.driver.harvesterhci.io"
    assert claims.check_claim_update(sized("2Gi"), sized("1Gi"), listers_of(a_vm())) is None
    assert claims.check_claim_update(sized("1Gi", lvm), sized("1Gi", lvm), listers_of(a_vm())) is None
    text = "PVC_EXPAND: pvc ns/m-1-disk-0 is not online expandable with its provider"
    change = (sized("2Gi", lvm), sized("1Gi", lvm), listers_of(a_vm()))
    assert text_of(claims.check_claim_update, *change) == (text, 422)


# --- images ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "text", "code"),
    [
        ({"displayName": ""}, "displayName is required", 422),
        ({"url": ""}, "url is required", 422),
        ({"url": ":x"}, 'url is invalid: parse ":x": missing protocol scheme', 422),
        ({"url": "http://a/%zz"}, 'url is invalid: parse "http://a/%zz": invalid URL escape "%zz"', 422),
        ({"sourceType": "upload"}, 'url should be empty when image source type is "upload"', 422),
        (
            {"sourceType": "export-from-volume", "url": ""},
            'pvcNamespace is required when image source type is "export-from-volume"',
            422,
        ),
        (
            {"sourceType": "export-from-volume", "url": "", "pvcName": "gone", "pvcNamespace": "ns"},
            'failed to get pvc gone/ns, error: persistentvolumeclaims "gone" not found',
            422,
        ),
        (
            {"sourceType": "clone", "url": "", "backend": "backingimage"},
            'sourceParameters is required when image source type is "clone"',
            422,
        ),
    ],
)
def test_an_image_requires_a_valid_source(spec, text, code):
    assert (text, code) == text_of(images.check_image, an_image("i", **spec), None, listers_of())


@pytest.mark.parametrize(
    ("release", "labels"), [("v1.8.2", {"harvesterhci.io/imageDisplayName": "Ubuntu 24.04"}), ("v1.8.1", {})]
)
def test_an_image_is_labelled_at_creation_since_1_8_2_be_its_name_a_label_value_or_not(release, labels):
    image = an_image("i", displayName="Ubuntu 24.04")
    default = render_storage_class("main", {"storageclass.kubernetes.io/is-default-class": "true"})
    images.mutate_image(image, None, listers_of(default), Release.of(release))
    assert image["metadata"].get("labels", {}) == labels


@pytest.mark.parametrize("url", ["ftp://x/y", "word", "http://x:80/y?z=%"])
def test_whatever_go_parses_is_a_url(url):
    assert images.check_image(an_image("i", url=url), None, listers_of()) is None


def test_display_names_are_unique_and_fixed():
    assert images.check_image(an_image("i", displayName="no label!"), None, listers_of()) is None

    twin = an_image("a")
    twin["metadata"]["labels"] = {"harvesterhci.io/imageDisplayName": "a"}
    request = (an_image("i", displayName="a"), None, listers_of(twin))
    assert text_of(images.check_image, *request) == ("A resource with the same name exists", 409)

    moved = (an_image("i", displayName="b"), an_image("i", displayName="a"), listers_of())
    assert text_of(images.check_image, *moved) == ("displayName cannot be modified", 422)


def test_an_image_takes_the_parameters_of_its_class_and_names_it():
    default = render_storage_class(
        "main",
        {"storageclass.kubernetes.io/is-default-class": "true"},
        numberOfReplicas="2",
        diskSelector="ssd",
    )
    image = an_image("i", storageClassParameters={"numberOfReplicas": "1"})

    images.mutate_image(image, None, listers_of(default), Release())

    assert image["spec"]["storageClassParameters"] == {
        "diskSelector": "ssd",
        "migratable": "true",
        "numberOfReplicas": "2",
        "staleReplicaTimeout": "30",
    }
    assert image["spec"]["targetStorageClassName"] == "main"
    assert image["metadata"]["annotations"] == {"harvesterhci.io/storageClassName": "main"}


def test_an_image_without_any_default_class_is_refused():
    text = "no default storageClass found for backingImage"
    message, code = text_of(images.mutate_image, an_image("i"), None, listers_of(), Release())
    assert (message.endswith(text), code) == (True, 500)


def test_an_image_in_use_cannot_be_deleted():
    claim = a_claim("c")
    claim["spec"]["storageClassName"] = "lh-jammy"
    image = an_image("jammy", "lh-jammy", backend="backingimage")

    text, code = text_of(images.check_image_removal, image, listers_of(claim))

    assert text == "Cannot delete image ns/jammy: being used by volume ns/c"
    assert code == 422


# --- classes, and Secrets of classes -----------------------------------------------------------------------------------

DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (
            render_storage_class("b", DEFAULT),
            "default storage class a already exists, please reset it first before set b as default",
        ),
        (
            render_storage_class("b", dataLocality="strict-local"),
            "storage class with strict-local data locality is not allowed",
        ),
        (render_storage_class("b", encrypted="maybe"), "invalid value for `encrypted`"),
        (
            render_storage_class("b", {"cdi.harvesterhci.io/storageProfileCloneStrategy": "fast"}),
            "invalid clone strategy fast in annotation cdi.harvesterhci.io/storageProfileCloneStrategy, valid values: "
            "copy, snapshot, csi-clone",
        ),
    ],
)
def test_a_class_is_refused_with_harvesters_words(raw, text):
    listers = listers_of(render_storage_class("a", DEFAULT))

    assert text_of(storage_classes.check_class, raw, None, listers) == (text, 422)


SECRET_KEYS = {
    f"csi.storage.k8s.io/{kind}-secret-{part}": value
    for kind in ("provisioner", "node-stage", "node-publish")
    for part, value in (("name", "key"), ("namespace", "ns"))
}


def test_an_encrypted_class_has_a_secret_that_stays():
    raw = render_storage_class("b", encrypted="true", **SECRET_KEYS)
    assert text_of(storage_classes.check_class, raw, None, listers_of()) == ("secret ns/key not found", 422)

    secret = new_object(SECRET, "key", "ns")
    text = "secret ns/key is not a valid encryption secret, missing field: CRYPTO_KEY_CIPHER"
    assert text_of(storage_classes.check_class, raw, None, listers_of(secret)) == (text, 422)

    text = "Secret is used by encrypted storage classes: [b]"
    assert text_of(claims.check_secret_removal, secret, listers_of(raw)) == (text, 422)


def test_reserved_classes_and_those_of_images_stay():
    reserved = render_storage_class("b", {"harvesterhci.io/is-reserved-storageclass": "true"})
    text = "storage class b is reserved by Harvester and can't be deleted"
    assert text_of(storage_classes.check_class_removal, reserved, listers_of()) == (text, 422)

    of_copies, made_from = an_image("i", "b"), an_image("j", "lh-j")
    made_from["metadata"]["annotations"] = {"harvesterhci.io/storageClassName": "b"}
    storage_classes.check_class_removal(
        render_storage_class("b"), listers_of(of_copies)
    )  # it goes with the image
    listers = listers_of(of_copies, made_from)
    text = "storage class b is used by virtual machine images: [j]"
    assert text_of(storage_classes.check_class_removal, render_storage_class("b"), listers) == (text, 422)


# --- key pairs -----------------------------------------------------------------------------------------------------------


def a_pair(key):
    return new_object(kinds.KEY_PAIR, "k", "ns", spec={"publicKey": key})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("", "public key is required"),
        ("ssh-rsa nonsense", "key is not in valid OpenSSH public key format"),
        ("-----BEGIN PUBLIC KEY-----", "key is not in valid OpenSSH public key format"),
    ],
)
def test_a_key_pair_holds_an_openssh_key(key, text):
    assert (text, 422) == text_of(object_validator.check_key_pair, a_pair(key))


@pytest.mark.parametrize("form", ["{}", "# mine\n{}", 'command="a b",no-pty {}', "\n\n  {} me@home"])
def test_lines_of_authorized_keys_are_keys(form):
    assert object_validator.check_key_pair(a_pair(form.format(PLACEHOLDER_KEY))) is None


def test_the_word_before_a_key_does_not_count():
    _, encoded, *_ = PLACEHOLDER_KEY.split()
    assert object_validator.check_key_pair(a_pair(f"any-word {encoded}")) is None


# --- networks ------------------------------------------------------------------------------------------------------------

READY = {"conditions": [{"type": "ready", "status": "True"}]}
MGMT = new_object(kinds.CLUSTER_NETWORK, "mgmt", status=READY)
CONFIG = {"name": "n", "type": "bridge", "bridge": "mgmt-br", "vlan": 5}


def a_network(annotations=None, **config):
    text = dumps({**CONFIG, **config}).decode()
    return new_object(kinds.NAD, "n", "ns", annotations=annotations, spec={"config": text})


def created(nad, *objects):
    networks.mutate_network(nad, None, listers_of(MGMT, *objects))
    networks.check_network(nad, None, listers_of(MGMT, *objects))
    return nad


ROUTE = "network.harvesterhci.io/route"


@pytest.mark.parametrize(
    ("nad", "why"),
    [
        (a_network(vlan=5000), "vlan 5000 is out of range [0 .. 4094]"),
        (a_network(bridge="mgmt"), "the bridge name mgmt does not include suffix -br"),
        (a_network(bridge="-br"), "the length of bridge name -br is less than 3"),
        (
            a_network(bridge="thirteen-long-br"),
            "the length of the bridge name thirteen-long-br can't be more than 15",
        ),
        (a_network(bridge="gone-br"), 'clusternetworks.network.harvesterhci.io "gone" not found'),
        (
            a_network(vlan=0, vlanTrunk=[{"minID": 9, "maxID": 3}]),
            "minID 9 is greater than maxID 3 in trunk parameter",
        ),
        (a_network({ROUTE: '{"mode":"odd"}'}), "unknown mode odd"),
        (
            a_network({ROUTE: '{"mode":"manual","cidr":"10.0.0.0","gateway":"10.0.0.1"}'}),
            "the CIDR 10.0.0.0 is invalid",
        ),
    ],
)
def test_a_network_without_sense_is_an_internal_error(nad, why):
    text, code = text_of(created, nad)

    assert text.endswith(f"Internal error occurred: can't create nad ns/n because {why}")
    assert code == 500


def changed(nad, old, *objects):
    networks.mutate_network(nad, old, listers_of(MGMT, *objects))
    return nad["metadata"]


NETWORK = "network.harvesterhci.io"


def test_the_webhook_labels_a_changed_network_and_leaves_a_new_one_to_the_controller():
    assert "labels" not in created(a_network())["metadata"]
    assert changed(a_network(vlan=6), a_network())["labels"] == {
        f"{NETWORK}/clusternetwork": "mgmt",
        f"{NETWORK}/type": "L2VlanNetwork",
        f"{NETWORK}/vlan-id": "6",
        f"{NETWORK}/ready": "true",
    }


def test_a_route_that_the_network_tells_is_outdated_by_another_vlan():
    told = '{"mode":"auto","gateway":"10.0.0.1","cidr":"10.0.0.0/24","others":1}'
    by_hand = '{"mode":"manual","cidr":"10.0.0.0/24","gateway":"10.0.0.1"}'

    def route(new, old, **config):
        return changed(a_network({ROUTE: new}, **config), a_network({ROUTE: old}))["annotations"].get(ROUTE)

    outdated = '{"mode":"auto","cidr":"10.0.0.0/24","gateway":"10.0.0.1","outdated":true}'
    assert route(told, told, vlan=6) == outdated
    assert route(told, by_hand) == outdated
    assert route(told, told) == told
    assert route(by_hand, by_hand, vlan=6) == by_hand
    assert route(told, told, vlan=0) is None


def test_a_bridge_of_no_cluster_network_is_no_change():
    text, code = text_of(changed, a_network(bridge="gone-br"), a_network())
    assert text.endswith(
        'can\'t update nad ns/n because clusternetworks.network.harvesterhci.io "gone" not found'
    )
    assert code == 500


def test_a_definition_is_decoded_before_its_configuration():
    nad = new_object(kinds.NAD, "n", "ns", spec={"config": {}})
    text, code = text_of(created, nad)
    assert text.endswith(
        "json: cannot unmarshal object into Go struct field NetworkAttachmentDefinitionSpec.spec.config of type string"
    )
    assert code == 500


def test_names_of_a_configuration_are_read_in_any_capitals_and_kept_as_they_are_written():
    config = loads(created(a_network(VLAN=7, mtu=9000))["spec"]["config"])
    assert (config["VLAN"], config["mtu"]) == (7, 1500)
    text, _ = text_of(created, a_network(VLAN=5000))
    assert text.endswith("vlan 5000 is out of range [0 .. 4094]")


def test_a_vlan_is_a_number():
    text, _ = text_of(created, a_network(vlan="5"))

    assert text.endswith("json: cannot unmarshal string into Go struct field NetConf.vlan of type int")


def test_the_bounds_of_a_trunk_are_numbers():
    text, code = text_of(created, a_network(vlan=0, vlanTrunk=[{"minID": "9", "maxID": 3}]))
    assert text.endswith("cannot unmarshal string into Go struct field VlanTrunk.vlanTrunk.minID of type int")
    assert code == 500


def test_a_network_has_the_mtu_of_its_cluster_network():
    config = loads(created(a_network(mtu=9000))["spec"]["config"])
    assert (config["mtu"], config["vlan"]) == (1500, 5)
    assert "mtu" not in loads(created(a_network())["spec"]["config"])


def test_a_network_in_use_cannot_be_deleted_nor_its_bridge_changed():
    listers = listers_of(a_vm())
    nad = listers.networks["ns", "net"]
    needed = "which must remove the related networks and interfaces"
    text, _ = text_of(networks.check_network_removal, nad, listers)
    assert text.endswith(f"can't delete nad ns/net because it's still used by VM(s) ns/m-1 {needed}")

    vmi = new_object(kinds.VMI, "m-1", "ns", spec={"networks": [{"multus": {"networkName": "net"}}]})
    text, _ = text_of(networks.check_network_removal, nad, listers_of(vmi))
    assert text.endswith("it's still used by VM(s) ns/m-1 which must be stopped at first")

    text, _ = text_of(networks.check_network, a_network(bridge="other-br"), a_network(), listers_of(MGMT))
    assert text.endswith("nad bridge name can't be changed from mgmt-br to other-br")


# --- quotas and templates -------------------------------------------------------------------------------------------------


def test_harvesters_quota_has_one_name_and_no_negative_size():
    quota = new_object(kinds.SNAPSHOT_QUOTA, "other", "ns")
    assert text_of(object_validator.check_snapshot_quota, quota, None) == (
        "name must be default-resource-quota",
        422,
    )
    sizes = {"snapshotLimit": {"vmTotalSnapshotSizeQuota": {"m-1": -1}}}
    quota = new_object(kinds.SNAPSHOT_QUOTA, "default-resource-quota", "ns", spec=sizes)
    text = "must be greater than or equal to 0"
    assert text_of(object_validator.check_snapshot_quota, quota, None) == (text, 422)


def test_a_template_version_is_of_a_template_and_has_limits():
    template = new_object(kinds.TEMPLATE, "t", "ns")
    spec = {"templateId": "ns/t", "vm": {"spec": {"template": {"spec": {"domain": {}}}}}}
    version = new_object(kinds.TEMPLATE_VERSION, "v", "ns", spec=spec)

    text = 'virtualmachinetemplates.harvesterhci.io "t" not found'
    assert text_of(object_validator.check_template_version, version, listers_of()) == (text, 422)

    text = "CPU and Memory limits are required fields, but are missing from the input"
    assert text_of(object_validator.check_template_version, version, listers_of(template)) == (text, 422)

    template["spec"] = {"defaultVersionId": "ns/v"}
    text = "Cannot delete the default templateVersion"
    check = object_validator.check_template_version_removal
    assert text_of(check, version, listers_of(template)) == (text, 400)
