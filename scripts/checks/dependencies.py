"""Check what ndcg-spark and its extras for users install: licences against a list, and known vulnerabilities.

Licences are read from what is installed. Versions are held against a short list of known vulnerabilities, everywhere;
where pip-audit is installed and its service can be reached, it is asked for all. Exit code 1: something was found.
"""

import json
import re
import socket
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

PACKAGE = "ndcg-spark"
EXTRAS = ("spark", "compare", "report", "demo", "mlflow")
ALLOWED = {
    *("0BSD", "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "CNRI-Python", "HPND"),
    *("ISC", "MIT", "MIT-0", "MIT-CMU", "MPL-2.0", "OFL-1.1", "PSF-2.0", "Python-2.0", "Unlicense", "Zlib"),
    # The run-time library of GCC, which some wheels carry: the exception lets programs have any licence.
    "GPL-3.0-or-later WITH GCC-exception-3.1",
    "LGPL-2.1-or-later WITH GCC-exception-2.0",
}
CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "Historical Permission Notice and Disclaimer (HPND)": "HPND",
    "The Unlicense (Unlicense)": "Unlicense",
}
STATED = {}
"""Licences of packages whose metadata do not tell them, by name; each with where it is told."""
ACCEPTED = ()
"""Ids of vulnerabilities that do not concern this package; each with the reason beside it."""
SERVICE = ("pypi.org", 443)
KNOWN = {
    "certifi": [("<2024.7.4", "CVE-2024-39689")],
    "fonttools": [(">=4.33,<4.60.2", "CVE-2025-66034")],
    "idna": [("<3.7", "CVE-2024-3651")],
    "jinja2": [("<3.1.6", "CVE-2025-27516")],
    "pillow": [(">=11.2,<11.3", "CVE-2025-48379"), ("<10.3", "CVE-2024-28219")],
    "pyarrow": [("<14.0.1", "CVE-2023-47248")],
    "requests": [("<2.32.4", "CVE-2024-47081")],
    "setuptools": [("<78.1.1", "CVE-2025-47273")],
    "urllib3": [("<2.5", "CVE-2025-50181")],
}
"""What to refuse where nobody can be asked: versions with a vulnerability, by package. As of November 2026."""


def collect_installed(extras=EXTRAS, requires=None):
    """Distributions that the package and its extras need, of those that are installed, by canonical name.

    `requires` are the requirements of the package itself; None reads those of the installed one.
    """
    distributions, left = {}, [Requirement(f"{PACKAGE}[{','.join(extras)}]")]
    seen = set()
    while left:
        wanted = left.pop()
        key = (canonicalize_name(wanted.name), frozenset(wanted.extras))
        if key in seen:
            continue
        seen.add(key)
        try:
            distribution = metadata.distribution(wanted.name)
        except metadata.PackageNotFoundError:
            continue
        distributions[key[0]] = distribution
        for text in (requires if key[0] == PACKAGE and requires is not None else distribution.requires) or ():
            needed = Requirement(text)
            if any(
                needed.marker is None or needed.marker.evaluate({"extra": extra}) for extra in (*wanted.extras, "")
            ):
                left.append(needed)
    return {name: distribution for name, distribution in sorted(distributions.items()) if name != PACKAGE}


def read_licence(distribution):
    """Return the licence as an SPDX expression if possible; else the text of the metadata."""
    about = distribution.metadata
    name = canonicalize_name(about["Name"])
    if name in STATED:
        return STATED[name]
    stated = about.get("License-Expression")  # older readers of metadata raise for what is not there
    if stated:
        return stated
    named = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier", ()) if line.startswith("License ::")]
    named = [CLASSIFIERS.get(text, text) for text in named if text != "OSI Approved"]
    first = (about.get("License") or "").strip().splitlines()[:1]
    return " AND ".join(named) or _spdx("".join(first)) or "unknown"


def _spdx(text):
    plain = re.sub(r"(?i)\b(the|licen[cs]e|version|software)\b|,", " ", text).split()
    known = {
        **{"apache 2.0": "Apache-2.0", "apache-2.0": "Apache-2.0", "mit": "MIT", "bsd": "BSD", "psf": "PSF-2.0"},
        **{"3-clause bsd": "BSD-3-Clause", "bsd 3-clause": "BSD-3-Clause", "bsd-3-clause": "BSD-3-Clause"},
        **{"mpl 2.0": "MPL-2.0", "mpl-2.0": "MPL-2.0"},
    }
    return known.get(" ".join(plain).lower(), text)


def is_allowed(expression):
    """Check whether a licence is allowed, or one of each choice of licences."""
    every = re.split(r"\s+AND\s+", expression.replace("(", "").replace(")", ""))
    return all(any(licence.strip() in ALLOWED for licence in re.split(r"\s+OR\s+", part)) for part in every)


def check_licences(distributions):
    """List packages whose licence is not allowed."""
    licences = {name: read_licence(distribution) for name, distribution in distributions.items()}
    return [
        f"{name} {distributions[name].version} has the licence {text!r}, which "
        "scripts/checks/dependencies.py does not allow"
        for name, text in licences.items()
        if not is_allowed(text)
    ]


def check_known(distributions):
    """List packages of a version that is in `KNOWN`."""
    return [
        f"{name} {distribution.version} has {known}, as all versions {versions} have"
        for name, distribution in distributions.items()
        for versions, known in KNOWN.get(name, ())
        if SpecifierSet(versions).contains(distribution.version, prereleases=True) and known not in ACCEPTED
    ]


def service_answers():
    try:
        with socket.create_connection(SERVICE, timeout=5):
            return True
    except OSError:
        return False


def check_vulnerabilities(distributions):
    """List known vulnerabilities, with a remark; None and a reason if the service is not reachable."""
    try:
        metadata.distribution("pip-audit")
    except metadata.PackageNotFoundError:
        return None, "pip-audit is not installed"
    if not service_answers():
        return None, f"{SERVICE[0]} cannot be reached from here"
    with tempfile.TemporaryDirectory() as folder:
        pinned = Path(folder) / "requirements.txt"
        pinned.write_text(
            "".join(
                f"{name}=={distribution.version.partition('+')[0]}\n" for name, distribution in distributions.items()
            )
        )
        command = [sys.executable, "-m", "pip_audit", "--no-deps", "--disable-pip", "--requirement", pinned]
        command += ["--format", "json", "--progress-spinner", "off", "--timeout", "15"]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
            reports = json.loads(ended.stdout)["dependencies"]
        except (subprocess.TimeoutExpired, ValueError, KeyError):
            return None, "pip-audit had no answer from its service"
    unknown = sum("skip_reason" in distribution for distribution in reports)
    if reports and unknown == len(reports):  # a mirror, say, which has packages but knows nothing about them
        return None, "the service knows none of the packages"
    return [
        f"{distribution['name']} {distribution['version']} has {vulnerability['id']}, fixed in "
        f"{', '.join(vulnerability['fix_versions']) or 'no version'}"
        for distribution in reports
        for vulnerability in distribution.get("vulns", ())
        if vulnerability["id"] not in ACCEPTED
    ], f" ({unknown} packages are not known to the service)" if unknown else ""


def main():
    distributions = collect_installed()
    forbidden = check_licences(distributions)
    print(f"licences: {len(distributions)} packages, {len(forbidden)} not allowed")
    listed = check_known(distributions)
    print(f"vulnerabilities of scripts/checks/dependencies.py: {len(listed)}")
    vulnerable, why = check_vulnerabilities(distributions)
    print(f"all known ones: {f'not checked, as {why}' if vulnerable is None else f'{len(vulnerable)}{why}'}")
    for line in (*forbidden, *listed, *(vulnerable or ())):
        print(line, file=sys.stderr)
    return 1 if forbidden or listed or vulnerable else 0


if __name__ == "__main__":
    sys.exit(main())
