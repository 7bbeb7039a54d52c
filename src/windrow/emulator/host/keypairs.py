"""The KeyPair controller: validates a public key once and sets its fingerprint."""

from __future__ import annotations

import binascii
import hashlib
from base64 import b64decode
from datetime import timedelta

from windrow.core.clock import Clock, format_time
from windrow.emulator import kinds
from windrow.emulator.kit.client import AdminClient
from windrow.emulator.kit.listers import Key
from windrow.kubernetes.objects import Raw, nested


class InvalidPublicKey(ValueError):
    """The text is not one line of an OpenSSH public key."""


INVALID = "key is not in valid OpenSSH public key format"
KEY_TYPES = (
    "ssh-rsa", "ssh-dss", "ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com",
)  # fmt: skip


def fingerprint(text: str) -> str:
    """The MD5 fingerprint, colon-separated, of the first key in lines of `authorized_keys`. Raises InvalidPublicKey.

    As Go's x/crypto/ssh reads them: comment lines are skipped, options may stand first, and the type is that of the key
    and not of the word before it.
    """
    for line in map(str.strip, text.split("\n")):
        if not line or line.startswith("#"):
            continue
        for encoded in _candidates(line):
            if (blob := _read_key(encoded)) is not None:
                digest = hashlib.md5(blob, usedforsecurity=False).hexdigest()
                return ":".join(digest[place : place + 2] for place in range(0, 32, 2))
    raise InvalidPublicKey(INVALID)


def _candidates(line: str) -> list[str]:
    """What may be the key: the second word, or the second after the options, in which quotes hold words together."""
    rest = line[_end_of_word(line) :].split()
    return [*line.split()[1:2], *rest[1:2]]


def _end_of_word(line: str) -> int:
    quoted = False
    for place, sign in enumerate(line):
        if sign == '"' and line[place - 1 : place] != "\\":
            quoted = not quoted
        if sign in " \t" and not quoted:
            return place
    return len(line)


def _read_key(encoded: str) -> bytes | None:
    try:
        blob = b64decode(encoded, validate=True)
        fields = _fields(blob)
        return blob if len(fields) >= 2 and fields[0].decode() in KEY_TYPES else None
    except (binascii.Error, ValueError):
        return None


def _fields(blob: bytes) -> list[bytes]:
    """The length-prefixed strings of a key. Raises ValueError for a blob that ends within one."""
    found = []
    while blob:
        length = int.from_bytes(blob[:4], "big")
        if len(blob) < 4 + length:
            raise ValueError("the key ends early")
        found.append(blob[4 : 4 + length])
        blob = blob[4 + length :]
    return found


class KeyPairController:
    """The key pair controller."""

    def __init__(self, client: AdminClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock

    async def reconcile(self, key: Key) -> timedelta | None:
        await self._client.mutate(kinds.KEY_PAIR.ref(key[1], key[0]), self._validate)
        return None

    def _validate(self, raw: Raw) -> None:
        if nested(raw, "status", "conditions"):
            return
        try:
            print_, truth, why = fingerprint(raw["spec"]["publicKey"]), "True", ""
        except InvalidPublicKey as error:
            print_, truth, why = "", "False", str(error)
        condition: Raw = {
            "type": "validated",
            "status": truth,
            "lastUpdateTime": format_time(self._clock.now()),
        }
        raw["status"] = {
            "fingerPrint": print_,
            "conditions": [{**condition, "message": why} if why else condition],
        }
