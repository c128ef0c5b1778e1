"""Reviews of workloads: bytes in, bytes out."""

import copy
import json

import admitting
import jsonpatch
import pytest
import tables
import working
from admitting import cpu, fabric

from railwright.fabric.workloads import frameworks, registry
from webhook import reviews

FABRIC = "railwright.io/fabric"
BY = fabric("    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 1Gi}\n")
LATER = fabric("    mounts: {sharedMemory: 2Gi, devInfiniband: true}\n")
DEPLOYMENT, VOLCANO = working.get_kind("Deployment.apps"), working.get_kind("Job.batch.volcano.sh")
GROUPS = working.get_kind("LeaderWorkerSet.leaderworkerset.x-k8s.io")
MUTABLE = [row for row in registry.INJECTED_KINDS if not row.is_frozen]
FROZEN = [row for row in registry.INJECTED_KINDS if row.is_frozen]
NESTED = [row for row in MUTABLE if row.name in {"Deployment", "PyTorchJob", "RayCluster"}]  # each form of templates


def format_id(row: frameworks.WorkloadKind) -> str:
    return f"{row.display_name}-{row.version}"


def apply_patch(tree: dict, response: dict) -> dict:
    """Return the object after the patch, by a strict implementation of RFC 6902."""
    assert response["allowed"], response
    return jsonpatch.apply_patch(copy.deepcopy(tree), admitting.decode_operations(response))


def write(row: frameworks.WorkloadKind, in_template: str | None = "f", **more) -> dict:
    """Return a workload as its author writes it, with this label in its template."""
    return working.build_workload(row, working.build_template(label=in_template), name="Worker", **more)


def create(row: frameworks.WorkloadKind, written: dict, by=BY) -> dict:
    """Return a workload after its creation."""
    return apply_patch(written, working.get_response(working.review(row, written), by))


def test_a_workload_that_did_not_opt_in_is_allowed_unchanged():
    tree = working.build_workload(DEPLOYMENT, working.build_template())
    assert working.get_response(working.review(DEPLOYMENT, tree), BY).keys() == {"uid", "allowed"}


def test_a_rejection_names_the_workload_and_the_template_and_is_limited():
    tree = working.build_workload(DEPLOYMENT, working.build_template(label="g"))
    response = working.get_response(working.review(DEPLOYMENT, tree), BY)
    assert response["status"]["code"] == 403
    assert response["status"]["message"].startswith("Deployment prod/w: spec.template: label railwright.io/fabric 'g'")
    assert "patch" not in response
    tree["metadata"] = {"generateName": "x" * 10_000}
    assert len(working.get_response(working.review(DEPLOYMENT, tree), BY)["status"]["message"]) == 4096


def test_a_workload_with_one_rejected_template_is_rejected():
    tree = working.build_workload(VOLCANO, working.build_template(label="f"))
    tree["spec"]["tasks"].append({"name": "second", "template": working.build_template(label="g")})
    message = working.get_response(working.review(VOLCANO, tree), BY)["status"]["message"]
    assert "spec.tasks[second].template" in message


@pytest.mark.parametrize(
    "request_", [{"operation": "DELETE", "object": None}, {"operation": "CONNECT"}, {"subResource": "status"}]
)
def test_only_creations_and_updates_of_the_workload_itself_are_patched(request_):
    tree = request_.pop("object", working.build_workload(DEPLOYMENT, working.build_template(label="f")))
    assert working.get_response(working.review(DEPLOYMENT, tree, **request_), BY).keys() == {"uid", "allowed"}


def update(row: frameworks.WorkloadKind, tree: dict, old: dict, by=BY) -> dict:
    return working.get_response(working.review(row, tree, operation="UPDATE", oldObject=old), by)


@pytest.mark.parametrize("row", NESTED, ids=format_id)
def test_an_update_of_a_workload_is_not_patched_if_no_template_changes(row):
    old = create(row, write(row))
    new = copy.deepcopy(old)
    new["metadata"]["annotations"] = {"a": "b"}
    new["spec"]["replicas"] = 7
    new["status"] = {"ready": 1}
    assert update(row, new, old, LATER).keys() == {"uid", "allowed"}
    reordered = json.loads(json.dumps(new, sort_keys=True))
    assert update(row, reordered, old, LATER).keys() == {"uid", "allowed"}


@pytest.mark.parametrize("row", MUTABLE, ids=format_id)
def test_an_update_patches_a_changed_template_like_at_creation(row):
    old = create(row, write(row))
    new = write(row)  # as it was first written: replaced by it
    assert apply_patch(new, update(row, new, old)) == old


@pytest.mark.parametrize("row", NESTED, ids=format_id)
def test_a_label_that_an_update_adds_reaches_unchanged_templates(row):
    old = working.build_workload(row, working.build_template())
    new = working.build_workload(row, working.build_template(), label="f")
    created = create(row, new)
    assert created != new
    assert apply_patch(new, update(row, new, old)) == created


@pytest.mark.parametrize("leader", [{}, {"leaderTemplate": None}, {"leaderTemplate": {}}])
def test_a_leader_template_that_is_absent_or_empty_gets_no_patch(leader):
    group = {"size": 2, "workerTemplate": working.build_template(), **leader}
    labelled = {"metadata": {"name": "w", "labels": {FABRIC: "f"}}, "spec": {"leaderWorkerTemplate": group}}
    response = working.get_response(working.review(GROUPS, labelled), BY)
    paths = {operation["path"].split("/")[3] for operation in admitting.decode_operations(response)}
    assert (response["allowed"], paths) == (True, {"workerTemplate"})


def test_a_kubeflow_job_with_a_replica_type_of_null_is_allowed_without_a_patch():
    row = working.get_kind("PyTorchJob.kubeflow.org")
    tree = {"metadata": {"name": "w", "labels": {FABRIC: "f"}}, "spec": {"pytorchReplicaSpecs": {"Worker": None}}}
    assert working.get_response(working.review(row, tree), BY).keys() == {"uid", "allowed"}


def test_an_update_that_leaves_an_invalid_template_unchanged_is_allowed():
    old = working.build_workload(DEPLOYMENT, working.build_template(label="gone"))
    new = {**old, "status": {"replicas": 1}}
    assert update(DEPLOYMENT, new, old)["allowed"]
    changed = copy.deepcopy(new)
    changed["spec"]["template"]["spec"]["hostNetwork"] = True
    assert not update(DEPLOYMENT, changed, old)["allowed"]


@pytest.mark.parametrize(("row", "old"), tables.pair(FROZEN, [None, "written", "stored"]))
def test_an_update_of_an_immutable_template_is_not_patched_if_nothing_was_added_at_creation(row, old):
    written = write(row)
    before = {None: None, "written": written, "stored": create(row, write(row))}[old]
    changed = write(row, "g")
    for tree in (changed, before or written):
        response = update(row, tree, before)
        assert response["allowed"]
        assert "patch" not in response


RENAMED = fabric(
    "    mounts: {sharedMemory: 2Gi, devInfiniband: true}\n",
    rails="\n    - {name: rail0, network: prod/lan2, resource: example.com/renamed, device: mlx5_0}\n",
)
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def add_applied(tree: dict, manifest: dict | None = None) -> dict:
    """Return the object after `kubectl apply`, with the manifest in an annotation."""
    annotations = {APPLIED: json.dumps(manifest or tree)}
    return {**tree, "metadata": {**tree["metadata"], "annotations": annotations}}


@pytest.mark.parametrize(
    ("row", "by", "place"), tables.pair(FROZEN, [BY, LATER, BY], ["template", "workload", "workload"])
)
def test_an_update_of_an_immutable_template_restores_what_admission_added_at_creation(row, by, place):
    written = write(row) if place == "template" else write(row, None, label="f")
    old = create(row, written)
    assert old != written
    response = update(row, written, old, by)
    assert apply_patch(written, response) == old
    assert "warnings" not in response
    assert "restored" in response["auditAnnotations"]
    assert update(row, old, old, by).keys() == {"uid", "allowed"}
    rearranged = json.loads(json.dumps(written, sort_keys=True))
    assert apply_patch(rearranged, update(row, rearranged, old, by)) == old


CLAIMS = fabric(
    "    gpusPerNode: 8\n    claims: {deviceClass: dranet, acceleratorClass: gpu.nvidia.com}\n",
    rails="\n    - {name: rail0, device: mlx5_0}\n    - {name: rail1, device: mlx5_1}\n",
)


@pytest.mark.parametrize(("row", "by"), tables.pair(FROZEN, [CLAIMS, BY, None]))
def test_an_update_of_an_immutable_template_restores_its_claims(row, by):
    written = write(row)
    old = create(row, written, CLAIMS)
    assert "railwright-f-" in json.dumps(old)
    assert "nvidia.com/gpu" not in json.dumps(old)
    assert apply_patch(written, update(row, written, old, by)) == old
    more = copy.deepcopy(written)
    for key in working.get_container(row, more)["resources"]:
        working.get_container(row, more)["resources"][key]["nvidia.com/gpu"] = "3"
    assert "patch" not in update(row, more, old, by), "a change of the number of GPUs is the author's"


@pytest.mark.parametrize("row", NESTED, ids=format_id)
def test_applying_an_unchanged_manifest_again_keeps_the_claims_of_a_template(row):
    written = write(row)
    old = create(row, written, CLAIMS)
    merged = copy.deepcopy(old)  # kubectl adds what the manifest has, and leaves what it never had
    theirs = working.get_container(row, written)["resources"]
    working.get_container(row, merged)["resources"] = {**working.get_container(row, merged)["resources"], **theirs}
    assert apply_patch(merged, update(row, merged, old, CLAIMS)) == old


@pytest.mark.parametrize(("row", "by"), tables.pair(FROZEN, [BY, RENAMED, None]))
def test_an_update_restores_an_injected_device_but_not_one_that_the_user_had_applied(row, by):
    written = write(row)
    old = add_applied(create(row, written), written)
    assert apply_patch(add_applied(written), update(row, add_applied(written), old, by)) == old
    own = copy.deepcopy(written)
    working.get_container(row, own)["resources"]["limits"]["nvidia.com/own"] = "1"
    working.get_container(row, own)["resources"]["requests"]["nvidia.com/own"] = "1"
    old = add_applied(create(row, own), own)
    assert "patch" not in update(row, add_applied(written), old, by), "the user's own device is the user's to remove"


CHANGES = {
    "another image": lambda template: template["spec"]["containers"][0].update(image="other"),
    "no accelerator": lambda template: template["spec"]["containers"][0].update(resources={}),
    "opted out of a device": lambda template: template["spec"]["containers"][0]["resources"]["limits"].update(
        {"nvidia.com/mlx5_0": "0"}
    ),
    "more of a device": lambda template: template["spec"]["containers"][0]["resources"]["limits"].update(
        {"nvidia.com/mlx5_0": "9"}
    ),
    "no quantity": lambda template: template["spec"]["containers"][0]["resources"]["limits"].update(
        {"nvidia.com/mlx5_0": "x"}
    ),
    "opted out": lambda template: template["metadata"]["labels"].update({FABRIC: "none"}),
    "label removed": lambda template: template["metadata"]["labels"].pop(FABRIC),
    "a container more": lambda template: template["spec"]["containers"].append(cpu("second")),
    "a mount more": lambda template: template["spec"]["containers"][0].update(
        volumeMounts=[{"name": "v", "mountPath": "/v"}]
    ),
    "our volume's name for another": lambda template: template["spec"].update(
        volumes=[{"name": "railwright-shm", "emptyDir": {}}]
    ),
    "host network": lambda template: template["spec"].update(hostNetwork=True),
    "claims without names": lambda template: (
        template["spec"].update(resourceClaims=[{"resourceClaimTemplateName": "railwright-f-8x8-0123456789"}]),
        template["spec"]["containers"][0]["resources"].update(claims=[{"request": "gpu"}]),
    ),
    "containers no list": lambda template: template["spec"].update(containers=None),
}


@pytest.mark.parametrize(("row", "change"), tables.pair(FROZEN, list(CHANGES)))
def test_other_changes_of_an_immutable_template_are_allowed_without_a_patch(row, change):
    template = working.build_template(label="f")
    CHANGES[change](template)
    new = working.build_workload(row, template, name="Worker")
    stored = create(row, write(row))
    for old in (stored, add_applied(stored, write(row))):
        response = update(row, new, old)
        assert response["allowed"]
        assert "patch" not in response


def test_an_update_restores_only_templates_that_lack_nothing_but_railwrights_additions():
    written = working.build_workload(VOLCANO, working.build_template(label="f"), name="worker")
    written["spec"]["tasks"].append({"name": "second", "replicas": 1, "template": working.build_template(label="f")})
    old = create(VOLCANO, written)
    new = copy.deepcopy(written)
    new["spec"]["tasks"][0]["replicas"] = 7
    new["spec"]["tasks"][1]["template"]["spec"]["containers"][0]["image"] = "other"
    response = update(VOLCANO, new, old)
    assert [operation["path"] for operation in admitting.decode_operations(response)] == ["/spec/tasks/0/template"]
    after = apply_patch(new, response)
    assert after["spec"]["tasks"][0] == {**old["spec"]["tasks"][0], "replicas": 7}
    assert "warnings" not in response


@pytest.mark.parametrize("label", [None, "none", "default"])
def test_a_changed_workload_label_that_a_template_label_overrides_is_a_warning(label):
    old = create(DEPLOYMENT, write(DEPLOYMENT))
    old["metadata"]["labels"] = {FABRIC: "f"}
    new = copy.deepcopy(old)
    new["metadata"]["labels"] = {} if label is None else {FABRIC: label}
    response = update(DEPLOYMENT, new, old)
    assert "patch" not in response
    (warning,) = response["warnings"]
    assert warning.startswith("LabelNotPassed: spec.template: the changed label ")
    assert warning.endswith(
        " does not reach the pod template, which has its own label; change the label in the template too"
    )


def test_without_a_policy_a_workload_gets_a_warning_and_only_its_label_is_copied():
    tree = working.build_workload(DEPLOYMENT, working.build_template(), label="f")
    response = working.get_response(working.review(DEPLOYMENT, tree), None)
    assert apply_patch(tree, response)["spec"]["template"]["metadata"]["labels"] == {FABRIC: "f"}
    assert "no policy in force yet" in response["warnings"][0]
    for template in (working.build_template(label="none"), working.build_template(cpu())):
        plain = working.build_workload(DEPLOYMENT, template)
        assert working.get_response(working.review(DEPLOYMENT, plain), None).keys() == {"uid", "allowed"}


def test_audit_annotations_of_a_workload_name_fabric_and_number_of_changes_also_on_a_dry_run():
    tree = working.build_workload(VOLCANO, working.build_template(label="f"))
    response = working.handle(working.review(VOLCANO, tree, dryRun=True), BY)
    assert (response.role, response.outcome, response.dry_run) == ("", "patched", True)
    assert response.body == working.handle(working.review(VOLCANO, tree), BY).body
    audit = working.get_response(working.review(VOLCANO, tree), BY)["auditAnnotations"]
    assert audit == {"fabric": "f", "changes": "4"}


TREE = working.build_workload(VOLCANO, working.build_template(label="f"))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (working.review(VOLCANO, None), "request.object is missing"),
        (working.review(VOLCANO, TREE, "v2"), "remove the kind from the rules of the webhook"),
        (working.review(VOLCANO, TREE, kind={"group": "", "version": "v1", "kind": "Pod"}), "request.kind is 'v1/Pod'"),
        (
            working.review(VOLCANO, TREE, kind={"group": "apps", "version": "v1", "kind": "ReplicaSet"}),
            "request.kind is 'apps/v1/ReplicaSet'",
        ),
        (working.review(VOLCANO, 7), "the Job does not decode: the object: "),
        (working.review(VOLCANO, {"spec": 7}), "does not decode"),
        (working.review(VOLCANO, {"spec": []}), "does not decode"),
        (working.review(VOLCANO, {"spec": {"tasks": [7]}}), "spec.tasks[0]: "),
        (working.review(VOLCANO, {"spec": {"tasks": {"a": []}}}), "spec.tasks.a: "),
        (working.review(VOLCANO, {"spec": {"tasks": {"a" * 10_000: []}}}), "spec.tasks.aaa"),
        (working.review(VOLCANO, {"spec": {"tasks": 7}}), "spec.tasks: expected a list or an object, got int"),
        (
            working.review(VOLCANO, {"spec": {"tasks": [{"template": {"spec": {"containers": 1}}}]}}),
            "$.spec.containers",
        ),
        (working.review(VOLCANO, TREE).replace(b"nvidia.com/gpu", b"nvidia\xff.com/gpu"), "does not decode"),
        (working.review(VOLCANO, TREE, operation="UPDATE", oldObject=7), "does not decode"),
    ],
)
def test_a_body_without_a_workload_review_is_malformed_with_the_reason(body, expected):
    with pytest.raises(reviews.MalformedError) as error:
        working.handle(body, BY)
    assert expected in str(error.value)
    assert len(str(error.value)) < 512


@pytest.mark.parametrize(
    ("label", "count", "rejection"),
    [
        ("f", 128, ""),
        ("f", 129, "more than 128 of its templates opt in to a fabric"),
        ("f", 10_000, "Job j: its lists have more than 1000 entries for pod templates"),
        (None, 1000, ""),
        (None, 1001, "Job j: its lists have more than 1000 entries for pod templates"),
        ("none", 10_000, ""),
    ],
)
def test_more_than_1000_templates_or_more_than_128_opted_in_are_rejected_unless_the_workload_opts_out(
    label, count, rejection
):
    response = working.get_response(working.review(VOLCANO, build_tasks(label, count)), BY)
    assert response["allowed"] == (not rejection)
    assert rejection in response.get("status", {}).get("message", "")


def build_tasks(label: str | None, count: int) -> dict:
    task = {"template": {"spec": {"containers": [{"name": "c"}]}}}
    tasks = [{"name": f"t{number}", **task} for number in range(count)]
    labels = {} if label is None else {FABRIC: label}
    return {"metadata": {"name": "j", "labels": labels}, "spec": {"tasks": tasks}}


@pytest.mark.parametrize(
    ("stored", "updated", "is_allowed"),
    [
        ((None, 1001), (None, 1001), True),  # a controller removes its finalizer
        ((None, 1001), ("none", 1001), True),
        ((None, 1001), (None, 2), True),
        (("none", 1001), (None, 1001), False),
        ((None, 1000), (None, 1001), False),
    ],
)
def test_an_update_may_keep_too_many_templates_but_not_add_them_or_opt_them_in(stored, updated, is_allowed):
    assert update(VOLCANO, build_tasks(*updated), build_tasks(*stored))["allowed"] == is_allowed


@pytest.mark.parametrize("row", FROZEN, ids=format_id)
def test_a_label_added_to_a_workload_with_an_immutable_template_is_a_warning_with_the_fix(row):
    stored = working.build_workload(row, working.build_template())
    labelled = working.build_workload(row, working.build_template(), label="f")
    answer = working.get_response(working.review(row, labelled, operation="UPDATE", oldObject=stored), BY)
    assert "patch" not in answer
    (warning,) = answer["warnings"]
    assert warning.startswith("LabelNotPassed: ")
    assert (
        f"label railwright.io/fabric of the {row.name} does not reach the pod template, which is immutable" in warning
    )
    assert warning.endswith(f"delete the {row.name}, and create it again with the label")
    again = working.review(row, labelled, operation="UPDATE", oldObject=labelled)
    assert "warnings" not in working.get_response(again, BY)
