"""AWS Signature Version 4 of a request to S3, as far as a simulated client and a simulated store need it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from urllib.parse import quote

UNSIGNED = "UNSIGNED-PAYLOAD"


def sign(
    method: str,
    path: str,
    query: Iterable[tuple[str, str]],
    headers: Mapping[str, str],
    region: str,
    secret_key: str,
) -> str:
    """The signature over these headers, by lower-case name, of which one is `x-amz-date`."""
    stamp = headers["x-amz-date"]
    encoded = "&".join(f"{quote(key, safe='')}={quote(value, safe='')}" for key, value in sorted(query))
    lines = [method, quote(path, safe="/"), encoded]
    lines += [f"{name}:{headers[name].strip()}" for name in sorted(headers)]
    lines += ["", ";".join(sorted(headers)), headers.get("x-amz-content-sha256", UNSIGNED)]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    key = f"AWS4{secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
