"""Profiles of clouds: the vendor's published job, stripped to one label, becomes the vendor's published pods."""

import re

import comparison
import pytest

from railwright.cli.clouds import profiles

SHAPES = comparison.list_shapes()
COMMON = {difference.at for difference in comparison.read_common_differences()}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_injected_pods_equal_the_vendors_except_for_the_listed_differences(shape):
    for name, replacements in shape.replacements.items():
        text = (comparison.FOLDER / shape.profile.name / name).read_text()
        assert all(old in text for old in replacements)
    actual = comparison.compare(shape)
    assert actual.keys() - COMMON == {difference.at for difference in shape.differences}, actual


@pytest.mark.parametrize("profile", profiles.list_profiles(), ids=lambda profile: profile.name)
def test_the_job_of_a_profile_has_one_key_of_railwright_and_sets_no_nccl_variable(profile):
    text = (comparison.FOLDER / profile.name / "job.yaml").read_text()
    assert text.count("railwright.io/") == 1
    assert not re.findall(r"NCCL_(?!LIB_DIR)\w+", text)  # NCCL_LIB_DIR is an argument of a script of Google's
