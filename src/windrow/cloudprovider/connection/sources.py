"""Sources of the two ClientConfigs, and the check that a file was read completely."""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from windrow.cloudprovider.options import Options
from windrow.core.text import collapse_whitespace
from windrow.kubernetes.kubeconfig import (
    BadKubeconfig,
    ClientConfig,
    ReadFile,
    in_cluster_config,
    parse_kubeconfig,
)

_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\n(.*?)\n?-----END \1-----", re.DOTALL)
_CONTEXT = "current-context"


@dataclass(frozen=True, slots=True)
class KubeconfigSource:
    """Reads one ClientConfig. `title` is where an operator finds it, such as `--cloud-config FILE`."""

    title: str
    read: Callable[[ReadFile], ClientConfig]

    @contextmanager
    def naming_source(self) -> Iterator[None]:
        """A context whose errors name the source, on one line. Raises BadKubeconfig only."""
        try:
            yield
        except BadKubeconfig as error:
            raise BadKubeconfig(
                f"{self.title}: {collapse_whitespace(error.message)}", collapse_whitespace(error.hint)
            ) from error


def require_complete(config: ClientConfig, texts: Mapping[str, str], before: Mapping[str, str]) -> None:
    """Raises BadKubeconfig where a part is missing."""
    if missing := find_missing_part(config, texts, before):
        raise BadKubeconfig(f"the file is not whole: {missing}", "write it whole")


def host_source(options: Options) -> KubeconfigSource:
    """`--cloud-config`: a whole kubeconfig; errors as those of the Go program."""
    problem, hint = (
        "couldn't open cloud provider configuration",
        "check the --cloud-config flag and the file it names",
    )
    path = options.cloud_config

    def read(read_file: ReadFile) -> ClientConfig:
        text = _read_text(path, read_file, problem, hint)
        if not text.strip():
            raise BadKubeconfig("the file is empty: can't init from an empty reader (io.Reader)", hint)
        return parse_kubeconfig(text, read_file=_relative_to(path, read_file))

    return KubeconfigSource(f"--cloud-config {path}", read)


def guest_source(options: Options, env: Mapping[str, str]) -> KubeconfigSource:
    """`--kubeconfig`, else KUBECONFIG, else the pod's service account; `--master` overrides the server."""
    if options.kubeconfig:
        return _guest_file("--kubeconfig", options.kubeconfig, options.master)
    if path := env.get("KUBECONFIG", ""):
        return _guest_file("$KUBECONFIG", path, options.master)
    if options.master:
        return KubeconfigSource(f"--master {options.master}", lambda read_file: ClientConfig(options.master))
    return KubeconfigSource("the guest cluster, without --kubeconfig", partial(_in_cluster, env))


def _guest_file(source: str, path: str, master: str) -> KubeconfigSource:
    def read(read_file: ReadFile) -> ClientConfig:
        text = _read_text(path, read_file, "the guest's kubeconfig cannot be read", f"correct {source}")
        config = parse_kubeconfig(text, read_file=_relative_to(path, read_file))
        return replace(config, server=master) if master else config

    return KubeconfigSource(f"{source} {path}", read)


def _read_text(path: str, read_file: ReadFile, problem: str, hint: str) -> str:
    try:
        return read_file(path)
    except (OSError, UnicodeError) as error:
        raise BadKubeconfig(f"{problem}: {_os_error_text(error)}", hint) from error


def _in_cluster(env: Mapping[str, str], read_file: ReadFile) -> ClientConfig:
    try:
        return in_cluster_config(env, read_file)
    except BadKubeconfig as error:
        raise BadKubeconfig(
            error.message, f"{error.hint} for the guest cluster: --kubeconfig=FILE"
        ) from error


def _relative_to(path: str, read_file: ReadFile) -> ReadFile:
    """A reader of the files that a kubeconfig names: relative to its own directory."""
    return lambda name: read_file(posixpath.join(posixpath.dirname(path), name))


def _os_error_text(error: Exception) -> str:
    """The error text of the operating system, without the path."""
    return (error.strerror if isinstance(error, OSError) else "") or str(error)


def find_missing_part(config: ClientConfig, texts: Mapping[str, str], before: Mapping[str, str]) -> str:
    """What is missing, "" when nothing is: the beginning of a file that is being written may be a kubeconfig, too.

    `texts` and `before` are the files by path, now and when last in use.
    """
    if not (config.token or config.certificate or config.token_file or config.exec):
        return "it holds no token and no client certificate"
    for name in ("ca", "certificate", "key"):
        pem = getattr(config, name)
        if pem and not is_complete_pem(pem):
            return (
                f"its PEM text ({'certificate-authority' if name == 'ca' else 'client-' + name}) is cut off"
            )
    if _names_context(before) and not _names_context(texts):
        return f"it has no {_CONTEXT} any more"
    return ""


def is_complete_pem(pem: str) -> bool:
    """Whether every block that begins ends, too, and is base64 between."""
    blocks = _BLOCK.findall(pem.replace("\r\n", "\n"))
    return len(blocks) == pem.count("-----BEGIN ") > 0 and all(_is_base64(body) for _, body in blocks)


def _is_base64(body: str) -> bool:
    if ":" in body:
        return True  # headers of an old-style key
    try:
        return bool(base64.b64decode("".join(body.split()), validate=True))
    except binascii.Error:
        return False


def _names_context(texts: Mapping[str, str]) -> bool:
    return any(_CONTEXT in text for text in texts.values())
