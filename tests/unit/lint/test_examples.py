"""Each rule by its examples in tests/data/lint/examples, of which the page of the rules shows one."""

import pytest

from documentation import rules as pages
from railwright.fabric.lint import engine, rule_types

E, W = rule_types.Severity.ERROR, rule_types.Severity.WARNING
SEVERITIES = {
    E: "N09 N10 N11 N12 N15 N17 N31 N62",
    W: "N01 N02 N16 N18 N21 N34 N40 N45 N46 N55 N61 N66 N68 N70",
}
RULES = {rule.code: rule for rule in engine.RULES}
EXAMPLES = {code: pages.read_examples()[code] for code in RULES}
LONGEST = 256  # characters of an admission warning; the API server cuts the rest


def list_findings(code, ranks):
    return [finding for finding in engine.check_ranks(ranks) if finding.code == code]


def test_rules_have_exactly_the_documented_codes_and_severities():
    published = {code: severity for severity, codes in SEVERITIES.items() for code in codes.split()}
    assert {rule.code: rule.severity for rule in engine.RULES} == published
    codes = [rule.code for rule in pages.RULES]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("code", RULES)
def test_a_rule_reports_bad_examples_with_their_messages_and_no_good_example(code):
    examples = EXAMPLES[code]
    assert examples["bad"]
    assert examples["good"]
    for example in examples["bad"]:
        ranks = pages.build_ranks(example)
        findings = list_findings(code, ranks)
        assert [finding.message for finding in findings] == example["messages"]
        for finding in findings:
            assert finding.severity is RULES[code].severity
            assert len(f"container worker: {code} {finding.message}") <= LONGEST
            assert finding.name in finding.message
            setting = ranks.get_setting(finding.name) if finding.where else None
            assert setting is None or finding.where == setting.where
    for example in examples["good"]:
        assert list_findings(code, pages.build_ranks(example)) == [], example["title"]
    for boundary in examples.get("boundaries", ()):
        assert bool(list_findings(code, pages.build_ranks(boundary))) == boundary["reported"], boundary


def test_an_empty_value_is_reported_only_by_the_rule_for_empty_values():
    reported = set()
    for code in [code for code in RULES if code >= "N23"]:
        names = {name for example in EXAMPLES[code]["bad"] for name in pages.build_ranks(example).effective_settings}
        entries = tuple(rule_types.Setting(variable, "", "env") for variable in sorted(names))
        if list_findings(code, rule_types.RankContext("a rank", entries)):
            reported.add(code)
    assert reported == {"N61"}  # an empty NVSHMEM_HCA_LIST counts as set, and nothing reads it without its switch
