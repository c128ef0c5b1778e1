"""Texts as Kubernetes reads them: selectors of `-l`, and quantities."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric import label_selectors, quantity

LABELS = {"app": "llama", "tier": "prod", "volcano.sh/job-name": "train", "empty": ""}


SELECTORS = {
    "app=llama": True,
    "app==llama": True,
    "app = llama , tier = prod": True,
    "app=llama,tier=dev": False,
    "app!=llama": False,
    "absent!=x": True,
    "tier in (dev, prod)": True,
    "tier notin (dev,prod)": False,
    "absent notin (dev)": True,
    "volcano.sh/job-name": True,
    "!volcano.sh/job-name": False,
    "! absent": True,
    "absent": False,
    "empty=": True,
    "app=": False,
    "in=x": False,
    "": True,
}


def test_a_selector_matches():
    matched = {text: label_selectors.matches({}, label_selectors.parse(text), LABELS) for text in SELECTORS}
    assert matched == SELECTORS
    assert label_selectors.parse("a==") == [label_selectors.Expression("a", "In", ("",))]


def test_an_invalid_selector_is_an_error():
    for text in (",", "a,", ",a", "a b", "a=b=c", "a in b", "a in (b", "=x", "!", "a>1", "a in (b,!c)", "-a", "a=-b"):
        with pytest.raises(ValueError, match="cannot be read"):
            label_selectors.parse(text)


# --- quantities: Kubernetes' grammar, exactly -----------------------------------------------------------------


MILLI = {
    "1": 1000,
    "0": 0,
    "500m": 500,
    "1.5": 1500,
    "64Gi": 64 * 2**30 * 1000,
    "2Ti": 2 * 2**40 * 1000,
    "1k": 1_000_000,
    "1e3": 1_000_000,
    "1E": 10**18 * 1000,
    "1E2": 100_000,
    "100n": 1,
    "+2": 2000,
    "-1": -1000,
    ".5": 500,
    "5.": 5000,
    8: 8000,
    0.5: 500,
}


def test_parse_milli_is_exact_and_rounds_up():
    assert {text: quantity.parse_milli(text) for text in MILLI} == MILLI


def test_quantities_that_kubernetes_rejects_are_rejected():
    for text in ("", "GPU", " 1", "1Gi ", "1 Gi", "1gi", "1KI", "--1", "1e", "0x10", "1_000", "٣", "1" * 100, True):
        with pytest.raises(quantity.InvalidQuantityError):
            quantity.parse(text)


def test_quantities_are_capped_at_kubernetes_maximum():
    for text in ("1e21", "100Ei", "9223372036854775808", "9223372036854775807"):
        assert quantity.parse_units(text) == 2**63 - 1
        assert quantity.parse_units(f"-{text}") == 1 - 2**63
    assert quantity.parse_units(10**21) == quantity.parse_units(1e300) == 2**63 - 1


@given(st.integers(0, 2**63), st.sampled_from(["", "k", "Ki", "Gi", "E"]))
def test_parse_units_rounds_up(number, suffix):
    value = quantity.parse(f"{number}{suffix}")
    assert quantity.parse_units(f"{number}{suffix}") - 1 < value <= quantity.parse_units(f"{number}{suffix}")


@given(st.integers(0, 2**64), st.sampled_from([*"numkMGTPE", "", "Ki", "Ei", "e0", "e3", "E20", "e99", "e-3"]))
def test_whole_numbers_are_parsed_as_fractions_are(number, suffix):
    exact = min(1000 * quantity.parse(f"{number}.0{suffix}"), 1000 * (2**63 - 1))
    assert quantity.parse_milli(f"{number}{suffix}") - 1 < exact <= quantity.parse_milli(f"{number}{suffix}")


def test_a_huge_exponent_is_parsed_without_a_huge_number():
    assert quantity.parse("1e999999") == 2**63 - 1
    assert quantity.parse("1e-999999") == Fraction(1, 10**9)
    assert quantity.parse("0e999999") == quantity.parse("0e-999999") == 0
    assert quantity.parse("1e-3") == Fraction(1, 1000)
