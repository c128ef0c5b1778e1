"""Rows about what runs: the namespace, both servers' Deployments and Services, budgets, images."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from railwright.cli.checking import model
from railwright.cli.checking import seen as sight
from railwright.cli.checking.model import Row, fail, ok, skip, warn
from railwright.fabric import names, version

_INSTALL = "kubectl apply -k manifests/base"
CREATE_POLICY = (
    "describe your rails in policy.yaml (manifests/base/policy.yaml has every key), then: "
    f"kubectl -n {names.NAMESPACE} create configmap {names.POLICY_CONFIGMAP} --from-file={names.POLICY_KEY}"
)
_TAG = re.compile(r":v?(\d+\.\d+\.\d+\S*)$")


def ready_addresses(seen: sight.Seen, service: str) -> tuple[str, ...]:
    """Addresses behind a Service that take calls."""
    return tuple(
        address
        for each in seen.all("slices")
        if (sight.dig(each, "metadata", "labels") or {}).get("kubernetes.io/service-name") == service
        for endpoint in sight.dig(each, "endpoints") or ()
        if sight.dig(endpoint, "conditions", "ready") is not False  # absent means ready (discovery/v1)
        for address in sight.dig(endpoint, "addresses") or ()
    )


def _namespace(seen: sight.Seen) -> model.Verdict:
    found = seen.named("namespaces", seen.namespace)
    if found is None:
        return fail(f"namespace {seen.namespace} does not exist: railwright is not installed, or elsewhere")
    if sight.dig(found, "metadata", "deletionTimestamp"):
        return fail(f"namespace {seen.namespace} is being deleted")
    return ok(seen.namespace)


def _deployed(server: str, *, optional: bool = False) -> model.Judge:
    def judge(seen: sight.Seen) -> model.Verdict:
        if seen.named("deployments", server) is not None:
            return ok()
        if optional:
            return skip(f"Deployment {server} is not installed: nothing of railwright's places gangs")
        return fail(f"Deployment {server} does not exist in namespace {seen.namespace}")

    return judge


def on_deployment(server: str, judge: Callable[[sight.Seen, Any], model.Verdict]) -> model.Judge:
    """A judgement of a Deployment, skipped where there is none."""

    def judged(seen: sight.Seen) -> model.Verdict:
        found = seen.named("deployments", server)
        return skip(f"there is no Deployment {server}") if found is None else judge(seen, found)

    return judged


def replicas(seen: sight.Seen, deployment: Mapping[str, Any]) -> model.Verdict:
    """All replicas ready; else why not, as far as their pods tell."""
    wanted = sight.dig(deployment, "spec", "replicas")
    wanted = 1 if wanted is None else int(wanted)
    ready = int(sight.dig(deployment, "status", "readyReplicas") or 0)
    if wanted == 0:
        return fail("scaled to 0", f"kubectl -n {seen.namespace} scale deployment {_name(deployment)} --replicas=2")
    if ready >= wanted:
        return ok(f"{ready} of {wanted}")
    reasons = [f"{_name(pod)}: {why}" for pod in _pods(seen, deployment) for why in _waiting(pod)]
    detail = "; ".join([f"{ready} of {wanted} ready", *reasons[:3]])
    if _name(deployment) in (sight.WEBHOOK, sight.EXTENDER) and _has_no_policy(seen):
        without = f"no replica is ready without a policy, and ConfigMap {names.POLICY_CONFIGMAP} does not exist"
        return fail(f"{detail}; {without}", CREATE_POLICY)
    return fail(detail, f"kubectl -n {seen.namespace} describe pods -l {_selector(deployment)}")


def _has_no_policy(seen: sight.Seen) -> bool:
    return seen.one("policy") is None and "policy" not in seen.unread


def _availability(seen: sight.Seen, deployment: Mapping[str, Any]) -> model.Verdict:
    wanted = sight.dig(deployment, "spec", "replicas")
    if wanted is not None and wanted < 2:
        return warn(f"{wanted} replica: no opted-in pod can be created while it restarts or its node is drained")
    nodes = {sight.dig(pod, "spec", "nodeName") for pod in _pods(seen, deployment)} - {None}
    if len(nodes) == 1 and len(_pods(seen, deployment)) > 1:
        return warn(
            f"all replicas are on node {nodes.pop()}: its end is theirs",
            f"add a node that can take them, then: kubectl -n {seen.namespace} rollout restart deployment "
            + _name(deployment),
        )
    return ok(f"{wanted or 1} replicas on {len(nodes)} nodes")


def _budget(seen: sight.Seen, deployment: Mapping[str, Any]) -> model.Verdict:
    labels = sight.dig(deployment, "spec", "template", "metadata", "labels") or {}
    mine = [each for each in seen.all("budgets") if _selects(sight.dig(each, "spec", "selector"), labels)]
    if not mine:
        return warn(f"no PodDisruptionBudget covers {_name(deployment)}: a drain may take all replicas at once")
    budget = mine[0]
    if sight.dig(budget, "status", "disruptionsAllowed") == 0 and sight.dig(budget, "status", "currentHealthy"):
        keys = ("minAvailable", "maxUnavailable")
        limits = {key: sight.dig(budget, "spec", key) for key in keys}
        says = ", ".join(f"{key} {value}" for key, value in limits.items() if value is not None)
        return warn(
            f"PodDisruptionBudget {_name(budget)} ({says}) lets no pod go: a drain would wait for ever",
            "use the shipped one, which has maxUnavailable 1, or have more replicas ready than it asks for: "
            f"kubectl -n {seen.namespace} edit poddisruptionbudget {_name(budget)}",
        )
    return ok(_name(budget))


def _images(seen: sight.Seen) -> model.Verdict:
    found = {
        name: container["image"]
        for name in (sight.WEBHOOK, sight.EXTENDER, sight.CERTS)
        for container in sight.dig(seen.named("deployments", name), "spec", "template", "spec", "containers") or ()
        if container.get("image")
    }
    if len(set(found.values())) > 1:
        return warn("; ".join(f"{name} runs {image}" for name, image in found.items()))
    image = next(iter(found.values()), "")
    tag = _TAG.search(image)
    if tag is None:
        return ok(f"{image}, whose tag tells no version")
    if tag[1] != version.VERSION:
        return warn(f"the cluster runs {image}, this command is {version.VERSION}: rows may judge by another release")
    return ok(image)


def _endpoints(service: str) -> model.Judge:
    def judge(seen: sight.Seen) -> model.Verdict:
        if seen.named("services", service) is None:
            if service == sight.WEBHOOK and seen.hooks and all(sight.dig(h, "clientConfig", "url") for h in seen.hooks):
                return skip("the webhook is called by URL, and there is no Service")
            return fail(f"Service {service} does not exist in namespace {seen.namespace}", _INSTALL)
        found = ready_addresses(seen, service)
        if not found:
            return fail(f"no EndpointSlice of Service {service} has a ready address")
        return ok(f"{len(found)} ready: {sight.listed(found)}")

    return judge


def _pods(seen: sight.Seen, deployment: Mapping[str, Any]) -> list[Any]:
    selector = sight.dig(deployment, "spec", "selector")
    return [
        pod
        for pod in seen.all("own-pods")
        if _selects(selector, sight.dig(pod, "metadata", "labels") or {})
        and not sight.dig(pod, "metadata", "deletionTimestamp")
    ]


def _waiting(pod: Any) -> Iterator[str]:
    """Why a pod is not ready, in the kubelet's or the scheduler's words."""
    for each in sight.dig(pod, "status", "containerStatuses") or ():
        waiting = sight.dig(each, "state", "waiting")
        if waiting:
            yield ": ".join(filter(None, (waiting.get("reason"), waiting.get("message"))))
    for each in sight.dig(pod, "status", "conditions") or ():
        if each.get("type") in ("PodScheduled", "Ready") and each.get("status") == "False" and each.get("message"):
            yield str(each["message"])
            return


def _selects(selector: Any, labels: Mapping[str, str]) -> bool:
    wanted = sight.dig(selector, "matchLabels") or {}
    return bool(wanted) and all(labels.get(key) == value for key, value in wanted.items())


def _selector(deployment: Any) -> str:
    labels = sight.dig(deployment, "spec", "selector", "matchLabels") or {}
    return ",".join(f"{key}={value}" for key, value in labels.items())


def _name(obj: Any) -> str:
    return str(sight.dig(obj, "metadata", "name"))


def rows() -> Iterator[Row]:
    """The group `installation`."""
    yield Row("namespace", "the namespace exists", _namespace, f"{_INSTALL}, or give -n NAMESPACE", ("namespaces",),
              ("api-reachable",))  # fmt: skip
    yield from _server("webhook", sight.WEBHOOK)
    yield Row(
        "webhook-availability",
        "the webhook outlives a node",
        on_deployment(sight.WEBHOOK, _availability),
        f"kubectl -n railwright-system scale deployment {sight.WEBHOOK} --replicas=2",
        ("deployments", "own-pods"),
        ("webhook-deployment", "webhook-replicas"),
    )
    yield Row(
        "webhook-budget",
        "a PodDisruptionBudget holds the webhook through drains",
        on_deployment(sight.WEBHOOK, _budget),
        f"{_INSTALL} (its webhook.yaml has the PodDisruptionBudget)",
        ("deployments", "budgets"),
        ("webhook-deployment", "webhook-replicas"),
    )
    yield Row(
        "webhook-endpoints",
        "the webhook's Service leads somewhere",
        _endpoints(sight.WEBHOOK),
        f"compare its selector with the pods' labels: kubectl -n railwright-system describe service {sight.WEBHOOK}; "
        "kubectl -n railwright-system get pods --show-labels",
        ("services", "slices"),
        ("webhook-deployment", "webhook-replicas"),
    )
    yield Row(
        "images",
        "servers and this command are of one release",
        _images,
        "install the command of the cluster's release, or upgrade the cluster: " + _INSTALL,
        ("deployments",),
        ("namespace",),
    )


def extender_rows() -> Iterator[Row]:
    """The extender's part of the group `scheduling`."""
    yield from _server("extender", sight.EXTENDER, optional=True)


def extender_endpoints(seen: sight.Seen) -> model.Verdict:
    """Whether schedulers reach the extender; skipped where it is not installed."""
    if seen.named("deployments", sight.EXTENDER) is None:
        return skip(f"there is no Deployment {sight.EXTENDER}")
    found = _endpoints(sight.EXTENDER)(seen)
    assert isinstance(found, model.Verdict)  # noqa: S101 - the function above gives one
    return found


def _server(word: str, server: str, *, optional: bool = False) -> Iterator[Row]:
    yield Row(
        f"{word}-deployment",
        f"the {word} is installed",
        _deployed(server, optional=optional),
        _INSTALL,
        ("deployments",),
        ("namespace",),
    )
    yield Row(
        f"{word}-replicas",
        f"the {word}'s replicas are ready",
        on_deployment(server, replicas),
        f"kubectl -n railwright-system logs deployment/{server}",
        ("deployments",),
        (f"{word}-deployment",),
    )
