"""Reviews of workloads: bytes in, bytes out."""

import copy
import json
import pathlib

import admitting
import jsonpatch
import pytest
import working
import yaml
from admitting import cpu, fabric
from hypothesis import given
from hypothesis import strategies as st

from fabric.injection import kinds
from webhook import wire, workloads

FABRIC = "railwright.io/fabric"
BY = fabric("    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 1Gi}\n")
LATER = fabric("    mounts: {sharedMemory: 2Gi, devInfiniband: true}\n")
DEPLOYMENT, VOLCANO = working.kind("Deployment.apps"), working.kind("Job.batch.volcano.sh")
MUTABLE = [row for row in kinds.KINDS if not row.frozen]
FROZEN = [row for row in kinds.KINDS if row.frozen]
ADMISSION = pathlib.Path(__file__).parents[3] / "manifests" / "base" / "admission.yaml"


def named(row: kinds.Kind) -> str:
    return f"{row.title}-{row.versions[0]}"


def patched(tree: dict, response: dict) -> dict:
    """The object after the patch, by a strict implementation of RFC 6902."""
    assert response["allowed"], response
    return jsonpatch.apply_patch(copy.deepcopy(tree), admitting.operations(response))


def stored(row: kinds.Kind, label: str = "f", **more) -> dict:
    """A workload as it is after its creation."""
    tree = working.workload(row, working.template(label=label), name="Worker", **more)
    return patched(tree, working.answer(working.review(row, tree), BY))


@pytest.mark.parametrize("row", kinds.KINDS, ids=named)
def test_the_patch_applies_strictly_and_the_second_answer_has_none(row):
    tree = working.workload(row, working.template(), name="Worker", label="f")
    first = working.answer(working.review(row, tree), BY)
    assert first["patchType"] == "JSONPatch"
    assert {each["op"] for each in admitting.operations(first)} == {"add"}
    after = patched(tree, first)
    assert not {"patch", "patchType"} & working.answer(working.review(row, after), BY).keys()


def test_a_template_without_metadata_gets_one_for_the_label():
    for metadata in ({}, {"metadata": None}):
        template = {"spec": working.template()["spec"], **metadata}
        tree = working.workload(VOLCANO, template, label="f")
        after = patched(tree, working.answer(working.review(VOLCANO, tree), BY))
        assert after["spec"]["tasks"][0]["template"]["metadata"] == {"labels": {FABRIC: "f"}}


def test_a_workload_that_did_not_opt_in_is_allowed_with_nothing_else():
    tree = working.workload(DEPLOYMENT, working.template())
    assert working.answer(working.review(DEPLOYMENT, tree), BY).keys() == {"uid", "allowed"}


def test_a_refusal_names_the_workload_and_is_bounded():
    tree = working.workload(DEPLOYMENT, working.template(label="g"))
    given_ = working.answer(working.review(DEPLOYMENT, tree), BY)
    assert given_["status"]["code"] == 403
    assert given_["status"]["message"].startswith("Deployment prod/w: spec.template: label")
    assert "patch" not in given_
    tree["metadata"] = {"generateName": "x" * 10_000}
    assert len(working.answer(working.review(DEPLOYMENT, tree), BY)["status"]["message"]) == 4096


def test_one_refused_template_refuses_the_workload():
    tree = working.workload(VOLCANO, working.template(label="f"))
    tree["spec"]["tasks"].append({"name": "second", "template": working.template(label="g")})
    message = working.answer(working.review(VOLCANO, tree), BY)["status"]["message"]
    assert "spec.tasks[second].template" in message


@pytest.mark.parametrize(
    "request_", [{"operation": "DELETE", "object": None}, {"operation": "CONNECT"}, {"subResource": "status"}]
)
def test_only_creations_and_updates_of_the_object_itself_are_touched(request_):
    tree = request_.pop("object", working.workload(DEPLOYMENT, working.template(label="f")))
    assert working.answer(working.review(DEPLOYMENT, tree, **request_), BY).keys() == {"uid", "allowed"}


def update(row: kinds.Kind, tree: dict, old: dict, by=BY) -> dict:
    return working.answer(working.review(row, tree, operation="UPDATE", oldObject=old), by)


@pytest.mark.parametrize("row", MUTABLE, ids=named)
def test_an_update_that_leaves_the_templates_alone_is_not_patched_whatever_the_policy_says_now(row):
    old = stored(row)
    new = copy.deepcopy(old)
    new["metadata"]["annotations"] = {"a": "b"}
    new["spec"]["replicas"] = 7
    new["status"] = {"ready": 1}
    assert update(row, new, old, LATER).keys() == {"uid", "allowed"}
    reordered = json.loads(json.dumps(new, sort_keys=True))
    assert update(row, reordered, old, LATER).keys() == {"uid", "allowed"}


@pytest.mark.parametrize("row", MUTABLE, ids=named)
def test_a_changed_template_is_patched_as_at_creation(row):
    old = stored(row)
    new = working.workload(row, working.template(label="f"), name="Worker")  # as it was first written: replaced by it
    assert patched(new, update(row, new, old)) == old


def test_only_the_changed_template_is_patched():
    row = next(each for each in kinds.KINDS if each.name == "PyTorchJob")
    old = stored(row)
    old["spec"]["pytorchReplicaSpecs"]["Master"] = {"template": working.template(label="f")}
    new = copy.deepcopy(old)
    new["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["hostNetwork"] = True
    new["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["resources"] = {}
    paths = [each["path"] for each in admitting.operations(update(row, new, old))]
    assert paths
    assert all(path.startswith("/spec/pytorchReplicaSpecs/Worker/template/") for path in paths)


def test_an_unchanged_template_that_would_be_refused_today_refuses_no_update():
    old = working.workload(DEPLOYMENT, working.template(label="gone"))
    new = {**old, "status": {"replicas": 1}}
    assert update(DEPLOYMENT, new, old)["allowed"]
    changed = copy.deepcopy(new)
    changed["spec"]["template"]["spec"]["hostNetwork"] = True
    assert not update(DEPLOYMENT, changed, old)["allowed"]


@pytest.mark.parametrize("row", FROZEN, ids=named)
@pytest.mark.parametrize("old", [None, "written", "stored"])
def test_an_immutable_template_is_never_patched_and_never_refused(row, old):
    written = working.workload(row, working.template(label="f"), name="Worker")
    before = {None: None, "written": written, "stored": stored(row)}[old]
    for tree in (written, working.workload(row, working.template(label="g"), name="Worker")):
        given_ = update(row, tree, before)
        assert given_["allowed"]
        assert "patch" not in given_


@pytest.mark.parametrize("row", FROZEN, ids=named)
def test_an_update_of_an_immutable_template_that_lacks_our_part_is_told_why_it_will_be_refused(row):
    written = working.workload(row, working.template(label="f"), name="Worker")
    (warning,) = update(row, written, stored(row))["warnings"]
    assert "lacks what railwright added at creation" in warning
    assert "warnings" not in update(row, stored(row), stored(row))
    assert "warnings" not in update(row, written, written)


def test_a_label_put_on_a_workload_counts_at_once():
    old = working.workload(DEPLOYMENT, working.template())
    new = working.workload(DEPLOYMENT, working.template(), label="f")
    after = patched(new, update(DEPLOYMENT, new, old))
    assert after["spec"]["template"]["metadata"]["labels"] == {FABRIC: "f"}


@pytest.mark.parametrize("label", [None, "none", "default"])
def test_a_changed_label_that_a_templates_own_outvotes_is_told(label):
    old = stored(DEPLOYMENT, label="f")
    old["metadata"]["labels"] = {FABRIC: "f"}
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {} if label is None else {FABRIC: label}
    given_ = update(DEPLOYMENT, new, old)
    assert "patch" not in given_
    assert "its own label railwright.io/fabric 'f' wins" in given_["warnings"][0]


def test_without_a_policy_workloads_are_allowed_their_label_copied_and_the_trouble_told():
    tree = working.workload(DEPLOYMENT, working.template(), label="f")
    given_ = working.answer(working.review(DEPLOYMENT, tree), None)
    assert patched(tree, given_)["spec"]["template"]["metadata"]["labels"] == {FABRIC: "f"}
    assert "no valid policy yet" in given_["warnings"][0]
    for template in (working.template(label="none"), working.template(cpu())):
        plain = working.workload(DEPLOYMENT, template)
        assert working.answer(working.review(DEPLOYMENT, plain), None).keys() == {"uid", "allowed"}


def test_audit_annotations_say_what_was_done():
    tree = working.workload(VOLCANO, working.template(label="f"))
    audit = working.answer(working.review(VOLCANO, tree), BY)["auditAnnotations"]
    assert audit == {"fabric": "f", "changes": "4"}


def test_an_answer_is_counted_by_kind_and_a_dry_run_is_marked():
    tree = working.workload(VOLCANO, working.template(label="f"))
    given_ = workloads.handle(working.review(VOLCANO, tree, dryRun=True), BY, admitting.known)
    assert (given_.kind, given_.outcome, given_.dry_run) == ("Job.batch.volcano.sh", "patched", True)
    assert given_.body == workloads.handle(working.review(VOLCANO, tree), BY, admitting.known).body


TREE = working.workload(VOLCANO, working.template(label="f"))


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "does not decode"),
        (b"{}", "kind is ''; expected AdmissionReview"),
        (b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1"}', "admissionReviewVersions: [v1]"),
        (b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}', "has no request"),
        (working.review(VOLCANO, TREE, uid=""), "request.uid is missing"),
        (working.review(VOLCANO, None), "request.object is missing"),
        (working.review(VOLCANO, TREE, "v2"), "remove it from the rules of the webhook"),
        (working.review(VOLCANO, TREE, kind={"group": "", "version": "v1", "kind": "Pod"}), "request.kind is 'v1/Pod'"),
        (
            working.review(VOLCANO, TREE, kind={"group": "apps", "version": "v1", "kind": "ReplicaSet"}),
            "request.kind is 'apps/v1/ReplicaSet'",
        ),
        (working.review(VOLCANO, 7), "the Job does not decode: the object: "),
        (working.review(VOLCANO, {"spec": 7}), "does not decode"),
        (working.review(VOLCANO, {"spec": []}), "does not decode"),
        (working.review(VOLCANO, {"spec": {"tasks": [7]}}), "spec.tasks: "),
        (working.review(VOLCANO, {"spec": {"tasks": {"a": []}}}), "spec.tasks.a is a list"),
        (
            working.review(VOLCANO, {"spec": {"tasks": [{"template": {"spec": {"containers": 1}}}]}}),
            "$.spec.containers",
        ),
        (working.review(VOLCANO, TREE).replace(b"nvidia.com/gpu", b"nvidia\xff.com/gpu"), "does not decode"),
        (working.review(VOLCANO, TREE, operation="UPDATE", oldObject=7), "does not decode"),
    ],
)
def test_what_is_no_review_of_a_workload_is_malformed_with_the_reason(body, told):
    with pytest.raises(wire.MalformedError) as error:
        workloads.handle(body, BY, admitting.known)
    assert told in str(error.value)


odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["metadata", "spec", "template", "labels", "containers", "name", "resources", "volumes"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)
sound = st.sampled_from([working.template(label="f"), working.template(), working.template(cpu(), label="none")])
METADATA = st.sampled_from([None, {}, {"labels": None}, {"labels": {FABRIC: "f"}}, {"labels": {FABRIC: "none"}}])


@given(st.sampled_from(kinds.KINDS), odd | sound, METADATA, odd | st.none(), st.sampled_from(["CREATE", "UPDATE"]))
def test_whatever_a_workload_holds_is_answered_or_malformed_and_a_patch_applies_and_is_enough(
    row, template, metadata, old, operation
):
    tree = working.workload(row, template)
    tree["metadata"] = metadata
    try:
        given_ = working.answer(working.review(row, tree, operation=operation, oldObject=old), BY)
    except wire.MalformedError:
        return
    if given_["allowed"]:
        after = patched(tree, given_)
        assert "patch" not in working.answer(working.review(row, after, operation=operation, oldObject=old), BY)


def test_the_manifests_rules_are_the_table():
    hooks = next(yaml.safe_load_all(ADMISSION.read_text()))["webhooks"]
    wanted = {(row.group, version, row.plural) for row in kinds.KINDS for version in row.versions}
    ours = [hook for hook in hooks if hook["clientConfig"]["service"]["path"] == "/mutate/workloads"]
    assert len(ours) == 3
    for hook in ours:
        found = {
            (group, version, resource)
            for rule in hook["rules"]
            for group in rule["apiGroups"]
            for version in rule["apiVersions"]
            for resource in rule["resources"]
        }
        assert found == wanted, hook["name"]
        assert {tuple(rule["operations"]) for rule in hook["rules"]} == {
            ("CREATE",) if hook["failurePolicy"] == "Fail" else ("CREATE", "UPDATE")
        }


def test_more_than_512_templates_that_opt_in_are_refused_and_any_number_of_others_pass():
    task = {"template": {"spec": {"containers": [{"name": "c"}]}}}
    for label, count, allowed in (("f", 512, True), ("f", 513, False), ("f", 20_000, False), ("none", 20_000, True)):
        tasks = [{"name": f"t{number}", **task} for number in range(count)]
        labels = {FABRIC: label}
        tree = {"metadata": {"name": "j", "labels": labels}, "spec": {"tasks": tasks}}
        response = working.answer(working.review(VOLCANO, tree), BY)
        assert response["allowed"] == allowed, (label, count)
        if not allowed:
            assert "more than 512 of its templates opt in to a fabric" in response["status"]["message"]


@pytest.mark.timeout(20)  # seconds: it took minutes where every task read all arguments
def test_the_arguments_of_a_plugin_are_not_read_whole_for_every_task():
    tasks = [{"template": {"metadata": {"labels": {FABRIC: "none"}}}}] * 20_000
    tree = {"metadata": {"name": "j"}, "spec": {"plugins": {"mpi": ["--x"] * 200_000}, "tasks": tasks}}
    assert working.answer(working.review(VOLCANO, tree), BY)["allowed"]
