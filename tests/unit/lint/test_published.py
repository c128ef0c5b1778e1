"""Published settings and manifests: lint reports what is wrong with them, and nothing else.

tests/data/published has manifests of vendors' repositories, and in its index.yaml the findings in them, which were
reviewed. `tests/slow/test_published.py` reads those that are archived.
"""

import pathlib

import published_manifests
import pytest
import yaml
from admitting import EXAMPLES

from documentation import rules as pages
from railwright.cli import linted_files, linted_workloads
from railwright.fabric.lint import engine, fabric_context, rank_contexts
from railwright.fabric.lint.rules import claims

DATA = pathlib.Path(__file__).parents[2] / "data"
SETTINGS = yaml.safe_load((DATA / "lint" / "published.yaml").read_text())
VENDORS = yaml.safe_load((DATA / "lint" / "vendors.yaml").read_text())
CLAIMS = yaml.safe_load((DATA / "claims" / "published.yaml").read_text())
REVIEWED = published_manifests.INDEX
SHOWN = [(finding["code"], finding["shown"]) for row in REVIEWED if "reason" in row for finding in row["findings"]]
READABLE = [
    (row, path.removeprefix(f"{row['repository']}/"), manifest)
    for path, manifest in published_manifests.read_folder().items()
    for row in REVIEWED
    if path.startswith(f"{row['repository']}/")
]
WORKER = {"accelerators": 8, "shared_memory": 32 << 30, "capabilities": ["IPC_LOCK"]}
# rules that the published templates violate, by name and shape
CLAIM_CODES = {
    ("gpu-efa-aligned", "eks-p4d"): set(),
    ("gpu-efa-unaligned", "eks-p4d"): set(),
    ("1-gpu with all its EFA devices", "eks-p5"): set(),
    ("gpu-efa-aligned", "eks-p5"): set(),
    ("aligned-resource-claim", "gke-a3-ultra"): {"C05"},
    ("2-gpu-nic-aligned", "gke-a3-ultra"): {"C01", "C02", "C05"},
    ("2-gpu-nic-aligned, without its selector on the index", "gke-a3-ultra"): {"C01", "C05"},
    ("2-gpu-nic-aligned, without its selector on the index", "h100-8x8"): {"C01", "C05"},
    ("1nic-aligned", "aks-gb300"): {"C02", "C03"},
    ("2nic-aligned", "aks-gb300"): {"C02", "C03"},
    ("1nic-aligned", "oke-gb200"): {"C02", "C03", "C04"},
    ("2nic-aligned", "oke-gb200"): {"C02", "C03", "C04"},
}


@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row["name"])
def test_published_settings_are_reported_by_these_rules(row):
    ranks = pages.build_ranks({**WORKER, **row})
    assert sorted({finding.code for finding in engine.check(ranks)}) == row["codes"]


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor["source"].split()[-1])
def test_published_settings_are_reported_only_where_they_are_wrong(vendor):
    report = linted_files.check([linted_files.read_file("job.yaml", vendor["manifest"])])
    assert {item.finding.code for item in report.located} == set(vendor["codes"])
    assert report.templates == vendor.get("templates", 1)


@pytest.mark.parametrize("row", CLAIMS, ids=lambda row: f"{row['name']} {row['shape']}")
def test_published_templates_violate_the_rules_of_their_traps(row):
    claim = claims.ClaimContext("ResourceClaimTemplate a/b", claims.read_devices(row["devices"]))
    assert {finding.code for finding, _ in claims.check(claim)} == CLAIM_CODES[row["name"], row["shape"]]


def check_example(site, name):
    (workload,) = linted_workloads.read(yaml.safe_load((EXAMPLES / site / name).read_text()))
    for template in workload.templates:
        networks = fabric_context.parse_networks(template.pod, "prod")
        job = rank_contexts.JobContext(networks=networks)
        yield engine.check(rank_contexts.build(template.pod, 0, job))


@pytest.mark.parametrize("site", ["360-roce", "360-infiniband"])
def test_a_job_written_by_hand_is_reported_for_what_it_lacks(site):
    for findings in check_example(site, "handwritten.yaml"):
        codes = {finding.code for finding in findings if finding.code >= "N23"}
        # Room in /dev/shm and memory that may be locked are what the site's own policy adds.
        assert codes == {"N45", "N46"}


@pytest.mark.parametrize("site", ["360-roce", "360-infiniband"])
def test_a_job_that_leaves_it_to_the_webhook_gets_no_warning_about_what_it_leaves_out(site):
    for findings in check_example(site, "job.yaml"):
        assert findings == ()


@pytest.mark.parametrize(("code", "shown"), SHOWN)
def test_a_reviewed_finding_is_reported_for_what_it_is_about(code, shown):
    assert code in {finding.code for finding in engine.check(pages.build_ranks(shown))}


@pytest.mark.parametrize(("row", "path", "manifest"), READABLE, ids=[path for _, path, _ in READABLE])
def test_lint_of_a_manifest_gives_exactly_the_reviewed_findings(row, path, manifest):
    assert published_manifests.find(path, manifest) == published_manifests.list_reviewed(row, path)
