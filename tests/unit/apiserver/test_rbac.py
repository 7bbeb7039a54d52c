"""RBAC: decisions, messages, reviews, escalation (reference/05 §7.5)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from windrow.apiserver.rbac import RbacAuthorizer, rule_allows
from windrow.apiserver.request.authn import UserInfo
from windrow.apiserver.request.info import RequestInfo
from windrow.apiserver.server import ApiServer
from windrow.client.client import Client
from windrow.kubernetes.errors import Forbidden, Invalid
from windrow.kubernetes.objects import uid_of
from windrow.kubernetes.resources import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    NAMESPACE,
    NODE,
    POD,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
    ApiResource,
)

WIDGET = ApiResource("example.io", "v1", "Widget", "widgets")


@pytest.fixture
def guarded(a_server: Callable[..., ApiServer], widget_crd: Any) -> ApiServer:
    return a_server(authorize="rbac", crds=[widget_crd()])


async def grant(
    server: ApiServer, *rules: dict[str, Any], user: str = "alice", namespace: str = "default"
) -> None:
    admin = server.local()
    kind, binding = (ROLE, ROLE_BINDING) if namespace else (CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
    await admin.create(kind, {"metadata": {"name": "r"}, "rules": list(rules)}, namespace)
    raw = {
        "metadata": {"name": "b"},
        "roleRef": {"kind": kind.kind, "name": "r"},
        "subjects": [{"kind": "User", "name": user}],
    }
    await admin.create(binding, raw, namespace)


def rule(verbs: str, *resources: str, group: str = "", **rest: Any) -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": verbs.split(), **rest}


async def message(coroutine: Any) -> str:
    with pytest.raises(Forbidden) as raised:
        await coroutine
    return raised.value.message


async def test_a_403_names_user_verb_resource_and_namespace(guarded: ApiServer) -> None:
    alice = guarded.local("alice", ())

    assert await message(alice.get(WIDGET.ref("w", "default"))) == (
        'widgets.example.io "w" is forbidden: User "alice" cannot get resource "widgets" in API group "example.io" '
        'in the namespace "default"'
    )
    assert await message(alice.list(NODE)) == (
        'nodes is forbidden: User "alice" cannot list resource "nodes" in API group "" at the cluster scope'
    )
    assert await message(alice.patch(WIDGET.ref("w", "default"), {}, "status")) == (
        'widgets.example.io "w" is forbidden: User "alice" cannot patch resource "widgets/status" in API group '
        '"example.io" in the namespace "default"'
    )


async def test_a_refusal_hides_whether_the_object_is_there(guarded: ApiServer) -> None:
    assert "cannot get" in await message(
        guarded.local("alice", ()).get(CONFIG_MAP.ref("not-there", "default"))
    )


async def test_a_role_holds_in_its_namespace_only(guarded: ApiServer) -> None:
    await grant(guarded, rule("list", "configmaps"))
    alice = guarded.local("alice", ())

    await alice.list(CONFIG_MAP, "default")

    await message(alice.list(CONFIG_MAP, "kube-system"))
    await message(alice.list(CONFIG_MAP))


async def test_a_cluster_binding_holds_everywhere(guarded: ApiServer) -> None:
    await grant(guarded, rule("list", "*", group="*"), namespace="")
    alice = guarded.local("alice", ())

    await alice.list(CONFIG_MAP)
    await alice.list(WIDGET, "default")


async def test_names_in_a_rule_narrow_it(guarded: ApiServer) -> None:
    await grant(guarded, rule("get watch list", "configmaps", resourceNames=["mine"]))
    await guarded.local().create(CONFIG_MAP, {"metadata": {"name": "mine"}}, "default")
    alice = guarded.local("alice", ())

    await alice.get(CONFIG_MAP.ref("mine", "default"))
    async with alice.watch(CONFIG_MAP, "default", fields="metadata.name=mine"):
        pass

    await message(alice.get(CONFIG_MAP.ref("other", "default")))
    await message(alice.list(CONFIG_MAP, "default"))


async def test_a_subresource_is_a_right_of_its_own(guarded: ApiServer) -> None:
    await grant(guarded, rule("patch", "widgets/status", group="example.io"))
    await guarded.local().create(WIDGET, {"metadata": {"name": "w"}, "spec": {"size": 1}}, "default")
    alice = guarded.local("alice", ())

    await alice.patch(WIDGET.ref("w", "default"), {"status": {"phase": "up"}}, "status")

    await message(alice.patch(WIDGET.ref("w", "default"), {"spec": {"size": 2}}))


async def test_a_service_account_is_a_subject(guarded: ApiServer) -> None:
    admin = guarded.local()
    subject = {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
    raw = {
        "metadata": {"name": "b"},
        "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [subject],
    }
    await admin.create(ROLE_BINDING, raw, "default")

    await guarded.local("system:serviceaccount:default:robot", ()).list(CONFIG_MAP, "default")

    await message(guarded.local("system:serviceaccount:kube-system:robot", ()).list(CONFIG_MAP, "default"))


async def test_a_binding_to_a_role_that_is_not_there_grants_nothing_and_hides_no_other(
    guarded: ApiServer,
) -> None:
    roles = (CLUSTER_ROLE.ref("absent"), ROLE.ref("absent"), ROLE.ref("r"), ROLE.ref("default/r"))
    for number, role in enumerate(roles):
        raw = {
            "metadata": {"name": f"a-{number}"},
            "roleRef": {"kind": role.kind.kind, "name": role.name},
            "subjects": [{"kind": "User", "name": "alice"}],
        }
        for kind, namespace in ((CLUSTER_ROLE_BINDING, ""), (ROLE_BINDING, "default")):
            await guarded.local().create(kind, raw, namespace)
    await grant(guarded, rule("list", "configmaps"))
    alice = guarded.local("alice", ())

    await alice.list(CONFIG_MAP, "default")

    await message(alice.list(SECRET, "default"))
    await message(alice.list(CONFIG_MAP))


async def test_a_binding_without_a_role_is_invalid_for_who_may_grant_nothing(guarded: ApiServer) -> None:
    await grant(guarded, rule("create", "rolebindings", group=ROLE.group))

    with pytest.raises(Invalid, match="roleRef"):
        await guarded.local("alice", ()).create(ROLE_BINDING, {"metadata": {"name": "x"}}, "default")


async def test_a_user_cannot_grant_rules_that_he_does_not_hold(guarded: ApiServer) -> None:
    await grant(guarded, rule("create", "rolebindings", "roles", group=ROLE.group), rule("get", "configmaps"))
    alice = guarded.local("alice", ())
    to_all = {
        "metadata": {"name": "x"},
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [],
    }

    await alice.create(ROLE, {"metadata": {"name": "mine"}, "rules": [rule("get", "configmaps")]}, "default")
    text = await message(
        alice.create(ROLE, {"metadata": {"name": "y"}, "rules": [rule("get", "secrets")]}, "default")
    )
    bound = await message(alice.create(ROLE_BINDING, to_all, "default"))

    assert (
        'user "alice" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held:'
        in text
    )
    assert '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}' in text
    assert "not currently held" in bound


async def test_verb_bind_allows_granting_that_role(guarded: ApiServer) -> None:
    await grant(
        guarded,
        rule("create", "rolebindings", group=ROLE.group),
        rule("bind", "clusterroles", group=ROLE.group, resourceNames=["view"]),
    )
    raw = {"metadata": {"name": "x"}, "roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": []}

    await guarded.local("alice", ()).create(ROLE_BINDING, raw, "default")


async def test_an_aggregated_role_gathers_by_label(guarded: ApiServer) -> None:
    admin = guarded.local()
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    rules = [rule("list", "widgets", group="example.io")]
    await admin.create(CLUSTER_ROLE, {"metadata": {"name": "widgets-view", "labels": labels}, "rules": rules})
    subject = {"kind": "User", "name": "alice"}
    raw = {
        "metadata": {"name": "b"},
        "roleRef": {"kind": "ClusterRole", "name": "view"},
        "subjects": [subject],
    }
    await admin.create(ROLE_BINDING, raw, "default")

    await guarded.local("alice", ()).list(WIDGET, "default")


async def test_every_authenticated_user_may_create_self_subject_reviews(
    guarded: ApiServer, api_as: Any
) -> None:
    await grant(guarded, rule("get", "configmaps"))
    api = api_as(guarded, "alice", ())
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

    async def may(**attributes: str) -> bool:
        _, answer = await api.json("POST", path, {"spec": {"resourceAttributes": attributes}})
        return bool(answer["status"]["allowed"])

    assert await may(verb="get", resource="configmaps", namespace="default")
    assert not await may(verb="get", resource="secrets", namespace="default")
    assert not await may(verb="get", resource="configmaps")
    status, rules = await api.json(
        "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}
    )
    assert status == 201
    assert {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]} in rules["status"][
        "resourceRules"
    ]
    assert (await api("GET", "/apis")).status == 200
    refused, answer = await api.json("GET", "/metrics")
    assert (refused, answer["message"]) == (403, 'forbidden: User "alice" cannot get path "/metrics"')


async def test_impersonation_needs_the_right_to_it(guarded: ApiServer, api_as: Any) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    admin, alice = api_as(guarded), api_as(guarded, "alice", ())

    as_bob, answer = await admin.json("GET", path, Impersonate_User="bob")
    refused, why = await alice.json("GET", path, Impersonate_User="admin")

    assert (as_bob, refused) == (403, 403)
    assert 'User "bob" cannot list' in answer["message"]
    assert why["message"].startswith(
        'users "admin" is forbidden: User "alice" cannot impersonate resource "users"'
    )


async def test_a_token_request_gives_a_token_that_expires(
    guarded: ApiServer, api_as: Any, clock: Any
) -> None:
    from datetime import timedelta

    api = api_as(guarded)
    await guarded.local().create(SERVICE_ACCOUNT, {"metadata": {"name": "robot"}}, "default")
    path = "/api/v1/namespaces/default/serviceaccounts/robot/token"

    status, made = await api.json("POST", path, {"spec": {"expirationSeconds": 600}})
    short, why = await api.json("POST", path, {"spec": {"expirationSeconds": 60}})
    caller = await guarded.authenticate_token(made["status"]["token"])
    clock.instant += timedelta(seconds=600)

    assert (status, short) == (201, 422)
    assert "may not specify a duration less than 10 minutes" in why["message"]
    assert made["status"]["expirationTimestamp"] == "2026-01-01T12:10:00Z"
    assert caller is not None
    assert caller.username == "system:serviceaccount:default:robot"
    assert caller.groups == (
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    )
    assert await guarded.authenticate_token(made["status"]["token"]) is None


async def test_a_token_dies_with_its_account(guarded: ApiServer, api_as: Any) -> None:
    api, admin = api_as(guarded), guarded.local()
    ref = SERVICE_ACCOUNT.ref("robot", "default")
    await admin.create(SERVICE_ACCOUNT, {"metadata": {"name": "robot"}}, "default")
    _, made = await api.json("POST", ref.path + "/token", {})
    token = made["status"]["token"]

    await admin.delete(ref)
    await admin.create(SERVICE_ACCOUNT, {"metadata": {"name": "robot"}}, "default")

    assert await guarded.authenticate_token(token) is None
    assert await guarded.authenticate_token(token[:-2] + "xx") is None
    assert await guarded.authenticate_token("nonsense") is None


async def test_a_token_is_bound_to_a_pod_a_secret_or_a_node_and_to_no_other_account(
    guarded: ApiServer, api_as: Any
) -> None:
    api, admin = api_as(guarded), guarded.local()
    path = SERVICE_ACCOUNT.ref("low", "default").path + "/token"
    await admin.create(SERVICE_ACCOUNT, {"metadata": {"name": "low"}}, "default")
    high = await admin.create(SERVICE_ACCOUNT, {"metadata": {"name": "high"}}, "default")
    secret = await admin.create(SECRET, {"metadata": {"name": "s"}}, "default")

    async def request(kind: str, name: str, uid: str, version: str = "v1") -> tuple[int, Any]:
        ref = {"apiVersion": version, "kind": kind, "name": name, "uid": uid}
        answered: tuple[int, Any] = await api.json("POST", path, {"spec": {"boundObjectRef": ref}})
        return answered

    assert (await request("ServiceAccount", "high", uid_of(high)))[0] == 422
    assert (await request("serviceaccount", "high", uid_of(high)))[0] == 422
    assert (await request("Namespace", "default", ""))[0] == 422
    grouped, why = await request("Secret", "s", uid_of(secret), "apps/v1")
    assert (grouped, why["message"]) == (400, "cannot bind token to object of type apps/v1, Kind=Secret")
    assert (await request("Secret", "none", ""))[0] == 404
    assert (await request("Secret", "s", "another"))[0] == 409

    made, answer = await request("Secret", "s", uid_of(secret))
    token = answer["status"]["token"]
    caller = await guarded.authenticate_token(token)
    assert made == 201
    assert caller is not None
    assert caller.username == "system:serviceaccount:default:low"
    await admin.delete(SECRET.ref("s", "default"))
    assert await guarded.authenticate_token(token) is None


@pytest.mark.parametrize(("kind", "spec"), [(POD, {"serviceAccountName": "low"}), (NODE, {})])
async def test_a_token_ends_with_the_pod_or_node_that_it_is_bound_to(
    guarded: ApiServer, api_as: Any, kind: ApiResource, spec: Any
) -> None:
    api, admin = api_as(guarded), guarded.local()
    namespace = "default" if kind.namespaced else ""
    await admin.create(SERVICE_ACCOUNT, {"metadata": {"name": "low"}}, "default")
    containers = {"containers": [{"name": "c", "image": "i"}]} if kind == POD else {}
    await admin.create(kind, {"metadata": {"name": "x"}, "spec": {**spec, **containers}}, namespace)
    body = {"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": kind.kind, "name": "x"}}}
    status, made = await api.json("POST", SERVICE_ACCOUNT.ref("low", "default").path + "/token", body)
    assert status == 201
    assert await guarded.authenticate_token(made["status"]["token"]) is not None

    await admin.delete(kind.ref("x", namespace))

    assert await guarded.authenticate_token(made["status"]["token"]) is None


async def test_a_token_for_another_audience_is_refused_by_the_api_and_found_by_a_review_for_it(
    guarded: ApiServer, api_as: Any
) -> None:
    api = api_as(guarded)
    await guarded.local().create(SERVICE_ACCOUNT, {"metadata": {"name": "low"}}, "default")
    path = SERVICE_ACCOUNT.ref("low", "default").path + "/token"
    _, made = await api.json("POST", path, {"spec": {"audiences": ["vault"]}})
    token = made["status"]["token"]
    assert await guarded.authenticate_token(token) is None

    async def review(*audiences: str) -> Any:
        spec = {"token": token, "audiences": list(audiences)}
        reviews = "/apis/authentication.k8s.io/v1/tokenreviews"
        return (await api.json("POST", reviews, {"spec": spec}))[1]["status"]

    assert "authenticated" not in await review()
    assert "authenticated" not in await review("other")
    found = await review("other", "vault")
    assert (found["authenticated"], found["audiences"]) == (True, ["vault"])


async def test_a_token_review_returns_the_user_of_the_token(guarded: ApiServer, api_as: Any) -> None:
    guarded.tokens["t"] = ("alice", ("team",), None)
    api = api_as(guarded)
    path = "/apis/authentication.k8s.io/v1/tokenreviews"

    _, good = await api.json("POST", path, {"spec": {"token": "t"}})
    _, bad = await api.json("POST", path, {"spec": {"token": "x"}})

    assert good["status"] == {
        "authenticated": True,
        "user": {"username": "alice", "groups": ["team", "system:authenticated"]},
    }
    assert bad["status"] == {"user": {}, "error": "invalid bearer token"}


async def test_a_subject_is_not_added_to_a_binding_of_rules_that_the_user_does_not_hold(
    guarded: ApiServer,
) -> None:
    await grant(guarded, rule("update patch get", "rolebindings", group=ROLE.group))
    ref = {"apiGroup": ROLE.group, "kind": "ClusterRole", "name": "admin"}
    await guarded.local().create(
        ROLE_BINDING, {"metadata": {"name": "others"}, "roleRef": ref, "subjects": []}, "default"
    )
    alice = guarded.local("alice", ())
    change = {"subjects": [{"kind": "User", "name": "alice"}]}

    assert "not currently held" in await message(alice.patch(ROLE_BINDING.ref("others", "default"), change))
    await alice.patch(ROLE_BINDING.ref("others", "default"), {"metadata": {"finalizers": ["example.io/x"]}})


async def test_a_label_that_aggregates_rules_needs_these_rules(guarded: ApiServer) -> None:
    await grant(guarded, rule("update patch get", "clusterroles", group=ROLE.group), namespace="")
    labels = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}

    text = await message(
        guarded.local("alice", ()).patch(CLUSTER_ROLE.ref("admin"), {"metadata": {"labels": labels}})
    )

    assert "not currently held" in text


async def test_an_aggregation_rule_needs_every_right(guarded: ApiServer) -> None:
    await grant(guarded, rule("create", "clusterroles", group=ROLE.group), namespace="")
    selector = {"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}
    raw = {"metadata": {"name": "all"}, "aggregationRule": {"clusterRoleSelectors": [selector]}}

    assert "not currently held" in await message(guarded.local("alice", ()).create(CLUSTER_ROLE, raw))


async def test_an_object_is_created_by_apply_with_the_right_to_create_only(guarded: ApiServer) -> None:
    await grant(guarded, rule("get patch", "configmaps"))
    await guarded.local().create(CONFIG_MAP, {"metadata": {"name": "there"}}, "default")
    alice = Client(guarded.local("alice", ()))
    raw = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}

    await alice.apply(CONFIG_MAP.ref("there", "default"), raw, "alice")

    assert "cannot create resource" in await message(
        alice.apply(CONFIG_MAP.ref("new", "default"), raw, "alice")
    )


@pytest.mark.parametrize(
    ("header", "resource"),
    [
        ({"Impersonate_Group": "system:masters"}, "groups"),
        ({"Impersonate_Uid": "1234"}, "uids"),
        ({"Impersonate_Extra_Scopes": "all"}, "userextras/scopes"),
    ],
)
async def test_each_part_of_an_impersonated_user_is_a_right_of_its_own(
    guarded: ApiServer, api_as: Any, header: dict[str, str], resource: str
) -> None:
    await grant(guarded, rule("impersonate", "users"), namespace="")
    path = "/api/v1/namespaces/default/configmaps"

    status, why = await api_as(guarded, "alice", ()).json("GET", path, Impersonate_User="bob", **header)

    assert status == 403
    assert f'cannot impersonate resource "{resource}"' in why["message"]


async def test_a_local_access_review_is_about_its_own_namespace(guarded: ApiServer, api_as: Any) -> None:
    await grant(guarded, rule("create", "localsubjectaccessreviews", group="authorization.k8s.io"))
    path = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
    asked = {"namespace": "kube-system", "verb": "get", "resource": "secrets"}

    status, why = await api_as(guarded, "alice", ()).json(
        "POST", path, {"spec": {"user": "bob", "resourceAttributes": asked}}
    )

    assert status == 422, why


# --- the roles of a new cluster ---------------------------------------------------------------------------------------

READ, WRITE = "get list watch", "create update patch delete deletecollection"
EVERYDAY = "configmaps endpoints persistentvolumeclaims pods services serviceaccounts deployments.apps daemonsets.apps "
EVERYDAY += (
    "replicasets.apps statefulsets.apps jobs.batch poddisruptionbudgets.policy leases.coordination.k8s.io "
)
EVERYDAY += "endpointslices.discovery.k8s.io"
GRANTS = "roles.rbac.authorization.k8s.io rolebindings.rbac.authorization.k8s.io"
BEYOND = (
    "nodes clusterroles.rbac.authorization.k8s.io customresourcedefinitions.apiextensions.k8s.io namespaces"
)

ALL = frozenset({"view", "edit", "admin"})
MAY = [
    # Which of view, edit and admin may do it in their namespace: the user-facing roles of Kubernetes.
    (READ, EVERYDAY, ALL),
    (WRITE, EVERYDAY, ALL - {"view"}),
    (f"{READ} {WRITE}", "secrets", ALL - {"view"}),
    ("get", "pods/log", ALL),
    ("create", "pods/eviction serviceaccounts/token", ALL - {"view"}),
    ("impersonate", "serviceaccounts", ALL - {"view"}),
    ("impersonate", "users", frozenset()),
    (f"{READ} {WRITE}", GRANTS, frozenset({"admin"})),
    (READ, "resourcequotas namespaces", ALL),
    (WRITE, f"resourcequotas {BEYOND}", frozenset()),
    (READ, "nodes", frozenset()),
]


async def bind(server: ApiServer, user: str, role: str, namespace: str) -> None:
    raw = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": ROLE.group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": ROLE.group, "kind": "User", "name": user}],
    }
    await server.local().create(ROLE_BINDING, raw, namespace)


async def may(
    server: ApiServer, user: UserInfo, verb: str, resource: str, namespace: str = "default"
) -> bool:
    kind, _, group = resource.partition(".")
    plural, _, subresource = kind.partition("/")
    info = RequestInfo("", group, "v1", plural, namespace, "", subresource)
    return await RbacAuthorizer(server.context).allows(user, verb, info)


async def test_view_edit_and_admin_are_the_roles_that_kubernetes_gives_to_users(guarded: ApiServer) -> None:
    for role in ALL:
        await bind(guarded, f"the-{role}", role, "default")
    await guarded.local().create(NAMESPACE, {"metadata": {"name": "elsewhere"}})

    found, wanted, elsewhere = {}, {}, []
    for verbs, resources, roles in MAY:
        for verb, resource in product(verbs.split(), resources.split()):
            for role in ALL:
                user = UserInfo(f"the-{role}", ("system:authenticated",))
                found[role, verb, resource] = await may(guarded, user, verb, resource)
                wanted[role, verb, resource] = role in roles
                elsewhere.append(await may(guarded, user, verb, resource, "elsewhere"))

    assert found == wanted
    assert not any(elsewhere)


AUTHENTICATED, ANONYMOUS = ("system:authenticated",), ("system:unauthenticated",)


@pytest.mark.parametrize(
    ("groups", "paths", "answer"),
    [
        (AUTHENTICATED, "/api /apis /apis/apps /openapi/v2 /version /healthz /livez /readyz", True),
        (ANONYMOUS, "/version /healthz /livez /readyz", True),
        (ANONYMOUS, "/api /apis /apis/apps /openapi/v2 /metrics /", False),
        (AUTHENTICATED, "/metrics /debug /logs", False),
        (("system:masters",), "/metrics /api", True),
    ],
)
async def test_who_is_not_known_reads_only_what_is_public(
    guarded: ApiServer, groups: tuple[str, ...], paths: str, answer: bool
) -> None:
    await guarded.local().list(NODE)  # the first request creates the roles
    authorizer, user = RbacAuthorizer(guarded.context), UserInfo("alice", groups)
    found = {path: await authorizer.allows(user, "get", RequestInfo(path)) for path in paths.split()}
    assert found == dict.fromkeys(paths.split(), answer)
    assert groups != ANONYMOUS or not await may(
        guarded, user, "create", "selfsubjectaccessreviews.authorization.k8s.io", ""
    )


async def test_system_masters_may_do_everything(guarded: ApiServer) -> None:
    user = UserInfo("root", ("system:masters",))
    for resource in (*EVERYDAY.split(), *BEYOND.split(), "secrets", "widgets.example.io"):
        assert await may(guarded, user, "delete", resource, "")


async def test_a_user_who_is_bound_to_cluster_admin_may_do_everything(guarded: ApiServer) -> None:
    raw = {
        "metadata": {"name": "ops"},
        "roleRef": {"apiGroup": ROLE.group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "Group", "name": "ops"}],
    }
    await guarded.local().create(CLUSTER_ROLE_BINDING, raw)
    authorizer, ops = RbacAuthorizer(guarded.context), UserInfo("alice", ("ops",))

    for resource in (*BEYOND.split(), "secrets", "widgets.example.io", "widgets/status.example.io"):
        assert await may(guarded, ops, "delete", resource, "")
    for path in ("/metrics", "/debug/pprof", "/"):
        assert await authorizer.allows(ops, "post", RequestInfo(path))


async def test_an_authenticated_user_may_ask_who_he_is_and_what_he_may_do(guarded: ApiServer) -> None:
    await guarded.local().list(NODE)  # the first request creates the roles
    known = UserInfo("alice", AUTHENTICATED)
    for review in (
        "selfsubjectaccessreviews.authorization.k8s.io",
        "selfsubjectrulesreviews.authorization.k8s.io",
        "selfsubjectreviews.authentication.k8s.io",
    ):
        assert await may(guarded, known, "create", review, "")
        assert not await may(guarded, known, "list", review, "")
        assert not await may(guarded, UserInfo("x", ANONYMOUS), "create", review, "")


async def test_the_first_roles_are_bound_to_the_groups_of_kubernetes(guarded: ApiServer) -> None:
    found = {raw["metadata"]["name"]: raw for raw in await guarded.local().list(CLUSTER_ROLE_BINDING)}

    assert {name: [one["name"] for one in raw["subjects"]] for name, raw in found.items()} == {
        "cluster-admin": ["system:masters"],
        "system:basic-user": ["system:authenticated"],
        "system:discovery": ["system:authenticated"],
        "system:public-info-viewer": ["system:authenticated", "system:unauthenticated"],
    }
    for name, raw in found.items():
        assert raw["roleRef"] == {"apiGroup": ROLE.group, "kind": "ClusterRole", "name": name}
        assert raw["metadata"]["labels"] == {"kubernetes.io/bootstrapping": "rbac-defaults"}
        assert {(one["kind"], one["apiGroup"]) for one in raw["subjects"]} == {("Group", ROLE.group)}


# --- one rule ---------------------------------------------------------------------------------------------------------

OF_MAPS = RequestInfo("", "", "v1", "configmaps", "default", "m")
OF_STATUS = RequestInfo("", "apps", "v1", "deployments", "default", "web", "status")
METRICS = RequestInfo("/metrics/cadvisor")


@pytest.mark.parametrize(
    ("one", "asked", "is_allowed"),
    [
        (rule("get", "configmaps"), OF_MAPS, True),
        (rule("*", "*", group="*"), OF_MAPS, True),
        (rule("list", "configmaps"), OF_MAPS, False),
        (rule("get", "secrets"), OF_MAPS, False),
        (rule("get", "configmaps", group="apps"), OF_MAPS, False),
        (rule("get", "configmaps/status"), OF_MAPS, False),
        (rule("get", "configmaps", resourceNames=["m", "n"]), OF_MAPS, True),
        (rule("get", "configmaps", resourceNames=["n"]), OF_MAPS, False),
        (rule("get", "configmaps", resourceNames=[]), OF_MAPS, True),
        (rule("get", "deployments/status", group="apps"), OF_STATUS, True),
        (rule("get", "*/status", group="apps"), OF_STATUS, True),
        (rule("get", "*", group="apps"), OF_STATUS, True),
        (rule("get", "deployments", group="apps"), OF_STATUS, False),
        (rule("get", "*/scale", group="apps"), OF_STATUS, False),
        (rule("get", "*/"), OF_MAPS, False),
        ({"verbs": ["get"], "nonResourceURLs": ["/metrics/cadvisor"]}, METRICS, True),
        ({"verbs": ["get"], "nonResourceURLs": ["/metrics/*"]}, METRICS, True),
        ({"verbs": ["get"], "nonResourceURLs": ["*"]}, METRICS, True),
        ({"verbs": ["get"], "nonResourceURLs": ["/metrics"]}, METRICS, False),
        ({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/metricsx*"]}, METRICS, False),
        ({"verbs": ["post"], "nonResourceURLs": ["*"]}, METRICS, False),
        # A right to resources is none to paths, nor the other way round; a field that is not there allows nothing.
        (rule("get", "*", group="*"), METRICS, False),
        ({"verbs": ["get"], "nonResourceURLs": ["*"]}, OF_MAPS, False),
        ({"verbs": ["get"], "apiGroups": [""]}, OF_MAPS, False),
        ({"verbs": ["get"], "apiGroups": [""], "resources": None}, OF_MAPS, False),
        ({"verbs": ["get"], "resources": ["configmaps"]}, OF_MAPS, False),
        ({"verbs": ["get"]}, METRICS, False),
        ({"apiGroups": [""], "resources": ["configmaps"]}, OF_MAPS, False),
        ({"verbs": None, "apiGroups": [""], "resources": ["configmaps"]}, OF_MAPS, False),
    ],
)
def test_a_rule_allows_what_each_of_its_fields_names(
    one: dict[str, Any], asked: RequestInfo, is_allowed: bool
) -> None:
    assert rule_allows(one, "get", asked) is is_allowed


MINE = [
    rule("get list", "configmaps", "pods/log"),
    rule("get", "secrets", resourceNames=["mine"]),
    {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/logs/*"]},
]


@pytest.mark.parametrize(
    ("granted", "is_held"),
    [
        (rule("get", "configmaps"), True),
        (rule("list get", "configmaps", "pods/log"), True),
        (rule("get", "configmaps", resourceNames=["a"]), True),
        (rule("get", "secrets", resourceNames=["mine"]), True),
        ({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/logs/kubelet"]}, True),
        (rule("get delete", "configmaps"), False),
        (rule("get", "configmaps", "pods"), False),
        (rule("get", "*"), False),
        (rule("*", "configmaps"), False),
        (rule("get", "configmaps", group="*"), False),
        (rule("get", "secrets"), False),
        (rule("get", "secrets", resourceNames=["mine", "other"]), False),
        ({"verbs": ["get"], "nonResourceURLs": ["/metrics"]}, False),
        ({"verbs": ["get"], "nonResourceURLs": ["/healthz", "*"]}, False),
        ({"verbs": ["get", "post"], "nonResourceURLs": ["/healthz"]}, False),
    ],
)
async def test_a_role_is_granted_by_who_holds_all_of_it(
    guarded: ApiServer, granted: dict[str, Any], is_held: bool
) -> None:
    grant_rule = rule("create", "clusterroles", group=ROLE.group)
    await grant(guarded, grant_rule, *MINE, namespace="")
    creation = guarded.local("alice", ()).create(
        CLUSTER_ROLE, {"metadata": {"name": "x"}, "rules": [granted]}
    )

    if is_held:
        await creation
    else:
        assert "RBAC permissions not currently held" in await message(creation)


async def test_the_default_bindings_are_whole_as_those_of_a_cluster(guarded: ApiServer) -> None:
    await guarded.prepare()
    for raw in await guarded.local().list(CLUSTER_ROLE_BINDING):
        assert raw["roleRef"]["apiGroup"] == ROLE.group
        for subject in raw["subjects"]:
            assert subject.keys() == {"kind", "apiGroup", "name"}
