"""`railwright explain` for users: exit codes, output, and no control sequences from files."""

import io
import json
import sys

import admitting
import jsonpatch
import pytest
import yaml

from railwright.cli import __main__ as command_line
from railwright.cli import job_pods

POLICY = """
apiVersion: railwright.io/v1alpha1
defaultFabric: f
fabrics:
  f:
    transport: roce
    rails:
    - {name: rail0, network: prod/lan2, resource: nvidia.com/mlx5_0, device: mlx5_0}
    security: {capabilities: [IPC_LOCK]}
    mounts: {sharedMemory: 1Gi}
"""
SNAPSHOT = """
apiVersion: v1
kind: Namespace
metadata: {name: prod, labels: {pod-security.kubernetes.io/enforce: baseline}}
---
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: lan2, namespace: prod}
---
apiVersion: v1
kind: Node
metadata: {name: n}
status: {allocatable: {nvidia.com/mlx5_0: "1", nvidia.com/gpu: "8"}}
"""


@pytest.fixture
def explain(tmp_path, capsys):
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "snapshot.yaml").write_text(SNAPSHOT)

    def explain(*trees: dict, options: tuple[str, ...] = (), policy: str = "policy.yaml") -> tuple[int, str, str]:
        (tmp_path / "m.yaml").write_text(yaml.safe_dump_all(trees))
        code = command_line.main(["explain", str(tmp_path / "m.yaml"), "--policy", str(tmp_path / policy), *options])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    explain.folder = tmp_path
    return explain


def test_an_unknown_kind_is_not_taken_for_a_file(capsys):
    assert command_line.main(["explain", "mission/llm"]) == 2
    assert capsys.readouterr().err == (
        "railwright: explain mission/llm: mission is no kind of workload that railwright knows, and there is no such "
        "file; give job/llm for a job of any kind\n"
    )
    for words in (["jobs/llm.yaml"], ["-f", "job/llm"]):
        assert command_line.main(["explain", *words]) == 2
        assert capsys.readouterr().err == f"railwright: {words[-1]}: No such file or directory\n"


@pytest.mark.parametrize("word", ["llm", "job"])
def test_a_name_without_a_file_gets_a_hint_to_write_kind_and_name(word, capsys):
    assert command_line.main(["explain", word]) == 2
    assert capsys.readouterr().err == (
        f"railwright: {word}: No such file or directory; for an object of the cluster give KIND/NAME, as job/NAME\n"
    )


@pytest.mark.parametrize(
    ("words", "subject"),
    [
        (["job", "llm"], ("job", "llm")),
        (["deployments", "llm"], ("deployments", "llm")),
        (["pod", "llm-0"], ("pod", "llm-0")),
        (["pod", "prod/llm-0"], ("pod", "prod/llm-0")),
        (["Job/llm"], ("job", "llm")),
        (["Pod/llm-0"], ("pod", "llm-0")),
        (["PyTorchJob", "llm"], ("pytorchjob", "llm")),
        (["pods.v1/llm-0"], ("pod", "llm-0")),
    ],
)
def test_kind_and_name_may_be_two_words_as_for_kubectl(words, subject):
    assert job_pods.parse_object("explain", words) == subject


@pytest.mark.parametrize("name", ["job", "pod.yaml", "pods.d/llm.yaml"])
def test_a_file_with_the_name_of_a_kind_is_read(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    for files in ([name], [name, "llm.yaml"], ["./" + name]):
        assert job_pods.parse_object("explain", files) is None


@pytest.mark.parametrize("is_in_template", [False, True])
def test_a_label_without_a_value_is_rejected_as_empty(explain, is_in_template):
    metadata = {"labels": {"railwright.io/fabric": None}}
    own, of_template = ({}, metadata) if is_in_template else (metadata, {})
    spec = {"template": {"metadata": of_template, "spec": {"containers": [admitting.gpus(8)]}}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", **own}, "spec": spec}
    code, out, _ = explain(job)
    assert (code, "label railwright.io/fabric is empty" in out) == (1, True)


@pytest.mark.parametrize(
    ("word", "kind", "created"),
    [
        ("cronjob/llm", "CronJob", "Job"),
        ("cronjobs.batch/llm", "CronJob", "Job"),
        ("rayjob/llm", "RayJob", "RayCluster"),
        ("rayservice/llm", "RayService", "RayCluster"),
        ("podcliqueset/llm", "PodCliqueSet", "PodClique"),
    ],
)
def test_a_kind_that_creates_other_workloads_is_refused_with_the_kind_to_give_instead(word, kind, created, capsys):
    assert command_line.main(["explain", word]) == 2
    assert capsys.readouterr().err == (
        f"railwright: explain {word}: a {kind} creates objects of kind {created}, which have the pods; give "
        "one of them as job/NAME\n"
    )


def test_explain_prints_the_diff_and_the_reasons_below_it(explain):
    code, out, err = explain(admitting.pod())
    assert code == 0
    lines = [line.rstrip() for line in out.splitlines()]
    assert lines[:2] == ["Pod prod/p", "injected: fabric f, role worker, rails rail0"]
    assert "+        nvidia.com/mlx5_0: '1'" in lines
    assert "+    k8s.v1.cni.cncf.io/networks: prod/lan2" in lines
    assert any("capability IPC_LOCK" in line and "to register memory with the NIC" in line for line in lines)
    assert any("c: env NCCL_IB_HCA" in line for line in lines)
    assert lines[-1] == "1 template: 1 injected, 0 rejected, 0 unchanged"
    assert "cluster not consulted" in err
    assert "give --snapshot" in err


def test_a_pod_that_gets_only_the_injection_record_is_not_counted_as_injected(explain):
    code, out, _ = explain(admitting.pod({"name": "c", "image": "x"}))
    assert code == 0
    assert out.splitlines()[1] == (
        "nothing is injected: no container requests nvidia.com/gpu, so the pod gets no rails; only the record is "
        "written: fabric f, role excluded"
    )
    assert out.splitlines()[-1] == "1 template: 0 injected, 0 rejected, 1 unchanged"
    (explain.folder / "warn.yaml").write_text(f"{POLICY}mode: warn\n")
    _, out, _ = explain(admitting.pod({"name": "c", "image": "x"}), policy="warn.yaml")
    assert out.splitlines()[1] == "mode warn: admitted unchanged; warnings say what enforcing would do"


def test_a_pod_whose_annotations_have_no_room_for_the_record_is_injected(explain):
    code, out, _ = explain(admitting.pod(annotations={"a/b": "x" * 261_900}))
    assert (code, out.splitlines()[1]) == (0, "injected: fabric f, role worker")
    assert "warning: AnnotationsFull: " in out


def test_a_rejected_pod_is_a_finding_with_the_message_of_the_webhook(explain):
    code, out, _ = explain(admitting.pod(label="g"), admitting.pod())
    assert code == 1
    assert "rejected: Pod prod/p: label railwright.io/fabric 'g' is not a fabric of the policy" in out
    assert "2 templates: 1 injected, 1 rejected, 0 unchanged" in out


def test_explain_checks_pod_security_and_networks_if_it_has_a_snapshot(explain):
    snapshot = ("--snapshot", str(explain.folder / "snapshot.yaml"))
    code, out, err = explain(admitting.pod(), options=snapshot)
    assert (code, err) == (0, "")
    assert "pod-security level baseline, which forbids capability IPC_LOCK" in out
    (explain.folder / "snapshot.yaml").write_text(SNAPSHOT.replace("lan2", "lan9"))
    code, out, _ = explain(admitting.pod(), options=snapshot)
    assert code == 1
    assert "NetworkAttachmentDefinition prod/lan2 of fabric f does not exist" in out


def test_the_namespaces_of_a_fabric_are_checked_only_with_a_snapshot(explain):
    limited = POLICY.replace("    transport: roce\n", "    transport: roce\n    namespaces: {team: ai}\n")
    (explain.folder / "limited.yaml").write_text(limited)
    code, out, err = explain(admitting.pod(), policy="limited.yaml")
    assert (code, "injected: fabric f, role worker, rails rail0" in out) == (0, True)
    assert "namespace labels, networks, pod-security level and node resources were not checked" in err
    snapshot = ("--snapshot", str(explain.folder / "snapshot.yaml"))
    code, out, _ = explain(admitting.pod(), policy="limited.yaml", options=snapshot)
    assert code == 1
    assert "rejected: Pod prod/p: fabric f may not be used in namespace prod: its labels do not match" in out


def test_json_has_the_explanation_and_patch_operations_that_yield_the_injected_pod(explain):
    tree = admitting.pod()
    code, out, _ = explain(tree, admitting.pod(label="g"), admitting.pod(label=None), options=("-o", "json"))
    assert code == 1
    injected, refused, none = json.loads(out)
    assert (injected["outcome"], refused["outcome"], none["outcome"]) == ("patched", "refused", "allowed")
    assert (injected["object"], injected["fabric"], injected["role"]) == ("Pod prod/p", "f", "worker")
    assert refused["message"].startswith("Pod prod/p: label railwright.io/fabric 'g'")
    after = jsonpatch.apply_patch(tree, injected["operations"])
    record = json.loads(after["metadata"]["annotations"]["railwright.io/injection"])
    assert injected["kept"] == record["kept"]
    assert injected["skipped"] == record["skipped"]
    assert record["skipped"].keys() == {"found"}
    assert {change["entry"] for change in injected["changes"]} >= {"networks", "devices", "security.IPC_LOCK"}
    assert all(change["change"] and change["reason"] for change in injected["changes"])
    assert none["operations"] == none["changes"] == []


CLAIMS = """
apiVersion: railwright.io/v1alpha1
defaultFabric: f
fabrics:
  f:
    transport: efa
    gpusPerNode: 8
    claims: {deviceClass: dranet, acceleratorClass: gpu.nvidia.com}
    rails: [{name: rail0, device: rdmap16s27}]
"""


def test_removed_gpu_requests_and_the_added_request_of_a_pod_with_claims_have_reasons(explain):
    (explain.folder / "claims.yaml").write_text(CLAIMS)
    _, out, _ = explain(admitting.pod(), policy="claims.yaml", options=("-o", "json"))
    (injected,) = json.loads(out)
    why = {change["change"]: change["reason"] for change in injected["changes"]}
    assert "also the GPUs, whose requests are removed" in why["resource claims"]
    assert "call the extender" in why["c: request of railwright.io/rails '0'"]


def test_an_already_injected_pod_is_reported_as_unchanged(explain):
    tree = admitting.pod()
    (first,) = json.loads(explain(tree, options=("-o", "json"))[1])
    code, out, _ = explain(jsonpatch.apply_patch(tree, first["operations"]))
    assert code == 0
    assert "unchanged, because the pod already has all that admission adds: fabric f" in out
    assert "unchanged: the pod did not opt in" in explain(admitting.pod(label=None))[1]


def test_a_pod_without_accelerators_in_a_namespace_that_opts_in_is_reported_as_unchanged_with_the_cause(explain):
    labelled = SNAPSHOT.replace("labels: {", "labels: {railwright.io/fabric: default, ")
    (explain.folder / "snapshot.yaml").write_text(labelled)
    tree = admitting.pod(label=None)
    tree["spec"]["containers"][0]["resources"] = {"limits": {"amd.com/gpu": "1"}}
    code, out, _ = explain(tree, options=("--snapshot", str(explain.folder / "snapshot.yaml")))
    assert code == 0
    assert out.splitlines()[1] == (
        "unchanged: namespace prod opts in with label railwright.io/fabric 'default', but no container requests an "
        "accelerator of the policy (nvidia.com/gpu); if amd.com/gpu is an accelerator, let the operator add it to "
        "`accelerators`"
    )


def test_a_manifest_may_come_from_standard_input_and_its_namespace_from_the_option(explain, monkeypatch, capsys):
    tree = admitting.pod()
    del tree["metadata"]["namespace"]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(tree).encode())))
    code = command_line.main(["explain", "-", "--policy", str(explain.folder / "policy.yaml"), "-n", "research"])
    assert code == 0
    assert capsys.readouterr().out.startswith("Pod research/p\n")


def test_explain_exits_2_and_names_a_file_without_pods(explain):
    code, out, err = explain({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}})
    assert (code, out) == (2, "")
    assert "m.yaml: contains no pod and no pod template" in err


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (22, "expected text, not a whole number; put it in quotes"),
        (0.5, "expected text, not a number; put it in quotes"),
        (True, "expected text, not true or false; put it in quotes"),
        (["a"], "expected text, not a list"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_its_path_and_the_fix(explain, value, said):
    variable = {"name": "NCCL_IB_TIMEOUT", "value": value}
    code, out, err = explain(admitting.pod(admitting.gpus(8, env=[variable])))
    assert (code, out) == (2, "")
    assert err.endswith(f"m.yaml: Pod prod/p: spec.containers[0].env[0].value: {said}\n")
    template = {"metadata": {"labels": {"railwright.io/fabric": value}}, "spec": {"containers": [{"name": "c"}]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}
    code, _, err = explain(job)
    assert (code, err.endswith(f"m.yaml: Job default/j: spec.template.metadata.labels[...]: {said}\n")) == (2, True)


@pytest.mark.parametrize(
    ("version", "kind", "spec", "said"),
    [
        ("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"name": "r"}}, "goes into spec.labels"),
        ("serving.kserve.io/v1beta1", "InferenceService", {"predictor": {}}, "goes into spec.predictor.labels"),
        (
            "nvidia.com/v1alpha1",
            "DynamoGraphDeployment",
            {"services": {}},
            "spec.services.NAME.extraPodMetadata.labels",
        ),
        ("example.com/v1", "Mission", {}, "has no pod template that railwright knows, skipped"),
    ],
)
def test_explain_says_where_the_label_belongs_in_an_object_without_a_pod_template(explain, version, kind, spec, said):
    tree = {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "namespace": "prod"}, "spec": spec}
    code, _, err = explain(admitting.pod(), tree)
    assert code == 0
    assert err.startswith(f"railwright: {kind} prod/x: ")
    assert said in err


def test_all_errors_of_an_invalid_policy_file_are_printed(explain):
    (explain.folder / "bad.yaml").write_text(POLICY.replace("roce", "rocee") + "oops: 1\n")
    code, out, err = explain(admitting.pod(), policy="bad.yaml")
    assert (code, out) == (2, "")
    assert "bad.yaml:6: fabrics.f.transport:" in err
    assert "oops: is not a known key" in err
    assert explain(admitting.pod(), policy="missing.yaml")[0] == 2
    (explain.folder / "snapshot.yaml").write_text("kind: Node\nmetadata: 7\n")
    assert explain(admitting.pod(), options=("--snapshot", str(explain.folder / "snapshot.yaml")))[0] == 2


def test_control_characters_in_a_file_are_escaped(explain):
    evil = "\x1b[2J\x9b\u202e[bold red]"
    container = admitting.gpus(8, evil, env=[{"name": f"NCCL_IB_HCA{evil}", "value": evil}])
    tree = admitting.pod(container, annotations={"k8s.v1.cni.cncf.io/networks": f"lan2@{evil}"})
    tree["metadata"]["name"] = evil
    for document in (tree, admitting.pod(container), {**admitting.pod(), "kind": "Job" + evil}):
        _, out, err = explain(document)
        assert not [letter for letter in out + err if not (letter.isprintable() or letter == "\n")]
    assert "[bold red]" in out + err, "and it is no markup"
