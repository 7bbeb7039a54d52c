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


def fingerprint(text: str) -> str:
    """The MD5 fingerprint, colon-separated. Raises InvalidPublicKey."""
    parts = text.split()
    try:
        blob = b64decode(parts[1], validate=True)
        length = int.from_bytes(blob[:4], "big")
        if blob[4 : 4 + length].decode() != parts[0]:
            raise InvalidPublicKey("key is not in valid OpenSSH public key format")
    except (IndexError, binascii.Error, UnicodeDecodeError) as error:
        raise InvalidPublicKey("key is not in valid OpenSSH public key format") from error
    digest = hashlib.md5(blob, usedforsecurity=False).hexdigest()
    return ":".join(digest[place : place + 2] for place in range(0, 32, 2))


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
