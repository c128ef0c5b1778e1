"""Warnings about a new policy that removes a fabric in use: at the write, and by `policy validate --from-cluster`."""

import json

import msgspec
import pytest
import varied_clusters
from aiohttp import test_utils

from railwright.cluster import errors, policies
from railwright.fabric import views
from railwright.fabric.workloads import fabric_users
from railwright.serving import metrics
from webhook import app, policy_validation, state

OTHER = varied_clusters.POLICY.replace('"roce":', '"roce-v2":').replace(': "roce",', ': "roce-v2",', 1)
COUNTED = (
    "FabricInUse: fabrics.roce is removed or renamed, but 3 pods of 2 jobs (prod 2, research 1) have its label and "
    "namespace labs opts in with it: pods that are created again are rejected; keep it until they have ended"
)


def build_pod(name: str, namespace: str, job: str) -> dict:
    labels = {"railwright.io/fabric": "roce", "batch.kubernetes.io/job-name": job}
    return {"metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels}}


PODS = [build_pod("a-0", "prod", "a"), build_pod("a-1", "prod", "a"), build_pod("b-0", "research", "b")]
LABS = {"metadata": {"name": "labs", "labels": {"railwright.io/fabric": "roce"}}}
NAMESPACES = [LABS, {"metadata": {"name": "prod"}}]


def review(text: str) -> bytes:
    name = {"name": "railwright-policy", "namespace": "railwright-system"}
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    stored = {"metadata": name, "data": {"policy.yaml": text}}
    request = {"uid": "u", "kind": kind, **name, "operation": "UPDATE", "object": stored}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


@pytest.fixture
def store(monkeypatch):
    async def send(text: str, pods=None) -> list[str]:
        known, asked = state.State(), []

        async def list_pods(_client, labels):
            asked.append(labels)
            if pods is None:
                raise errors.UnreachableError("no answer")
            return pods

        monkeypatch.setattr(policy_validation, "list_labelled_pods", list_pods)
        known.namespaces.replace([msgspec.convert(LABS, views.Namespace)])
        present, counters = policies.read(varied_clusters.POLICY), metrics.WebhookMetrics()
        api = app.ApiServer(None, None, None)
        application = app.Webhook(known, lambda: present, counters, api).build_application()
        async with test_utils.TestClient(test_utils.TestServer(application)) as client:
            headers = {"Content-Type": "application/json"}
            answer = await client.post("/validate/policy", data=review(text), headers=headers)
            response = (await answer.json())["response"]
        assert response["allowed"]
        assert ["roce"] in asked if "roce-v2" in text else ["roce"] not in asked
        return response.get("warnings", [])

    return send


async def test_writing_a_policy_that_removes_a_fabric_in_use_warns_with_the_numbers_of_pods_and_jobs(store):
    pods = fabric_users.LabelledPods([msgspec.convert(pod, views.Pod) for pod in PODS], is_complete=True)
    (warning,) = await store(OTHER, pods)
    assert warning == COUNTED
    assert await store(varied_clusters.POLICY, pods) == []


async def test_the_warning_has_no_number_of_pods_if_the_api_server_does_not_list_them(store):
    (warning,) = await store(OTHER, None)
    assert "but how many pods use it is not known and namespace labs opts in with it" in warning


async def test_policy_validate_counts_the_pods_of_a_fabric_that_the_file_removes(cluster, run, tmp_path):
    cluster.keep(varied_clusters.CONFIGMAP_PATH, varied_clusters.CONFIGMAP)
    cluster.lists |= {"/api/v1/pods": PODS, "/api/v1/namespaces": NAMESPACES, "/api/v1/nodes": []}
    file = tmp_path / "policy.yaml"
    file.write_text(OTHER)
    code, out, err = await run("policy", "validate", "--from-cluster", str(file))
    assert (code, err) == (0, "")
    assert f": warning: {COUNTED}" in out
    file.write_text(varied_clusters.POLICY)
    code, out, _ = await run("policy", "validate", "--from-cluster", str(file), "-o", "json")
    (document,) = json.loads(out)
    assert (code, document["valid"]) == (0, True)
    assert not [warning for warning in document["warnings"] if "FabricInUse" in warning]


POLICY = """
apiVersion: railwright.io/v1alpha1
fabrics:
  roce: {{transport: efa, gpusPerNode: 8, rails: [{{name: a, device: mlx5_0}}], placement: {{domains: [c]}}{}}}
"""


@pytest.mark.parametrize("key", ["example.com/leaf", "example.com/leef", "hypernode/level-1"])
async def test_policy_validate_warns_of_a_domain_whose_label_no_node_has(cluster, run, tmp_path, key):
    labels = {"example.com/leaf": "a", "example.com/spine": "b"}
    node = {"metadata": {"name": "n", "labels": labels}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    cluster.lists |= {"/api/v1/namespaces": NAMESPACES, "/api/v1/nodes": [node]}
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.format("").replace("domains: [c]", f"domains: [{key}, example.com/spine]"))
    code, out, err = await run("policy", "validate", "--from-cluster", str(file))
    assert (code, err) == (0, "")
    missing = (
        "DomainsNotLabelled: fabrics.roce.placement: no node has label example.com/leef, so the label groups no nodes; "
    )
    assert (missing in out, "DomainsNotLabelled" in out) == (key == "example.com/leef",) * 2


@pytest.mark.parametrize("gpu", ["H100", "H10O"])
async def test_policy_validate_warns_of_a_node_shape_that_matches_no_node(cluster, run, tmp_path, gpu):
    nodes = [{"metadata": {"name": gpu, "labels": {"gpu": gpu}}} for gpu in ("A100", "H100")]
    cluster.lists |= {"/api/v1/namespaces": NAMESPACES, "/api/v1/nodes": nodes}
    file = tmp_path / "policy.yaml"
    shapes = [{"name": name, "match": {"gpu": label}} for name, label in (("a100-8", "A100"), ("h100-8", gpu))]
    file.write_text(f"{POLICY.format('')}nodeShapes: {json.dumps(shapes)}\n")
    code, out, err = await run("policy", "validate", "--from-cluster", str(file))
    assert (code, err) == (0, "")
    missing = "ShapeWithoutNodes: nodeShapes: no node matches the shape h100-8; correct its `match`; to list labels: "
    assert (missing in out, "ShapeWithoutNodes" in out) == (gpu == "H10O",) * 2


@pytest.mark.parametrize("config", ['{"type": "macvlan"}', '{"type": "macvlan",}', ""])
async def test_policy_validate_warns_of_a_network_whose_cni_configuration_is_no_json(cluster, run, tmp_path, config):
    network = {"metadata": {"name": "lan0", "namespace": "prod"}, "spec": {"config": config}}
    path = "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions"
    cluster.lists |= {"/api/v1/namespaces": NAMESPACES, "/api/v1/nodes": [], path: [network]}
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY.format("").replace("device: mlx5_0", "network: prod/lan0, device: mlx5_0"))
    code, out, err = await run("policy", "validate", "--from-cluster", str(file))
    assert (code, err) == (0, "")
    invalid = (
        "NetworkInvalid: fabrics.roce.rails: spec.config of NetworkAttachmentDefinition prod/lan0 is invalid (line 1,"
    )
    assert (invalid in out, "NetworkInvalid" in out) == (",}" in config,) * 2


BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


@pytest.mark.parametrize(
    ("mode", "policy", "action", "status", "is_warned"),
    [
        ("warn", "railwright-injected", "Deny", None, True),
        ("enforce", "railwright-injected", "Deny", None, False),
        ("warn", "railwright-injected", "Warn", None, False),
        ("warn", "others-policy", "Deny", None, False),
        ("warn", "railwright-injected", "Deny", 403, False),
    ],
)
async def test_policy_validate_warns_of_mode_warn_while_admission_policies_deny_pods_without_a_record(
    cluster, run, tmp_path, mode, policy, action, status, is_warned
):
    binding = {"metadata": {"name": policy}, "spec": {"policyName": policy, "validationActions": [action, "Audit"]}}
    cluster.lists |= {"/api/v1/namespaces": NAMESPACES, "/api/v1/nodes": [], BINDINGS: [binding]}
    cluster.fault = lambda request: status if request.path == BINDINGS else None
    file = tmp_path / "policy.yaml"
    file.write_text(f"{POLICY.format('')}mode: {mode}\n")
    code, out, err = await run("policy", "validate", "--from-cluster", str(file))
    assert (code, err) == (0, "")
    said = f"{file}: warning: NotInjected: mode: the ValidatingAdmissionPolicies of railwright are bound with Deny, "
    assert (said in out) == is_warned, out
