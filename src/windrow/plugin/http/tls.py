"""TLS contexts for one API server: trusted CAs and client certificate. Loads `ssl`, so it is imported late.

Where the kubeconfig names no CA, authorities are found as Go's programs find them: SSL_CERT_FILE or the first of the
usual bundles, and every file in SSL_CERT_DIR whatever it is called (OpenSSL wants hashed names there; Rancher's
machine image has plain ones).
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",  # Alpine, macOS
)
DIRECTORIES = ("/etc/ssl/certs", "/etc/pki/tls/certs")


class CannotStoreKey(OSError):
    """OpenSSL reads keys from files only, and no file can be made here."""


def new_context(
    *,
    ca: str,
    insecure: bool,
    certificate: str,
    key: str,
    env: Mapping[str, str],
    folders: Sequence[str],
    name: Callable[[], str],
) -> ssl.SSLContext:
    """A context that trusts `ca` (PEM; the machine's authorities when "") and shows `certificate`.

    `folders` are where the key may be written for a moment, if there is no memory file; `name` gives
    names for it. Raises ssl.SSLError, ValueError or TypeError for bad certificates, CannotStoreKey.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # As in Go, each certificate we were given is an anchor, also an intermediate one.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca:
        context.load_verify_locations(cadata=ca)
    else:
        load_machine_authorities(context, env)
    if certificate:
        with _as_file(f"{key.strip()}\n{certificate.strip()}\n".encode(), folders, name) as path:
            # Without a password OpenSSL would ask for one at the terminal, and wait.
            context.load_cert_chain(path, password="")
    return context


def load_machine_authorities(context: ssl.SSLContext, env: Mapping[str, str]) -> None:
    """Trust what this machine trusts. Files that hold no certificate are passed over, as in Go."""
    named = env.get("SSL_CERT_FILE", "")
    bundle = named or next((path for path in BUNDLES if os.path.isfile(path)), "")
    if bundle:
        _load(context, bundle)
    directories = [path for path in env.get("SSL_CERT_DIR", "").split(":") if path]
    if not directories and not bundle:
        directories = list(DIRECTORIES)
    for directory in directories:
        with suppress(OSError):
            for file in sorted(os.listdir(directory)):
                _load(context, os.path.join(directory, file))


def _load(context: ssl.SSLContext, path: str) -> None:
    if os.path.isfile(path):
        with suppress(ssl.SSLError, OSError):
            context.load_verify_locations(cafile=path)


@contextmanager
def _as_file(content: bytes, folders: Sequence[str], name: Callable[[], str]) -> Iterator[str]:
    """A path at which `content` can be read as long as the block lasts, by us alone."""
    memory = _memory_file(content)
    if memory is not None:
        try:
            yield f"/proc/self/fd/{memory}"
        finally:
            os.close(memory)
        return
    path = _write_somewhere(content, folders, name)
    try:
        yield path
    finally:
        os.unlink(path)


def _memory_file(content: bytes) -> int | None:
    """A file that has no place on any disk; None where the system or its /proc cannot show one."""
    if not hasattr(os, "memfd_create"):
        return None
    try:
        memory = os.memfd_create("key", os.MFD_CLOEXEC)
    except OSError:
        return None
    if not os.path.exists(f"/proc/self/fd/{memory}"):
        os.close(memory)
        return None
    os.write(memory, content)
    return memory


def _write_somewhere(content: bytes, folders: Sequence[str], name: Callable[[], str]) -> str:
    for folder in folders:
        path = os.path.join(folder, f".{name()}.pem")
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except OSError:
            continue
        try:
            os.write(file, content)
        except OSError:
            os.unlink(path)
            continue
        finally:
            os.close(file)
        return path
    raise CannotStoreKey("there is no /proc, and no directory can be written in")
