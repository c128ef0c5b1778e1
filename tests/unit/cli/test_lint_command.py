"""`railwright lint` as users run it: findings with file and line, exit codes, and errors about unusable input."""

import io
import json
import sys

import call_counts
import pytest
from admitting import EXAMPLES

from railwright.cli import __main__ as command_line
from railwright.cli import linted_manifests, linting

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: llm, namespace: prod}
spec:
  template:
    spec:
      containers:
      - name: train
        image: torch
        command:
        - bash
        - -c
        - |
          set -e
          export NCCL_IB_TIMEOUT=22s
          python train.py
        env:
        - name: NCCL_DEBUG
          value: WARN
        - name: NCCL_IB_RETRY_CNT
          value: "15"
        resources: {limits: {nvidia.com/gpu: 8}}
"""
MPI = """\
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata: {name: m}
spec:
  mpiReplicaSpecs:
    Launcher:
      template:
        spec:
          containers:
          - name: l
            command: [mpirun, -np, "4",
                      -x, NCCL_IB_GDR_LEVEL=0, -mca, btl_tcp_if_include, eth0, train]
    Worker:
      replicas: 4
      template:
        spec:
          containers:
          - name: w
            resources: {limits: {nvidia.com/gpu: 1}}
"""
REFUSED = """\
apiVersion: v1
kind: Pod
metadata: {name: llm, labels: {railwright.io/fabric: nowhere}}
spec: {containers: [{name: train, resources: {limits: {nvidia.com/gpu: 8}}}]}
"""
REPEATED = """\
apiVersion: v1
kind: Pod
metadata: {name: llm}
spec:
  containers:
  - name: train
    image: torch
    env: [{name: NCCL_IB_TIMEOUT, value: "99"}]
    resources: {requests: {cpu: 1}}
    env: [{name: NCCL_IB_TIMEOUT, value: "98"}]
    resources: {limits: {nvidia.com/gpu: 1}}
"""
POLICY = EXAMPLES / "360-roce" / "policy.yaml"


@pytest.fixture
def lint(tmp_path, capsys):
    def run(*arguments: str, **files: str) -> tuple[int, str, str]:
        paths = []
        for name, text in files.items():
            path = tmp_path / name.replace("_dot_", ".")
            path.write_text(text)
            paths.append(str(path))
        code = command_line.main(["lint", *paths, *arguments])
        captured = capsys.readouterr()
        return code, captured.out.replace(str(tmp_path) + "/", ""), captured.err.replace(str(tmp_path) + "/", "")

    return run


def test_a_finding_shows_file_line_severity_and_object(lint):
    code, out, err = lint(d_dot_yaml=DEPLOYMENT)
    assert code == 1
    assert err == (
        "railwright: rules that need the fabric were not checked: there is no kubeconfig; give the policy in a file: "
        "--policy FILE\n"
    )
    whose = "[Deployment prod/llm container train]"
    taken = "is not a plain decimal number: NCCL takes it as 22; write decimal digits without a leading zero"
    assert [line for line in out.splitlines() if " error N0" in line] == [
        f"d.yaml:15: error N09 NCCL_IB_TIMEOUT=22s: {taken} {whose}",
        f"d.yaml:21: error N09 NCCL_IB_RETRY_CNT=15: is out of range; it takes 0 to 7 {whose}",
    ]
    assert out.splitlines()[-1].startswith("2 errors")


def test_variables_that_a_launcher_forwards_count_for_its_workers(lint):
    code, out, _ = lint("-o", "json", m_dot_yaml=MPI)
    (finding,) = [finding for finding in json.loads(out) if finding["code"] == "N02"]
    assert code == 1
    assert (finding["line"], finding["object"], finding["where"]) == (
        12,
        "MPIJob m Worker container w",
        "launcher's command: -x",
    )
    assert finding["severity"] == "warning"
    assert "use NCCL_NET_GDR_LEVEL" in finding["message"]


def test_a_file_without_findings_has_the_exit_code_0(lint):
    code, out, _ = lint(d_dot_yaml=DEPLOYMENT.replace("22s", "22").replace('"15"', '"7"').replace("gpu: 8", "gpu: 1"))
    assert (code, out) == (0, "nothing found in 1 container or claim\n")


def test_a_value_that_the_api_server_would_reject_is_named_with_its_line_and_the_fix(lint):
    text = "kind: Pod\nspec:\n  containers:\n  - env:\n    - name: NCCL_IB_TIMEOUT\n      value: 22\n"
    code, out, err = lint("--local", p_dot_yaml=text + "    - {name: HOME, value: '1'}\n")
    assert (code, out) == (2, "")
    assert err == (
        "railwright: p.yaml:6: is not a valid Kubernetes manifest: spec.containers[0].env[0].value: expected text, "
        "not a whole number; put it in quotes\n"
    )


@pytest.mark.parametrize("value", ["12:30:00", "2026-01-02", "=eth0"])
def test_a_date_a_time_and_an_equals_sign_are_read_as_text_as_by_kubectl(lint, value):
    text = f"kind: Pod\nspec:\n  containers:\n  - args: [{value}]\n    env:\n    - {{name: LIMIT, value: {value}}}\n"
    assert lint("--local", p_dot_yaml=text)[0] == 0


def test_with_a_policy_the_injected_pod_is_linted(lint):
    labelled = DEPLOYMENT.replace(
        "  template:\n", "  template:\n    metadata: {labels: {railwright.io/fabric: roce}}\n"
    )
    labelled = labelled.replace("value: WARN", "value: WARN\n        - {name: NCCL_IB_HCA, value: =mlx5_9}")
    _, out, err = lint("--policy", str(POLICY), "-o", "json", d_dot_yaml=labelled)
    by_code = {finding["code"]: finding for finding in json.loads(out)}
    assert err == ""
    assert "selects none of the rails' devices mlx5_0, mlx5_1, mlx5_2, mlx5_3" in by_code["N15"]["message"]
    assert by_code["N15"]["line"] == 21
    assert "N18" not in by_code  # injection sets it


def test_the_cost_of_finding_lines_grows_linearly_with_the_options_of_mpirun():
    def lint_options(size: int) -> int:
        words = [word for number in range(size) for word in ("-x", f"NCCL_UNKNOWN_{number}=1")]
        container = {"name": "c", "command": ["mpirun", *words, "train"]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}
        text = json.dumps(pod, indent=0)  # each word in a line of its own
        manifests = linted_manifests.read_manifests("p.json", text)
        last = text.split("\n").index(f'"NCCL_UNKNOWN_{size - 1}=1",') + 1
        assert max(one.line for one in linting.check_manifests(manifests).sorted_findings) == last
        manifests = linted_manifests.read_manifests("p.json", text)
        return call_counts.count(lambda: linting.check_manifests(manifests))

    assert lint_options(800) < 2.5 * lint_options(400)


def test_a_pod_that_admission_rejects_is_an_error_and_still_linted(lint):
    labelled = DEPLOYMENT.replace(
        "  template:\n", "  template:\n    metadata: {labels: {railwright.io/fabric: nowhere}}\n"
    )
    code, out, err = lint("--policy", str(POLICY), d_dot_yaml=labelled)
    assert code == 1
    assert "N09" in out
    assert err == ""
    assert "error M02 Deployment prod/llm: " in out
    assert "nowhere" in out
    code, out, _ = lint("--policy", str(POLICY), d_dot_yaml=REFUSED)
    assert (code, "1 error" in out) == (1, True)


def test_a_repeated_key_is_a_finding_and_its_last_value_is_linted(lint):
    code, out, _ = lint("--local", d_dot_yaml=REPEATED)
    assert code == 1
    assert "d.yaml:10: warning M01 env: this key is also on line 8" in out
    assert "d.yaml:11: warning M01 resources: this key is also on line 9" in out
    assert "d.yaml:10: error N09 NCCL_IB_TIMEOUT=98" in out
    assert "99" not in out


@pytest.mark.parametrize(
    ("arguments", "files", "reason"),
    [
        ([], {}, "FILE is missing; give one, or - for standard input; --help has all forms"),
        (["no/such/file"], {}, "No such file"),
        ([], {"a_dot_yaml": "kind: [\n"}, "is not YAML"),
        ([], {"a_dot_yaml": "- 1\n- 2\n"}, "contains no Kubernetes object"),
        ([], {"a_dot_yaml": "kind: Pod\nspec: {containers: [1]}\n"}, "not a valid Kubernetes manifest"),
        (
            ["--policy", str(EXAMPLES / "360-roce" / "job.yaml")],
            {"d_dot_yaml": DEPLOYMENT},
            "railwright policy validate",
        ),
    ],
)
def test_lint_exits_2_and_names_the_cause_if_it_cannot_use_its_input(lint, arguments, files, reason):
    code, _, err = lint(*arguments, **files)
    assert code == 2
    assert reason in err


def test_lint_reads_standard_input_if_the_file_is_a_dash(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(DEPLOYMENT.encode())))
    assert command_line.main(["lint", "-"]) == 1
    assert "-:21: error N09" in capsys.readouterr().out


CLAIM = """\
apiVersion: v1
kind: List
items:
- apiVersion: resource.k8s.io/v1
  kind: ResourceClaimTemplate
  metadata: {namespace: prod, name: rdma}
  spec:
    spec:
      devices:
        requests:
        - name: nic
          exactly:
            deviceClassName: dranet
            selectors:
            - cel: {expression: 'device.attributes["dra.net"].rdmaDevice == "mlx5_0"'}
- apiVersion: resource.k8s.io/v1
  kind: DeviceClass
  metadata: {name: dranet}
"""


def test_a_finding_about_a_claim_template_has_the_line_of_its_device_request(lint):
    code, out, _ = lint(claims_dot_yaml=CLAIM)
    assert code == 1
    assert ":12: warning C02 request nic reads dra.net/rdmaDevice without has()" in out
    assert "[ResourceClaimTemplate prod/rdma]" in out
    assert out.endswith("1 warning in 1 container or claim\n")


POD_WITH_KEYS = """\
apiVersion: v1
kind: Pod
metadata:
  name: llm
  labels:
    {key}
spec: {{containers: [{{name: c, image: i}}]}}
"""
WORKLOAD_WITH_LABEL = """\
apiVersion: {version}
kind: List
items:
- apiVersion: {version}
  kind: {kind}
  metadata:
    name: nightly
    labels:
      railwright.io/fabric: roce
  spec: {spec}
"""
TEMPLATE = "{metadata: {annotations: {railwright.io/fabric: roce}}, spec: {containers: [{name: c, image: i}]}}"
WITHOUT_LABEL = "{spec: {containers: [{name: c, image: i}]}}"


@pytest.mark.parametrize("options", [("--local",), ("--policy", str(POLICY))])
@pytest.mark.parametrize(
    ("key", "code", "suggestion"),
    [
        ("railwright.io/fabrik: roce", "KeyWithoutEffect", "did you mean label railwright.io/fabric?"),
        ("railwrite.io/fabric: roce", "KeyWithoutEffect", "did you mean label railwright.io/fabric?"),
        ("railwright.io/skip: mounts", "KeyWithoutEffect", "railwright reads it as an annotation; move it there"),
    ],
)
def test_a_misspelt_or_misplaced_key_is_one_finding_at_its_line(lint, options, key, code, suggestion):
    status, out, err = lint(*options, pod_dot_yaml=POD_WITH_KEYS.format(key=key))
    assert (status, "has no effect" in err) == (1, False)
    assert f"pod.yaml:6: warning M03 {code}: label {key.split(':')[0]} " in out
    assert out.count(" has no effect") == 1
    assert f"{suggestion} [Pod llm]" in out
    assert out.splitlines()[-1] == "1 warning"


@pytest.mark.parametrize(
    ("labels", "annotation"),
    [
        ("{railwright.io/fabric: nowhere}", "{}"),
        ("{railwright.io/fabric: }", "{}"),
        ("{railwright.io/fabric: roce-derived}", '{railwright.io/rails: "8"}'),
    ],
)
def test_the_finding_about_a_rejected_pod_has_the_line_of_its_template(lint, labels, annotation):
    """The label can be on the object, above the template."""
    job = JOB_WITH_KEYS.format(labels=labels, annotation=annotation)
    _, out, _ = lint("--policy", str(POLICY), job_dot_yaml=job)
    assert "job.yaml:6: error M02 Job llm: " in out


JOB_WITH_KEYS = """\
apiVersion: batch/v1
kind: Job
metadata: {{name: llm,
  labels: {labels}}}
spec:
  template:
    metadata:
      annotations:
        {annotation}
    spec: {{containers: [{{name: c, image: i, resources: {{limits: {{nvidia.com/gpu: 8}}}}}}]}}
"""


def test_a_label_on_a_workload_that_does_not_pass_it_to_pods_is_a_finding(lint):
    def lint_cron_job(template):
        spec = f"{{jobTemplate: {{spec: {{template: {template}}}}}}}"
        return lint("--local", m_dot_yaml=WORKLOAD_WITH_LABEL.format(kind="CronJob", version="batch/v1", spec=spec))

    status, out, _ = lint_cron_job(WITHOUT_LABEL)
    assert status == 1
    assert "m.yaml:9: warning M03 LabelNotPassed: label railwright.io/fabric 'roce' of the CronJob" in out
    status, out, _ = lint_cron_job(TEMPLATE)
    assert status == 1
    assert "m.yaml:10: warning M03 KeyWithoutEffect: annotation railwright.io/fabric 'roce'" in out


def test_a_misspelt_label_of_a_template_without_containers_is_a_finding(lint):
    template = "{metadata: {labels: {railwright.io/fabrik: roce}}, spec: {container: []}}"
    job = f"apiVersion: batch/v1\nkind: Job\nmetadata: {{name: j}}\nspec: {{template: {template}}}\n"
    status, out, _ = lint("--local", m_dot_yaml=f"{job}---\n{POD_WITH_KEYS.format(key='a: b')}")
    assert status == 1
    assert "warning M03 KeyWithoutEffect: label railwright.io/fabrik 'roce'" in out


def test_a_misspelt_key_of_a_namespace_in_the_file_of_its_pods_is_a_finding(lint):
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: prod\n  labels: {railwright.io/fabirc: roce}\n"
    status, out, _ = lint("--local", m_dot_yaml=f"{namespace}---\n{POD_WITH_KEYS.format(key='a: b')}")
    assert status == 1
    assert "m.yaml:5: warning M03 KeyWithoutEffect: label railwright.io/fabirc 'roce' has no effect" in out
