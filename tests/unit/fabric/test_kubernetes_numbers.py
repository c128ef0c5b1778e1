"""Tolerations and comparisons of labels match as in kube-scheduler 1.37."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric import node_views, views
from railwright.fabric.placement.nodes import eligibility

NO_NUMBERS = ("", " 1", "1 ", "1_000", "\u0661", "\u00b2", "0x10", "1.5", "1e3", "--1", "9" * 19, "9" * 5000, "inf")


def tolerates(operator: str, taint: str, value: str, key: str = "sla") -> bool:
    toleration = views.Toleration(key=key, operator=operator, value=value, effect="NoSchedule")
    return not node_views.Taint(key="sla", value=taint, effect="NoSchedule").is_blocking([toleration])


def matches(operator: str, label: str, *values: str) -> bool:
    return eligibility._matches(views.Requirement(key="x", operator=operator, values=list(values)), {"x": label})


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_gt_and_lt_compare_a_label_with_the_value(number, bound):
    assert matches("Gt", str(number), str(bound)) is (number > bound)
    assert matches("Lt", str(number), str(bound)) is (number < bound)
    assert matches("Gt", "+5", "1")
    assert matches("Gt", "007", "1")


@pytest.mark.parametrize("text", NO_NUMBERS, ids=lambda text: text[:8])
def test_gt_and_lt_do_not_match_a_label_outside_64_bit_integers(text):
    for operator in ("Gt", "Lt"):
        assert not matches(operator, text, "7")
        assert not matches(operator, "7", text)


def test_tolerations_of_each_operator_match_as_in_kubernetes():
    assert tolerates("", "a", "a")
    assert tolerates("Equal", "a", "a")
    assert not tolerates("Equal", "a", "b")
    assert not tolerates("Equal", "a", "a", key="other")
    assert tolerates("Exists", "a", "")
    assert tolerates("Exists", "a", "", key="")
    assert not tolerates("In", "a", "a")
    assert not matches("Gt", "7", "1", "2")
    assert not matches("Gt", "7")
