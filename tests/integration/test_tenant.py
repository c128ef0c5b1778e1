"""`railwright` under an account with `edit` in one namespace only, with the answers of the real API server."""

import asyncio
import json

import yaml
from plane import conditions, manifests
from plane import site as sites

from railwright.fabric.workloads import registry

WORKLOADS = sites.ROOT / "tests" / "data" / "manifests" / "workloads.yaml"
FABRIC = "railwright.io/fabric"
COUNTERS = tuple(f"railwright_webhook_{name}_total" for name in ("refusals", "injections", "warnings"))
KEYS = {"gpusPerNode": 8, "mounts": {"sharedMemory": "1Gi"}, "security": {"capabilities": ["IPC_LOCK"]}}
POLICY = manifests.policy({"ib": manifests.fabric(**KEYS)}, defaultFabric="ib")


def pod(label: str = "ib", **container) -> dict:
    return manifests.pod("asked", label, limits={"nvidia.com/gpu": 8}, container=container)


async def test_explain_gives_equal_answers_by_dry_run_and_by_policy_file(
    plane, namespace, installed, person, controllers, tmp_path
):
    await asyncio.gather(*map(controllers.start, ("jobset", "lws")))  # both review the pods of their workloads
    await person.allow("edit", namespace)
    text = WORKLOADS.read_text().replace("namespace: prod", f"namespace: {namespace}")
    trees = [_with_images(tree) for tree in yaml.safe_load_all(text)]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(trees))
    (tmp_path / "policy.yaml").write_text(POLICY)
    asked, computed = await asyncio.gather(
        person("explain", "all.yaml", "-o", "json"),
        person("explain", "all.yaml", "-o", "json", "--policy", "policy.yaml"),
    )
    answers, expected = json.loads(asked[1]), json.loads(computed[1])
    assert [(answer["object"], answer["message"]) for answer in answers if answer["outcome"] == "refused"] == []
    assert asked[0] == computed[0] == 0, asked[2]
    assert {answer["object"].split()[0] for answer in answers} == {
        kind.name for kind in (*registry.KINDS, *registry.SOURCES)
    }
    assert f"a dry run in namespace {namespace}, policy sha256:" in answers[0]["source"]
    for answer, other in zip(answers, expected, strict=True):
        same = ("object", "template", "pods", "outcome", "fabric", "role", "rails", "skipped", "kept")
        assert {key: answer[key] for key in same} == {key: other[key] for key in same}
        assert {change["entry"] for change in answer["changes"]} == {
            change["entry"] for change in other["changes"] if change["entry"] != "record"
        }
        assert all(change["reason"] for change in answer["changes"])
    assert await plane.api.list("Pod", namespace) == []


def _with_images(tree):
    """Add an image, which the API server requires and the command does not."""
    if isinstance(tree, list):
        return [_with_images(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    changed = {key: _with_images(value) for key, value in tree.items()}
    if isinstance(changed.get("containers"), list):
        changed["containers"] = [{"image": "i", **container} for container in changed["containers"]]
    return changed


async def test_explain_shows_the_changes_or_the_rejection(namespace, installed, person):
    await person.allow("edit", namespace)
    admitted, rejected = await asyncio.gather(
        person("explain", "-", "-n", namespace, stdin=json.dumps(pod())),
        person("explain", "-", "-n", namespace, stdin=json.dumps(pod("wrong"))),
    )
    code, out, err = admitted
    assert (code, err) == (0, "")
    added = [line[1:].strip() for line in out.splitlines() if line.startswith("+")]
    assert "nvidia.com/mlx5_0: '1'" in added
    assert not any("kube-api-access" in line or "terminationGracePeriod" in line for line in added), added
    assert [line for line in out.splitlines() if line.startswith("-")] == [], "railwright removes nothing"
    assert "source: a dry run in namespace" in out
    code, out, _ = rejected
    assert code == 1
    assert f"rejected: Pod {namespace}/asked: label railwright.io/fabric 'wrong' is not a fabric of the policy" in out


async def test_explain_by_dry_run_changes_no_object_metric_or_event(plane, namespace, installed, person):
    await person.allow("edit", namespace)
    made = await plane.api.create(manifests.build("ConfigMap", "owner"), namespace=namespace)
    reference = {
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": made["metadata"]["uid"], "controller": True
    }  # fmt: skip
    counted = [await sites.read_metric(installed.webhook, name) for name in COUNTERS]
    for label in ("ib", "wrong"):
        tree = pod(label, env=[{"name": "NCCL_IB_HCA", "value": "mlx5_9"}])
        tree["metadata"]["ownerReferences"] = [reference]
        await person("explain", "-", "-n", namespace, stdin=json.dumps(tree))
    assert [await sites.read_metric(installed.webhook, name) for name in COUNTERS] == counted
    assert await plane.api.list("Pod", namespace) == []
    tree["metadata"]["name"] = "real"
    await plane.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(tree), check=False)

    await conditions.wait_event(plane.api, namespace, "FabricRefused")
    assert len(await plane.api.list("Event", namespace)) == 1, "of the pod that was really created, and no other"


async def test_explain_accepts_the_manifest_of_an_existing_pod(plane, namespace, installed, person):
    await person.allow("edit", namespace)
    await plane.api.create(pod(), namespace=namespace)
    code, out, err = await person("explain", "-", "-n", namespace, stdin=json.dumps(pod()))
    assert code == 0, err
    assert f"Pod {namespace}/asked" in out
    assert "injected: fabric ib" in out


async def test_explain_tells_a_user_with_role_edit_that_the_namespace_opts_in(plane, namespace, installed, person):
    await person.allow("edit", namespace)
    unlabelled = manifests.pod("asked", limits={"nvidia.com/gpu": 8})
    await plane.api.create(unlabelled, namespace=namespace)
    await plane.api.patch("Namespace", namespace, {"metadata": {"labels": {FABRIC: "ib"}}})
    code, out, _ = await person("explain", "pod/asked", "-n", namespace)
    said = f"Pod {namespace}/asked: label {FABRIC} 'ib' of namespace {namespace}, but not injected: the namespace got"
    assert (code, out.startswith(said)) == (1, True), out
    await installed.unregister()
    code, out, _ = await person("explain", "-", "-n", namespace, stdin=json.dumps(unlabelled))
    assert (code, out.splitlines()[1]) == (
        1,
        "not injected: the API server creates this pod without calling railwright's webhook",
    )


async def test_explain_shows_kubelets_newest_warning_about_a_pod_that_does_not_start(
    plane, namespace, installed, person
):
    """The API server selects Events by their source."""
    await person.allow("edit", namespace)
    created = await plane.api.create(manifests.pod("asked", "ib", nodeName="node-0"), namespace=namespace)
    involved = {"kind": "Pod", "namespace": namespace, "name": "asked", "uid": created["metadata"]["uid"]}
    for minute, (component, reason) in enumerate([("kubelet", "FailedCreatePodSandBox"), ("other", "Unknown")]):
        event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"asked.{minute}"}, "type": "Warning"}
        event |= {"involvedObject": involved, "reason": reason, "message": "no CNI plugin"}
        event |= {"source": {"component": component}, "lastTimestamp": f"2026-12-01T10:0{minute}:00Z"}
        await plane.api.create(event, namespace=namespace)
    _, out, _ = await person("explain", "pod/asked", "-n", namespace)
    assert "\nnot running: Event FailedCreatePodSandBox of 2026-12-01T10:00:00Z: no CNI plugin\n" in out, out
