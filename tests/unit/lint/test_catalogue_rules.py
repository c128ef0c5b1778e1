"""The rules on every row of the catalogue, with the values at both ends of each range."""

import pytest

from documentation import rules as pages
from railwright.fabric.lint import engine, rule_types
from railwright.fabric.nccl import catalogue

BY_STATUS = {"removed": "N02", "unknown": "N03", "framework": "N04", "plugin": "N05", "newer": "N06"}
VALUES = {"N07", "N08", "N09", "N10", "N11", "N12"}  # the rules about what a value looks like
SYMBOL = {"NCCL_DEBUG"}  # its default is NCCL's own symbol, not a word anybody writes
READ = [row for row in catalogue.list_variables() if row.status in {"active", "deprecated", "newer", "unused"}]


def codes(name, value, **known):
    return {finding.code for finding in engine.check(pages.build_ranks({"settings": {name: value}, **known}))}


@pytest.mark.parametrize("row", catalogue.list_variables(), ids=lambda row: row.name)
def test_every_row_gives_the_rule_of_its_status_and_no_other_of_them(row):
    reported = codes(row.name, "1") & {"N01", *BY_STATUS.values()}
    assert reported == ({BY_STATUS[row.status]} if row.status in BY_STATUS else set())


@pytest.mark.parametrize("row", READ, ids=lambda row: row.name)
def test_every_default_and_every_allowed_value_is_accepted(row):
    good = [row.default_text] if row.default_text is not None and row.name not in SYMBOL else []
    if isinstance(row.allowed, catalogue.Enumeration):
        good += row.allowed.values
    if isinstance(row.allowed, catalogue.Range):
        good += [str(row.allowed.min)] + ([] if row.allowed.max is None else [str(row.allowed.max)])
    for value in good:
        assert not codes(row.name, value) & VALUES, value


RANGES = [row for row in READ if isinstance(row.allowed, catalogue.Range)]
NUMBERS = [row for row in READ if row.is_numeric]
WORDS = [
    row
    for row in READ
    if isinstance(row.allowed, catalogue.Enumeration) and not row.is_numeric and row.name not in SYMBOL
]


@pytest.mark.parametrize("row", RANGES, ids=lambda row: row.name)
def test_the_number_beyond_either_end_is_reported(row):
    top = catalogue.OVERFLOW - 1 if row.allowed.max is None else row.allowed.max
    for value in (str(row.allowed.min - 1), str(top + 1)):
        assert ("N09" in codes(row.name, value)) == (value != row.default_text), value


@pytest.mark.parametrize("row", NUMBERS, ids=lambda row: row.name)
def test_a_number_in_any_other_spelling_is_reported(row):
    assert "N07" in codes(row.name, "true")
    assert "N07" in codes(row.name, "0x10")
    assert "N07" in codes(row.name, "1s")
    assert "N08" in codes(row.name, "01")
    assert "N11" in codes(row.name, " 1")
    assert "N11" in codes(row.name, "")


@pytest.mark.parametrize("row", WORDS, ids=lambda row: row.name)
def test_a_word_that_is_not_in_the_row_is_reported(row):
    assert "N10" in codes(row.name, "NONSENSE")
    if row.allowed.case_sensitive:
        assert "N10" in codes(row.name, row.allowed.values[0].lower())


@pytest.mark.parametrize(
    "row", [row for row in READ if row.since and row.component == "core"], ids=lambda row: row.name
)
def test_a_variable_is_newer_than_every_release_before_its_own(row):
    assert "N06" in codes(row.name, "1", nccl=(2, 0, 0))
    assert "N06" not in codes(row.name, "1", nccl=row.since)


def test_a_hostile_name_or_value_is_shown_short_and_escaped():
    name = "NCCL_\x1b[31m" + "x" * 5000
    (finding,) = engine.check(pages.build_ranks({"settings": {name: "\n" * 5000}}))
    assert finding.message.isprintable()
    assert len(finding.message) < 900


def test_long_names_take_no_memory():
    caches = (engine._find_readers, catalogue._find_similar)
    sizes = [cache.cache_info().currsize for cache in caches]
    assert engine.check(pages.build_ranks({"settings": {"NCCL_" + "X" * 5000: "1"}}))
    assert [cache.cache_info().currsize for cache in caches] == sizes


def test_only_the_setting_that_wins_is_looked_at():
    first, second = (rule_types.Setting("NCCL_IB_TIMEOUT", value, "env") for value in ("22", "99"))
    assert not engine.check(rule_types.RankContext("r", (first, second)))
    assert engine.check(rule_types.RankContext("r", (second, first)))


def test_findings_stand_errors_first_and_once():
    findings = engine.check(
        pages.build_ranks({"settings": {"NCCL_NOBODY": "1", "NCCL_IB_SL": "99", "NCCL_SHARP_DISABLE": "1"}})
    )
    assert [finding.code for finding in findings] == ["N09", "N01", "N05"]
    assert engine.check(pages.build_ranks({"settings": {"NCCL_IB_TIMEOUT": "99"}})) == engine.check(
        pages.build_ranks({"settings": {"NCCL_IB_TIMEOUT": "99"}})
    )


def test_infos_are_not_admission_warnings():
    findings = engine.check(pages.build_ranks({"settings": {"NCCL_SHARP_DISABLE": "1"}}))
    assert findings
    assert engine.list_warnings(findings) == ()
