"""Kubeconfigs: which files, which context, which namespace, and what a context selects."""

import os

import pytest

from railwright.cluster import kubeconfigs

ONE = """
current-context: a
clusters: [{name: c, cluster: {server: "https://one:6443"}}]
contexts: [{name: a, context: {cluster: c, namespace: team-a}}, {name: b, context: {cluster: c}}]
"""
TWO = """
current-context: other
clusters: [{name: c, cluster: {server: "https://two:6443"}}, {name: broken, cluster: null}]
contexts: [{name: other, context: {cluster: c, namespace: team-b}}]
"""


@pytest.fixture
def files(tmp_path):
    for name, text in (("one", ONE), ("two", TWO)):
        (tmp_path / name).write_text(text)
    return os.pathsep.join((str(tmp_path / "one"), str(tmp_path / "none"), str(tmp_path / "two")))


@pytest.mark.parametrize(
    ("context", "namespace"), [(None, "team-a"), ("b", "default"), ("other", "team-b"), ("no", "default")]
)
def test_the_namespace_is_that_of_the_context_or_default(files, context, namespace):
    assert kubeconfigs.find_namespace(files, context) == namespace


def test_without_an_option_the_namespace_is_that_of_the_users_kubeconfig(files, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", files)
    assert kubeconfigs.find_namespace("", None) == "team-a"


@pytest.mark.parametrize(
    "text",
    ["{", "[1]", "contexts: [1, {name: a}]\ncurrent-context: a", "\x00", "a: 2024-99-99", "a: 0x_", "a: !!bool x"],
)
def test_a_file_that_is_no_kubeconfig_has_no_namespace(tmp_path, text):
    (tmp_path / "k").write_text(text)
    assert kubeconfigs.find_namespace(str(tmp_path / "k"), None) == "default"
    assert kubeconfigs.find_namespace(str(tmp_path / "none"), None) == "default"


def test_the_first_file_with_a_context_or_cluster_of_a_name_counts(files):
    assert kubeconfigs.select(files, None).cluster.tree["server"] == "https://one:6443"
    assert kubeconfigs.select(files, "other").cluster.tree["server"] == "https://one:6443"
