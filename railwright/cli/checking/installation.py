"""Checks of the prerequisites (API server, Multus, accelerators, device pools, Volcano), and of installed objects."""

import functools
import importlib.resources
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from railwright.cli.checking import check_rows, policy, snapshots
from railwright.cli.checking.check_rows import Assess, Assessment, Checks, fail, ok, require, skip, warn
from railwright.cli.checking.snapshots import Snapshot, get_list, get_map, get_path
from railwright.cluster import installed_names
from railwright.fabric import label_selectors, names, text, version

OLDEST = (1, 30)  # matchConditions and ValidatingAdmissionPolicy are stable since 1.30 (Kubernetes' feature gates)
_MINOR = re.compile(r"v?(\d+)\.(\d+)")


def _check_reachable(snapshot: Snapshot) -> Assessment:
    if "version" in snapshot.unread:
        return fail(snapshot.unread["version"], unread=True)
    return ok(snapshot.server)


def _check_version(snapshot: Snapshot) -> Assessment:
    git_version = str(get_path(snapshot.get_one("version"), "gitVersion") or "")
    if (minor := _parse_minor(git_version)) is None:
        return skip(f"the API server reports no version: {git_version!r}", unread=True)
    return fail(f"{git_version} is older than {OLDEST[0]}.{OLDEST[1]}") if minor < OLDEST else ok(git_version)


def read_tested_versions() -> Mapping[str, Sequence[str]]:
    """Return the versions of each part of a cluster with which this release was tested."""
    content = importlib.resources.files("railwright.cli.checking").joinpath("tested_versions.json").read_bytes()
    return msgspec.json.decode(content, type=dict[str, list[str]])


def _check_tested_versions(snapshot: Snapshot) -> Assessment:
    """Compare minor versions with the tested ones. Another version is not a failure, but it is not known to work."""
    check_rows.require_read(snapshot, "volcano-deployment")
    running = {"Kubernetes": str(get_path(snapshot.get_one("version"), "gitVersion"))}
    scheduler = snapshot.get_one("volcano-deployment")
    if scheduler is not None:
        running["Volcano"] = next(filter(None, map(snapshots.get_image_version, snapshots.list_images(scheduler))), "")
    tested = read_tested_versions()
    untested = [
        f"{name} {release or 'of unknown version'} is not tested (tested: {', '.join(tested[name])})"
        for name, release in running.items()
        if _parse_minor(release) not in map(_parse_minor, tested[name])
    ]
    require(not untested, "; ".join(untested))
    return ok(", ".join(f"{name} {release}" for name, release in running.items()))


def _parse_minor(release: str) -> tuple[int, int] | None:
    match = _MINOR.match(release)
    return (int(match[1]), int(match[2])) if match else None


def _check_multus(snapshot: Snapshot) -> Assessment:
    if "networks" not in snapshot.unknown:
        return ok(text.format_count(len(snapshot.get_all("networks")), "network"))
    if any(rail.network for fabric in snapshot.fabrics.values() for rail in fabric.rails):
        return fail("the API server has no kind NetworkAttachmentDefinition, but rails of the policy have `network`")
    if snapshot.policy is None:
        return warn("the API server has no kind NetworkAttachmentDefinition; only rails without `network` work")
    return skip("not installed, and no rail of the policy has `network`")


def _check_accelerators(snapshot: Snapshot) -> Assessment:
    resources = ", ".join(snapshots.list_accelerators(snapshot))
    total, accelerated = len(snapshot.get_all("nodes")), len(policy.list_accelerated(snapshot))
    if not accelerated:
        return warn(f"none of {text.format_count(total, 'node')} has any of {resources}")
    return ok(f"{text.format_count(total, 'node', 'has', part=accelerated)} {resources}")


def _check_pools(snapshot: Snapshot) -> Assessment:
    node_counts: Counter[str] = Counter()
    for node in policy.get_cluster(snapshot).nodes.values():
        node_counts.update(name for name, amount in node.allocatable.items() if "/" in name and amount > 0)
    for name in snapshots.list_accelerators(snapshot):
        del node_counts[name]
    if not node_counts:
        return warn(
            "nodes offer no extended resources besides accelerators; rails need a device pool, or devInfiniband"
        )
    return ok(text.join_first((f"{name} on {count}" for name, count in sorted(node_counts.items())), 8))


def _check_volcano(snapshot: Snapshot) -> Assessment:
    require("queues" not in snapshot.unknown, "not installed; kube-scheduler places gangs pod by pod")
    return ok(text.format_count(len(snapshot.get_all("queues")), "queue"))


# --- installed objects ------------------------------------------------------------------------------------


def _check_namespace(snapshot: Snapshot) -> Assessment:
    manifest = snapshot.find("namespaces", snapshot.namespace)
    if manifest is None:
        return fail(f"railwright is not installed: namespace {snapshot.namespace} does not exist")
    if get_path(manifest, "metadata", "deletionTimestamp"):
        return fail(
            f"namespace {snapshot.namespace} is being deleted",
            f"wait until it is gone (kubectl get namespace {snapshot.namespace}), then install again: "
            + check_rows.get_fix("namespace"),
        )
    if (snapshot.namespace, installed_names.POLICY) == (names.NAMESPACE, names.POLICY_CONFIGMAP):
        return ok(snapshot.namespace)
    variables = f"RAILWRIGHT_NAMESPACE={snapshot.namespace} RAILWRIGHT_INSTALLATION={installed_names.INSTALLATION}"
    return ok(f"{snapshot.namespace}; other commands find it by: export {variables}")


def _check_webhook(snapshot: Snapshot) -> Assessment:
    if snapshot.find("deployments", snapshots.WEBHOOK) is not None:
        return ok()
    if all(snapshot.find("deployments", name) is None for name in (snapshots.EXTENDER, snapshots.CERTS)):
        problem = f"railwright is not installed: namespace {snapshot.namespace} has none of its Deployments"
        return fail(problem, check_rows.get_fix("namespace"))
    return fail(f"Deployment {snapshots.WEBHOOK} does not exist in namespace {snapshot.namespace}")


def _check_extender(snapshot: Snapshot) -> Assessment:
    missing = f"Deployment {snapshots.EXTENDER} is not installed: gangs are placed without railwright"
    require(snapshot.find("deployments", snapshots.EXTENDER), missing)
    return ok()


def require_deployment(server: str, assess: Callable[[Snapshot, Any], Assessment]) -> Assess:
    """Return `assess` for a Deployment by name; it skips if the Deployment does not exist."""
    return lambda snapshot: assess(snapshot, get_deployment(snapshot, server))


def get_deployment(snapshot: Snapshot, server: str) -> Any:
    """Return the Deployment of a server, None if it could not be read. Raise SkipError if it does not exist."""
    deployment = snapshot.find("deployments", server)
    require(deployment is not None or "deployments" in snapshot.unread, f"Deployment {server} does not exist")
    return deployment


def check_replicas(snapshot: Snapshot, deployment: Mapping[str, Any]) -> Assessment:
    """Check that all replicas are ready. The detail names the reasons in the status of their pods."""
    name, desired = _get_name(deployment), get_path(deployment, "spec", "replicas")
    desired = 1 if desired is None else int(desired)
    ready = int(get_path(deployment, "status", "readyReplicas") or 0)
    if desired == 0:
        return fail("scaled to 0", f"kubectl -n {snapshot.namespace} scale deployment {name} --replicas=2")
    if ready >= desired:
        return ok(f"{ready} of {desired}")
    reasons = [f"{_get_name(pod)}: {why}" for pod in _list_pods(snapshot, deployment) for why in _find_reasons(pod)]
    detail = "; ".join([f"{ready} of {desired} ready", *reasons[:3]])
    has_no_policy = not (snapshot.get_all("policy") or "policy" in snapshot.unread)
    if has_no_policy and name in (snapshots.WEBHOOK, snapshots.EXTENDER):
        missing = f"ConfigMap {snapshots.POLICY} does not exist"
        fix = check_rows.get_fix("policy-exists")
        return fail(f"{detail}; replicas need a policy to become ready, and {missing}", fix)
    labels = get_map(deployment, "spec", "selector", "matchLabels")
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    return fail(detail, f"kubectl -n {snapshot.namespace} describe pods -l {selector}")


def _check_availability(snapshot: Snapshot, deployment: Mapping[str, Any]) -> Assessment:
    desired = get_path(deployment, "spec", "replicas")
    if desired is not None and desired < 2:
        return warn(f"{desired} replica: opted-in pods cannot be created while it restarts or its node is drained")
    pods = _list_pods(snapshot, deployment)
    nodes = {get_path(pod, "spec", "nodeName") for pod in pods} - {None}
    if len(nodes) == 1 and len(pods) > 1:
        return warn(
            f"all replicas run on node {nodes.pop()}: if it fails, the webhook is unavailable",
            f"add a node that fits them, then: kubectl -n {snapshot.namespace} rollout restart deployment "
            + _get_name(deployment),
        )
    require(len(nodes) > 1, "no node is known for the replicas' pods")
    return ok(f"{text.format_count(desired or 1, 'replica')} on {text.format_count(len(nodes), 'node')}")


def _check_budget(snapshot: Snapshot, deployment: Mapping[str, Any]) -> Assessment:
    labels = get_map(deployment, "spec", "template", "metadata", "labels")
    budgets = [item for item in snapshot.get_all("budgets") if _is_selected(get_path(item, "spec", "selector"), labels)]
    if not budgets:
        return warn(f"no PodDisruptionBudget covers {_get_name(deployment)}: a drain can evict all replicas at once")
    name, spec, status = _get_name(budgets[0]), get_map(budgets[0], "spec"), get_map(budgets[0], "status")
    if status.get("disruptionsAllowed") != 0 or not status.get("currentHealthy"):
        return ok(name)
    settings = ", ".join(
        f"{key} {spec[key]}" for key in ("minAvailable", "maxUnavailable") if spec.get(key) is not None
    )
    return warn(
        f"PodDisruptionBudget {name} ({settings}) allows no eviction: a node drain never finishes",
        "use the PodDisruptionBudget of this release (maxUnavailable 1), or run more replicas than it requires: "
        f"kubectl -n {snapshot.namespace} edit poddisruptionbudget {name}",
    )


def _check_images(snapshot: Snapshot) -> Assessment:
    images = {
        name: image
        for name in (snapshots.WEBHOOK, snapshots.EXTENDER, snapshots.CERTS)
        for image in snapshots.list_images(snapshot.find("deployments", name))
        if image
    }
    if len(set(images.values())) > 1:
        return warn("; ".join(f"{name} runs {image}" for name, image in images.items()))
    image = next(iter(images.values()), "")
    unnamed = f"{image or 'the image'} names no version, so it is not known which release runs"
    image_version = require(snapshots.get_image_version(image), unnamed)
    if image_version != version.VERSION:
        return warn(f"the cluster runs {image}, this command is {version.VERSION}: checks may not fit that release")
    return ok(image)


def _check_endpoints(service: str, snapshot: Snapshot) -> Assessment:
    if service == snapshots.EXTENDER:
        get_deployment(snapshot, service)
    if snapshot.find("services", service) is None:
        hooks = snapshot.hooks if service == snapshots.WEBHOOK else ()
        is_called_by_url = hooks and all(get_path(hook, "clientConfig", "url") for hook in hooks)
        require(not is_called_by_url, "the API server calls the webhook by URL, so it needs no Service")
        problem = f"Service {service} does not exist in namespace {snapshot.namespace}"
        return fail(problem, f"apply it again: {check_rows.APPLY}")
    addresses = [
        address
        for endpoint_slice in snapshot.get_all("slices")
        if get_map(endpoint_slice, "metadata", "labels").get("kubernetes.io/service-name") == service
        for endpoint in get_list(endpoint_slice, "endpoints")
        if get_path(endpoint, "conditions", "ready") is not False  # absent means ready (discovery/v1)
        for address in get_list(endpoint, "addresses")
    ]
    if not addresses:
        return fail(f"no EndpointSlice of Service {service} has a ready address")
    return ok(f"{len(addresses)} ready: {text.join_first(addresses, 5)}")


def _list_pods(snapshot: Snapshot, deployment: Mapping[str, Any]) -> list[Any]:
    selector = get_path(deployment, "spec", "selector")
    return [
        pod
        for pod in snapshot.get_all("own-pods")
        if _is_selected(selector, get_map(pod, "metadata", "labels"))
        and not get_path(pod, "metadata", "deletionTimestamp")
    ]


def _find_reasons(pod: Any) -> Iterator[str]:
    """Yield the reasons why a pod is not ready, as kubelet or the scheduler reports them."""
    for container in get_list(pod, "status", "containerStatuses"):
        if waiting := get_path(container, "state", "waiting"):
            yield ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
    for condition in get_list(pod, "status", "conditions"):
        is_false = condition.get("type") in ("PodScheduled", "Ready") and condition.get("status") == "False"
        if is_false and condition.get("message"):
            yield str(condition["message"])
            return


def _is_selected(selector: Any, labels: Mapping[str, str]) -> bool:
    expressions = snapshots.read_selector(selector)
    return bool(expressions) and label_selectors.matches({}, expressions, labels)


def _get_name(obj: Any) -> str:
    return str(get_path(obj, "metadata", "name"))


CHECKS: Checks = {
    "api-reachable": _check_reachable,
    "api-version": _check_version,
    "versions": _check_tested_versions,
    "device-pools": _check_pools,
    "volcano": _check_volcano,
    "multus": _check_multus,
    "accelerators": _check_accelerators,
    "namespace": _check_namespace,
    "webhook-deployment": _check_webhook,
    "webhook-replicas": require_deployment(snapshots.WEBHOOK, check_replicas),
    "webhook-availability": require_deployment(snapshots.WEBHOOK, _check_availability),
    "webhook-budget": require_deployment(snapshots.WEBHOOK, _check_budget),
    "webhook-endpoints": functools.partial(_check_endpoints, snapshots.WEBHOOK),
    "images": _check_images,
    "extender-deployment": _check_extender,
    "extender-replicas": require_deployment(snapshots.EXTENDER, check_replicas),
    "extender-endpoints": functools.partial(_check_endpoints, snapshots.EXTENDER),
}
