"""Kubeconfig files: `parse_kubeconfig` reads one context into a `ClientConfig`, `render_kubeconfig` writes one back.

No function here opens a file: certificates and keys given by path are read by `read_file`, which the caller passes.

A secret may be in a wrong field by mistake, so errors quote only names, paths and URLs, and only short ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from windrow.core.errors import UserError
from windrow.core.formats.yaml import NotYaml, dump, load_all
from windrow.core.text import decode_base64, encode_base64

MAX_SHOWN_LENGTH = 200
ReadFile = Callable[[str], str]

SERVICE_ACCOUNT_DIR = "/var/run/secrets/kubernetes.io/serviceaccount"
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class BadKubeconfig(UserError):
    """The text is not a kubeconfig that can be used. `hint` says what to change."""


@dataclass(frozen=True, slots=True)
class ExecConfig:
    """A program that prints a credential (an ExecCredential of client.authentication.k8s.io)."""

    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    api_version: str = _EXEC_VERSIONS[0]
    install_hint: str = ""
    provide_cluster_info: bool = False


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """One API server and one credential for it. Certificates and keys are PEM text; "" where there is none."""

    server: str
    ca: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    token_file: str = ""
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    proxy_url: str = ""
    insecure: bool = False
    tls_server_name: str = ""
    namespace: str = ""
    exec: ExecConfig | None = None
    user: str = ""  # the user's name in the kubeconfig; for error messages only
    cluster: str = field(default="", compare=False)  # the cluster's name there

    @property
    def credential(self) -> str:
        """The credential for error messages, without its secret part."""
        of_user = f" of user {self.user!r}" if self.user else ""
        if self.exec:
            return f"the credential that {self.exec.command!r} prints{of_user}"
        if self.token_file:
            return f"the token in {self.token_file}{of_user}"
        if self.token:
            return f"the token{of_user}"
        if self.certificate:
            return f"the client certificate{of_user}"
        return f"no credential{of_user}"


def parse_kubeconfig(text: str, context: str = "", read_file: ReadFile | None = None) -> ClientConfig:
    """The server and credential of `context` (else of the current context). Raises BadKubeconfig.

    `read_file` reads certificates and keys that are given by path. Without it the kubeconfig is not trusted, such as
    one from a Secret: then it may neither name files of this machine (their content would be sent to its server) nor
    programs to run.
    """
    document = _document(text)
    current = _text(document, "current-context", "the kubeconfig")
    chosen = context or current or _only_name(document, "contexts")
    if not chosen:
        raise BadKubeconfig(
            f"the kubeconfig has no current-context and {_list_names(document, 'contexts')}",
            "set current-context or name one of its contexts",
        )
    place = _entry(document, "contexts", "context", chosen)
    cluster = _entry(document, "clusters", "cluster", _text(place, "cluster", f"context {chosen!r}"))
    user_name = _text(place, "user", f"context {chosen!r}")
    user = _entry(document, "users", "user", user_name) if user_name else {}
    files = _PemReader(read_file)
    config = ClientConfig(
        server=_server(cluster, _text(place, "cluster", "")),
        ca=files.pem(cluster, "certificate-authority"),
        token=_text(user, "token", f"user {user_name!r}").strip(),
        token_file=_text(user, "tokenFile", f"user {user_name!r}"),
        certificate=files.pem(user, "client-certificate"),
        key=files.pem(user, "client-key"),
        proxy_url=_proxy(cluster),
        insecure=cluster.get("insecure-skip-tls-verify") is True,
        tls_server_name=_text(cluster, "tls-server-name", "the cluster"),
        namespace=_text(place, "namespace", f"context {chosen!r}"),
        exec=_exec(user, user_name),
        user=user_name,
        cluster=_text(place, "cluster", ""),
    )
    _refuse_incomplete_credentials(config, user)
    if read_file is None:
        _refuse_local_references(config)
    return config


def render_kubeconfig(
    config: ClientConfig, name: str, *, cluster: str = "", also: Mapping[str, ClientConfig] | None = None
) -> str:
    """A kubeconfig with one cluster, user and context, all called `name`, the cluster `cluster` if that is given.
    `parse_kubeconfig` reads it back.

    `also` are further clusters, each with a context of its name, for the same user; of these nothing but the cluster counts.
    """
    user = {
        "client-certificate-data": encode_base64(config.certificate),
        "client-key-data": encode_base64(config.key),
        "token": config.token,
        "tokenFile": config.token_file,
        "exec": _render_exec(config.exec) if config.exec else None,
    }
    contexts = {name: config, **(also or {})}
    named = {one: cluster or one if one == name else one for one in contexts}
    return dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": named[one], "cluster": _render_cluster(of)} for one, of in contexts.items()
            ],
            "users": [{"name": name, "user": _without_empty(user)}],
            "contexts": [
                {
                    "name": one,
                    "context": _without_empty(
                        {"cluster": named[one], "user": name, "namespace": of.namespace}
                    ),
                }
                for one, of in contexts.items()
            ],
            "current-context": name,
        }
    )


def _render_cluster(config: ClientConfig) -> dict[str, Any]:
    cluster = {
        "server": config.server,
        "certificate-authority-data": encode_base64(config.ca),
        "insecure-skip-tls-verify": config.insecure,
        "tls-server-name": config.tls_server_name,
        "proxy-url": config.proxy_url,
    }
    return _without_empty(cluster)


def _render_exec(config: ExecConfig) -> dict[str, Any]:
    fields = {
        "apiVersion": config.api_version,
        "command": config.command,
        "args": list(config.args),
        "env": [{"name": name, "value": value} for name, value in config.env],
        "interactiveMode": "Never",
        "provideClusterInfo": config.provide_cluster_info,
        "installHint": config.install_hint,
    }
    return _without_empty(fields)


def _without_empty(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def in_cluster_config(env: Mapping[str, str], read_file: ReadFile) -> ClientConfig:
    """The config of a pod's service account, from its mounted token. Raises BadKubeconfig outside a pod."""
    host, port = env.get("KUBERNETES_SERVICE_HOST", ""), env.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise BadKubeconfig(
            "no kubeconfig was given and this is not a pod (KUBERNETES_SERVICE_HOST and _PORT are not set)",
            "name a kubeconfig",
        )
    try:
        ca = read_file(f"{SERVICE_ACCOUNT_DIR}/ca.crt")
        read_file(f"{SERVICE_ACCOUNT_DIR}/token")
    except OSError as error:
        raise BadKubeconfig(
            f"the pod's service account is not mounted: {error}",
            "set automountServiceAccountToken, or name a kubeconfig",
        ) from error
    name = f"[{host}]" if ":" in host else host
    return ClientConfig(
        f"https://{name}:{port}", ca=ca, token_file=f"{SERVICE_ACCOUNT_DIR}/token", user="service account"
    )


def _document(text: str) -> dict[str, Any]:
    try:
        documents = load_all(text)
    except NotYaml as error:
        raise BadKubeconfig(
            f"the kubeconfig is not YAML{error.position and f' at {error.position}'}",
            "paste the whole file, unchanged",
        ) from None  # the cause quotes the file
    if len(documents) > 1:
        raise BadKubeconfig(
            f"the text has {len(documents)} YAML documents, and a kubeconfig is one",
            "give one of them, or merge them (kubectl config view --flatten --raw)",
        )
    document = documents[0] if documents else None
    if not isinstance(document, dict) or not isinstance(document.get("clusters"), list):
        found = "empty" if not document else "not a kubeconfig: it has no list of clusters"
        raise BadKubeconfig(f"the text is {found}", "give a file with clusters, users and contexts")
    return document


def _list_names(document: Mapping[str, Any], list_name: str) -> str:
    names = [_redacted(str(entry.get("name"))) for entry in _entries(document, list_name)]
    return f"its {list_name} are {', '.join(names)}" if names else f"no {list_name}"


def _only_name(document: Mapping[str, Any], list_name: str) -> str:
    entries = _entries(document, list_name)
    return str(entries[0].get("name") or "") if len(entries) == 1 else ""


def _entries(document: Mapping[str, Any], list_name: str) -> list[dict[str, Any]]:
    found = document.get(list_name)
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _redacted(text: str) -> str:
    """A name, path or URL for an error message; a long text, or one of several lines, may be a secret."""
    if len(text) > MAX_SHOWN_LENGTH or not text.isprintable() or "{" in text:
        return f"(a text of {len(text)} characters)"
    return text


def _entry(document: Mapping[str, Any], list_name: str, field_name: str, name: str) -> dict[str, Any]:
    for entry in _entries(document, list_name):
        if entry.get("name") == name:
            found = entry.get(field_name)
            return found if isinstance(found, dict) else {}
    raise BadKubeconfig(
        f"the kubeconfig has no {field_name} named {_redacted(name)!r}; {_list_names(document, list_name)}",
        f"correct the name or add the {field_name}",
    )


def _text(holder: Mapping[str, Any], key: str, where: str) -> str:
    value = holder.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadKubeconfig(f"{key} of {where} is a {type(value).__name__}, not text", f"quote {key}")
    return value


def _server(cluster: Mapping[str, Any], name: str) -> str:
    server = _text(cluster, "server", f"cluster {name!r}").rstrip("/")
    try:
        parts = urlsplit(server)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        # With either, the path of each request would not reach the server, which would be asked what this URL says.
        good = good and not {"?", "#"} & set(server)
        named = parts.username is not None or "@" in server
    except ValueError:
        good, named = False, "@" in server
    if named:
        raise BadKubeconfig(
            f"the server of cluster {name!r} is written with a user name, which API servers do not take",
            "write it as https://HOST or https://HOST:PORT",
        )
    if not good:
        raise BadKubeconfig(
            f"the server of cluster {name!r} is {_redacted(server)!r}",
            "write it as https://HOST or https://HOST:PORT",
        )
    return server


def _proxy(cluster: Mapping[str, Any]) -> str:
    url = _text(cluster, "proxy-url", "the cluster")
    if url and not url.startswith("http://"):
        raise BadKubeconfig(
            f"proxy-url has the scheme {url.partition('://')[0][:20]!r}, and only plain HTTP proxies are supported",
            "give it as http://HOST:PORT; the cluster's own TLS goes through it untouched",
        )
    return url


@dataclass(frozen=True)
class _PemReader:
    """Reads `<key>-data` (base64) or `<key>` (a path); the data wins, as in client-go."""

    read: ReadFile | None

    def pem(self, holder: Mapping[str, Any], key: str) -> str:
        data = holder.get(f"{key}-data")
        if data:
            return self._decoded(f"{key}-data", data)
        path = _text(holder, key, "the kubeconfig")
        if not path:
            return ""
        if self.read is None:
            raise BadKubeconfig(
                f"{key} names the file {_redacted(path)}, which is not part of the kubeconfig",
                f"embed it as {key}-data (kubectl config view --flatten --raw)",
            )
        try:
            return self.read(path)
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it cannot be read as text"
            raise BadKubeconfig(f"{key} names {_redacted(path)}: {why}", "correct the path") from None

    @staticmethod
    def _decoded(key: str, data: object) -> str:
        try:
            pem = decode_base64(str(data))
        except ValueError as error:
            raise BadKubeconfig(f"{key} is not base64 of a text", "copy the field again, whole") from error
        if "-----BEGIN " not in pem:
            raise BadKubeconfig(
                f"{key} holds no PEM block", "encode the PEM text itself, BEGIN line included"
            )
        return pem


def _exec(user: Mapping[str, Any], name: str) -> ExecConfig | None:
    raw = user.get("exec")
    if not raw:
        return None
    if not isinstance(raw, dict) or not raw.get("command"):
        raise BadKubeconfig(f"the exec entry of user {name!r} has no command", "add command")
    version = str(raw.get("apiVersion") or "")
    if version not in _EXEC_VERSIONS:
        raise BadKubeconfig(
            f"the exec entry of user {name!r} speaks {_redacted(version) or 'no apiVersion'}",
            f"use a plugin that speaks {' or '.join(_EXEC_VERSIONS)}",
        )
    if raw.get("interactiveMode") == "Always":
        raise BadKubeconfig(
            f"the exec entry of user {name!r} wants a terminal (interactiveMode: Always)",
            "use a token or a client certificate",
        )
    try:
        env = tuple((str(pair["name"]), str(pair["value"])) for pair in raw.get("env") or ())
        args = tuple(str(arg) for arg in raw.get("args") or ())
    except (LookupError, TypeError):
        raise BadKubeconfig(
            f"the exec entry of user {name!r} has args or env of another shape",
            "write args as a list of texts, and env as a list of name and value",
        ) from None
    return ExecConfig(
        command=str(raw["command"]),
        args=args,
        env=env,
        api_version=version,
        install_hint=str(raw.get("installHint") or ""),
        provide_cluster_info=bool(raw.get("provideClusterInfo")),
    )


def _refuse_local_references(config: ClientConfig) -> None:
    reach = (("tokenFile", config.token_file), ("exec", config.exec.command if config.exec else ""))
    for field_name, target in reach:
        if target:
            raise BadKubeconfig(
                f"user {config.user!r} has {field_name} {_redacted(target)!r}, which a kubeconfig from a Secret may not have",
                "put a token or a client certificate into it",
            )


def _refuse_incomplete_credentials(config: ClientConfig, user: Mapping[str, Any]) -> None:
    if bool(config.certificate) != bool(config.key):
        missing = "client-key" if config.certificate else "client-certificate"
        raise BadKubeconfig(f"user {config.user!r} has no {missing} beside its pair", f"add {missing}-data")
    if user.get("username") or user.get("password"):
        raise BadKubeconfig(
            f"user {config.user!r} has a user name and password, which API servers no longer take",
            "use a token or a client certificate",
        )
    if user.get("auth-provider"):
        raise BadKubeconfig(f"user {config.user!r} has an auth-provider entry", "use its exec plugin instead")
