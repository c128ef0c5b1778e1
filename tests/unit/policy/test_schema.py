import json
import pathlib
import re

import jsonschema
import pytest
import yaml

from railwright.cluster import documents, schema_check, sentences
from railwright.fabric.policy import formats, model, presets, schema, selectors
from railwright.fabric.policy.model import FabricPolicy, LabelSelector, NodeShape, Placement, SelectorRequirement

CONTRACT = yaml.safe_load((pathlib.Path(__file__).parents[2] / "data" / "policies" / "contract.yaml").read_text())


def test_the_published_schema_is_valid_and_takes_the_contracts_example():
    published = schema.build()
    jsonschema.Draft202012Validator.check_schema(published)
    jsonschema.Draft202012Validator(published).validate(CONTRACT)


def test_the_schema_is_the_same_text_every_time():
    assert json.dumps(schema.build()) == json.dumps(schema.build())


def test_changing_one_schema_changes_no_other():
    schema.build()["$defs"].clear()
    assert schema.build()["$defs"]


def test_every_section_refuses_unknown_keys():
    objects = [one for one in schema.build()["$defs"].values() if one.get("type") == "object"]
    assert (
        len(objects)
        == sum(1 for one in vars(model).values() if isinstance(one, type) and issubclass(one, model.Section)) - 1
    )
    assert all(one["additionalProperties"] is False for one in objects)


@pytest.mark.parametrize("target", schema.RULES)
def test_every_form_carries_the_phrase_that_explains_it(target):
    rule = schema.RULES[target]
    assert ("pattern" in rule) == ("patternErrorMessage" in rule)


def test_our_validator_and_a_stock_one_agree_on_what_is_wrong_with_whole_numbers():
    tree = json.loads(json.dumps(CONTRACT))
    tree["fabrics"]["roce"]["nccl"]["timeout"] = 20.0
    assert [v.path[-1] for v in sentences.list_violations(schema.build(), tree, lambda _path: None)] == ["timeout"]


def test_a_form_is_not_fooled_by_a_last_newline():
    tree = json.loads(json.dumps(CONTRACT))
    tree["fabrics"]["roce"]["rails"][0]["device"] = "mlx5_0\n"
    assert [v.path[-1] for v in sentences.list_violations(schema.build(), tree, lambda _path: None)] == ["device"]


def replace_each(tree, values):
    """Yield copies of a tree in which one value, item or key is replaced, removed or added."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            rest = {other: item for other, item in tree.items() if other != key}
            yield rest
            yield from ({**rest, str(other): value} for other in values)
            yield from ({**tree, key: changed} for changed in replace_each(value, values))
    elif isinstance(tree, list):
        yield tree[1:]
        for index, item in enumerate(tree):
            yield from ([*tree[:index], changed, *tree[index + 1 :]] for changed in replace_each(item, values))
    yield from values


def test_the_check_without_jsonschema_accepts_what_jsonschema_accepts():
    published = schema.build()
    stock = sentences._build_validator_class()(published)
    values = (
        None,
        True,
        0,
        1,
        -2,
        3.0,
        0.5,
        10**9,
        float("nan"),
        "",
        "roce",
        "a/b",
        "a\n",
        "ä b",
        [],
        ["x"],
        {},
        {"a": "b"},
    )
    outcomes = [
        (schema_check.is_valid(published, tree, published["$defs"]), stock.is_valid(tree), tree)
        for tree in replace_each(CONTRACT, values)
    ]
    assert [tree for ours, theirs, tree in outcomes if ours and not theirs] == []
    assert [tree for ours, theirs, tree in outcomes if theirs and not ours and "nan" not in str(tree)] == []
    assert {ours for ours, _, _ in outcomes} == {True, False}


def test_a_keyword_that_the_check_does_not_know_is_left_to_jsonschema():
    assert schema_check.is_valid({"type": "string"}, "x", {})
    assert not schema_check.is_valid({"type": "string", "maxLength": 5}, "x", {})


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        (LabelSelector(), {}, True),
        (LabelSelector(match_labels={"a": "1"}), {"a": "1", "b": "2"}, True),
        (LabelSelector(match_labels={"a": "1"}), {"a": "2"}, False),
        (LabelSelector(match_labels={"a": "1"}), {}, False),
        (requirement := LabelSelector(match_expressions=(SelectorRequirement(key="a", operator="In", values=("1",)),)),
         {"a": "1"}, True),
        (requirement, {"a": "2"}, False),
        (requirement, {}, False),
        (absent := LabelSelector(match_expressions=(SelectorRequirement(key="a", operator="NotIn", values=("1",)),)),
         {}, True),
        (absent, {"a": "2"}, True),
        (absent, {"a": "1"}, False),
        (LabelSelector(match_expressions=(SelectorRequirement(key="a", operator="Exists"),)), {"a": ""}, True),
        (LabelSelector(match_expressions=(SelectorRequirement(key="a", operator="Exists"),)), {}, False),
        (LabelSelector(match_expressions=(SelectorRequirement(key="a", operator="DoesNotExist"),)), {}, True),
        (LabelSelector(match_expressions=(SelectorRequirement(key="a", operator="DoesNotExist"),)), {"a": "1"}, False),
    ],
)  # fmt: skip
def test_a_selector_matches_as_kubernetes_does(selector, labels, expected):
    assert selectors.matches(selector, labels) is expected


def test_the_first_shape_whose_labels_are_all_there_wins():
    document = FabricPolicy(
        api_version="railwright.io/v1alpha1",
        kind="FabricPolicy",
        fabrics={},
        node_shapes=tuple(
            NodeShape(name=name, match=match)
            for name, match in {"both": {"a": "1", "b": "1"}, "one": {"a": "1"}, "other": {"a": "1"}}.items()
        ),
    )
    assert [getattr(selectors.find_shape(document, labels), "name", None) for labels in (
        {"a": "1", "b": "1"}, {"a": "1"}, {"b": "1"}, {},
    )] == ["both", "one", None, None]  # fmt: skip


def test_a_preset_fills_the_domains_and_explicit_domains_win():
    assert presets.list_domain_keys(Placement()) == ()
    assert presets.list_domain_keys(Placement(preset="aws"))[0] == "topology.k8s.aws/network-node-layer-3"
    assert presets.list_domain_keys(Placement(preset="aws", domains=("rack",))) == ("rack",)
    assert presets.list_domain_keys(Placement(preset="volcano"))[:2] == ("hypernode/level-1", "hypernode/level-2")
    assert presets.list_domain_keys(Placement(preset="volcano", domains=("rack",))) == ("rack",)
    assert set(presets.DOMAINS) == set(
        schema.build()["$defs"]["Placement"]["properties"]["preset"]["enum"]
    ) - {None}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "accepted"),
    [
        ("example.com/leaf-{rail}", True),
        ("{rail}", True),
        ("example.com/{rail}.leaf", True),
        ("example.com/leaf-{rail}-", False),
        ("example.com/leaf-{Rail}", False),
        ("example.com/leaf-{rail", False),
        ("hypernode/level-2", True),
    ],
)
def test_a_domain_is_a_label_key_that_may_name_each_rail(key, accepted):
    assert bool(re.search(formats.DOMAIN_KEY.pattern, key)) is accepted


def test_nulls_are_dropped_from_mappings_only():
    assert documents.remove_nulls({"a": None, "b": [None, {"c": None}]}) == {"b": [None, {}]}
