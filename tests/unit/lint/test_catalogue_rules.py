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


def test_every_row_gives_the_rule_of_its_status_and_no_other_of_them():
    for row in catalogue.list_variables():
        reported = codes(row.name, "1") & {"N01", *BY_STATUS.values()}
        assert reported == ({BY_STATUS[row.status]} if row.status in BY_STATUS else set()), row.name


def list_good(row):
    """Yield the default and the allowed values."""
    if row.default_text is not None and row.name not in SYMBOL:
        yield row.default_text
    if isinstance(row.allowed, catalogue.Enumeration):
        yield from row.allowed.values
    if isinstance(row.allowed, catalogue.Range):
        yield from (str(end) for end in (row.allowed.min, row.allowed.max) if end is not None)


def test_every_default_and_every_allowed_value_is_accepted():
    good = [(row.name, value) for row in READ for value in list_good(row)]
    assert [(name, value) for name, value in good if codes(name, value) & VALUES] == []


RANGES = [row for row in READ if isinstance(row.allowed, catalogue.Range)]
NUMBERS = [row for row in READ if row.is_numeric]
WORDS = [
    row
    for row in READ
    if isinstance(row.allowed, catalogue.Enumeration) and not row.is_numeric and row.name not in SYMBOL
]


def test_the_number_beyond_either_end_is_reported():
    for row in RANGES:
        top = catalogue.OVERFLOW - 1 if row.allowed.max is None else row.allowed.max
        for value in (str(row.allowed.min - 1), str(top + 1)):
            assert ("N09" in codes(row.name, value)) == (value != row.default_text), (row.name, value)


@pytest.mark.parametrize(
    ("value", "code"),
    [("true", "N07"), ("0x10", "N07"), ("1s", "N07"), ("01", "N08"), (" 1", "N11"), ("", "N11")],
)
def test_a_number_in_any_other_spelling_is_reported(value, code):
    assert [row.name for row in NUMBERS if code not in codes(row.name, value)] == []


def test_a_word_that_is_not_in_the_row_is_reported():
    wrong = [(row.name, "NONSENSE") for row in WORDS]
    wrong += [(row.name, row.allowed.values[0].lower()) for row in WORDS if row.allowed.case_sensitive]
    assert [(name, value) for name, value in wrong if "N10" not in codes(name, value)] == []


def test_a_variable_is_newer_than_every_release_before_its_own():
    for row in (row for row in READ if row.since and row.component == "core"):
        assert "N06" in codes(row.name, "1", nccl=(2, 0, 0)), row.name
        assert "N06" not in codes(row.name, "1", nccl=row.since), row.name


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
