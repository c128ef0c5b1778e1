"""The namespace of objects without one is the one that kubectl would use."""

import os

import pytest

from railwright.cli import context_namespace, options

ONE = """
current-context: a
contexts: [{name: a, context: {cluster: c, namespace: team-a}}, {name: b, context: {cluster: c}}]
"""
TWO = "contexts: [{name: other, context: {cluster: c, namespace: team-b}}]"


@pytest.mark.parametrize(
    ("given", "context", "expected"),
    [
        ("mine", None, "mine"),
        ("", None, "team-a"),
        ("", "b", "default"),
        ("", "other", "team-b"),
        ("", "no", "default"),
    ],
)
def test_the_option_comes_first_then_the_context_then_default(tmp_path, given, context, expected):
    for name, text in (("one", ONE), ("two", TWO)):
        (tmp_path / name).write_text(text)
    files = os.pathsep.join((str(tmp_path / "one"), str(tmp_path / "two")))
    assert context_namespace.choose(given, options.ClusterOptions(files, context)) == expected


@pytest.mark.parametrize("text", ["{", "[1]", "contexts: [1, {name: a}]\ncurrent-context: a", "\x00"])
def test_a_file_that_is_no_kubeconfig_has_no_namespace(tmp_path, text):
    (tmp_path / "k").write_text(text)
    assert context_namespace.choose("", options.ClusterOptions(str(tmp_path / "k"))) == "default"
    assert context_namespace.choose("", options.ClusterOptions(str(tmp_path / "none"))) == "default"
