"""Merging a cluster into a kubeconfig of others: their entries stay as they are written, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.cli.kubeconfig_merge import (
    NameTaken,
    Origin,
    list_origins,
    merge_kubeconfig,
    remove_from_kubeconfig,
)
from windrow.core.formats.yaml import NotYaml, dump, load
from windrow.kubernetes.kubeconfig import BadKubeconfig, ClientConfig, parse_kubeconfig, render_kubeconfig

ORIGIN = Origin("fleet-default/prod", "u-1")
GUEST = render_kubeconfig(ClientConfig("https://10.0.0.1:6443", token="s3cret"), "default")
OTHERS = """# mine
apiVersion: v1
kind: Config
current-context: "lab"   # where I work
preferences: {}
clusters:
# the lab
- cluster:
    server: https://lab:6443
  name: lab
# comment at the end
contexts:
  - name: lab
    context: {cluster: lab, user: me}

users:
- name: me
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: 0755
"""


def without_ours(text: str) -> str:
    """The lines that are not of the entries called prod."""
    return remove_from_kubeconfig(text, "prod").text


def test_what_is_merged_is_read_as_a_context_of_the_clusters_name():
    merged = merge_kubeconfig("", GUEST, "prod", ORIGIN)

    config = parse_kubeconfig(merged.text)
    assert (config.server, config.token) == ("https://10.0.0.1:6443", "s3cret")
    assert merged.contexts == ("prod",)
    assert list_origins(merged.text) == {"prod": ORIGIN}


def test_entries_of_others_and_the_current_context_stay_as_they_are_written():
    merged = merge_kubeconfig(OTHERS, GUEST, "prod", ORIGIN).text

    lines = iter(merged.splitlines())
    assert all(line in lines for line in OTHERS.splitlines())  # each, and in this order
    assert load(merged)["current-context"] == "lab"
    assert parse_kubeconfig(merged, "prod").server == "https://10.0.0.1:6443"
    assert parse_kubeconfig(OTHERS.replace("exec:", "x:"), "lab").server == "https://lab:6443"


def test_a_removal_gives_back_the_text_that_was_there():
    assert without_ours(merge_kubeconfig(OTHERS, GUEST, "prod", ORIGIN).text) == OTHERS


def test_merging_again_brings_the_server_up_to_date_and_changes_nothing_else():
    before = merge_kubeconfig(OTHERS, GUEST, "prod", ORIGIN).text
    guest = GUEST.replace("10.0.0.1", "10.0.0.2")

    after = merge_kubeconfig(before, guest, "prod", ORIGIN).text

    assert after == before.replace("10.0.0.1", "10.0.0.2")
    assert merge_kubeconfig(after, guest, "prod", ORIGIN).text == after


def test_a_context_becomes_current_where_it_is_asked_for_or_there_was_none():
    asked = merge_kubeconfig(OTHERS, GUEST, "prod", ORIGIN, set_current=True).text
    fresh = merge_kubeconfig("clusters: []\nusers: null\n", GUEST, "prod", ORIGIN).text

    assert load(asked)["current-context"] == load(fresh)["current-context"] == "prod"
    assert "# where I work" in asked
    assert load(remove_from_kubeconfig(asked, "prod").text)["current-context"] == ""


@pytest.mark.parametrize("key", ["cluster", "user", "context"])
def test_a_name_that_another_has_is_refused_and_named(key: str):
    theirs = dump({f"{key}s": [{"name": "prod", key: {}}]})

    with pytest.raises(NameTaken, match=f"it has a {key} 'prod' that Windrow did not write"):
        merge_kubeconfig(theirs, GUEST, "prod", ORIGIN)


def test_a_cluster_of_the_same_name_with_another_uid_is_refused():
    before = merge_kubeconfig("", GUEST, "prod", Origin("fleet-default/prod", "u-2")).text

    with pytest.raises(NameTaken, match="of Cluster fleet-default/prod with another uid"):
        merge_kubeconfig(before, GUEST, "prod", ORIGIN)


def test_a_text_in_braces_is_written_anew_and_says_the_same():
    theirs = (
        '{"clusters": [{"name": "lab", "cluster": {"server": "https://lab"}}], "contexts": [], "users": null}'
    )

    merged = load(merge_kubeconfig(theirs, GUEST, "prod", ORIGIN).text)

    assert [one["name"] for one in merged["clusters"]] == ["prod", "lab"]


def test_only_what_windrow_added_is_removed_and_of_that_what_is_named():
    theirs = merge_kubeconfig(OTHERS, GUEST, "a", ORIGIN).text
    both = merge_kubeconfig(theirs, GUEST, "b", ORIGIN).text

    assert remove_from_kubeconfig(both, "fleet-default/prod", "b").contexts == ("b",)
    assert set(remove_from_kubeconfig(both, "fleet-default/prod").contexts) == {"a", "b"}
    for name in ("lab", "other/prod", "pro"):
        assert remove_from_kubeconfig(both, name) == type(remove_from_kubeconfig(both, name))(both, ())


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "just text",
        "clusters: 7",
        "clusters: [1]",
        "kind: Secret",
        "a: 1\na: 2\n",
        "a: &a [*a]",
        "x: " + "[" * 2000,
        "--- {}\n--- {}\n",
        "\x00",
    ],
)
def test_a_file_that_is_no_kubeconfig_is_refused_without_quoting_it(text: str):
    with pytest.raises(BadKubeconfig) as refused:
        merge_kubeconfig(text, GUEST, "prod", ORIGIN)
    assert "just" not in str(refused.value)


def says(text: str, document: object) -> bool:
    try:
        return bool(load(text) == document)
    except NotYaml:
        return False


NAMES = st.text("ab-:#'\" \n", min_size=1, max_size=6)
ENTRIES = st.lists(NAMES, unique=True, max_size=3)


@given(
    names=ENTRIES,
    current=NAMES,
    indent=st.sampled_from(["", "  "]),
    end=st.sampled_from(["", "\n", "\n# end\n"]),
)
def test_whatever_others_wrote_is_said_afterwards_as_before(
    names: list[str], current: str, indent: str, end: str
):
    document = {
        "current-context": current,
        **{
            f"{key}s": [{"name": name, key: {"x": name}} for name in names]
            for key in ("context", "user", "cluster")
        },
    }
    text = dump(document).replace("\n- ", f"\n{indent}- ").replace("\n  ", f"\n{indent}  ").rstrip("\n") + end
    if not says(text, document):
        return  # a name of several lines, moved

    merged = load(merge_kubeconfig(text, GUEST, "prod", ORIGIN).text)

    for key in ("contexts", "users", "clusters"):
        assert merged[key][1:] == document[key]
    gone = load(without_ours(merge_kubeconfig(text, GUEST, "prod", ORIGIN).text))
    assert {key: gone[key] or [] for key in document} == document
