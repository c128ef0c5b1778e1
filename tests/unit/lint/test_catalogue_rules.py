"""The rules for each variable of the catalogue, with the values at both ends of each range."""

import itertools

import pytest

from documentation import rules as pages
from railwright.fabric.lint import engine
from railwright.fabric.nccl import catalogue, derive

BY_STATUS = {"removed": "N02", "unknown": "N02", "framework": "N02", "newer": "N02"}
READ = [row for row in catalogue.list_variables() if row.status in {"active", "deprecated", "newer", "unused"}]


def codes(name, value, **known):
    return {finding.code for finding in engine.check_ranks(pages.build_ranks({"settings": {name: value}, **known}))}


def test_a_catalogue_variable_is_reported_only_by_the_rule_for_its_status():
    for row in catalogue.list_variables():
        reported = codes(row.name, "1") & {"N01", *BY_STATUS.values()}
        assert reported == ({BY_STATUS[row.status]} if row.status in BY_STATUS else set()), row.name


NUMBERS = [row for row in READ if row.is_numeric]


@pytest.mark.parametrize(
    ("value", "code"),
    [("true", "N09"), ("0x10", "N09"), ("1s", "N09"), ("01", "N09"), (" 1", "N11"), ("", "N11")],
)
def test_a_number_is_reported_if_it_is_not_plain_decimal(value, code):
    assert [row.name for row in NUMBERS if code not in codes(row.name, value)] == []


def test_a_hostile_name_or_value_is_shortened_and_escaped_in_a_finding():
    name = "NCCL_\x1b[31m" + "x" * 5000
    (finding,) = engine.check_ranks(pages.build_ranks({"settings": {name: "\n" * 5000}}))
    assert finding.message.isprintable()
    assert len(finding.message) < 900


def test_errors_are_listed_before_warnings():
    findings = engine.check_ranks(pages.build_ranks({"settings": {"NCCL_NOBODY": "1", "NCCL_IB_SL": "99"}}))
    assert [finding.code for finding in findings] == ["N09", "N01"]


class _Recorded(dict):
    """Settings that record the names that are looked up."""

    def __init__(self, settings, asked):
        super().__init__(settings)
        self.asked = asked

    def get(self, name, default=None):
        self.asked.add(name)
        return super().get(name, default)

    def __contains__(self, name):
        self.asked.add(name)
        return super().__contains__(name)


def test_every_variable_that_a_rule_looks_up_is_checked_by_a_rule():
    asked = set()
    names = [variable.name for variable in catalogue.list_variables()]
    for name, value in itertools.product(
        [*names, *derive.NAMES, "NVSHMEM_HCA_PE_MAPPING"], ("1", "IB", "ofi", "ibgda")
    ):
        ranks = pages.build_ranks({"settings": {name: value}})
        ranks.__dict__["effective_settings"] = _Recorded(ranks.effective_settings, asked)
        engine.check_ranks(ranks)
    assert asked
    assert [name for name in sorted(asked) if not engine.find_rules(name)] == []
