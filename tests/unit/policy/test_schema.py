"""The published JSON Schema of policies, and the reading of a policy by msgspec, accept the same documents."""

import json
import pathlib

import hypothesis
import jsonschema
import msgspec
import pytest
import yaml
from hypothesis import strategies

from railwright.cli.clouds import profiles
from railwright.cluster import documents, policies, policy_errors
from railwright.fabric.policy import compiled, model, schema
from railwright.fabric.policy.model import NodeShape, Placement, PolicyDocument

ROOT = pathlib.Path(__file__).parents[3]
CONTRACT = yaml.safe_load((ROOT / "tests" / "data" / "policies" / "contract.yaml").read_text())
CLAIMS = yaml.safe_load(profiles.find_profile("eks-efa-claims").text)
CLAIMS["fabrics"]["p4d"]["claims"]["parameters"] = {"mtu": 9000, "vlan": None}


def test_the_published_schema_is_valid_and_accepts_the_example_of_the_interface():
    published = schema.build_schema()
    jsonschema.Draft202012Validator.check_schema(published)
    jsonschema.Draft202012Validator(published).validate(CONTRACT)


def test_every_section_of_the_schema_rejects_unknown_keys():
    objects = [one for one in schema.build_schema()["$defs"].values() if one.get("type") == "object"]
    assert (
        len(objects)
        == sum(1 for one in vars(model).values() if isinstance(one, type) and issubclass(one, model.Section)) - 1
    )
    assert all(one["additionalProperties"] is False for one in objects)


def list_parts(tree):
    yield tree
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from list_parts(part)


def test_every_pattern_of_the_schema_is_anchored_and_has_an_error_message():
    forms = [part for part in list_parts(schema.build_schema()) if isinstance(part, dict) and "pattern" in part]
    assert len(forms) > 20
    assert all("patternErrorMessage" in form for form in forms)
    assert all(form["pattern"].startswith("^") and form["pattern"].endswith("$") for form in forms)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [("nccl", "gidIndex", 20.0), ("nccl", "plugin", "a\n"), ("preflight", "image", "a\n")],
)
def test_a_number_with_a_decimal_point_or_a_string_with_a_final_newline_is_rejected(section, key, value):
    tree = json.loads(json.dumps(CONTRACT))
    tree["fabrics"]["roce"][section][key] = value
    result = policies.read(json.dumps(tree))
    assert isinstance(result, policies.RejectedPolicy)
    assert [error.path for error in result.errors] == [f"fabrics.roce.{section}.{key}"]


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


VALUES = (None, True, -2, 3.0, "", "a\n", ["x"], {"a": None})
CHANGED = strategies.deferred(
    lambda: strategies.sampled_from(
        [tree for document in (CONTRACT, CLAIMS) for tree in replace_each(document, VALUES)]
    )
)


@hypothesis.given(CHANGED)
def test_msgspec_and_the_json_schema_accept_the_same_documents(tree):
    is_valid = policy_errors._build_validator().is_valid(tree)
    try:
        msgspec.convert(documents.remove_nulls(tree), model.PolicyDocument)
    except msgspec.ValidationError:
        assert not is_valid
    else:
        assert is_valid or None in list_parts(tree), "jsonschema rejects a null in a map, and nothing else"


def test_a_node_has_the_first_shape_whose_labels_it_has():
    document = PolicyDocument(
        api_version="railwright.io/v1alpha1",
        fabrics={},
        node_shapes=tuple(
            NodeShape(name=name, match=match)
            for name, match in {"both": {"a": "1", "b": "1"}, "one": {"a": "1"}, "other": {"a": "1"}}.items()
        ),
    )
    assert [getattr(model.find_shape(document.node_shapes, labels), "name", None) for labels in (
        {"a": "1", "b": "1"}, {"a": "1"}, {"b": "1"}, {},
    )] == ["both", "one", None, None]  # fmt: skip


def test_domains_of_the_policy_override_those_of_a_preset():
    assert compiled.list_domain_keys(Placement()) == ()
    assert compiled.list_domain_keys(Placement(preset="aws"))[0] == "topology.k8s.aws/network-node-layer-3"
    assert compiled.list_domain_keys(Placement(preset="aws", domains=("rack",))) == ("rack",)
    assert compiled.list_domain_keys(Placement(preset="volcano"))[:2] == ("hypernode/level-1", "hypernode/level-2")
    assert compiled.list_domain_keys(Placement(preset="volcano", domains=("rack",))) == ("rack",)
    assert set(compiled.DOMAINS) == set(
        schema.build_schema()["$defs"]["Placement"]["properties"]["preset"]["enum"]
    ) - {None}  # fmt: skip


def test_an_nccl_variable_as_a_key_gives_an_error_that_names_env():
    result = policies.read(
        "apiVersion: railwright.io/v1alpha1\nfabrics: {f: {transport: tcp, nccl: {retryCount: 7, gdrLevel: SYS}}}\n"
    )
    assert isinstance(result, policies.RejectedPolicy)
    assert all(
        str(error).endswith("; to set an NCCL variable that has no key, use env of the fabric")
        for error in result.errors
    )
    assert len(result.errors) == 2
