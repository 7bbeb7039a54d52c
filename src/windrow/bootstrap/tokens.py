"""Join tokens in their secure form, `K10<hash>::<user>:<password>`.

The hash is of the server CA, so that a joining machine can verify the server before it sends the password. It is the joiner who checks: it downloads `/cacerts` unverified, hashes what it got, compares, and only then
speaks TLS with that authority.

* A bundle of **one** certificate is hashed byte for byte, as the PEM text that the server serves, last newline included.
* A bundle of **several** is hashed as the DER form of the root that the first one leads to. So intermediates may change.
"""

from __future__ import annotations

from hashlib import sha256

from windrow.bootstrap.spec import ClusterSecrets
from windrow.core import pki

_FORMAT = "K10"
SERVER_USER = "server"
AGENT_USER = "node"


def ca_hash(bundle: str) -> str:
    """The hex digest by which joining machines verify the CA in `bundle`. Raises NotCertificate."""
    certificates = pki.split_bundle(bundle)
    if len(certificates) == 1:
        return sha256(bundle.encode()).hexdigest()
    return sha256(pki.der(_root(certificates))).hexdigest()


def server_token(cluster: ClusterSecrets) -> str:
    """What servers join with. Its password also encrypts what servers share through the datastore."""
    return _token(cluster, SERVER_USER, cluster.server_password)


def agent_token(cluster: ClusterSecrets) -> str:
    """What workers join with. It grants nothing but a node's own certificates."""
    return _token(cluster, AGENT_USER, cluster.agent_password)


def _token(cluster: ClusterSecrets, user: str, password: str) -> str:
    return f"{_FORMAT}{ca_hash(cluster.server_ca.certificate)}::{user}:{password}"


def _root(certificates: list[str]) -> str:
    """Climb from the first certificate, signer by signer, as far as the bundle leads."""
    current, rest = certificates[0], certificates[1:]
    while signer := next((ca for ca in rest if pki.is_signed_by(current, ca)), None):
        rest.remove(signer)
        current = signer
    return current
