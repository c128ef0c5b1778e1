"""`railwright demo --cloud`: a cloud's published job with one label, its pods, and what differs from the vendor's."""

import json

import pytest

from railwright.cli import __main__ as command_line
from railwright.cli import output
from railwright.cli.clouds import comparison, profiles


@pytest.mark.parametrize("name", ["aks-h100", "eks-efa", "gke-a3-ultra-dranet"])
def test_it_shows_the_job_the_changes_and_each_difference_with_its_reason(name, capsys):
    profile = profiles.find(name)
    assert command_line.main(["demo", "--cloud", name]) == output.OK
    text = capsys.readouterr().out
    job, changes, differences = text.split("\n1. ")[1].split("\n2. ")[0], *text.split("\n2. ")[1].split("\n3. ")
    assert profile.read_text("job.yaml").splitlines()[-1] in job
    assert "   +    railwright.io/injection (JSON):" in changes
    shape = profiles.list_shapes(profile)[0]
    assert {line.strip() for line in differences.splitlines()} >= {row.reason for row in shape.differences}
    assert profile.unverified in differences


def test_the_document_has_the_pods_and_both_values_of_each_difference(capsys):
    assert command_line.main(["demo", "--cloud", "eks-efa", "-o", "json"]) == output.OK
    document = json.loads(capsys.readouterr().out)
    assert document["lines"] == {"vendor": 85, "job": 70}
    (worker,) = document["pods"]["worker"]["spec"]["containers"]
    assert worker["resources"]["limits"]["vpc.amazonaws.com/efa"] == "32"
    provider = next(row for row in document["differences"] if row["at"] == "ranks FI_PROVIDER")
    assert (provider["vendor"], provider["railwright"]) == ("efa", "(absent)")


def test_a_difference_that_the_profile_does_not_name_is_a_finding(monkeypatch, capsys):
    monkeypatch.setattr(comparison, "read_common_differences", tuple)
    assert command_line.main(["demo", "--cloud", "eks-efa"]) == output.FINDINGS
    assert comparison._UNLISTED in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--full", "--serve"])
def test_options_of_the_other_demo_are_refused(option, capsys):
    assert command_line.main(["demo", "--cloud", "eks-efa", option]) == output.UNUSABLE
    assert f"{option}: not with --cloud" in capsys.readouterr().err
