"""Each rule by its examples in tests/data/lint/examples, which the page of the rules shows."""

import operator

import pytest

from documentation import rules as pages
from railwright.fabric.lint import engine, rule_types
from railwright.fabric.lint.rules import claims

E, W, I = rule_types.Severity.ERROR, rule_types.Severity.WARNING, rule_types.Severity.INFO  # noqa: E741 - the table's own letters
SEVERITIES = {
    E: "N07 N08 N09 N10 N11 N12 N14 N15 N17 N20 N22 N24 N28 N29 N31 N33 N39 N62 N67",
    W: "N01 N02 N03 N04 N06 N13 N16 N18 N19 N21 N27 N30 N32 N34 N35 N37 N38 N40 N42 N44 N45 N46 N47 N48 N49 N53 N54 "
    "N55 N58 N59 N61 N63 N64 N65 N66 N68 N69 N71",
    I: "N05 N43 N50 N60 N70",
}
RULES = {rule.code: rule for rule in engine.RULES}
EXAMPLES = {code: pages.list_examples(rule) for code, rule in RULES.items()}
ALL = [
    ranks
    for examples in EXAMPLES.values()
    for ranks in (
        *(example.ranks for example in (*examples.bad, *examples.good)),
        *(ranks for ranks, _ in examples.boundaries),
    )
]
LONGEST = 256  # characters of an admission warning; the API server cuts the rest


def list_findings(code, ranks):
    return [finding for finding in engine.check(ranks) if finding.code == code]


def test_codes_and_severities_are_those_that_are_published():
    published = {code: severity for severity, codes in SEVERITIES.items() for code in codes.split()}
    assert {rule.code: rule_types.find_severity(rule.code) for rule in engine.RULES} == published
    assert list(RULES) == sorted(RULES)
    codes = [*RULES, *(rule.code for rule in claims.RULES), *(f"M{number:02}" for number in range(1, 4))]
    assert list(rule_types.read_descriptions()) == codes
    assert len({row.name for row in rule_types.read_descriptions().values()}) == len(rule_types.read_descriptions())


@pytest.mark.parametrize("code", RULES)
def test_a_rule_reports_its_bad_examples_in_their_words_and_no_good_one(code):
    examples = EXAMPLES[code]
    assert examples.bad
    assert examples.good
    for example in examples.bad:
        findings = list_findings(code, example.ranks)
        assert [finding.message for finding in findings] == example.messages
        for finding in findings:
            assert finding.severity is rule_types.find_severity(code)
            assert len(f"container worker: {code} {finding.message}") <= LONGEST
            assert finding.name in finding.message
            setting = example.ranks.get_setting(finding.name) if finding.where else None
            assert setting is None or finding.where == setting.where
    for example in examples.good:
        assert list_findings(code, example.ranks) == [], example.title
    for ranks, reported in examples.boundaries:
        assert bool(list_findings(code, ranks)) == reported


def test_a_rule_that_is_not_called_has_nothing_to_report():
    for ranks in [rule_types.RankContext("a rank"), *ALL]:
        for rule in engine.RULES:
            present = [field for field in rule.needs if operator.attrgetter(field)(ranks)]
            assert present or not list(rule.check_ranks(ranks)), rule.code


def test_an_empty_value_is_left_to_the_rule_for_empty_values():
    reported = set()
    for code in [code for code in RULES if code >= "N23"]:
        names = {setting.name for example in EXAMPLES[code].bad for setting in example.ranks.settings}
        entries = tuple(rule_types.Setting(variable, "", "env") for variable in sorted(names))
        if list_findings(code, rule_types.RankContext("a rank", entries)):
            reported.add(code)
    assert reported == {"N53", "N54", "N60"}  # what is empty is set, so these say only that it is not what is expected
