"""Lint reads the templates of every kind of workload; tests/unit/workloads/test_kinds.py has the registered kinds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.cli import linted_manifests

POD = {"spec": {"containers": [{"name": "c"}]}}


def pods(replicas, **more):
    return {"replicas": replicas, "template": POD, **more}


def read(kind, spec, **more):
    templates = linted_manifests.read_templates({"kind": kind, "metadata": {"name": "n"}, "spec": spec, **more})
    return [(template.part, template.locate_container(0)) for template in templates]


def locate(*path):
    return ("spec", *path, "spec", "containers", 0)


@pytest.mark.parametrize(
    ("kind", "spec", "templates"),
    [
        ("Pod", POD["spec"], [("", ("spec", "containers", 0))]),
        (
            "Job",
            {"tasks": [pods(1, name="master"), pods(7, name="worker")]},
            [("master", locate("tasks", 0, "template")), ("worker", locate("tasks", 1, "template"))],
        ),
        (
            "LeaderWorkerSet",
            {"replicas": 9, "leaderWorkerTemplate": {"size": 4, "leaderTemplate": POD, "workerTemplate": POD}},
            [("leaderTemplate", locate("leaderWorkerTemplate", "leaderTemplate")),
             ("workerTemplate", locate("leaderWorkerTemplate", "workerTemplate"))],
        ),
        (
            "RayCluster",
            {"headGroupSpec": {"template": POD}, "workerGroupSpecs": [pods(2, groupName="gpu")]},
            [
                ("headGroupSpec", locate("headGroupSpec", "template")),
                ("gpu", locate("workerGroupSpecs", 0, "template")),
            ],
        ),
        ("TrainJob", {"trainer": {"numNodes": 2, "env": []}}, [("trainer", ("spec", "trainer"))]),
        ("Unheard", {"deep": [{"er": {"template": POD}}]}, [("", locate("deep", 0, "er", "template"))]),
    ],
)  # fmt: skip
def test_the_pod_templates_of_a_workload_are_found_with_their_names_and_paths(kind, spec, templates):
    assert read(kind, spec) == templates


def test_an_object_of_kind_pod_template_is_read():
    (template,) = linted_manifests.read_templates({"kind": "PodTemplate", "metadata": {"name": "n"}, "template": POD})
    assert template.path == ("template",)


trees = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["spec", "template", "kind", "items", "replicas", "name", "tasks", "metadata"]), inner
        )
    ),
    max_leaves=12,
)


@given(trees)
def test_any_tree_of_plain_data_is_read_without_an_exception(tree):
    for path, item in linted_manifests.list_objects(tree):
        linted_manifests.read_templates(item, path)
