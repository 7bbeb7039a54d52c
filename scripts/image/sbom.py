"""What an image holds, as an SPDX document: Debian's packages of its base, and Python's of Windrow.

Facts: SPDX 2.3 (JSON); deb822(5) for dpkg's status file; the core metadata of Python's packages.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.parser import HeaderParser
from typing import Any

NAMESPACE = uuid.UUID("6f1f8d3e-5d0a-4f0e-9a55-0d2b7a1f9c11")
NO_ASSERTION = "NOASSERTION"
# What SPDX calls a license by itself; other texts are said as a comment.
EXPRESSION = re.compile(r"[A-Za-z0-9.+-]+( (AND|OR|WITH) [A-Za-z0-9.+-]+)*")


@dataclass(frozen=True, order=True)
class Package:
    """One package. `purl` is its package URL, without a place to fetch it from."""

    name: str
    version: str
    purl: str
    license: str = ""
    source: str = ""


def parse_dpkg_status(text: str, suite: str) -> Iterator[Package]:
    """The packages that are installed, by dpkg's status file."""
    for stanza in text.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", stanza, re.M))
        if fields.get("Status") != "install ok installed":
            continue
        name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
        purl = f"pkg:deb/debian/{name}@{_quoted(version)}?arch={architecture}&distro={suite}"
        yield Package(name, version, purl, source=fields.get("Source", name))


def parse_metadata(text: str) -> Package:
    """A package of Python by its METADATA."""
    found = HeaderParser().parsestr(text)
    name, version = str(found["Name"]), str(found["Version"])
    said = str(found["License-Expression"] or found["License"] or "").strip()
    purl = f"pkg:pypi/{re.sub(r'[-_.]+', '-', name).lower()}@{_quoted(version)}"
    return Package(name, version, purl, said if len(said) < 100 else "")


def render_sbom(image: str, version: str, packages: Iterable[Package], epoch: int) -> dict[str, Any]:
    """The document. The same packages give the same one."""
    listed = sorted(packages)
    seed = "\n".join([image, version, *(package.purl for package in listed)])
    top = "SPDXRef-Image"
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{image}-{version}",
        "documentNamespace": f"urn:uuid:{uuid.uuid5(NAMESPACE, seed)}",
        "creationInfo": {
            "created": datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": ["Tool: windrow-make-image"],
        },
        "packages": [
            {**_package(Package(image, version, f"pkg:oci/{image}"), top), "licenseDeclared": "Apache-2.0"},
            *(_package(package, _id(number)) for number, package in enumerate(listed)),
        ],
        "relationships": [
            _relation("SPDXRef-DOCUMENT", "DESCRIBES", top),
            *(_relation(top, "CONTAINS", _id(number)) for number in range(len(listed))),
        ],
    }


def _package(package: Package, id: str) -> dict[str, Any]:
    is_expression = EXPRESSION.fullmatch(package.license) is not None
    found: dict[str, Any] = {
        "SPDXID": id,
        "name": package.name,
        "versionInfo": package.version,
        "downloadLocation": NO_ASSERTION,
        "filesAnalyzed": False,
        "licenseConcluded": NO_ASSERTION,
        "licenseDeclared": package.license if is_expression else NO_ASSERTION,
        "copyrightText": NO_ASSERTION,
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": package.purl,
            }
        ],
    }
    if package.license and not is_expression:
        found["licenseComments"] = package.license
    if package.source:
        found["sourceInfo"] = f"built from the Debian source package {package.source}"
    return found


def _relation(one: str, kind: str, other: str) -> dict[str, str]:
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}


def _id(number: int) -> str:
    return f"SPDXRef-Package-{number}"


def _quoted(version: str) -> str:
    return version.replace("%", "%25").replace("+", "%2B").replace(":", "%3A")
