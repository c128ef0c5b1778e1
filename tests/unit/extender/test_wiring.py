"""The kinds that the extender watches, and those that its role in manifests/base allows."""

import pathlib

import yaml

from extender import state as states

ROLES = pathlib.Path(__file__).parents[3] / "manifests" / "base" / "extender-rbac.yaml"
BUILT_IN = frozenset({"nodes", "pods", "jobs.batch", "replicasets.apps", "statefulsets.apps"})


def kinds():
    return [watch.kind for watch in states.list_watches(states.State(assume_seconds=30))]


def place(path):
    """Return API group and resource of a path."""
    parts = path.strip("/").split("/")
    return ("" if parts[0] == "api" else parts[1]), parts[-1]


def test_the_role_lets_the_extender_list_and_watch_all_that_it_watches():
    [role] = [document for document in yaml.safe_load_all(ROLES.read_text()) if document["kind"] == "ClusterRole"]
    allowed = {
        (group, resource)
        for rule in role["rules"]
        if {"list", "watch"} <= set(rule["verbs"])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert {place(kind.path) for kind in kinds()} <= allowed


def test_a_kind_without_its_crd_does_not_keep_the_extender_from_being_ready():
    assert {kind.name for kind in kinds() if not kind.optional} == BUILT_IN
