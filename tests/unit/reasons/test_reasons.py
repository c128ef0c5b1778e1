"""Reasons are values with codes; one renderer turns them into text, and the page lists every code."""

import ast
import pathlib

import msgspec
import pytest
import yaml

from railwright.fabric import text
from railwright.fabric.reasons import reason, rendering
from railwright.fabric.reasons.codes import AdmissionCode, Code, RejectionCode, VariableCode

ROOT = pathlib.Path(__file__).parents[3]
UPLINKS = reason.make(
    Code.UPLINKS_LIMIT,
    domain="leaf-1",
    nodes=5,
    oversubscription=7.0,
    carried=0.714,
    crossings=1,
    has_unused_links=False,
)


CODES = (*Code, *AdmissionCode, *VariableCode)
BY_MEMBER = {code.name: code for code in CODES}
# Functions that make a reason with one of several codes; `derive` makes those of variables.
CODES_BY_FUNCTION = {
    "railwright/fabric/placement/nodes/node_evaluation.py:_describe_rail": (Code.RAIL_BUSY, Code.RAIL_UNAVAILABLE),
    "railwright/fabric/placement/explain/node_explainer.py:list_degradations": (Code.RAIL_NOT_FREE, Code.RAIL_DEAD),
    "railwright/fabric/nccl/derive.py:_evaluate": tuple(VariableCode),
    "webhook/bindings.py:_explain_missing_node": (
        AdmissionCode.BOUND_NODE_UNKNOWN,
        AdmissionCode.BOUND_DEVICES_UNKNOWN,
    ),
    "railwright/fabric/injection/keys.py:_make": (),  # its callers add parameters
}
KEY_PARAMETERS = {"type", "key", "value"}
MAKERS = ("make", "ReasonError")


def list_made():
    """Yield each place that makes a reason, with its code and the names of its parameters."""
    for folder in ("railwright", "webhook", "extender"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            source = path.read_text()
            for function in ast.walk(ast.parse(source)) if any(f"{name}(" in source for name in MAKERS) else ():
                if isinstance(function, ast.FunctionDef | ast.Module):
                    for call in list_calls(function):
                        yield from list_reasons(f"{path.relative_to(ROOT)}:{getattr(function, 'name', '')}", call)


def list_calls(function):
    """Yield the calls of a function or module, without those of the functions in it."""
    pending = [*ast.iter_child_nodes(function)]
    while pending:
        node = pending.pop()
        if not isinstance(node, ast.FunctionDef):
            pending += ast.iter_child_nodes(node)
        if isinstance(node, ast.Call):
            yield node


def list_reasons(place, call):
    names = {keyword.arg for keyword in call.keywords}
    match call:
        case ast.Call(func=ast.Name("_make"), args=[ast.Attribute(attr=member), *_]):
            yield place, BY_MEMBER[member], names | KEY_PARAMETERS
        case ast.Call(
            func=ast.Attribute(ast.Name("reason" | "reasons"), "make" | "ReasonError"), args=[ast.Attribute(_, member)]
        ):
            if member in BY_MEMBER:
                yield place, BY_MEMBER[member], names
            else:
                yield from ((place, code, names) for code in CODES_BY_FUNCTION[place])
        case ast.Call(func=ast.Attribute(ast.Name("reason" | "reasons"), "make" | "ReasonError")):
            yield from ((place, code, names) for code in CODES_BY_FUNCTION[place])


def test_a_reason_gets_exactly_the_parameters_that_its_text_names():
    made = list(list_made())
    wrong = [
        f"{place}: {code.name} gets {sorted(names)}, its text has {sorted(rendering.list_parameters(code))}"
        for place, code, names in made
        if names != rendering.list_parameters(code)
    ]
    assert wrong == []
    assert set(CODES) - {code for _, code, _ in made} == {Code.TERM_DETAIL}  # for terms from outside


@pytest.mark.parametrize(
    ("template", "parameters", "expected"),
    [
        ("{pods:count pod}, {leaves:count leaf}", {"pods": 1, "leaves": reason.Some(("a",), 2)}, "1 pod, 3 leaves"),
        ("{leaves}", {"leaves": reason.Some((("leaf-1", 4), "b"), 2)}, "leaf-1 4, b and 2 more"),
        ("{value!r} {share:.0%}", {"value": "a", "share": 0.5}, "'a' 50%"),
        (
            "{one:short} {many:short}",
            {"one": "x" * 61, "many": ("y" * 60, "z")},
            f"{'x' * 60}... {'y' * 60} and 1 more",
        ),
        ("{one:first} {many:first}", {"one": "x" * 61, "many": tuple("abcde")}, f"{'x' * 61} a, b, c, d and 1 more"),
        ("{causes:semicolons}{free:omit}.", {"causes": reason.Some(("a", "b"), 1), "free": 3}, "a; b."),
        ("{nodes:count node, has} it", {"nodes": 1}, "1 node has it"),
        ("a[ of {node}][: {causes}] b", {"node": "", "causes": reason.Some(())}, "a b"),
        ("a[ of {node}|, nowhere][: {causes}]", {"node": "n", "causes": reason.Some(("x",))}, "a of n: x"),
        ("a[ of {node}|, nowhere in {zone}]", {"node": "", "zone": "z"}, "a, nowhere in z"),
    ],
)
def test_a_template_formats_counts_lists_and_names(template, parameters, expected):
    assert rendering.render_template(template, parameters) == expected


def test_a_record_of_another_version_is_rendered():
    more = reason.RecordedReason("ExcludedByPolicy", {"key": "roles.launchers", "task": "", "since": 3})
    assert rendering.render_recorded(more) == "the policy sets roles.launchers to never"
    fewer = reason.RecordedReason("ExcludedByPolicy", {"key": "roles.launchers"})
    assert rendering.render_recorded(fewer) == "ExcludedByPolicy"


def test_a_public_name_stands_for_one_code():
    names = [code.value for code in CODES]
    assert len(names) == len(set(names))


def test_the_table_and_the_enumerations_have_the_codes_in_the_same_order():
    assert list(reason.ROWS) == [*Code, *AdmissionCode, *RejectionCode]


def test_warnings_of_admission_policies_begin_with_their_code():
    documents = list(yaml.safe_load_all((ROOT / "manifests" / "base" / "admission-policy.yaml").read_text()))
    bindings = [document["spec"] for document in documents if document["kind"].endswith("Binding")]
    warning = {binding["policyName"] for binding in bindings if "Warn" in binding["validationActions"]}
    policies = [document for document in documents if document["metadata"]["name"] in warning]
    validations = [validation for policy in policies for validation in policy["spec"].get("validations", ())]
    codes = [AdmissionCode.NOT_INJECTED] * 2 + [AdmissionCode.LABEL_TOO_LATE, AdmissionCode.LABEL_NOT_PASSED]
    for code, validation in zip(codes, validations, strict=True):
        assert validation["message"].startswith(f"{code}: ")
        assert validation.get("messageExpression", f"'{code}: ").startswith(f"'{code}: ")


def test_equal_reasons_are_equal_and_hash_alike():
    one, same = (reason.make(Code.RAIL_NOT_FREE, rail="rail0") for _ in range(2))
    assert one == same
    assert len({one, same, reason.make(Code.RAIL_NOT_FREE, rail="rail1")}) == 2
    assert one.get("rail") == "rail0"


def test_a_list_keeps_the_first_items_and_counts_the_others():
    assert reason.take_first("aabcde") == reason.Some(("a", "b", "c"), 2)
    assert reason.take_first(["a"], 0) == reason.Some((), 1)


def test_json_has_code_message_and_parameters_with_reasons_inside_reasons():
    limit = reason.make(Code.BANDWIDTH_UPLINKS, bandwidth=0.714, causes=reason.take_first([UPLINKS]))
    message = msgspec.to_builtins(rendering.describe(limit))
    inner = message["parameters"]["causes"]["items"][0]
    assert message["code"] == "BandwidthUplinks"
    assert message["message"] == f"at most 0.71 of the bandwidth: {inner['message']}"
    assert (inner["code"], inner["parameters"]["nodes"]) == ("UplinksLimit", 5)
    assert msgspec.json.decode(msgspec.json.encode(rendering.describe(limit))) == message


def test_messages_for_schedulers_begin_with_the_component_and_events_with_the_code():
    busy = reason.make(Code.RAIL_BUSY, rail="rail0", resource="rdma/0", free=0, allocatable=1, needed=1)
    assert rendering.render_for_scheduler(busy) == "railwright: rail0 is busy: 0 of 1 rdma/0 free, 1 needed"
    assert rendering.render_for_event([busy]).startswith("RailBusy: rail0 is busy")
    assert rendering.render_for_event([]) == ""


@pytest.mark.parametrize(
    ("count", "noun", "expected"),
    [(1, "leaf", "1 leaf"), (2, "leaf", "2 leaves"), (0, "pod", "0 pods"), (1, "pod", "1 pod")],
)
def test_nouns_follow_their_count(count, noun, expected):
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
def test_verbs_agree_with_the_number_that_they_are_about(count, part, verb, expected):
    assert text.format_count(count, "node", verb, part=part) == expected


def test_lists_and_long_texts_are_shortened():
    assert text.join_some(["a", "b", "a"], 2) == "a, b and 2 more"
    assert text.join_first(["a", "b", "a", "c"], 2) == "a, b and 1 more"
    assert text.join_first(["a", "a"], 2) == "a"
    assert text.truncate("abcdef", 5) == "ab..."
    assert text.truncate("abcde", 5) == "abcde"
