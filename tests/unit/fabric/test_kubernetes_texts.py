"""Selectors and quantities are parsed as by Kubernetes."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric import label_selectors, quantity

LABELS = {"app": "llama", "tier": "prod", "empty": ""}


@pytest.mark.parametrize(
    ("key", "operator", "values", "is_match"),
    [
        ("app", "In", ("llama",), True),
        ("tier", "In", ("dev", "prod"), True),
        ("absent", "In", ("x",), False),
        ("app", "NotIn", ("llama",), False),
        ("absent", "NotIn", ("x",), True),
        ("empty", "In", ("",), True),
        ("app", "Exists", (), True),
        ("absent", "Exists", (), False),
        ("app", "DoesNotExist", (), False),
        ("absent", "DoesNotExist", (), True),
    ],
)
def test_an_expression_of_a_label_selector_matches_as_in_kubernetes(key, operator, values, is_match):
    assert label_selectors.OPERATORS[operator](LABELS.get(key), values) is is_match


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


@given(st.integers(0, 2**64), st.sampled_from([*"numkMGTPE", "", "Ki", "Ei", "e0", "e3", "E20", "e99", "e-3"]))
def test_integer_quantities_are_parsed_like_decimal_ones(number, suffix):
    exact = min(1000 * quantity.parse(f"{number}.0{suffix}"), 1000 * (2**63 - 1))
    assert quantity.parse_milli(f"{number}{suffix}") - 1 < exact <= quantity.parse_milli(f"{number}{suffix}")


def test_a_huge_exponent_is_parsed_without_a_huge_number():
    assert quantity.parse("1e999999") == 2**63 - 1
    assert quantity.parse("1e-999999") == Fraction(1, 10**9)
    assert quantity.parse("0e999999") == quantity.parse("0e-999999") == 0
    assert quantity.parse("1e-3") == Fraction(1, 1000)
