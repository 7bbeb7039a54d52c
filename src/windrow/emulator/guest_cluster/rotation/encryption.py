"""Encryption of a guest cluster's Secrets: its keys, its stages, and what servers ask of each other about them.

RKE2 encrypts unless it is told not to, K3s where it is told to (reference/10-day2 §2.8; K3s' pkg/secretsencrypt). A server uses
the keys as they were when it started, or as it changed them itself, and publishes a hash of them on its Node: while the hashes
of two differ, no further stage is taken.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from windrow.core.clock import format_time
from windrow.core.formats.json import dumps
from windrow.core.rng import Rng
from windrow.emulator.guest_cluster.distribution.distribution import Settings
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.kubernetes.objects import Raw

START, PREPARE, ROTATE = "start", "prepare", "rotate"
ROTATE_KEYS = "rotate_keys"
REENCRYPT_ACTIVE, REENCRYPT_FINISHED = "reencrypt_active", "reencrypt_finished"
PROVIDERS: Mapping[str, tuple[str, str]] = {  # the prefix of key names, and how status calls the algorithm
    "aescbc": ("aescbckey", "AES-CBC"),
    "secretbox": ("secretboxkey", "XSalsa20-POLY1305"),
}
_KEY_BITS = 256


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    name: str
    secret: str  # base64

    def render(self) -> Raw:
        return {"name": self.name, "secret": self.secret}


@dataclass(frozen=True, slots=True)
class Encryption:
    """The keys, the active one first, and the last stage that was finished."""

    provider: str
    keys: tuple[EncryptionKey, ...]
    stage: str = START
    is_enabled: bool = True

    def render_configuration(self) -> bytes:
        """The EncryptionConfiguration on a server's disk."""
        own: Raw = {self.provider: {"keys": [key.render() for key in self.keys]}}
        providers = [own, {"identity": {}}] if self.is_enabled else [{"identity": {}}, own]
        return dumps(
            {
                "kind": "EncryptionConfiguration",
                "apiVersion": "apiserver.config.k8s.io/v1",
                "resources": [{"resources": ["secrets"], "providers": providers}],
            }
        )

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.render_configuration()).hexdigest()

    @property
    def annotation(self) -> str:
        """What a server that uses these keys says on its Node."""
        return self.annotation_at(self.stage)

    def annotation_at(self, stage: str) -> str:
        return f"{stage}-{self.hash}"

    def with_new_key(self, rng: Rng, now: datetime) -> Encryption:
        prefix = PROVIDERS[self.provider][0]
        return replace(self, keys=(*self.keys, make_key(f"{prefix}-{format_time(now)}", rng)))

    def rotated(self) -> Encryption:
        """The last key becomes the active one."""
        return replace(self, keys=(self.keys[-1], *self.keys[:-1]))

    def without_old_key(self) -> Encryption:
        return replace(self, keys=self.keys[:-1] if len(self.keys) > 1 else self.keys)

    def at(self, stage: str) -> Encryption:
        return replace(self, stage=stage)

    def render(self) -> Raw:
        """As it is in the bootstrap data."""
        keys = [key.render() for key in self.keys]
        return {"provider": self.provider, "keys": keys, "stage": self.stage, "enabled": self.is_enabled}


def make_key(name: str, rng: Rng) -> EncryptionKey:
    secret = rng.bits(_KEY_BITS).to_bytes(_KEY_BITS // 8)
    return EncryptionKey(name, base64.b64encode(secret).decode())


def start_encryption(settings: Settings, rng: Rng) -> Encryption | None:
    """The encryption with which a first server starts, None without."""
    asked = settings.text("secrets-encryption").lower()
    is_on = asked in ("true", "1", "yes") or (not asked and settings.distribution.encrypts_secrets)
    provider = settings.text("secrets-encryption-provider") or "aescbc"
    if not is_on or provider not in PROVIDERS:
        return None
    return Encryption(provider, (make_key(PROVIDERS[provider][0], rng),))


def parse_encryption(raw: Mapping[str, Any] | None) -> Encryption | None:
    """That of bootstrap data. Raises KeyError, TypeError, ValueError."""
    if raw is None:
        return None
    if raw["provider"] not in PROVIDERS or not raw["keys"]:
        raise ValueError("unknown encryption provider")
    keys = tuple(EncryptionKey(str(key["name"]), str(key["secret"])) for key in raw["keys"])
    return Encryption(raw["provider"], keys, str(raw["stage"]), bool(raw["enabled"]))


def write_encryption(guest: GuestOS, settings: Settings, encryption: Encryption | None) -> None:
    """Write the configuration that a server with an API uses; nothing without encryption. May be repeated."""
    if encryption is not None and settings.runs_api:
        path = encryption_path(settings)
        guest.write(path, encryption.render_configuration(), 0o600)


def encryption_path(settings: Settings) -> str:
    return f"{settings.data_directory}/server/cred/encryption-config.json"
