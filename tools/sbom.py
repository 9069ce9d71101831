"""The list of parts (SBOM, CycloneDX) of the wheel: what it requires, and the versions that the tests ran with.

The components are the packages that the core and the users' extras name, with their versions in `constraints/main.txt`.
Those of the core are `required`, the others `optional`. Packages that these need in turn are not listed: an installer
chooses them. The same tree always gives the same bytes.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

from cyclonedx.model import Property
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

USERS_EXTRAS = ("opencl", "cuda12", "cuda13", "spark", "sim", "board")
"""The extras for users; the others are for work on Millrace itself."""
_PIN = re.compile(r"^([a-z0-9-]+)==([^\s;]+)", re.MULTILINE)


def pinned_versions(lock: Path) -> dict[str, str]:
    """The version of each package of a constraints file; of several for different Pythons, the newest line's."""
    return dict(_PIN.findall(lock.read_text()))


def part_of(requirement: Requirement, version: str | None, extra: str | None) -> Component:
    """One component: a package, its tested version if the lock has one, and the range that is allowed."""
    name = canonicalize_name(requirement.name)
    allowed = Property(name="millrace:allowed", value=str(requirement.specifier) or "any")
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        scope=ComponentScope.OPTIONAL if extra else ComponentScope.REQUIRED,
        purl=PackageURL("pypi", None, name, version),
        bom_ref=f"{extra}:{name}" if extra else name,
        properties=[allowed] + ([Property(name="millrace:extra", value=extra)] if extra else []),
    )


def parts_list(root: Path, version: str) -> str:
    """The SBOM of the tree at `root`, as CycloneDX JSON."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    pins = pinned_versions(root / "constraints" / "main.txt")
    itself = Component(
        name=project["name"],
        version=version,
        type=ComponentType.LIBRARY,
        purl=PackageURL("pypi", None, project["name"], version),
        bom_ref=project["name"],
        licenses=[DisjunctiveLicense(id=project["license"])],
    )
    bom = Bom()
    bom.metadata.component = itself
    named: dict[str, Component] = {}
    for extra, texts in [(None, project["dependencies"])] + [
        (extra, project["optional-dependencies"][extra]) for extra in USERS_EXTRAS
    ]:
        for text in texts:
            requirement = Requirement(text)
            part = part_of(requirement, pins.get(canonicalize_name(requirement.name)), extra)
            named.setdefault(str(part.bom_ref.value), part)
    bom.components.update(named.values())
    bom.register_dependency(itself, named.values())
    found = json.loads(JsonV1Dot6(bom).output_as_string())
    # A serial number and a time would differ in every build; a build is to be repeatable.
    found.pop("serialNumber", None)
    found["metadata"].pop("timestamp", None)
    return json.dumps(found, indent=1, sort_keys=True) + "\n"
