"""Checks of the installed objects: namespace, Deployments, Services, PodDisruptionBudgets, images."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from railwright.cli.checking import check_rows, snapshots
from railwright.cli.checking.check_rows import fail, ok, skip, warn
from railwright.cluster import installed_names
from railwright.fabric import names, text, version

_INSTALL = (
    f"helm install railwright CHART -n {installed_names.NAMESPACE} --create-namespace, or kubectl apply -k FOLDER (with"
    " your kustomization.yaml). If it is installed elsewhere (kubectl get deployments -A -l "
    "app.kubernetes.io/part-of=railwright): export RAILWRIGHT_NAMESPACE=NAMESPACE RAILWRIGHT_INSTALLATION=NAME, where "
    "NAME-webhook is the webhook's Deployment"
)
CREATE_POLICY = (
    "describe your rails in policy.yaml (railwright policy schema has every key), then: "
    f"kubectl -n {installed_names.NAMESPACE} create configmap {installed_names.POLICY} --from-file={names.POLICY_KEY}, "
    f"or: railwright policy convert {names.POLICY_KEY} | kubectl apply -f -"
)


def list_ready_addresses(snapshot: snapshots.ClusterSnapshot, service: str) -> tuple[str, ...]:
    """Return the ready addresses in the EndpointSlices of a Service."""
    return tuple(
        address
        for endpoint_slice in snapshot.get_all("slices")
        if snapshots.get_map(endpoint_slice, "metadata", "labels").get("kubernetes.io/service-name") == service
        for endpoint in snapshots.get_list(endpoint_slice, "endpoints")
        if snapshots.get_path(endpoint, "conditions", "ready") is not False  # absent means ready (discovery/v1)
        for address in snapshots.get_list(endpoint, "addresses")
    )


def _check_namespace(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    manifest = snapshot.find("namespaces", snapshot.namespace)
    if manifest is None:
        return fail(f"railwright is not installed: namespace {snapshot.namespace} does not exist")
    if snapshots.get_path(manifest, "metadata", "deletionTimestamp"):
        return fail(
            f"namespace {snapshot.namespace} is being deleted",
            f"wait until it is gone (kubectl get namespace {snapshot.namespace}), then install again: {_INSTALL}",
        )
    if (snapshot.namespace, installed_names.POLICY) == (names.NAMESPACE, names.POLICY_CONFIGMAP):
        return ok(snapshot.namespace)
    variables = f"RAILWRIGHT_NAMESPACE={snapshot.namespace} RAILWRIGHT_INSTALLATION={installed_names.INSTALLATION}"
    return ok(f"{snapshot.namespace}; other commands find it by: export {variables}")


def _check_deployment(server: str, *, optional: bool = False) -> check_rows.Assess:
    def assess(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
        if snapshot.find("deployments", server) is not None:
            return ok()
        if optional:
            return skip(f"Deployment {server} is not installed: gangs are placed without railwright")
        if all(snapshot.find("deployments", name) is None for name in (snapshots.EXTENDER, snapshots.CERTS)):
            problem = f"railwright is not installed: namespace {snapshot.namespace} has none of its Deployments"
            return fail(problem, _INSTALL)
        return fail(f"Deployment {server} does not exist in namespace {snapshot.namespace}")

    return assess


def require_deployment(
    server: str, assess: Callable[[snapshots.ClusterSnapshot, Any], check_rows.Assessment]
) -> check_rows.Assess:
    """Return `assess` for a Deployment by name; it skips if the Deployment does not exist."""

    def assess_deployment(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
        deployment = snapshot.find("deployments", server)
        return skip(f"Deployment {server} does not exist") if deployment is None else assess(snapshot, deployment)

    return assess_deployment


def check_replicas(snapshot: snapshots.ClusterSnapshot, deployment: Mapping[str, Any]) -> check_rows.Assessment:
    """Check that all replicas are ready. The detail names the reasons in the status of their pods."""
    desired = snapshots.get_path(deployment, "spec", "replicas")
    desired = 1 if desired is None else int(desired)
    ready = int(snapshots.get_path(deployment, "status", "readyReplicas") or 0)
    if desired == 0:
        return fail(
            "scaled to 0", f"kubectl -n {snapshot.namespace} scale deployment {_get_name(deployment)} --replicas=2"
        )
    if ready >= desired:
        return ok(f"{ready} of {desired}")
    reasons = [f"{_get_name(pod)}: {why}" for pod in _list_pods(snapshot, deployment) for why in _find_reasons(pod)]
    detail = "; ".join([f"{ready} of {desired} ready", *reasons[:3]])
    if _get_name(deployment) in (snapshots.WEBHOOK, snapshots.EXTENDER) and _has_no_policy(snapshot):
        missing = f"ConfigMap {installed_names.POLICY} does not exist, nor does a {names.POLICY_KIND} of this name"
        return fail(f"{detail}; replicas need a policy to become ready, and {missing}", CREATE_POLICY)
    return fail(detail, f"kubectl -n {snapshot.namespace} describe pods -l {_format_selector(deployment)}")


def _has_no_policy(snapshot: snapshots.ClusterSnapshot) -> bool:
    has_none = snapshot.get_one("policy") is None and snapshot.fabric_policy is None
    return has_none and "policy" not in snapshot.unread


def _check_availability(snapshot: snapshots.ClusterSnapshot, deployment: Mapping[str, Any]) -> check_rows.Assessment:
    desired = snapshots.get_path(deployment, "spec", "replicas")
    if desired is not None and desired < 2:
        return warn(f"{desired} replica: opted-in pods cannot be created while it restarts or its node is drained")
    nodes = {snapshots.get_path(pod, "spec", "nodeName") for pod in _list_pods(snapshot, deployment)} - {None}
    if len(nodes) == 1 and len(_list_pods(snapshot, deployment)) > 1:
        return warn(
            f"all replicas run on node {nodes.pop()}: if it fails, the webhook is unavailable",
            f"add a node that fits them, then: kubectl -n {snapshot.namespace} rollout restart deployment "
            + _get_name(deployment),
        )
    if len(nodes) < 2:
        return skip("no node is known for the replicas' pods")
    return ok(f"{text.format_count(desired or 1, 'replica')} on {text.format_count(len(nodes), 'node')}")


def _check_budget(snapshot: snapshots.ClusterSnapshot, deployment: Mapping[str, Any]) -> check_rows.Assessment:
    labels = snapshots.get_map(deployment, "spec", "template", "metadata", "labels")
    budgets = [
        budget
        for budget in snapshot.get_all("budgets")
        if _matches_selector(snapshots.get_path(budget, "spec", "selector"), labels)
    ]
    if not budgets:
        return warn(f"no PodDisruptionBudget covers {_get_name(deployment)}: a drain can evict all replicas at once")
    budget = budgets[0]
    if snapshots.get_path(budget, "status", "disruptionsAllowed") == 0 and snapshots.get_path(
        budget, "status", "currentHealthy"
    ):
        keys = ("minAvailable", "maxUnavailable")
        limits = {key: snapshots.get_path(budget, "spec", key) for key in keys}
        settings = ", ".join(f"{key} {value}" for key, value in limits.items() if value is not None)
        return warn(
            f"PodDisruptionBudget {_get_name(budget)} ({settings}) allows no eviction: a node drain never finishes",
            "use the PodDisruptionBudget of this release (maxUnavailable 1), or run more replicas than it requires: "
            f"kubectl -n {snapshot.namespace} edit poddisruptionbudget {_get_name(budget)}",
        )
    return ok(_get_name(budget))


def _check_images(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    images = {
        name: image
        for name in (snapshots.WEBHOOK, snapshots.EXTENDER, snapshots.CERTS)
        for image in snapshots.list_images(snapshot.find("deployments", name))
        if image
    }
    if len(set(images.values())) > 1:
        return warn("; ".join(f"{name} runs {image}" for name, image in images.items()))
    image = next(iter(images.values()), "")
    image_version = snapshots.get_image_version(image)
    if not image_version:
        return skip(f"{image or 'the image'} names no version, so it is not known which release runs")
    if image_version != version.VERSION:
        return warn(f"the cluster runs {image}, this command is {version.VERSION}: checks may not fit that release")
    return ok(image)


def _check_endpoints(service: str) -> check_rows.Assess:
    def assess(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
        if snapshot.find("services", service) is None:
            if (
                service == snapshots.WEBHOOK
                and snapshot.hooks
                and all(snapshots.get_path(h, "clientConfig", "url") for h in snapshot.hooks)
            ):
                return skip("the API server calls the webhook by URL, so it needs no Service")
            problem = f"Service {service} does not exist in namespace {snapshot.namespace}"
            return fail(problem, f"apply it again: {check_rows.APPLY}")
        addresses = list_ready_addresses(snapshot, service)
        if not addresses:
            return fail(f"no EndpointSlice of Service {service} has a ready address")
        return ok(f"{len(addresses)} ready: {snapshots.join_limited(addresses)}")

    return assess


def _list_pods(snapshot: snapshots.ClusterSnapshot, deployment: Mapping[str, Any]) -> list[Any]:
    selector = snapshots.get_path(deployment, "spec", "selector")
    return [
        pod
        for pod in snapshot.get_all("own-pods")
        if _matches_selector(selector, snapshots.get_map(pod, "metadata", "labels"))
        and not snapshots.get_path(pod, "metadata", "deletionTimestamp")
    ]


def _find_reasons(pod: Any) -> Iterator[str]:
    """Yield the reasons why a pod is not ready, as kubelet or the scheduler reports them."""
    for container in snapshots.get_list(pod, "status", "containerStatuses"):
        waiting = snapshots.get_path(container, "state", "waiting")
        if waiting:
            yield ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
    for condition in snapshots.get_list(pod, "status", "conditions"):
        is_false = condition.get("type") in ("PodScheduled", "Ready") and condition.get("status") == "False"
        if is_false and condition.get("message"):
            yield str(condition["message"])
            return


def _matches_selector(selector: Any, labels: Mapping[str, str]) -> bool:
    match_labels = snapshots.get_map(selector, "matchLabels")
    return bool(match_labels) and all(labels.get(key) == value for key, value in match_labels.items())


def _format_selector(deployment: Any) -> str:
    labels = snapshots.get_map(deployment, "spec", "selector", "matchLabels")
    return ",".join(f"{key}={value}" for key, value in labels.items())


def _get_name(obj: Any) -> str:
    return str(snapshots.get_path(obj, "metadata", "name"))


def check_extender_endpoints(snapshot: snapshots.ClusterSnapshot) -> check_rows.Assessment:
    """Check that the extender's Service has ready endpoints. Skip if the extender is not installed."""
    if snapshot.find("deployments", snapshots.EXTENDER) is None:
        return skip(f"there is no Deployment {snapshots.EXTENDER}")
    assessment = _check_endpoints(snapshots.EXTENDER)(snapshot)
    assert isinstance(assessment, check_rows.Assessment)  # noqa: S101 - the function above returns one
    return assessment


CHECKS: check_rows.Checks = {
    "namespace": _check_namespace,
    "webhook-deployment": _check_deployment(snapshots.WEBHOOK),
    "webhook-replicas": require_deployment(snapshots.WEBHOOK, check_replicas),
    "webhook-availability": require_deployment(snapshots.WEBHOOK, _check_availability),
    "webhook-budget": require_deployment(snapshots.WEBHOOK, _check_budget),
    "webhook-endpoints": _check_endpoints(snapshots.WEBHOOK),
    "images": _check_images,
    "extender-deployment": _check_deployment(snapshots.EXTENDER, optional=True),
    "extender-replicas": require_deployment(snapshots.EXTENDER, check_replicas),
    "extender-endpoints": check_extender_endpoints,
}
