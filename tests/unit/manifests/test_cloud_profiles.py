"""Profiles of clouds: the vendor's published job, stripped to one label, becomes the vendor's published pods."""

import re

import admitting
import pytest
import vendor_pods

PROFILES = list(vendor_pods.list_profiles())
COMMON = vendor_pods.list_common_differences()


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.folder)
def test_the_pods_are_the_vendors_but_for_the_differences_that_the_profile_names(profile):
    actual = vendor_pods.compare(profile)
    assert actual.keys() - COMMON == profile.differences, actual


def test_every_common_difference_occurs():
    assert set().union(*map(vendor_pods.compare, PROFILES)) >= COMMON


@pytest.mark.parametrize("folder", {profile.folder for profile in PROFILES})
def test_the_job_has_one_key_of_railwright_and_no_setting_of_nccl(folder):
    text = (admitting.PROFILES / folder / "job.yaml").read_text()
    assert text.count("railwright.io/") == 1
    assert not re.findall(r"NCCL_(?!LIB_DIR)\w+", text)  # NCCL_LIB_DIR is an argument of a script of Google's
