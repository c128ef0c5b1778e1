"""`railwright` under an account with `edit` in one namespace and nothing else: what the real API server tells it."""

import asyncio
import json
import pathlib
import uuid

import pytest_asyncio
import yaml
from plane import site as sites
from plane import tenants, waiting

from railwright.fabric.workloads import registry

ROOT = pathlib.Path(__file__).parents[2]
WORKLOADS = ROOT / "tests" / "data" / "manifests" / "workloads.yaml"
FABRIC = "railwright.io/fabric"
COUNTERS = ("railwright_webhook_refusals_total", "railwright_injections_total", "railwright_webhook_warnings_total")


@pytest_asyncio.fixture(loop_scope="session")
async def railwright(plane, namespace, tmp_path):
    """`await railwright(...)`: (exit code, stdout, stderr) as somebody with `edit` in the test's namespace."""
    user = f"tenant-{uuid.uuid4().hex[:8]}"
    kubeconfig = plane.certificates.kubeconfig(user, plane.parts.server, user)

    async def run(*words: str, stdin: str = "") -> tuple[int, str, str]:
        return await tenants.run_command(words, kubeconfig=kubeconfig, folder=tmp_path, stdin=stdin)

    async def allow(role: str) -> None:
        await plane.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--user={user}", "-n", namespace)
        await _in_force(plane, user, namespace, "get", "pods")

    run.allow, run.user, run.kubeconfig = allow, user, kubeconfig
    return run


async def _in_force(plane, user: str, namespace: str, verb: str, resource: str) -> None:
    async def is_permitted():
        question = ("auth", "can-i", verb, resource, f"--as={user}", "-n", namespace)
        return (await plane.kubectl(*question, check=False)).strip() == "yes"

    await waiting.wait(is_permitted, describe=f"the right of {user} to {verb} {resource}")


@pytest_asyncio.fixture(loop_scope="session")
async def installed(namespace, module_site):  # in this order: it is unregistered before its namespace goes
    yield await module_site.install(tenants.POLICY, namespace)
    await module_site.unregister()


def pod(**spec) -> dict:
    limits = {"nvidia.com/gpu": "8"}
    container = {"name": "c", "image": "i", "resources": {"limits": limits}, **spec}
    metadata = {"name": "asked", "labels": {FABRIC: "ib"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


async def test_dry_runs_agree_with_the_command_for_every_kind(
    plane, namespace, installed, railwright, controllers, tmp_path
):
    await asyncio.gather(*map(controllers.start, ("jobset", "lws")))  # both review the pods of their workloads
    await railwright.allow("edit")
    text = WORKLOADS.read_text().replace("namespace: prod", f"namespace: {namespace}")
    trees = [_with_images(tree) for tree in yaml.safe_load_all(text)]
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(trees))
    (tmp_path / "policy.yaml").write_text(tenants.POLICY)
    asked, computed = await asyncio.gather(
        railwright("explain", "all.yaml", "-o", "json"),
        railwright("explain", "all.yaml", "-o", "json", "--policy", "policy.yaml"),
    )
    answers, expected = json.loads(asked[1]), json.loads(computed[1])
    assert [(answer["object"], answer["message"]) for answer in answers if answer["outcome"] == "refused"] == []
    assert asked[0] == computed[0] == 0, asked[2]
    assert {answer["object"].split()[0] for answer in answers} == {kind.name for kind in registry.KINDS}
    assert {answer["source"]["kind"] for answer in answers} == {"dry-run"}
    assert f"a dry run in namespace {namespace}, policy sha256:" in answers[0]["source"]["text"]
    for answer, other in zip(answers, expected, strict=True):
        same = ("object", "template", "pods", "outcome", "fabric", "role", "rails", "skipped", "kept")
        assert {key: answer[key] for key in same} == {key: other[key] for key in same}
        assert {change["entry"] for change in answer["changes"]} == {
            change["entry"] for change in other["changes"] if change["entry"] != "record"
        }
        assert all(change["reason"] for change in answer["changes"])
    assert await plane.api.list("Pod", namespace) == []


def _with_images(tree):
    """Add the image that the API server requires of a container, and that the command does not."""
    if isinstance(tree, list):
        return [_with_images(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    changed = {key: _with_images(value) for key, value in tree.items()}
    if isinstance(changed.get("containers"), list):
        changed["containers"] = [{"image": "i", **container} for container in changed["containers"]]
    return changed


async def test_explain_shows_the_changes_or_the_rejection(namespace, installed, railwright):
    await railwright.allow("edit")
    admitted, rejected = await asyncio.gather(
        railwright("explain", "-", "-n", namespace, stdin=json.dumps(pod())),
        railwright(
            "explain", "-", "-n", namespace,
            stdin=json.dumps(pod() | {"metadata": {"name": "asked", "labels": {FABRIC: "wrong"}}}),
        ),
    )  # fmt: skip
    code, out, err = admitted
    assert (code, err) == (0, "")
    added = [line[1:].strip() for line in out.splitlines() if line.startswith("+")]
    assert "nvidia.com/mlx5_0: '1'" in added
    assert not any("kube-api-access" in line or "terminationGracePeriod" in line for line in added), added
    assert [line for line in out.splitlines() if line.startswith("-")] == [], "railwright removes nothing"
    assert "source: a dry run in namespace" in out
    code, out, _ = rejected
    assert code == 1
    assert f"refused: Pod {namespace}/asked: label railwright.io/fabric 'wrong' is not a fabric of the policy" in out


async def test_a_dry_run_stores_counts_and_reports_nothing(plane, namespace, installed, railwright):
    await railwright.allow("edit")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}
    made = await plane.api.create(owner, namespace=namespace)
    reference = {
        "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": made["metadata"]["uid"], "controller": True
    }  # fmt: skip
    counted = [await sites.metric(installed.webhook, name) for name in COUNTERS]
    for label in ("ib", "wrong"):
        tree = pod(env=[{"name": "NCCL_IB_HCA", "value": "mlx5_9"}])
        tree["metadata"] |= {"labels": {FABRIC: label}, "ownerReferences": [reference]}
        await railwright("explain", "-", "-n", namespace, stdin=json.dumps(tree))
    assert [await sites.metric(installed.webhook, name) for name in COUNTERS] == counted
    assert await plane.api.list("Pod", namespace) == []
    tree["metadata"]["name"] = "real"
    await plane.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(tree), check=False)

    async def is_reported():
        events = await plane.api.list("Event", namespace)
        return [event["reason"] for event in events] == ["FabricRefused"]

    await waiting.wait(is_reported, describe="the Event of the pod that was really created, and no other")


async def test_a_pod_that_exists_already_is_explained_too(plane, namespace, installed, railwright):
    await railwright.allow("edit")
    await plane.api.create(pod(), namespace=namespace)
    code, out, err = await railwright("explain", "-", "-n", namespace, stdin=json.dumps(pod()))
    assert code == 0, err
    assert f"Pod {namespace}/asked" in out
    assert "injected: fabric ib" in out


async def test_explain_reads_the_policy_without_the_right_to_create_pods(plane, namespace, installed, railwright):
    await railwright.allow("view")
    blind = await railwright("explain", "-", "-n", namespace, stdin=json.dumps(pod()))
    assert blind[0] == 2
    assert f"you may not create pods in namespace {namespace}; and the policy cannot be read: " in blind[2]
    assert "--policy FILE" in blind[2]
    assert len(blind[2].splitlines()) == 1
    policy = {"resourceNames": ["railwright-policy"], "verbs": ["get"]}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "reader", "namespace": sites.NAMESPACE},
        "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], **policy},
            {"apiGroups": ["railwright.io"], "resources": ["fabricpolicies"], **policy},
        ],
    }
    await plane.api.create(role)
    binding = ("create", "rolebinding", "reader", "--role=reader", f"--user={railwright.user}")
    await plane.kubectl(*binding, "-n", sites.NAMESPACE)
    try:
        await _in_force(plane, railwright.user, sites.NAMESPACE, "get", "configmaps/railwright-policy")
        code, out, _ = await railwright("explain", "-", "-n", namespace, stdin=json.dumps(pod()))
    finally:
        await plane.kubectl("delete", "role,rolebinding", "reader", "-n", sites.NAMESPACE)
    assert code == 0
    assert (
        "source: the policy in ConfigMap railwright-system/railwright-policy, because you may not create pods in "
        f"namespace {namespace}" in out
    )


async def test_an_absent_webhook_is_named_as_the_cause(plane, namespace, installed, railwright):
    await railwright.allow("edit")
    await installed.webhook.stop()
    code, out, _ = await railwright("explain", "-", "-n", namespace, stdin=json.dumps(pod()))
    assert code == 1
    assert "refused: the API server could not call railwright's webhook" in out
    await plane.unregister_webhook(namespaces=[namespace])
    code, out, _ = await railwright("explain", "-", "-n", namespace, stdin=json.dumps(pod()))
    assert code == 1
    assert "not injected: the API server creates such a pod without calling railwright's webhook" in out


async def test_lint_adds_findings_of_the_webhook_with_their_lines(namespace, installed, railwright, tmp_path):
    await railwright.allow("edit")
    tree = pod(env=[{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "NCCL_IB_HCA", "value": "mlx5_9"}])
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [tree]})
    (tmp_path / "job.yaml").write_text(text)
    (tmp_path / "policy.yaml").write_text(tenants.POLICY)
    line = next(number for number, content in enumerate(text.splitlines(), 1) if "mlx5_9" in content)
    asked, alone, computed = await asyncio.gather(
        railwright("lint", "job.yaml", "-n", namespace),
        railwright("lint", "job.yaml", "--local"),
        railwright("lint", "job.yaml", "--policy", "policy.yaml"),
    )
    assert f"job.yaml:{line}: error N15 NCCL_IB_HCA=mlx5_9: " in asked[1], asked
    assert asked[2] == f"railwright: the fabric's rules come from dry runs in namespace {namespace}\n"
    assert asked[0] == 1
    assert ("N15" in alone[1], alone[2]) == (False, "")
    assert f"job.yaml:{line}: error N15" in computed[1]


async def test_lint_says_what_it_could_not_check(namespace, installed, railwright, tmp_path):
    await railwright.allow("view")
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(pod(env=[{"name": "NCCL_IB_TIMEOUT", "value": "99"}])))
    code, out, err = await railwright("lint", "job.yaml", "-n", namespace)
    assert (code, "N09" in out) == (1, True)
    assert err.startswith(
        f"railwright: rules that need the fabric were not checked: you may not create pods in namespace {namespace}; "
        "and the policy cannot be read: "
    )
    assert len(err.splitlines()) == 1


async def test_a_missing_namespace_is_named(installed, railwright):
    name = "no-such-namespace"
    await railwright.allow("edit")
    code, _, err = await railwright("explain", "-", "-n", name, stdin=json.dumps(pod()))
    assert code == 2
    assert f"you may not create pods in namespace {name}" in err
