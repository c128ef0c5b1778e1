"""Policy documents: errors with path, line and fix, defaults of unset keys, and limits of size."""

import pathlib
import re

import call_counts
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from railwright.cluster import policies
from railwright.fabric.policy import model

DATA = pathlib.Path(__file__).parents[2] / "data" / "policies"
CONTRACT = (DATA / "contract.yaml").read_text()
HEAD = "# a site\napiVersion: railwright.io/v1alpha1\nfabrics:\n"
BROKEN = yaml.safe_load((DATA / "broken.yaml").read_text())


def read_valid(text: str) -> model.Policy:
    result = policies.read(text)
    assert isinstance(result, model.Policy), result
    return result


def read_errors(text: str) -> tuple[policies.PolicyError, ...]:
    result = policies.read(text)
    assert isinstance(result, policies.RejectedPolicy), result
    return result.errors


@pytest.mark.parametrize("row", BROKEN, ids=[row["claim"] for row in BROKEN])
def test_a_broken_document_gives_all_its_errors_with_path_line_and_fix(row):
    errors = read_errors(row["text"] if row.get("whole") else HEAD + row["text"])
    assert [(error.line, error.path) for error in errors] == [(line, path) for line, path, _ in row["errors"]]
    for error, (_, _, part) in zip(errors, row["errors"], strict=True):
        assert part in error.message


def test_the_policy_example_of_the_interface_is_accepted_unchanged():
    document = read_valid(CONTRACT).document
    roce = document.fabrics["roce"]
    assert [rail.name for rail in roce.rails] == ["rail0", "rail1", "rail2", "rail3"]
    assert roce.rails[0] == model.Rail(
        name="rail0",
        network="prod/rdma-net-ipam-lan2",
        interface="net1",
        resource="nvidia.com/mlx5_0",
        device="mlx5_0",
    )
    assert (roce.nccl.gid_index, roce.nccl.address_range) == (None, "192.168.0.0/16")
    assert roce.env == {"NCCL_NET_GDR_READ": "1", "NCCL_DEBUG": "WARN"}
    assert (roce.placement.oversubscription, roce.placement.preset) == ((1, 7), None)
    assert document.node_shapes[0].numa[1].rails == ("rail2", "rail3")


def test_unset_keys_of_a_fabric_have_the_documented_defaults():
    document = read_valid(HEAD + "  f: {transport: pvrdma, rails: [{name: rail0}]}\n").document
    fabric = document.fabrics["f"]
    assert (document.default_fabric, document.accelerators) == (None, ("nvidia.com/gpu",))
    assert fabric.primary_interface == "eth0"
    assert (fabric.rails_per_pod, fabric.devices_per_rail, fabric.nccl.plugin) == (None, 1, None)
    assert (fabric.security, fabric.nccl.derive) == (model.Security(), True)


def test_a_null_value_means_unset_for_every_optional_key():
    tree = yaml.safe_load(CONTRACT)
    sections: dict[tuple, list[tuple]] = {}
    for path in filter(is_optional, paths(tree)):
        sections.setdefault(path[:-1], []).append(path)
    assert sum(map(len, sections.values())) > 45
    for section, optional in sections.items():
        with_null = without = tree
        for path in optional:
            with_null, without = replace_at(with_null, path, None), replace_at(without, path, ABSENT)
        assert read_meaning(yaml.safe_dump(with_null)) == read_meaning(yaml.safe_dump(without)), section


def test_anchors_aliases_and_merge_keys_are_expanded():
    text = (
        HEAD
        + """\
  a: &a
    transport: roce
    rails: &rails [{name: rail0}]
    nccl: {trafficClass: 96}
  b:
    <<: *a
    rails: *rails
    nccl: {gidIndex: 20}
"""
    )
    fabrics = read_valid(text).document.fabrics
    assert fabrics["b"].rails == fabrics["a"].rails
    assert (fabrics["b"].nccl.gid_index, fabrics["b"].nccl.traffic_class) == (20, None)


@pytest.mark.parametrize(("domains", "is_valid"), [(9_900, True), (10_100, False)])
def test_a_policy_is_rejected_above_10000_values(domains, is_valid):
    fabric = "  f:\n    transport: roce\n    rails: [{name: a, device: mlx5_0}]\n    placement: {domains: [%s]}\n"
    result = policies.read(HEAD + fabric % ", ".join(f"n{number}" for number in range(domains)))
    if is_valid:
        assert isinstance(result, model.Policy), result
    else:
        assert [error.message for error in result.errors] == [
            "has more than 10000 values; shorten it, or use fewer aliases"
        ]


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("mounts: {hostPaths: {%s}}", "mounts.hostPaths"),
        ("mounts: {configMaps: {%s}}", "mounts.configMaps"),
        ("libraryPath: [%s]", "libraryPath"),
        ("resources: {%s}", "resources"),
    ],
)
def test_lists_that_are_added_to_every_pod_are_rejected_above_64_entries(key, path):
    """Each entry causes a change of each target container, for which the API server waits."""
    forms = {"resources": "a.b/c{0}: 1", "libraryPath": "/p{0}"}
    entry = forms.get(path, "/p{0}: a")
    entries = ", ".join(entry.format(number) for number in range(65))
    errors = policies.read(HEAD + f"  f: {{transport: tcp, {key % entries}}}\n").errors
    assert ("fabrics.f." + path, "has 65 entries; the limit is 64: remove some") in [
        (error.path, error.message) for error in errors
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
        + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(9)),
        "".join(f"k{i}: &a{i} [{'*a' + str(i - 1) if i else ''}]\n" for i in range(2000)),
        "k0: &a0 {}\n" + "".join(f"k{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 50)),
        "k0: &a0 {}\n" + "".join(f"k{i}: &a{i} {{<<: *a{i - 1}}}\n" for i in range(1, 2500)),
        "[" * 100_000,
        "- " * 100_000,
        "a: " + "1:" * 100_000 + "1",
        "a: !!int " + "9" * 100_000,
        HEAD + "  f: {transport: tcp, gpusPerNode: 0x" + "f" * 100_000 + "}\n",
        "x" * (2 * policies.MAX_CHARACTERS),
        "".join(f"k{i}: 1\n" for i in range(5000)),
        HEAD
        + "  f:\n    transport: roce\n    env:\n"
        + "".join(f"      K{i}: x\n" for i in range(1000)) * 2
        + "    rails:\n"
        + "    - {name: a}\n" * 1000,
    ],
    ids=[
        "laughs",
        "chain",
        "merges",
        "merge chain",
        "flow",
        "block",
        "base 60",
        "digits",
        "hexadecimal digits",
        "large",
        "unknown keys",
        "repeated keys and names",
    ],
)
def test_a_hostile_policy_is_rejected_after_bounded_work(text):
    errors = []
    calls = call_counts.count(lambda: errors.extend(read_errors(text)))
    assert 0 < len(errors) <= 202
    assert all(len(error.message) < 1000 for error in errors)
    assert calls < 500_000


def test_the_digest_of_a_policy_depends_only_on_its_text():
    one, two = read_valid(CONTRACT), read_valid(CONTRACT + "# a comment\n")
    assert re.fullmatch("sha256:[0-9a-f]{64}", one.digest)
    assert one.document == two.document
    assert one.digest != two.digest
    assert read_valid(CONTRACT).digest == one.digest


def test_values_in_policy_errors_are_escaped_and_truncated():
    long = "x" * 5000
    text = HEAD + f'  f: {{transport: "a\\nb\\e[31m", nccl: {{addressRange: "{long}", plugin: "\\u202e"}}}}\n'
    for error in read_errors(text):
        assert error.message.isascii()
        assert error.message.isprintable()
        assert len(error.message) < 400


def test_only_the_first_200_errors_of_a_policy_are_listed():
    fabrics = "".join(f"  f{number:03}: 1\n" for number in range(300))
    *listed, more = read_errors(HEAD + fabrics)
    assert len(listed) == 200
    assert [error.path for error in listed] == sorted(error.path for error in listed)
    assert more.message == "has more than 200 errors; fix these first"


def test_an_error_in_a_configmap_has_the_line_of_the_manifest():
    manifest = "apiVersion: v1\nkind: ConfigMap\ndata:\n  policy.yaml: |\n" + "".join(
        f"    {line}\n" for line in (HEAD + "\n  f:\n    transport: rocee\n").splitlines()
    )
    result = policies.read_manifest(manifest)
    assert isinstance(result, policies.RejectedPolicy)
    assert manifest.splitlines()[(result.errors[0].line or 0) - 1].strip() == "transport: rocee"


def test_the_error_about_a_configmap_without_the_policy_key_names_the_key():
    result = policies.read_manifest("kind: ConfigMap\ndata: {policy.yml: x}\n")
    assert isinstance(result, policies.RejectedPolicy)
    assert 'data."policy.yaml"' in result.errors[0].message


def test_the_shipped_policy_is_valid_and_has_every_documented_key():
    text = (DATA.parents[2] / "manifests" / "base" / "policy.yaml").read_text()
    assert isinstance(policies.read_manifest(text), model.Policy)
    policy = yaml.safe_load(text)["data"]["policy.yaml"]
    ours, contract = (
        {path for path in paths(yaml.safe_load(source)) if is_schema_key(path)} for source in (policy, CONTRACT)
    )
    assert contract <= ours
    assert not [name for name in every_key() if f"{name}:" not in policy]


# --- random documents ---------------------------------------------------------------------------------


@given(data=st.data())
def test_a_policy_with_random_changes_is_read_without_an_exception(data):
    text = CONTRACT
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.integers(0, 30)))
        piece = data.draw(
            st.text(max_size=5) | st.sampled_from(["\n", "  ", ": ", "- ", "&a ", "*a", "{", "]", '"', "<<: "])
        )
        text = text[:start] + piece + text[end:]
    for result in (policies.read(text), policies.read_manifest("kind: ConfigMap\n" + text)):
        if isinstance(result, policies.RejectedPolicy):
            assert all(error.message and (error.line is None or error.line > 0) for error in result.errors)


# --- words over trees ---------------------------------------------------------------------------------
ABSENT = object()


def paths(tree, path=()):
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for step, child in children:
        yield (*path, step)
        yield from paths(child, (*path, step))


def replace_at(tree, path, value):
    if not path:
        return value
    if isinstance(tree, list):
        return [replace_at(child, path[1:], value) if at == path[0] else child for at, child in enumerate(tree)]
    changed = {key: replace_at(child, path[1:], value) if key == path[0] else child for key, child in tree.items()}
    return {key: child for key, child in changed.items() if child is not ABSENT}


def read_meaning(text):
    result = policies.read(text)
    return result.document if isinstance(result, model.Policy) else {(e.path, e.message) for e in result.errors}


def is_schema_key(path):
    """Return True for a key that the schema defines: not in a free-form map, and no position of a list."""
    return not any(isinstance(step, int) for step in path) and not {"env", "match"} & set(path[:-1])


def is_optional(path):
    required = {"apiVersion", "fabrics", "transport", "name", "match", "node"}
    maps = {"env", "match", "devices", "fabrics", "annotations", "matchLabels"}
    parent = path[-2] if len(path) > 1 else None
    return isinstance(path[-1], str) and path[-1] not in required and parent not in maps


def every_key():
    for struct in vars(model).values():
        if isinstance(struct, type) and issubclass(struct, model.Section):
            yield from struct.__struct_encode_fields__
