"""Cloud-init network data, of version 1 or 2: the addresses that it gives to a machine.

It is written by users, so what is no network data gives none, and what is read of it is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

from windrow.core.formats.cidr import usable_address
from windrow.core.formats.yaml import NotYaml, load

# Characters. A Secret has no more than 1 MiB, and network data of our machines some hundred bytes.
MAX_NETWORK_DATA = 64 * 1024
MAX_ADDRESSES = 4096  # of one card
# What is longer is no work of ours, and is read anew each time: thousands of such would be kept, with what was read.
MAX_KEPT = 2048

_STATIC = ("static", "static6")  # no set: a type may be written that has no hash


def list_static_addresses(text: str) -> list[str]:
    """The addresses, as they are written; none for text that cannot be read."""
    return list(_walk_addresses(_read_document(text)))


Cards = tuple[tuple[str, tuple[str, ...]], ...]


def read_cards(text: str) -> Cards:
    """The usable addresses of each card, by its MAC address in lower case, "" where that is not written; none of text that is
    longer than MAX_NETWORK_DATA."""
    if len(text) > MAX_NETWORK_DATA:
        return ()
    return _read_kept_cards(text) if len(text) <= MAX_KEPT else _read_cards(text)


def _read_cards(text: str) -> Cards:
    document = _read_document(text)
    cards: Iterable[tuple[str, Any]] = [("", document)]
    if isinstance(document, dict) and isinstance(document.get("ethernets"), dict):
        others = {key: value for key, value in document.items() if key != "ethernets"}
        cards = [(_mac_of(card), card) for card in document["ethernets"].values()] + [("", others)]
    found = []
    for mac, card in cards:
        usable = map(usable_address, islice(_walk_addresses(card), MAX_ADDRESSES))
        if addresses := tuple(dict.fromkeys(filter(None, usable))):
            found.append((mac, addresses))
    return tuple(found)


# The same VM is read again at each change of its status.
_read_kept_cards = lru_cache(maxsize=4096)(_read_cards)


def _mac_of(card: Any) -> str:
    match = card.get("match") if isinstance(card, dict) else None
    return str(match.get("macaddress") or "").lower() if isinstance(match, dict) else ""


def _read_document(text: str) -> Any:
    try:
        document = load(text) if text.strip() else None
    except NotYaml:
        return None
    if isinstance(document, dict) and isinstance(document.get("network"), dict):
        return document["network"]
    return document


def _walk_addresses(value: Any) -> Iterator[str]:
    """`address` of a static subnet (version 1), `addresses` of a device (version 2, where name servers have them, too)."""
    if isinstance(value, list):
        for item in value:
            yield from _walk_addresses(item)
    elif isinstance(value, dict):
        if value.get("type") in _STATIC and value.get("address"):
            yield str(value["address"])
        for key, inner in value.items():
            if key == "addresses":
                written = inner if isinstance(inner, list) else [] if inner is None else [inner]
                yield from (str(next(iter(one), "") if isinstance(one, dict) else one) for one in written)
            elif key not in ("nameservers", "routes"):
                yield from _walk_addresses(inner)
