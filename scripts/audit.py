"""What we ship, judged: known vulnerabilities, licences, and a bill of materials.

Run by scripts/audit, in an environment of its own (requirements/audit.lock); the packages
that it judges are those of requirements/*.lock, their licences those of .venv.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.markers import Marker
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent
_LOCKED = re.compile(r"([A-Za-z0-9._-]+)==([^\s;\\]+)(?: ; ([^\\]+?))?\s*\\?")
_STALE_DAYS = 90


@dataclass(frozen=True, order=True)
class Locked:
    """One version of one package that a lock file names."""

    name: NormalizedName
    version: str
    marker: str = ""

    @property
    def applies_here(self) -> bool:
        """Whether it is installed on a machine like this one."""
        return not self.marker or Marker(self.marker).evaluate()


@dataclass(frozen=True, order=True)
class AffectedPackage:
    """A locked package that an advisory speaks of."""

    package: Locked
    ids: tuple[str, ...]  #: under all its names
    says: str


@dataclass(frozen=True)
class Advisories:
    """Known vulnerabilities, and until when they were gathered."""

    source: str
    until: datetime
    by_package: Mapping[str, Sequence[Advisory]]


@dataclass(frozen=True)
class Advisory:
    """One known vulnerability of one package."""

    ids: tuple[str, ...]
    says: str
    ranges: tuple[SpecifierSet, ...] = ()
    versions: frozenset[str] = frozenset()

    def concerns(self, version: str) -> bool:
        """Whether a version has it."""
        found = Version(version)
        return version in self.versions or any(
            each.contains(found, prereleases=True) for each in self.ranges
        )


def locked_in(*files: Path) -> list[Locked]:
    """Return every version that lock files name, in order of name."""
    found = set()
    for file in files:
        for line in file.read_text().splitlines():
            if line.startswith((" ", "#")) or not line:
                continue
            match = _LOCKED.fullmatch(line)
            if match is None:
                raise SystemExit(f"audit: {file}: not understood: {line!r}")
            name, version, marker = match.groups()
            found.add(Locked(canonicalize_name(name), version, marker or ""))
    return sorted(found)


def packaged_advisories() -> Advisories:
    """Return the advisories of safety-db in its last version on the package index."""
    files = metadata.files("safety-db") or []
    (file,) = [each for each in files if each.name == "insecure_full.json"]
    content = json.loads(file.read_text())
    until = datetime.fromtimestamp(content.pop("$meta")["timestamp"], UTC)
    found: dict[str, list[Advisory]] = {}
    for name, entries in content.items():
        for entry in entries:
            ids = (entry["id"], *((entry.get("cve") or "").split(",")))
            said = found.setdefault(canonicalize_name(name), [])
            said.append(Advisory(_ids(ids), entry["advisory"], _ranges(entry["specs"])))
    return Advisories(f"safety-db {metadata.version('safety-db')}", until, found)


def advisories_in(path: Path) -> Advisories:
    """Return those of an export of OSV's: a folder, or a zip file, of JSON documents."""
    found: dict[str, list[Advisory]] = {}
    until = datetime(1970, 1, 1, tzinfo=UTC)
    for document in _documents(path):
        until = max(until, datetime.fromisoformat(document["modified"]))
        if "withdrawn" in document:
            continue
        ids = _ids((document["id"], *document.get("aliases", ())))
        says = document.get("summary") or document.get("details", "").partition("\n")[0]
        for affected in document.get("affected", ()):
            package = affected.get("package", {})
            if package.get("ecosystem") == "PyPI":
                said = found.setdefault(canonicalize_name(package["name"]), [])
                versions = frozenset(affected.get("versions", ()))
                said.append(Advisory(ids, says, _osv_ranges(affected), versions))
    if not found:
        raise SystemExit(f"audit: {path}: holds no advisory of the ecosystem PyPI")
    return Advisories(str(path), until, found)


def findings(packages: Sequence[Locked], advisories: Advisories) -> list[AffectedPackage]:
    """Return which packages have a known vulnerability."""
    return sorted(
        AffectedPackage(package, advisory.ids, " ".join(advisory.says.split())[:200])
        for package in packages
        for advisory in advisories.by_package.get(package.name, ())
        if advisory.concerns(package.version)
    )


def licence_problems(
    packages: Sequence[Locked], site_packages: Path, config: Mapping[str, Any]
) -> list[str]:
    """Return the packages whose licence is unknown or not permitted."""
    named = {canonicalize_name(name): said for name, said in config["packages"].items()}
    installed = {
        canonicalize_name(each.metadata["Name"]): each
        for each in metadata.distributions(path=[str(site_packages)])
    }
    problems = []
    for package in packages:
        found = installed.get(package.name)
        if package.name in named:
            licences = {named[package.name]}
        elif found is None:
            if package.applies_here:
                problems.append(f"{package.name}: not installed in .venv: make install")
            continue
        else:
            licences = licences_of(found.metadata)
        if not licences:
            problems.append(f"{package.name} {package.version}: says no licence")
        elif refused := sorted(each for each in licences if not permitted(each, config["allowed"])):
            problems.append(f"{package.name} {package.version}: {', '.join(refused)}")
    return problems


def permitted(licence: str, allowed: Sequence[str]) -> bool:
    """Tell whether a licence is permitted: all that AND joins, one of what OR joins."""
    return any(
        all(each.strip() in allowed for each in choice.split(" AND "))
        for choice in licence.split(" OR ")
    )


def licences_of(said: Any) -> set[str]:
    """Return what a package's metadata tells, the most exact first."""
    if expression := said.get("License-Expression"):
        return {expression}
    prefix = "License :: "
    classified = {
        each.removeprefix(prefix).removeprefix("OSI Approved :: ")
        for each in said.get_all("Classifier", ())
        if each.startswith(prefix) and each != f"{prefix}OSI Approved"
    }
    text = (said.get("License") or "").strip()
    return classified or ({text.partition("\n")[0]} if text else set())


def write_bill(lock: Path, out: Path) -> list[str]:
    """Write the bill of materials (CycloneDX) of a lock file; return what is wrong with it."""
    tool = Path(sys.executable).with_name("cyclonedx-py")
    out.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [tool, "requirements", lock, "--pyproject", ROOT / "pyproject.toml", "--validate",
         "--output-reproducible", "--spec-version", "1.6", "--output-file", out],
        check=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return bill_problems(json.loads(out.read_text()), lock)


def bill_problems(bill: Mapping[str, Any], lock: Path) -> list[str]:
    """Return how a bill differs from a lock file, and from what pyproject.toml asks for."""
    locked = {(each.name, each.version) for each in locked_in(lock)}
    named = {
        (canonicalize_name(each["name"]), each.get("version", "")) for each in bill["components"]
    }
    problems = [f"{name} {version} is locked, not in it" for name, version in locked - named]
    problems += [f"{name} {version} is in it, not locked" for name, version in named - locked]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = [*project["dependencies"], *project["optional-dependencies"]["libvirt"]]
    names = {name for name, _ in named}
    for requirement in required:
        name = canonicalize_name(re.split(r"[\[<>=!~; ]", requirement)[0])
        if name not in names:
            problems.append(f"{name} is required by pyproject.toml, not in it")
    if bill["metadata"]["component"]["name"] != project["name"]:
        problems.append(f"it is of {bill['metadata']['component']['name']}")
    return sorted(problems)


def judge(advisories: Advisories, packages: Sequence[Locked], accepted: Sequence[Any]) -> bool:
    """Print the findings about packages; return whether all are accepted."""
    age = (datetime.now(UTC) - advisories.until).days
    print(f"advisories: {advisories.source}, until {advisories.until:%Y-%m-%d}, {age} days ago")
    if age > _STALE_DAYS:
        print(
            "  of what was found later it knows nothing: --advisories FILE takes an export of\n"
            "  OSV's (https://osv.dev, ecosystem PyPI, all.zip)"
        )
    reasons = {(canonicalize_name(it["package"]), it["id"]): it["reason"] for it in accepted}
    used, well = set(), True
    for finding in findings(packages, advisories):
        package = finding.package
        keys = {(package.name, each) for each in finding.ids} & reasons.keys()
        used |= keys
        advisory = f"{package.name} {package.version}: {', '.join(finding.ids)}: {finding.says}"
        if keys:
            print(f"  accepted: {advisory}\n    because {reasons[min(keys)]}")
        else:
            print(f"  FOUND: {advisory}")
            well = False
    for name, each in sorted(reasons.keys() - used):
        print(f"  no longer found, and still accepted in requirements/audit.toml: {name} {each}")
    return well


def main() -> int:
    """Judge everything; return the exit status."""
    parser = argparse.ArgumentParser(prog="make audit", description=__doc__)
    parser.add_argument("--advisories", type=Path, help="OSV's export: a folder, or a zip file")
    parser.add_argument("--sbom", type=Path, default=ROOT / "build/fuga-controller.cdx.json")
    parser.add_argument("--site-packages", type=Path, required=True, help="of what is judged")
    options = parser.parse_args()
    requirements = ROOT / "requirements"
    config = tomllib.loads((requirements / "audit.toml").read_text())
    shipped = requirements / "simulation.lock"  # all that runtime.lock names, and the extra's
    packages = locked_in(shipped, requirements / "build.lock", requirements / "dev.lock")
    print(f"audit: {len(packages)} locked versions, {len(locked_in(shipped))} of them are shipped")
    well = judge(packaged_advisories(), packages, config["accepted"])
    if options.advisories is not None:
        well &= judge(advisories_in(options.advisories), packages, config["accepted"])
    problems = licence_problems(packages, options.site_packages, config["licences"])
    print(f"licences: {'; '.join(problems) if problems else 'all are permitted'}")
    differences = write_bill(shipped, options.sbom)
    print(f"bill of materials: {options.sbom}" + "".join(f"\n  {each}" for each in differences))
    return 0 if well and not problems and not differences else 1


def _ids(ids: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.strip() for each in ids if each.strip()))


def _ranges(specs: Sequence[str]) -> tuple[SpecifierSet, ...]:
    found = []
    for spec in specs:
        try:
            found.append(SpecifierSet(spec))
        except InvalidSpecifier:  # a few of 2017 name no version at all; better too much
            found.append(SpecifierSet())
    return tuple(found)


def _osv_ranges(affected: Mapping[str, Any]) -> tuple[SpecifierSet, ...]:
    found = []
    for each in affected.get("ranges", ()):
        if each.get("type") != "ECOSYSTEM":
            continue
        low = ""
        for event in each["events"]:
            if "introduced" in event:
                low = "" if event["introduced"] == "0" else f">={event['introduced']}"
                open_ended = True
            else:
                end = f"<{event['fixed']}" if "fixed" in event else f"<={event['last_affected']}"
                found.append(",".join(filter(None, (low, end))))
                open_ended = False
        if open_ended:
            found.append(low)
    try:
        return tuple(SpecifierSet(each) for each in found)
    except (InvalidSpecifier, InvalidVersion):
        return (SpecifierSet(),)


def _documents(path: Path) -> Iterator[Any]:
    if path.is_dir():
        for file in sorted(path.glob("*.json")):
            yield json.loads(file.read_bytes())
    else:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.endswith(".json"):
                    yield json.loads(archive.read(name))


if __name__ == "__main__":
    sys.exit(main())
