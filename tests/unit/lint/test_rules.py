"""Every rule: its code and severity as published, and its own examples."""

import pytest

from documentation import rules as pages
from railwright.fabric.lint import engine, rule_types

E, W, I = rule_types.Severity.ERROR, rule_types.Severity.WARNING, rule_types.Severity.INFO  # noqa: E741 - the table's own letters
# The published table (NCCL environment: lint rules), N01 to N64 in order.
SEVERITIES = [
    W, W, W, W, I, W, E, E, E, E,
    E, E, W, E, E, W, E, W, W, E,
    W, E, E, E, E, W, W, E, E, W,
    E, W, E, W, W, E, W, W, E, W,
    E, W, I, W, W, W, W, W, W, I,
    W, W, W, W, W, E, W, W, W, I,
    W, E, W, W,
]  # fmt: skip
RULES = engine.list_rules()
GOOD = [(rule, example) for rule in RULES for example in pages.list_examples(rule).good]
BAD = [(rule, example) for rule in RULES for example in pages.list_examples(rule).bad]


def format_id(pair):
    return f"{pair[0].code}-{pair[1].title}".replace(" ", "-")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_a_rule_is_complete_and_as_the_table_says(rule):
    assert rule.severity is SEVERITIES[int(rule.code[1:]) - 1]
    assert all(pages.list_examples(rule))
    assert rule.title
    assert rule.explanation.endswith(".")
    assert rule.source
    assert rule.name == rule.name.lower().replace("_", "-")


def test_codes_and_names_are_unique_and_stand_in_order():
    codes = [rule.code for rule in RULES]
    assert codes == sorted(set(codes))
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert set(codes) >= {f"N{number:02}" for number in range(1, 23)}


@pytest.mark.parametrize("pair", GOOD, ids=format_id)
def test_a_good_example_is_silent(pair):
    rule, example = pair
    assert rule.code not in {finding.code for finding in engine.check(example.context)}


@pytest.mark.parametrize("pair", BAD, ids=format_id)
def test_a_bad_example_is_reported_with_a_short_message_that_names_what_is_wrong(pair):
    rule, example = pair
    findings = [finding for finding in engine.check(example.context) if finding.code == rule.code]
    assert findings
    for finding in findings:
        assert finding.severity is rule.severity
        assert finding.message
        assert finding.name in finding.message
        assert len(finding.message) < 600


@pytest.mark.parametrize("pair", GOOD + BAD, ids=format_id)
def test_settings_of_unknown_value_never_disturb_a_rule(pair):
    import msgspec

    ranks = pair[1].context
    hidden = tuple(msgspec.structs.replace(setting, value=None) for setting in ranks.settings)
    engine.check(msgspec.structs.replace(ranks, settings=hidden))
