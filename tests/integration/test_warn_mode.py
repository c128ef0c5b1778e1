"""Mode `warn` on the real API server, beside admission policies that deny pods that are not injected."""

import json

import pytest_asyncio
from plane import conditions, manifests, waiting
from plane import site as sites

FABRIC, INJECTION = "railwright.io/fabric", "railwright.io/injection"


def policy(mode: str) -> str:
    return manifests.policy({"ib": manifests.fabric()}, mode=mode)


@pytest_asyncio.fixture(loop_scope="session")
async def denying_namespace(namespace, site):  # in this order: it is unregistered before its namespace goes
    await site.install(policy("enforce"), namespace)  # the registration waits for a rejection
    await site.guard(namespace)
    await site.policy(policy("warn"))
    await sites.wait_policy(site.webhook, policy("warn"))
    return namespace


async def test_in_mode_warn_a_label_only_on_the_job_changes_nothing_and_explain_says_so(
    plane, denying_namespace, person
):
    await person.allow("edit", denying_namespace)
    job = manifests.workload("Job", manifests.pod(schedulerName="nobody"))
    job["metadata"]["labels"] = {FABRIC: "ib"}
    code, out, err = await person("explain", "-", "-n", denying_namespace, stdin=json.dumps(job))
    assert (code, err) == (0, "")
    assert out.splitlines()[1] == "mode warn: admitted unchanged; warnings say what enforcing would do"
    assert "warning: WouldInject: the policy is in mode warn" in out

    await plane.api.create(job, namespace=denying_namespace)

    (pod,) = await waiting.wait(lambda: plane.api.list("Pod", denying_namespace), describe="the pod of the Job")
    assert FABRIC not in pod["metadata"]["labels"]
    assert INJECTION not in pod["metadata"].get("annotations", {})
    assert set(pod["spec"]["containers"][0]["resources"]["limits"]) == {"nvidia.com/gpu"}
    code, out, _ = await person("explain", "job/t", "-n", denying_namespace)
    assert code == 1
    assert "not injected, because the pod has no label railwright.io/fabric; " in out


async def test_in_mode_warn_pods_with_a_label_from_the_template_are_denied_and_explain_says_so(
    plane, denying_namespace, person
):
    await person.allow("edit", denying_namespace)
    job = manifests.workload("Job", manifests.pod(fabric="ib", schedulerName="nobody"))
    code, out, err = await person("explain", "-", "-n", denying_namespace, stdin=json.dumps(job))
    assert (code, err) == (1, "")
    assert out.splitlines()[1] == (
        "rejected: the policy is in mode warn, and the admission policies deny pods that are not injected; until it "
        "is enforced, let the pods of the namespace pass: kubectl label namespace NAMESPACE "
        "railwright.io/uninjected=warn"
    )

    await plane.api.create(job, namespace=denying_namespace)
    await conditions.wait_event(plane.api, denying_namespace, "FailedCreate", "NotInjected: ")
    assert await plane.api.list("Pod", denying_namespace) == []
    code, _, err = await person("explain", "job/t", "-n", denying_namespace)
    assert (code, " of Job t: " in err, "NotInjected: pod " in err) == (2, True, True), err
