"""Reads manifests that vendors publish, and lint's findings in them.

tests/data/lint/published.tar.xz has them with the licence of each repository; reviewed.yaml beside it is their index.
`python tests/support/published_manifests.py FOLDER` writes the archive from a folder that has them as OWNER/NAME/PATH.
"""

import io
import pathlib
import sys
import tarfile
from typing import Any

import yaml

from railwright.cli import linted_manifests, linting

DATA = pathlib.Path(__file__).parents[1] / "data" / "lint"
ARCHIVE = DATA / "published.tar.xz"
INDEX: list[dict[str, Any]] = yaml.safe_load((DATA / "reviewed.yaml").read_text())
Key = tuple[str, str]


def read_archive() -> dict[str, str]:
    """Return the texts of the manifests and licences by OWNER/NAME/PATH."""
    with tarfile.open(ARCHIVE) as archive:
        return {member.name: archive.extractfile(member).read().decode() for member in archive}  # type: ignore[union-attr]


def find(path: str, text: str) -> set[Key]:
    """Return lint's findings in a manifest, as code and variable."""
    located = linting.check_manifests(linted_manifests.read_manifests(path, text)).sorted_findings
    findings = [item.finding for item in located]
    return {(finding.code, finding.name if finding.code.startswith("N") else "") for finding in findings}


def write_archive(folder: pathlib.Path) -> None:
    """Write the archive. Equal files give equal bytes with the same release of liblzma."""
    with tarfile.open(ARCHIVE, "w:xz", preset=9, format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            member = tarfile.TarInfo(str(path.relative_to(folder)))
            member.size = path.stat().st_size
            archive.addfile(member, io.BytesIO(path.read_bytes()))


if __name__ == "__main__":
    write_archive(pathlib.Path(sys.argv[1]))
