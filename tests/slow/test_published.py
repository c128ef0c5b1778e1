"""All stored manifests of vendors' repositories: lint reports exactly the reviewed findings."""

import collections

import published_manifests
import pytest

MANIFESTS = published_manifests.read_archive()
STORED = [row for row in published_manifests.INDEX if "reason" not in row]


@pytest.mark.parametrize("row", STORED, ids=lambda row: row["repository"])
def test_lint_of_a_repository_gives_exactly_the_reviewed_findings(row):
    paths, count = collections.defaultdict(set), 0
    for whole, text in MANIFESTS.items():
        path = whole.removeprefix(f"{row['repository']}/")
        if path in (whole, "LICENSE"):
            continue
        count += 1
        for key in published_manifests.find(path, text):
            paths[key].add(path)
    assert paths == {(finding["code"], finding.get("name", "")): set(finding["in"]) for finding in row["findings"]}
    assert count == row["manifests"]


def test_every_manifest_is_of_a_repository_whose_licence_is_stored():
    for path in MANIFESTS:
        (row,) = [row for row in STORED if path.startswith(f"{row['repository']}/")]
        assert f"{row['repository']}/LICENSE" in MANIFESTS
