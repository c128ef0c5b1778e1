"""Reasons are values with codes, a message and a fix; the page lists each code."""

import pathlib

import pytest
import yaml

from railwright.fabric import text
from railwright.fabric.reasons import codes
from railwright.fabric.reasons.codes import AdmissionCode, PlacementCode
from railwright.fabric.reasons.reason import Reason, join_texts

ROOT = pathlib.Path(__file__).parents[3]
CODES = [code for group in codes.ReasonCode.__subclasses__() for code in group]
SHORT = Reason(AdmissionCode.DEFAULT_ROUTE, "entry 1 has default-route", fix="remove it")


def test_reason_codes_are_documented_and_unique():
    page = (ROOT / "docs" / "interface.md").read_text()
    assert [code for code in CODES if f"| `{code}` | {code.meaning} |" not in page] == []
    assert len({code.value for code in CODES}) == len(CODES)


def test_warnings_of_admission_policies_begin_with_their_code():
    documents = list(yaml.safe_load_all((ROOT / "manifests" / "base" / "admission-policy.yaml").read_text()))
    bindings = [document["spec"] for document in documents if document["kind"].endswith("Binding")]
    warning = {binding["policyName"] for binding in bindings if "Warn" in binding["validationActions"]}
    policies = [document for document in documents if document["metadata"]["name"] in warning]
    validations = [validation for policy in policies for validation in policy["spec"].get("validations", ())]
    assert len(validations) == 2
    for validation in validations:
        assert validation["message"].startswith("NotInjected: ")
        assert validation.get("messageExpression", "'NotInjected: ").startswith("'NotInjected: ")


def test_the_line_of_a_reason_has_code_message_and_fix():
    assert SHORT.text == "entry 1 has default-route; remove it"
    assert SHORT.line == "DefaultRoute: entry 1 has default-route; remove it"
    assert SHORT.prefix_with("spec.template") == Reason(
        AdmissionCode.DEFAULT_ROUTE, "spec.template: entry 1 has default-route", "remove it"
    )
    assert join_texts([SHORT, Reason(PlacementCode.NUMA_SPLIT, "NUMA splits")]) == f"{SHORT.text}; NUMA splits"


def test_reasons_with_equal_code_message_and_fix_count_once_in_a_set():
    assert len({SHORT, Reason(AdmissionCode.DEFAULT_ROUTE, SHORT.message, SHORT.fix), SHORT.prefix_with("x")}) == 2


@pytest.mark.parametrize(
    ("count", "noun", "expected"),
    [(1, "leaf", "1 leaf"), (2, "leaf", "2 leaves"), (0, "pod", "0 pods"), (1, "pod", "1 pod")],
)
def test_nouns_are_plural_unless_the_count_is_one(count, noun, expected):
    assert text.format_count(count, noun) == expected


@pytest.mark.parametrize(
    ("count", "part", "verb", "expected"),
    [
        (1, None, "has", "1 node has"),
        (2, None, "matches", "2 nodes match"),
        (3, None, "remains", "3 nodes remain"),
        (4, 1, "has", "1 of 4 nodes has"),
        (4, 2, "is", "2 of 4 nodes are"),
        (1, 0, "does", "0 of 1 node do"),
        (1, 1, "", "1 of 1 node"),
    ],
)
def test_verbs_agree_with_the_number_before_them(count, part, verb, expected):
    assert text.format_count(count, "node", verb, part=part) == expected


def test_long_lists_and_texts_are_shortened():
    assert text.join_first(["a", "b", "a", "c", "d"], 2) == "a, b and 2 more"
    assert text.join_first(["a", "b", "a", "c"], 2) == "a, b and 1 more"
    assert text.join_first(["a", "a"], 2) == "a"
    assert text.truncate("abcdef", 5) == "ab..."
    assert text.truncate("abcde", 5) == "abcde"
