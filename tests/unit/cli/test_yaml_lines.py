"""The YAML of pods in a diff is what PyYAML writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from railwright.cli import formats, object_files

TEXTS = some.text(max_size=12) | some.sampled_from(  # what YAML reads as something else, or quotes
    [
        *("yes", "null", "~", "1e3", "0x1", "2024-01-01", "a: b", "a #b", " a", "a ", "-", "=", "<<", "é"),
        *("a\nb", "\n", "a\n\n b\n", "a\n\n", "a\u2028b"),
    ]
)
SCALARS = some.none() | some.booleans() | some.integers() | some.floats(allow_nan=False) | TEXTS
TREES = some.recursive(
    SCALARS, lambda below: some.lists(below, max_size=4) | some.dictionaries(TEXTS, below, max_size=4), max_leaves=20
)


def dump(tree):
    return formats.format_yaml(tree, width=10**6).removesuffix("...\n").removesuffix("\n").split("\n")


@given(some.dictionaries(TEXTS, TREES, min_size=1, max_size=4))
def test_the_lines_of_any_tree_are_those_of_pyyaml(tree):
    assert object_files.format_yaml_lines(tree) == dump(tree)


@pytest.mark.parametrize("key", ["k" * 122, "k" * 123, "", "a\nb"])
def test_a_long_or_empty_key_is_written_as_by_pyyaml(key):
    tree = {"spec": [{key: [["a", {"b": {}}], []]}]}
    assert object_files.format_yaml_lines(tree) == dump(tree)
