"""Build what is released into dist/: sdist, wheel, and the zip for `spark-submit --py-files`.

The same commit gives the same bytes with the same Python and tools, in any folder, at any time: times come from the
commit (SOURCE_DATE_EPOCH where there is no git), names are sorted, modes are fixed. The wheel is built from the
sdist, so the sdist is complete.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

from packaging.metadata import Metadata

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
NEEDED = (
    "py.typed",
    "functions/functions.sql",
    "reports/page.css",
    "reports/page.js",
    "reports/page.html.jinja",
    "jobs/log4j2-quiet.properties",
)


def git(*arguments):
    """Return the output of git; None if this is not a clone."""
    ended = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True)
    return ended.stdout.strip() if ended.returncode == 0 else None


def commit_time():
    if os.environ.get("SOURCE_DATE_EPOCH"):
        return os.environ["SOURCE_DATE_EPOCH"]
    timestamp = git("log", "-1", "--format=%ct") if (ROOT / ".git").exists() else None
    if not timestamp:
        sys.exit("scripts/release: this is not a git clone; set SOURCE_DATE_EPOCH to the seconds of its release.")
    return timestamp


def version():
    return re.search(
        r'__version__ = "(.+)"', (ROOT / "ndcg_spark" / "_version.py").read_text(encoding="utf-8")
    ).group(1)


def build():
    """Build sdist, wheel and zip; return their paths."""
    DIST.mkdir(exist_ok=True)
    for old in (*DIST.glob("ndcg_spark-*"), DIST / "ndcg_spark.zip"):
        old.unlink(missing_ok=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": commit_time()}
    for command in (
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, ROOT],
        [sys.executable, ROOT / "scripts" / "package"],
    ):
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
        if ended.returncode:
            sys.exit(f"scripts/release: {' '.join(map(str, command))} failed.\n{ended.stdout}{ended.stderr}")
    return [
        DIST / f"ndcg_spark-{version()}.tar.gz",
        *DIST.glob(f"ndcg_spark-{version()}-*.whl"),
        DIST / "ndcg_spark.zip",
    ]


def check_wheel(wheel):
    """Raise unless the wheel holds the package, all of it and nothing else, and its metadata are valid."""
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "ndcg_spark").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    } | {"ndcg_spark/functions/functions.sql"}  # written when the wheel is built
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        (about,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Metadata.from_email(archive.read(about), validate=True)
    missing = {f"ndcg_spark/{name}" for name in NEEDED} - held
    if held != package or missing:
        sys.exit(f"scripts/release: the wheel differs from the package: {sorted(held ^ package | missing)[:5]}")
    if str(metadata.version) != version():
        sys.exit(f"scripts/release: the wheel is of version {metadata.version}, the package of {version()}.")


def complaints():
    """List what must be done before publishing."""
    problems = []
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## \[{re.escape(version())}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        problems.append(f"CHANGELOG.md has no section [{version()}] with a date")
    if git("status", "--porcelain"):
        problems.append("the working tree has uncommitted changes")
    if git("tag", "--points-at", "HEAD") != f"v{version()}":
        problems.append(f"the commit has no tag v{version()}")
    return problems


def main():
    parser = argparse.ArgumentParser(prog="scripts/release", description=__doc__.splitlines()[0])
    parser.add_argument(
        "publish", nargs="?", choices=["publish"], help="exit with 2 unless this commit may be published"
    )
    options = parser.parse_args()
    files = build()
    check_wheel(files[1])
    for path in files:
        content = path.read_bytes()
        print(f"{hashlib.sha256(content).hexdigest()}  {path.relative_to(ROOT).as_posix()}  {len(content):,} bytes")
    for problem in complaints():
        print(f"before publishing: {problem}", file=sys.stderr)
    return 2 if options.publish and complaints() else 0


if __name__ == "__main__":
    sys.exit(main())
