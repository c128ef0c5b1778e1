"""Pods, policies and facts for the tests of admission, and a strict application of its patches."""

import base64
import copy
import functools
import json
import pathlib

import jsonpatch
import msgspec

from railwright.cluster import policies
from railwright.fabric import views
from railwright.fabric.injection import drafts, facts, plan
from railwright.fabric.reasons import reason as reasons

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "manifests" / "examples"
WIRE = ROOT / "tests" / "data" / "wire"
LANS = {("prod", f"rdma-net-ipam-lan{lan}"): None for lan in range(2, 6)}

RAILS = """
    - {name: rail0, network: prod/lan2, resource: nvidia.com/mlx5_0, device: mlx5_0}
    - {name: rail1, network: prod/lan3, resource: nvidia.com/mlx5_1, device: mlx5_1}
"""
SHAPES = """nodeShapes:
- {name: a, match: {gpu: a}, devices: {rail0: mlx5_0, rail1: mlx5_1}}
- {name: b, match: {gpu: b}, devices: {rail0: mlx5_2, rail1: mlx5_3}}
"""
LAUNCHER = {"training.kubeflow.org/job-role": "launcher"}
OPEN_MPI = {"OMPI_MCA_btl_tcp_if_include"}  # a variable that launchers get from the policy
OF_OPEN_MPI = "    env: {OMPI_MCA_btl_tcp_if_include: eth0}\n"


def read_policy(text: str):
    result = policies.read(text)
    assert not isinstance(result, policies.RejectedPolicy), result.errors
    return result


def fabric(more: str = "", *, rails: str = RAILS, transport: str = "roce", top: str = ""):
    """Return a policy with one fabric `f`; `more` are further lines of it, indented by four.

    It has no init container, unless `more` enables it.
    """
    more = more if "    resolve:" in more else f"{more}    resolve: never\n"
    head = "apiVersion: railwright.io/v1alpha1\ndefaultFabric: f\n"
    return read_policy(f"{head}{top}\nfabrics:\n  f:\n    transport: {transport}\n    rails: {rails or '[]'}\n{more}")


def pod(
    *containers: dict,
    label: str | None = "f",
    labels: dict | None = None,
    annotations: dict | None = None,
    **spec,
) -> dict:
    """Return a pod; `label` is its fabric, `labels` are others."""
    metadata: dict = {"name": "p", "namespace": "prod"}
    if label is not None:
        metadata["labels"] = {"railwright.io/fabric": label, **(labels or {})}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": list(containers) or [gpus(8)], **spec},
    }


def gpus(count: int, name: str = "c", **more) -> dict:
    resources = {"requests": {"nvidia.com/gpu": str(count)}, "limits": {"nvidia.com/gpu": str(count)}}
    return {"name": name, "image": "i", "resources": resources, **more}


def cpu(name: str = "c", **more) -> dict:
    return {"name": name, "image": "i", **more}


def build_facts(namespace: str = "prod", **more) -> facts.ClusterFacts:
    more.setdefault("networks", {("prod", "lan2"): None, ("prod", "lan3"): None, **LANS})
    return facts.ClusterFacts(namespace=namespace, **more)


def decode_pod(tree: dict) -> views.Pod:
    return msgspec.convert(tree, views.Pod)


def plan_pod(tree: dict, by, at: facts.ClusterFacts | None = None):
    return plan.plan_pod(decode_pod(tree), by, at or build_facts())


def admit_pod(tree: dict, by, at: facts.ClusterFacts | None = None) -> dict:
    """Return the pod after admission: the patch is applied by a strict implementation of RFC 6902.

    Its view is the pod of the draft, which lint reads, and a second admission changes nothing.
    """
    at = at or build_facts()
    outcome = plan_pod(tree, by, at)
    assert hasattr(outcome, "changes"), outcome
    operations = drafts.list_operations(outcome.changes)
    patched = jsonpatch.apply_patch(copy.deepcopy(tree), json.loads(msgspec.json.encode(operations)))
    after = drafts.read_pod(decode_pod(patched), at.namespace)
    assert (after.metadata, after.spec, after.networks) == (
        outcome.pod.metadata,
        outcome.pod.spec,
        outcome.networks,
    )
    assert plan.plan_pod(after, by, at).changes == ()
    return patched


def get_refusal(tree: dict, by, at: facts.ClusterFacts | None = None) -> str:
    outcome = plan_pod(tree, by, at)
    assert hasattr(outcome, "message"), outcome
    return outcome.message


def list_messages(outcome) -> tuple[str, ...]:
    """Return the texts of an outcome's warnings, without their codes."""
    return tuple(warning.text for warning in outcome.warnings)


def read_record(tree: dict) -> dict:
    return json.loads(tree["metadata"]["annotations"]["railwright.io/injection"])


def read_skipped(tree: dict) -> dict[str, str]:
    """Return the texts of the reasons in `skipped` of the record, by entry."""
    return render(read_record(tree)["skipped"])


def render(recorded: dict) -> dict[str, str]:
    """Return the texts of the reasons in a part of a record, by entry."""
    return {entry: reason.text for entry, reason in msgspec.convert(recorded, dict[str, reasons.Reason]).items()}


def read_env(tree: dict) -> dict:
    return {entry["name"]: entry.get("value") for entry in tree["spec"]["containers"][0].get("env", [])}


def build_variables(**values: str) -> list[dict]:
    """Entries of a container's env."""
    return [{"name": name, "value": value} for name, value in values.items()]


def read_limits(tree: dict, container: int = 0) -> dict:
    return tree["spec"]["containers"][container].get("resources", {}).get("limits", {})


def list_mounts(tree: dict) -> dict:
    """Return the volume of each path of the first container."""
    return {mount["mountPath"]: mount["name"] for mount in tree["spec"]["containers"][0].get("volumeMounts", [])}


def list_claim_templates(tree: dict) -> list[str]:
    """Return the names of the ResourceClaimTemplates of a pod."""
    return [entry["resourceClaimTemplateName"] for entry in tree["spec"].get("resourceClaims", ())]


@functools.cache
def _read_wire(name: str) -> str:
    return (WIRE / name).read_text()


def review(tree: dict, *, name: str = "admission-pods-bench.json", **request) -> bytes:
    """Return a captured review whose object is `tree`."""
    body = json.loads(_read_wire(name))
    body["request"] |= {"object": tree, **request}
    return json.dumps(body).encode()


def decode_operations(response: dict) -> list:
    return json.loads(base64.b64decode(response["patch"])) if "patch" in response else []
