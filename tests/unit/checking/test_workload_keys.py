"""`railwright check` names keys of railwright that have no effect on the workload or namespace that carries them."""

import broken_installations
import installations
import pytest
import yaml

from railwright.cli.checking import rows
from railwright.fabric import names
from railwright.fabric.workloads import registry

OPTED_IN = {"labels": {names.FABRIC: "roce"}}
MISSPELT = {"labels": {"railwright.io/fabrik": "roce"}}


def assess(source=None, *added, change=None, check="workload-keys", **more):
    """Return the result of a row for the installation with additional objects."""
    trees = installations.healthy()
    if change:
        change(trees)
    if source:
        trees[source] += added
    (result,) = [row for row in broken_installations.assess_trees(trees, **more) if row.check == check]
    return result


NEAR_MISSES = {
    "a CronJob": (
        "cronjobs.v1.batch", installations.build_workload("CronJob", "x", {}, **OPTED_IN),
        "CronJob train/x: LabelNotPassed: label railwright.io/fabric 'roce' of the CronJob has no effect: ",
    ),
    "annotations": (
        "deployments.v1.apps",
        installations.build_workload(
            "Deployment", "x", {"annotations": {names.FABRIC: "roce"}}, annotations={names.RAILS: "2"}
        ),
        "Deployment train/x: KeyWithoutEffect: annotation railwright.io/rails '2' of the Deployment has no effect: ",
        "Deployment train/x: KeyWithoutEffect: spec.template: annotation railwright.io/fabric 'roce' has no effect: ",
    ),
    "a typo": (
        "jobs.v1.batch", installations.build_workload("Job", "x", MISSPELT),
        "Job train/x: KeyWithoutEffect: spec.template: label railwright.io/fabrik 'roce' has no effect: ",
    ),
    **{
        f"{words} of a namespace": (
            "namespaces", {"metadata": {"name": "teams", **metadata}}, f"Namespace teams: {code}: {words}"
        )
        for code, metadata, words in (
            ("KeyWithoutEffect", {"annotations": {names.FABRIC: "roce"}}, "annotation railwright.io/fabric 'roce'"),
            ("KeyWithoutEffect", {"labels": {"railwright.io/fabrics": "roce"}}, "label railwright.io/fabrics 'roce'"),
            ("KeyWithoutEffect", {"annotations": {names.UNINJECTED: "warn"}}, "annotation railwright.io/uninjected"),
            ("KeyWithoutEffect", {"annotations": {names.RAILS: "2"}}, "annotation railwright.io/rails '2'"),
        )
    },
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR_MISSES)
def test_a_key_without_effect_is_named_with_its_object(name):
    source, tree, *expected = NEAR_MISSES[name]
    result = assess(source, tree)
    lines = result.detail.splitlines()
    assert (result.state, len(lines)) == (rows.State.WARN, len(expected)), lines
    for line, words in zip(lines, expected, strict=True):
        assert line.startswith(words)


@pytest.mark.parametrize(
    ("source", "kind", "problem"),
    [
        (
            "jobs.v1.batch",
            "Job",
            (
                "the label was set after the Job was created, or railwright was not called then, or the policy was in "
                "mode warn; the template cannot change, so delete the Job, and create it again with the label"
            ),
        ),
        (
            "deployments.v1.apps",
            "Deployment",
            (
                "the template lacks the label, because railwright was not called or the policy was in mode warn when "
                "the label was set; to have it copied, restart the Deployment: kubectl -n train rollout restart "
                "deployment/x"
            ),
        ),
    ],
)
def test_a_workload_whose_label_did_not_reach_its_pods_fails_the_row_uninjected(source, kind, problem):
    workload = installations.build_workload(kind, "x", {}, **OPTED_IN)
    result = assess(source, workload, check="uninjected")
    line = f"{kind} train/x: label railwright.io/fabric 'roce' of the {kind} does not reach its pods: {problem}"
    assert (result.state, result.detail) == (rows.State.FAIL, line)
    assert "create them again" in result.hint
    assert assess(source, workload).state is rows.State.OK


def test_the_uncopied_label_of_a_kind_that_kubectl_cannot_restart_is_to_be_set_in_its_template():
    cluster = installations.build_workload("RayCluster", "x", {}, **OPTED_IN)
    cluster["spec"] = {"headGroupSpec": cluster["spec"]}
    detail = assess("rayclusters.v1.ray.io", cluster, check="uninjected").detail
    assert detail.endswith("when the label was set; set it in spec.headGroupSpec.template.metadata.labels")


@pytest.mark.parametrize(
    ("source", "tree"),
    [
        ("jobs.v1.batch", installations.build_workload("Job", "x", OPTED_IN, **OPTED_IN)),
        ("jobs.v1.batch", installations.build_workload("Job", "x", {}, labels={names.FABRIC: names.FABRIC_NONE})),
        ("jobs.v1.batch", installations.build_workload("Job", "x", {}, **OPTED_IN, deletionTimestamp="2026-01-01")),
        (
            "replicasets.v1.apps",
            installations.build_workload("Deployment", "x", MISSPELT, ownerReferences=[{"controller": True}]),
        ),
        (
            "jobs.v1.batch",
            {
                **installations.build_workload("Job", "x", {}, **OPTED_IN),
                "status": {"conditions": [{"type": "Complete", "status": "True"}]},
            },
        ),
        (
            "jobs.v1alpha1.batch.volcano.sh",
            {
                "metadata": {"name": "x", "namespace": "train", **OPTED_IN},
                "spec": {"tasks": [{"name": "w", "template": {"spec": {"containers": [{"name": "c"}]}}}]},
                "status": {"state": {"phase": "Completed"}},
            },
        ),
        ("rayjobs.v1.ray.io", {"metadata": {"name": "x", "namespace": "train", **OPTED_IN}, "spec": {}}),
        ("jobs.v1.batch", {"metadata": {"name": "x"}, "spec": 1}),
        (
            "namespaces",
            {"metadata": {"name": "teams", "labels": {names.FABRIC: "default", names.UNINJECTED: "warn"}}},
        ),
        ("namespaces", {"metadata": {"name": "teams", "labels": {names.FABRIC: names.FABRIC_NONE}}}),
        (
            "namespaces",
            {"metadata": {"name": "teams", "labels": {names.FABRIC: "old"}, "deletionTimestamp": "2026-01-01"}},
        ),
    ],
    ids=[
        *("copied", "none", "deleted", "owned", "finished", "finished Volcano Job"),
        *("copied by its controller", "unreadable"),
        *("namespace", "namespace opted out", "deleted namespace"),
    ],
)
def test_an_object_is_not_reported_if_its_keys_have_an_effect_or_it_has_ended(source, tree):
    assert assess(source, tree).state is rows.State.OK
    assert assess(source, tree, check="uninjected").state is rows.State.OK


@pytest.mark.parametrize(("label", "state"), [("roce", rows.State.OK), ("ib", rows.State.FAIL)])
def test_a_workload_fails_the_row_uninjected_unless_its_namespace_opts_its_pods_in_to_the_same_fabric(label, state):
    job = installations.build_workload("Job", "x", {}, **OPTED_IN)
    job["spec"]["template"]["spec"] = installations.pod("x", {}, {}, gpus=8)["spec"]
    change = broken_installations.put("namespaces", "train", label, "metadata", "labels", names.FABRIC)
    assert assess("jobs.v1.batch", job, change=change, check="uninjected").state is state


def test_a_pod_of_a_removed_fabric_is_named_if_its_namespace_names_another_fabric():
    pod = installations.pod("bare", {}, {names.INJECTION: '{"fabric": "old"}'}, gpus=8)
    assert "the policy has no fabric 'old', named by Pod train/bare: " in assess("pods", pod).detail


def test_a_job_whose_label_did_not_reach_its_pods_is_not_named_for_a_removed_fabric():
    job = installations.build_workload("Job", "x", {}, labels={names.FABRIC: "old"})
    assert assess("jobs.v1.batch", job).state is rows.State.OK


@pytest.mark.parametrize("check", ["workload-keys", "uninjected"])
def test_a_label_that_mode_warn_does_not_copy_is_not_reported(check):
    job = installations.build_workload("Job", "x", {}, **OPTED_IN)
    change = broken_installations.edit_policy("fabrics:", "mode: warn\nfabrics:")
    assert assess("jobs.v1.batch", job, change=change, check=check).state is rows.State.OK


def test_the_account_of_helm_test_may_list_every_kind_of_workload():
    chart = installations.ROOT / "manifests" / "chart"
    assert (
        '{{ .Files.Get "files/workloads.yaml" | trim }}' in (chart / "templates" / "tests" / "check.yaml").read_text()
    )
    rules = yaml.safe_load((chart / "files" / "workloads.yaml").read_text())
    assert {tuple(rule["verbs"]) for rule in rules} == {("list",)}
    listed = {(group, plural) for rule in rules for group in rule["apiGroups"] for plural in rule["resources"]}
    assert {(kind.group, kind.plural) for kind in registry.KINDS} == listed
