"""Manifests that vendors publish and run: lint reports what is wrong with them, and nothing else."""

import pathlib

import pytest
import yaml

from railwright.cli import lint_findings
from railwright.fabric.lint import commands, rule_types

DATA = pathlib.Path(__file__).parents[2] / "data" / "lint" / "vendors.yaml"
VENDORS = yaml.safe_load(DATA.read_text())


@pytest.mark.parametrize("vendor", VENDORS, ids=lambda vendor: vendor["source"].split()[-1])
def test_what_vendors_run_is_reported_only_where_it_is_wrong(vendor):
    report = lint_findings.check_file("job.yaml", vendor["manifest"], lint_findings.Context())
    codes = {item.finding.code for item in report.located if item.finding.severity is not rule_types.Severity.INFO}
    assert codes == set(vendor["codes"])
    assert report.templates == 1


@pytest.mark.parametrize(
    ("script", "names"),
    [
        ("echo $NCCL_MINE", {"NCCL_MINE"}),
        ("echo ${NCCL_MINE:-5}", {"NCCL_MINE"}),
        ("python -c 'import os; os.environ[\"NCCL_MINE\"]'", {"NCCL_MINE"}),
        ("export NCCL_TYPO=$NCCL_TYPO", set()),  # only passes it on, so NCCL is meant to read it
        ('mpirun -x NCCL_TYPO="${NCCL_TYPO}" train', set()),
        ("export NCCL_IB_TIMEOUT=$NCCL_MINE", {"NCCL_MINE"}),
        ("NCCL_TYPO=1 train", set()),
    ],
)
def test_a_variable_of_a_script_is_one_that_the_script_reads(script, names):
    assert commands.list_own_names(["bash", "-c", script]) == names
