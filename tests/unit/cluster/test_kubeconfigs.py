"""Selection of kubeconfig files, context and namespace."""

import os

import pytest

from railwright.cluster import kubeconfigs

ONE = """
current-context: a
clusters: [{name: c, cluster: {server: "https://one:6443"}}]
users: [{name: u, user: {token: one}}]
contexts: [{name: a, context: {cluster: c, user: u, namespace: team-a}}, {name: b, context: {cluster: c, user: u}}]
"""
TWO = """
current-context: other
clusters: [{name: c, cluster: {server: "https://two:6443"}}]
users: [{name: u, user: {token: two}}]
contexts: [{name: other, context: {cluster: c, user: u, namespace: team-b}}]
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
def test_an_invalid_kubeconfig_gives_the_default_namespace(tmp_path, text, caplog):
    (tmp_path / "k").write_text(text)
    assert kubeconfigs.find_namespace(str(tmp_path / "k"), None) == "default"
    assert kubeconfigs.find_namespace(str(tmp_path / "none"), None) == "default"
    assert caplog.text == ""  # the library would log `Config not found`


async def test_of_several_kubeconfigs_the_first_with_a_current_context_or_with_an_entry_of_a_name_counts(files):
    """The library takes the current context of the last file."""
    for context in (None, "other"):
        access = await kubeconfigs.load(files, context)
        assert access.configuration.host == "https://one:6443"
        assert access.configuration.api_key == {"BearerToken": "Bearer one"}
