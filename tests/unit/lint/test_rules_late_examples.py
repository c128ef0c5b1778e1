"""Rules from N23 on by themselves: their examples through their own check, and messages that fit into a warning."""

import pytest

from documentation import rules as pages
from railwright.fabric.lint import engine, rule_types

RULES = [rule for rule in engine.list_rules() if int(rule.code[1:]) >= 23]
WARNING = 256  # characters of an admission warning; the API server cuts the rest


def examples(kind):
    return [
        pytest.param(rule, example, id=f"{rule.code}-{example.title}")
        for rule in RULES
        for example in getattr(pages.list_examples(rule), kind)
    ]


def test_every_rule_of_the_table_is_there():
    assert [rule.code for rule in engine.list_rules()] == [f"N{number:02}" for number in range(1, 65)]


@pytest.mark.parametrize(("rule", "example"), examples("good"))
def test_a_good_example_is_not_complained_about(rule, example):
    assert list(rule.check(example.context)) == []


@pytest.mark.parametrize(("rule", "example"), examples("bad"))
def test_a_bad_example_is_complained_about_by_name_value_and_fix(rule, example):
    findings = list(rule.check(example.context))
    assert findings
    for finding in findings:
        assert len(f"container worker: {rule.code} {finding.message}") <= WARNING
        assert finding.name in finding.message
        setting = example.context.get_setting(finding.name) if finding.where else None
        if setting is not None and setting.value is not None:
            assert setting.value in finding.message
            assert finding.where == setting.where


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_nothing_known_is_nothing_said(rule):
    assert list(rule.check(rule_types.RankContext("a rank"))) == []
