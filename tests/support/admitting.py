"""Pods, policies and facts for the tests of admission, and the strict application of what is answered."""

import base64
import contextlib
import copy
import functools
import json
import pathlib

import jsonpatch
import msgspec

from railwright.cluster import policies
from railwright.fabric import quantity, views
from railwright.fabric.injection import applied_pod, context, facts, plan
from railwright.fabric.reasons import reason, rendering
from webhook import patch

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "manifests" / "examples"
PROFILES = ROOT / "railwright" / "cli" / "clouds" / "profiles"
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
PINS = {"OMPI_MCA_oob_tcp_if_include", "OMPI_MCA_btl_tcp_if_include", "PRTE_MCA_prte_if_include"}  # of mpirun


def policy(text: str):
    result = policies.read(text)
    assert not isinstance(result, policies.Rejected), result.errors
    return result


def fabric(more: str = "", *, rails: str = RAILS, transport: str = "roce", top: str = ""):
    """Return a policy with one fabric `f`; `more` are further lines of it, indented by four."""
    head = "apiVersion: railwright.io/v1alpha1\ndefaultFabric: f\n"
    return policy(f"{head}{top}\nfabrics:\n  f:\n    transport: {transport}\n    rails: {rails or '[]'}\n{more}")


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


def known(namespace: str = "prod", **more) -> facts.ClusterFacts:
    more.setdefault("networks", {("prod", "lan2"): None, ("prod", "lan3"): None, **LANS})
    return facts.ClusterFacts(namespace=namespace, **more)


def view(tree: dict) -> views.Pod:
    return msgspec.convert(tree, views.Pod)


def planned(tree: dict, by, at: facts.ClusterFacts | None = None):
    return plan.plan(view(tree), by, at or known())


def admitted(tree: dict, by, at: facts.ClusterFacts | None = None) -> dict:
    """Return the pod after admission; the patch applied by a strict RFC 6902 implementation to the document itself.

    Its view is the one that the changes make, which lint reads.
    """
    at = at or known()
    outcome = planned(tree, by, at)
    assert hasattr(outcome, "changes"), outcome
    operations = patch.build_operations(view(tree), outcome.changes)
    patched = jsonpatch.apply_patch(copy.deepcopy(tree), json.loads(msgspec.json.encode(operations)))
    after = applied_pod.read(view(patched), at.namespace)
    assert (after.metadata, after.networks) == (outcome.pod.metadata, outcome.networks)
    assert _read_amounts(after.spec) == _read_amounts(outcome.pod.spec)
    return patched


def _read_amounts(spec: views.PodSpec) -> views.PodSpec:
    """Return a spec with its amounts as numbers: the patch keeps the author's spelling of an equal amount."""
    containers = [
        container
        if container.resources is None
        else msgspec.structs.replace(
            container,
            resources=msgspec.structs.replace(
                container.resources,
                requests_or_none=_parse(container.resources.requests_or_none),
                limits_or_none=_parse(container.resources.limits_or_none),
            ),
        )
        for container in spec.containers
    ]
    return msgspec.structs.replace(spec, containers_or_none=containers)


def _parse(amounts: dict | None) -> dict | None:
    if amounts is None:
        return None
    parsed = dict(amounts)
    for name, amount in amounts.items():
        with contextlib.suppress(quantity.InvalidQuantityError):
            parsed[name] = quantity.parse_units(amount)
    return parsed


def refusal(tree: dict, by, at: facts.ClusterFacts | None = None) -> str:
    outcome = planned(tree, by, at)
    assert hasattr(outcome, "message"), outcome
    return outcome.message


def messages(outcome) -> tuple[str, ...]:
    """Return the texts of an outcome's warnings, without their codes."""
    return tuple(warning.message for warning in outcome.warnings)


def record(tree: dict) -> dict:
    return json.loads(tree["metadata"]["annotations"]["railwright.io/injection"])


def skipped(tree: dict) -> dict[str, str]:
    """Return the texts of the reasons in `skipped` of the record, by entry."""
    return render(record(tree)["skipped"])


def render(recorded: dict) -> dict[str, str]:
    """Return the texts of the reasons in a part of a record, by entry."""
    reasons = msgspec.convert(recorded, dict[str, reason.RecordedReason])
    return {entry: rendering.render_recorded(value) for entry, value in reasons.items()}


def env(tree: dict) -> dict:
    return {entry["name"]: entry.get("value") for entry in tree["spec"]["containers"][0].get("env", [])}


def variables(**values: str) -> list[dict]:
    """Entries of a container's env."""
    return [{"name": name, "value": value} for name, value in values.items()]


def limits(tree: dict, container: int = 0) -> dict:
    return tree["spec"]["containers"][container].get("resources", {}).get("limits", {})


def mounts(tree: dict) -> dict:
    """Return the volume of each path of the first container."""
    return {mount["mountPath"]: mount["name"] for mount in tree["spec"]["containers"][0].get("volumeMounts", [])}


def list_claim_templates(tree: dict) -> list[str]:
    """Return the names of the ResourceClaimTemplates of a pod."""
    return [entry["resourceClaimTemplateName"] for entry in tree["spec"].get("resourceClaims", ())]


@functools.cache
def _read_wire(name: str) -> str:
    return (WIRE / name).read_text()


def review(tree: dict, *, name: str = "admission-pods-bench.json", **request) -> bytes:
    """Return a captured review with this object in it."""
    body = json.loads(_read_wire(name))
    body["request"] |= {"object": tree, **request}
    return json.dumps(body).encode()


def review_policy(text: str) -> bytes:
    """Return the review of a ConfigMap with this policy."""
    metadata = {"name": "railwright-policy", "namespace": "railwright-system"}
    request = {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "operation": "CREATE",
        **metadata,
    }
    request["object"] = {"metadata": metadata, "data": {"policy.yaml": text}}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def operations(response: dict) -> list:
    return json.loads(base64.b64decode(response["patch"])) if "patch" in response else []


def options(pod: views.Pod) -> context.UserOptions:
    return context.read_options(pod, [row.skip for row in plan.MUTATORS if row.skip])
