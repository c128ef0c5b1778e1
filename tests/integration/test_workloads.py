"""Devices in pod templates, through the real API server, the real Volcano and Kubernetes' own controllers."""

import json

import pytest
import yaml
from plane import conditions, jobs, manifests, waiting
from plane import site as sites
from plane.manifests import RAILS

from railwright.fabric import quantity

FABRIC, INJECTION = "railwright.io/fabric", "railwright.io/injection"


def build_policy(**mounts: object) -> str:
    keys = {"security": {"capabilities": ["IPC_LOCK"]}, "env": {"MARKER": "1"}}
    return manifests.policy({"ib": manifests.fabric(2, mounts={"sharedMemory": "1Gi", **mounts}, **keys)})


POLICY = build_policy()
VOLCANO = manifests.VOLCANO_JOB


def build_template(*, label: str = "ib", name: str = "t") -> dict:
    return manifests.pod(fabric=label, labels={"app": name}, terminationGracePeriodSeconds=0)


def build_app(kind: str, *, label: str = "ib", replicas: int = 1) -> dict:
    """Return a workload with the label, which admission copies into its template."""
    made = manifests.workload(kind, build_template(label=label), replicas=replicas)
    made["spec"]["template"]["metadata"]["labels"].pop(FABRIC, None)
    return made


def build_labelled_template(name: str = "t") -> dict:
    """Return a Deployment whose template alone has the label."""
    made = manifests.workload("Deployment", build_template(name=name), name=name)
    del made["metadata"]["labels"]
    return made


def build_volcano_job(name: str, replicas: int, **spec: object) -> dict:
    """Return a Volcano Job with the defaults that Volcano sets, so that applying it again changes nothing."""
    made = build_template(name=name)
    made["spec"]["restartPolicy"] = "Never"
    job = manifests.volcano_job(name, made, {"worker": replicas}, maxRetry=3, **spec)
    job["spec"]["tasks"][0]["maxRetry"] = 3
    return job


def read_limits(made: dict) -> dict:
    return made["spec"]["containers"][0]["resources"]["limits"]


async def count_calls(site) -> float:
    return await sites.read_metric(site.webhook, "railwright_requests_total", path="/mutate/workloads")


async def wait_pods(plane, namespace: str, count: int, labels: str = "app=t") -> list[dict]:
    return await conditions.wait_running(plane.api, namespace, labels, count)


def assert_equipped_once(pod: dict) -> None:
    """Assert that a pod has everything that injection adds, each once."""
    container = pod["spec"]["containers"][0]
    for kind in ("requests", "limits"):
        assert {name: container["resources"][kind][name] for name in RAILS} == dict.fromkeys(RAILS, "1")
    ours = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"].startswith("railwright-")]
    assert ours == ["/dev/shm"]
    assert [volume["name"] for volume in pod["spec"]["volumes"]].count("railwright-shm") == 1
    env = [variable["name"] for variable in container["env"]]
    assert env.count("MARKER") == 1
    assert len(env) == len(set(env))
    assert container["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    record = json.loads(pod["metadata"]["annotations"][INJECTION])
    assert {"devices", "mounts./dev/shm", "env.MARKER", "security.IPC_LOCK"} <= set(record["added"])


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
async def test_templates_get_devices_and_their_pods_get_the_other_additions(plane, nodes, namespace, installed, kind):
    await nodes.make("gpu-0")
    before = await count_calls(installed)
    plain = await plane.api.create(build_app(kind, label=""), namespace=namespace, dry_run=True)
    assert not set(RAILS) & read_limits(plain["spec"]["template"]).keys()
    assert await count_calls(installed) == before, "without the label there is no call"
    created = await plane.api.create(build_app(kind), namespace=namespace)
    made = created["spec"]["template"]
    assert made["metadata"]["labels"][FABRIC] == "ib"
    assert {name: read_limits(made)[name] for name in RAILS} == dict.fromkeys(RAILS, "1")
    assert [volume["name"] for volume in made["spec"]["volumes"]] == ["railwright-shm"]
    assert "env" not in made["spec"]["containers"][0]
    (pod,) = await wait_pods(plane, namespace, 1)
    assert_equipped_once(pod)


async def test_a_label_only_in_the_template_injects_pods_without_a_review_of_the_workload(
    plane, nodes, namespace, installed
):
    await nodes.make("gpu-0")
    before = await count_calls(installed)
    created = await plane.api.create(build_labelled_template(), namespace=namespace)
    assert await count_calls(installed) == before
    assert not set(RAILS) & read_limits(created["spec"]["template"]).keys(), "a quota does not see the devices"
    (pod,) = await wait_pods(plane, namespace, 1)
    assert_equipped_once(pod)


async def test_a_workload_with_the_label_none_is_created_without_a_webhook_in_a_labelled_namespace(
    plane, namespace, installed
):
    await plane.api.patch("Namespace", namespace, {"metadata": {"labels": {FABRIC: "ib"}}})

    async def find_copied() -> dict:
        created = await plane.api.create(build_app("Deployment", label="none"), namespace=namespace, dry_run=True)
        return created if created["spec"]["template"]["metadata"]["labels"].get(FABRIC) == "none" else {}

    created = await waiting.wait(find_copied, describe="the namespace's label to be seen")
    assert not set(RAILS) & read_limits(created["spec"]["template"]).keys()
    await installed.webhook.stop()
    await plane.api.create(build_app("Deployment", label="none"), namespace=namespace, dry_run=True)


async def test_a_quota_counts_the_rails_that_templates_request(plane, nodes, namespace, installed):
    await nodes.make("gpu-0")
    hard = {f"requests.{name}": "2" for name in RAILS}
    await plane.api.create(manifests.build("ResourceQuota", "rails", spec={"hard": hard}), namespace=namespace)
    await conditions.wait_object(plane.api, "ResourceQuota", "rails", namespace, status={"hard": hard})

    await plane.api.create(build_app("StatefulSet", replicas=3), namespace=namespace)
    await wait_pods(plane, namespace, 2)

    await conditions.wait_object(plane.api, "ResourceQuota", "rails", namespace, status={"used": hard})
    await conditions.wait_event(plane.api, namespace, "FailedCreate", "exceeded quota: rails", "nvidia.com/mlx5_0")


async def test_volcanos_pod_group_and_queue_count_the_devices(plane, nodes, namespace, installed):
    for index in range(2):
        await nodes.make(f"gpu-{index}")
    spec = {"weight": 1, "capability": {"nvidia.com/mlx5_0": "1"}}
    queue = f"small-{namespace}"
    await plane.api.create(manifests.build("Queue", queue, spec=spec))
    await conditions.wait_object(plane.api, "Queue", queue, status={"state": "Open"})

    try:
        created = await plane.api.create(build_volcano_job("gang", 2, queue=queue), namespace=namespace)
        assert {name: read_limits(created["spec"]["tasks"][0]["template"])[name] for name in RAILS} == dict.fromkeys(
            RAILS, "1"
        )

        async def get_group():
            groups = await plane.api.list("scheduling.volcano.sh/v1beta1/PodGroup", namespace)
            assert len(groups) == 1, groups
            return groups[0]

        pod_group = await waiting.wait(get_group, describe="the gang's PodGroup")
        least = pod_group["spec"]["minResources"]
        assert {name: quantity.parse(least[name]) for name in RAILS} == dict.fromkeys(RAILS, 2)

        async def is_held_back():
            assert (await get_group()).get("status", {}).get("phase") == "Pending"
            events = await plane.api.list("Event", namespace)
            return [
                event["message"] for event in events if "queue resource quota insufficient" in event.get("message", "")
            ]

        (message, *_) = await waiting.wait(is_held_back, describe="the queue to hold the gang back")
        assert "nvidia.com/mlx5_0" in message
        assert not await plane.api.list("Pod", namespace)
        await plane.api.patch("Queue", queue, {"spec": {"capability": {"nvidia.com/mlx5_0": "2"}}})
        for pod in await wait_pods(plane, namespace, 2, "app=gang"):
            assert_equipped_once(pod)
    finally:
        await plane.api.delete(VOLCANO, "gang", namespace)
        await plane.api.patch("Queue", queue, {"spec": {"capability": None}})


WAYS = {  # of kubectl to write the same manifest again: the arguments
    "apply": ("apply",),
    "server-side": ("apply", "--server-side"),
    "replace": ("replace",),
}
AGAIN = (  # changeable templates, and immutable ones by a patch and, if their API allows it, whole
    ("Deployment", "apply"),
    ("Deployment", "replace"),
    ("Job", "server-side"),
    ("Volcano Job", "apply"),
    ("Volcano Job", "replace"),
    ("JobSet", "replace"),
)


@pytest.mark.parametrize(("kind", "way"), AGAIN)
async def test_applying_the_same_manifest_again_changes_nothing(plane, controllers, namespace, installed, kind, way):
    if kind == "JobSet":
        await controllers.start("jobset")
    manifest = build_unchanged(kind)
    text = yaml.safe_dump(manifest)
    arguments = WAYS[way]
    first = ("create",) if way == "replace" else arguments
    await plane.kubectl(*first, "-n", namespace, "-f", "-", stdin=text)
    kind = f"{manifest['apiVersion']}/{manifest['kind']}"
    before = await plane.api.get(kind, "t", namespace)
    assert all(name in json.dumps(before["spec"]) for name in RAILS), "devices were added"

    async def apply_again():  # kubectl replace may meet the controller's own update of the status
        await plane.kubectl(*arguments, "-n", namespace, "-f", "-", stdin=text)
        return True

    await waiting.wait(apply_again, describe=f"kubectl {way} once more")
    after = await plane.api.get(kind, "t", namespace)
    assert after["spec"] == before["spec"]
    if way != "replace":  # which takes annotations away, and with them a Deployment's generation counts up
        assert after["metadata"]["generation"] == before["metadata"]["generation"]


def build_unchanged(kind: str) -> dict:
    """Return a manifest to apply twice, with the defaults that Volcano and JobSet set only at creation.

    Their validators refuse a changed template, and so a manifest without those defaults, even without railwright.
    """
    match kind:
        case "Job":
            return build_app("Job")
        case "Volcano Job":
            return build_volcano_job("t", 1)
        case "JobSet":
            made = {**jobs.job_set("t"), "metadata": {"name": "t", "labels": {FABRIC: "ib"}}}
            for job in made["spec"]["replicatedJobs"]:
                job["template"]["metadata"] = {}
                job["template"]["spec"]["completionMode"] = "Indexed"
            made["spec"]["network"] = {"enableDNSHostnames": True, "publishNotReadyAddresses": True}
            made["spec"]["startupPolicy"] = {"startupPolicyOrder": "AnyOrder"}
            made["spec"]["successPolicy"] = {"operator": "All"}
            return made
        case _:
            return build_app(kind)


async def test_an_update_patches_only_a_changed_template(plane, namespace, installed):
    created = await plane.api.create(build_app("Deployment"), namespace=namespace)
    text = build_policy(devInfiniband=True)
    await installed.policy(text)
    await sites.wait_policy(installed.webhook, text)
    before = await count_calls(installed)
    await plane.api.patch("Deployment", "t", {"metadata": {"annotations": {"a": "b"}}}, namespace)
    assert await count_calls(installed) == before, "an update of metadata is no call"
    scaled = await plane.api.patch("Deployment", "t", {"spec": {"replicas": 0}}, namespace)
    assert await count_calls(installed) > before, "asked, and again where a controller's write came between"
    assert scaled["spec"]["template"] == created["spec"]["template"]
    change = {"spec": {"template": {"metadata": {"annotations": {"restarted": "now"}}}}}
    rolled = await plane.api.patch("Deployment", "t", change, namespace)
    names = [volume["name"] for volume in rolled["spec"]["template"]["spec"]["volumes"]]
    assert names == ["railwright-shm", "railwright-infiniband"], "a changed template follows the policy of today"


async def test_a_namespace_label_adds_devices_to_the_templates_of_its_workloads(plane, namespace, installed):
    await plane.api.patch("Namespace", namespace, {"metadata": {"labels": {FABRIC: "ib"}}})

    async def find_equipped() -> dict:
        created = await plane.api.create(build_app("Deployment", label=""), namespace=namespace, dry_run=True)
        return created if set(RAILS) <= read_limits(created["spec"]["template"]).keys() else {}

    created = await waiting.wait(find_equipped, describe="the namespace's label to be seen")
    assert FABRIC not in created["spec"]["template"]["metadata"]["labels"]
