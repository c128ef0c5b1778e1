"""The admission policies of manifests/base on the real API server: pods that were not injected do not start, and
injected pods keep their devices (threat T4).
"""

import uuid

import aiohttp
import missed_pods
import pytest
import pytest_asyncio
from plane import api, guard, manifests, site, waiting

from railwright.fabric import names

FABRIC, INJECTION = (f"railwright.io/{key}" for key in ("fabric", "injection"))
LABELLED = {FABRIC: "ib"}
NOT_INJECTED = "railwright has not injected"
LEVELS = ("pod-security.kubernetes.io/enforce", "pod-security.kubernetes.io/warn")
POLICY = manifests.policy({"ib": manifests.fabric(security={"capabilities": ["IPC_LOCK"]})})
POD = guard.probe


@pytest_asyncio.fixture(loop_scope="session")
async def make_guarded(plane):
    """Yield a function that makes a namespace in which the policies are enforced; it is deleted afterwards."""
    await guard.install(plane.api)
    made = []

    async def make(**labels: str) -> str:
        name = f"guarded-{uuid.uuid4().hex[:6]}"
        await plane.make_namespace(name, {**guard.GUARDED, **{f"railwright.io/{k}": v for k, v in labels.items()}})
        made.append(name)
        return name

    yield make
    for name in made:
        await plane.remove_namespace(name)


async def read_denial(plane, pod: api.Object, namespace: str) -> str:
    with pytest.raises(api.ApiError) as refused:
        await plane.api.create(pod, namespace=namespace, dry_run=True)
    assert refused.value.status == 403
    return refused.value.message


async def test_the_api_server_type_checks_the_admission_policies_without_warnings(plane, make_guarded):
    kind = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy"

    async def list_checked_policies() -> list[dict]:
        policies = [
            policy for policy in await plane.api.list(kind) if policy["metadata"]["name"].startswith("railwright")
        ]
        assert len(policies) == 2
        for policy in policies:
            seen = policy.get("status", {}).get("observedGeneration")
            assert seen == policy["metadata"]["generation"], policy["metadata"]["name"]
        return policies

    for policy in await waiting.wait(list_checked_policies, describe="the API server's check of types"):
        assert not policy["status"].get("typeChecking", {}).get("expressionWarnings"), policy["status"]


async def test_an_opted_in_pod_is_denied_without_the_webhook(plane, make_guarded):
    namespace = await make_guarded()
    message = await read_denial(plane, POD(LABELLED), namespace)
    assert f"NotInjected: pod {namespace}/p requests fabric ib (label {FABRIC}), but {NOT_INJECTED} it" in message
    assert "railwright check" in message
    assert "set the label to none" in message
    generated = POD(LABELLED)
    generated["metadata"] |= {"generateName": "rank-"}
    del generated["metadata"]["name"]
    assert f"pod {namespace}/rank-" in await read_denial(plane, generated, namespace)


async def test_uninjected_pods_of_an_opted_in_namespace_are_denied(plane, make_guarded):
    namespace = await make_guarded(fabric="ib")
    message = await read_denial(plane, POD({}), namespace)
    assert f"NotInjected: the pod's namespace requests a fabric (label {FABRIC}), but {NOT_INJECTED} the pod" in message
    bystander, zero = POD({}), POD({})
    bystander["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1", "example.com/licence": "1"}}
    zero["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "0"}}
    for pod in (bystander, zero, POD({FABRIC: "none"}), POD({}, annotations={INJECTION: "{}"})):
        await plane.api.create(pod, namespace=namespace, dry_run=True)


async def test_the_api_server_denies_exactly_the_pods_that_were_not_injected(plane, make_guarded):
    """The cases are those of the metric and `railwright check`, except states that no pod is created in."""
    made: dict[tuple, str] = {}
    system = {"kube-system", names.NAMESPACE}
    await site.Site(plane).prepare()  # our own namespace
    levels = {}
    for system_namespace in system:
        await guard.put(plane.api, system_namespace)
        present = (await plane.api.get("Namespace", system_namespace))["metadata"].get("labels", {})
        # of the manifests, where a test has applied them
        levels[system_namespace] = {key: present.get(key) for key in LEVELS}
        await plane.api.patch("Namespace", system_namespace, {"metadata": {"labels": dict.fromkeys(LEVELS)}})
    wrong = {}
    try:
        for name, case in missed_pods.CASES.items():
            if case.later or case.excluded:  # what an installation excludes is in its own policies: test_chart.py
                continue
            namespace, labels = case.namespace, tuple(case.namespace_labels.items())
            if namespace in system:
                fabric = {FABRIC: case.namespace_labels.get(FABRIC)}
                await plane.api.patch("Namespace", namespace, {"metadata": {"labels": fabric}})
            else:
                if labels not in made:
                    made[labels] = await make_guarded(
                        **{key.removeprefix("railwright.io/"): text for key, text in labels}
                    )
                namespace = made[labels]
            pod = missed_pods.pod(case)
            pod["metadata"]["namespace"] = namespace
            try:
                await _wait_answer(plane, pod, namespace, is_missed=case.label is not None)
            except AssertionError as error:
                wrong[name] = str(error)
    finally:
        for system_namespace in system:
            labels = {FABRIC: None, **levels.get(system_namespace, {})}
            await plane.api.patch("Namespace", system_namespace, {"metadata": {"labels": labels}})
            await guard.remove(plane.api, system_namespace)
    assert not wrong


async def _wait_answer(plane, pod: api.Object, namespace: str, *, is_missed: bool) -> None:
    """Wait until a pod is denied or accepted with a warning, or accepted: policies see a changed label late."""

    async def is_answered() -> bool:
        answer = await plane.api.find_rejection(pod, namespace) or " ".join(plane.api.warnings)
        assert NOT_INJECTED in answer if is_missed else not answer, answer
        return True

    await waiting.wait(is_answered, seconds=5, describe="the answer to follow the labels")


async def test_a_namespace_label_replaces_the_denial_by_a_warning(plane, make_guarded):
    for namespace, pod in (
        (await make_guarded(uninjected="warn"), POD(LABELLED)),
        (await make_guarded(uninjected="warn", fabric="ib"), POD({})),
    ):
        await plane.api.create(pod, namespace=namespace, dry_run=True)
        assert any("NotInjected: " in warning and NOT_INJECTED in warning for warning in plane.api.warnings)


LEGITIMATE = {
    "rank": {},
    "without accelerator": {"resources": {}},
    "launcher": {"resources": {}, "labels": {"training.kubeflow.org/job-role": "launcher"}},
    "initializer": {"resources": {}, "labels": {"jobset.sigs.k8s.io/replicatedjob-name": "model-initializer"}},
    "ray head": {"resources": {}, "labels": {"ray.io/node-type": "head"}},
    "all concerns skipped": {"annotations": {"railwright.io/skip": "networks,devices,security,mounts,env,preflight"}},
    "opted out of devices": {"resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/mlx5_0": "0"}}},
    "host network": {"spec": {"hostNetwork": True}},
}


async def test_injected_pods_are_accepted_and_no_later_patch_gives_them_devices_or_the_host_network(
    plane, make_guarded, site, person
):
    namespace = await make_guarded()
    await site.install(POLICY, namespace)
    for name, change in LEGITIMATE.items():
        pod = POD({**LABELLED, **change.get("labels", {})}, annotations=change.get("annotations", {}))
        pod["spec"] |= change.get("spec", {})
        if "resources" in change:
            pod["spec"]["containers"][0]["resources"] = change["resources"]
        admitted = await plane.api.create(pod, namespace=namespace, dry_run=True)
        assert INJECTION in admitted["metadata"]["annotations"], name

    await plane.api.create(POD(LABELLED), namespace=namespace)
    kinds = "--resource=pods,pods/status,pods/resize,pods/ephemeralcontainers"  # every right that could be needed
    await plane.kubectl("create", "role", "editor", "--verb=get,patch", kinds, "-n", namespace)
    await person.allow("editor", namespace, "patch", "pods", kind="Role")
    headers = {"Impersonate-User": person.user}
    async with aiohttp.ClientSession(connector=plane.session.connector, connector_owner=False, headers=headers) as own:
        tenant = api.Api(own, plane.api.server)
        tenant._resources = plane.api._resources  # no discovery of its own
        await _assert_devices_stay(tenant, namespace)


async def _assert_devices_stay(tenant: api.Api, namespace: str) -> None:
    """T4: no way after admission leads to more devices or a place on the host network."""

    async def read_rejection(spec: dict, subresource: str = "") -> str:
        with pytest.raises(api.ApiError) as error:
            await tenant.patch("Pod", "p", {"spec": spec}, namespace, subresource=subresource)
        assert error.value.status == 422
        return error.value.message

    devices = {"nvidia.com/gpu": "1", "nvidia.com/mlx5_0": "8"}
    resources = {"limits": devices, "requests": devices}
    more = {"containers": [{"name": "c", "image": "i", "resources": resources}]}
    assert "may not change fields" in await read_rejection(more)
    assert "only cpu and memory" in await read_rejection(more, "resize")
    assert "may not change fields" in await read_rejection({"hostNetwork": True})
    debugger = {"name": "d", "image": "i", "resources": resources}
    assert "ephemeralContainers[0].resources: Forbidden" in await read_rejection(
        {"ephemeralContainers": [debugger]}, "ephemeralcontainers"
    )
