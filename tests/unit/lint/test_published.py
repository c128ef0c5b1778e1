"""Published settings and manifests: lint reports their errors, and nothing else.

tests/data/lint/reviewed.yaml has the findings in manifests of vendors' repositories, which were reviewed.
"""

import collections
import pathlib

import published_manifests
import pytest
import yaml
from admitting import EXAMPLES

from documentation import rules as pages
from railwright.cli import linted_manifests, linting
from railwright.fabric.lint import engine, rank_contexts

DATA = pathlib.Path(__file__).parents[2] / "data"
SETTINGS = yaml.safe_load((DATA / "lint" / "published.yaml").read_text())
VENDORS = yaml.safe_load((DATA / "lint" / "vendors.yaml").read_text())
MANIFESTS = published_manifests.read_archive()
STORED = [row for row in published_manifests.INDEX if "reason" not in row]
WORKER = {"accelerators": 8, "shared_memory": 32 << 30, "capabilities": ["IPC_LOCK"]}


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row["name"])
def test_published_settings_are_reported_by_exactly_the_reviewed_rules(row):
    ranks = pages.build_ranks({**WORKER, **row})
    assert sorted({finding.code for finding in engine.check_ranks(ranks)}) == row["codes"]


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor["source"].split()[-1])
def test_vendor_manifests_are_reported_by_exactly_the_reviewed_rules(vendor):
    manifests = linted_manifests.read_manifests("job.yaml", vendor["manifest"])
    assert {item.finding.code for item in linting.check_manifests(manifests).sorted_findings} == set(vendor["codes"])
    templates = [template for manifest in manifests for item in manifest.objects for template in item.templates]
    assert len(templates) == vendor.get("templates", 1)


def check_example(site, name):
    tree = yaml.safe_load((EXAMPLES / site / name).read_text())
    for template in linted_manifests.read_templates(tree):
        networks = rank_contexts.parse_pod_networks(template.pod, "prod")
        job = rank_contexts.JobContext(networks=networks)
        yield engine.check_ranks(rank_contexts.build_context(template.pod, 0, job))


@pytest.mark.parametrize("site", ["360-roce", "360-infiniband"])
def test_a_hand_written_job_is_reported_for_missing_locked_and_shared_memory(site):
    for findings in check_example(site, "handwritten.yaml"):
        codes = {finding.code for finding in findings if finding.code >= "N23"}
        # Room in /dev/shm and memory that may be locked are what the site's own policy adds.
        assert codes == {"N45", "N46"}


@pytest.mark.parametrize("site", ["360-roce", "360-infiniband"])
def test_a_labelled_job_is_not_reported_for_settings_that_the_webhook_adds(site):
    for findings in check_example(site, "job.yaml"):
        assert findings == ()


@pytest.mark.parametrize("row", STORED, ids=lambda row: row["repository"])
def test_lint_of_a_repository_gives_exactly_the_reviewed_findings(row):
    prefix, paths = f"{row['repository']}/", collections.defaultdict(set)
    manifests = {name.removeprefix(prefix): text for name, text in MANIFESTS.items() if name.startswith(prefix)}
    assert manifests.pop("LICENSE", "") or not row["manifests"]
    for path, text in manifests.items():
        for key in published_manifests.find(path, text):
            paths[key].add(path)
    assert paths == {(finding["code"], finding.get("name", "")): set(finding["in"]) for finding in row["findings"]}
    assert len(manifests) == row["manifests"]


def test_every_stored_manifest_belongs_to_a_reviewed_repository():
    repositories = tuple(f"{row['repository']}/" for row in STORED)
    assert all(path.startswith(repositories) for path in MANIFESTS)
