"""Checks of the API server and the installed Deployments and Services."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from railwright.cli.checking import rows
from railwright.cli.checking.rows import Result, fail, ok, row, warn
from railwright.cli.checking.snapshots import (
    Snapshot,
    find_named,
    get_list,
    get_map,
    get_value,
    list_containers,
    require_value,
)
from railwright.cluster.installed_names import CERTS, EXTENDER, INSTALLATION, NAMESPACE, POLICY, SCHEDULER, WEBHOOK
from railwright.fabric import text, version
from railwright.fabric.policy import shortcomings

GROUP = "installation"

# without it, the chart names the objects of a release NAME that lacks its own name NAME-railwright-...
_OVERRIDE = "" if "railwright" in INSTALLATION else f" --set fullnameOverride={INSTALLATION}"
_INSTALL = (
    f"helm install {INSTALLATION} CHART -n {NAMESPACE} --create-namespace{_OVERRIDE}, or "
    "kubectl apply -k FOLDER (with your kustomization.yaml). If it is in another namespace: "
    "railwright check -n NAMESPACE"
)


@row(
    "give --kubeconfig or --context of a cluster that you can reach and may use; to verify: kubectl version", heals=True
)
def check_api_reachable(snapshot: Snapshot) -> Result:
    """API server answers.

    All other checks depend on this. Check the kubeconfig, the context, the VPN and the credentials: `kubectl version`.
    """
    if "version" in snapshot.unread:
        return fail(snapshot.unread["version"], unread=True)
    return ok(snapshot.server)


@row(_INSTALL, heals=True)
def check_installed(snapshot: Snapshot) -> Result:
    """The webhook is installed.

    Without its namespace and the Deployment `railwright-webhook`, opted-in pods cannot be created, and nothing else is
    checked. CHART is the chart of the release, `manifests/chart` in its source. FOLDER is a folder of your own, whose
    `kustomization.yaml` names `manifests/base` as a resource and sets the image.
    """
    found = next(
        (item for item in snapshot.get_readable_objects("namespaces") if item.metadata.name == NAMESPACE), None
    )
    if found is None and "namespaces" not in snapshot.unread:
        return fail(f"namespace {NAMESPACE} does not exist")
    if found and found.metadata.deletion_timestamp:
        namespace = f"namespace {NAMESPACE}"
        fix = f"wait until the namespace is gone (kubectl get {namespace}), then install again: {_INSTALL}"
        return fail(f"{namespace} is being deleted", fix)
    if snapshot.find_object("deployments", WEBHOOK) is None:
        is_partial = any(snapshot.find_object("deployments", name) for name in (EXTENDER, CERTS))
        fix = "apply the Deployment again: {apply}" if is_partial else ""
        return fail(f"Deployment {WEBHOOK} does not exist in namespace {NAMESPACE}", fix)
    return ok(NAMESPACE)


def _list_servers(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the webhook and the extender, and, where installed, the certificate rotator and the chart's scheduler."""
    optional = [name for name in (CERTS, SCHEDULER) if find_named(snapshot.get_readable_objects("deployments"), name)]
    return {name: name for name in (WEBHOOK, EXTENDER, *optional)}


@row(f"kubectl -n {NAMESPACE} describe pods", each=_list_servers, heals=True)
def check_replicas(snapshot: Snapshot, server: str) -> Result:
    """The installation's Deployments are ready, the webhook's with at least two replicas.

    The detail quotes kubelet or the scheduler. A running pod that is not ready reports the reason on `/readyz` and in
    its log. Warns about one replica of the webhook: opted-in pods cannot be created while it restarts or its node is
    drained. Without the extender pods are still injected, but the scheduler alone places them. Without the chart's
    scheduler, pods that name it stay Pending. Without the rotator, certificates expire.

    Also warns if a server has received nothing about a kind of objects for five minutes, because it lacks a permission
    or cannot reach the API server: the server decides by objects that may have changed meanwhile. Its metrics are read
    through the API server's proxy, if you may get `pods/proxy` in railwright's namespace.
    """
    deployment = get_deployment(snapshot, server)
    desired, ready = deployment["spec"]["replicas"], get_value(deployment, "status", "readyReplicas") or 0
    scale = f"kubectl -n {NAMESPACE} scale deployment {server} --replicas={1 if server == CERTS else 2}"
    if desired == 0:
        return fail("scaled to 0", scale, lasting=True)
    selector = ",".join(map("=".join, deployment["spec"]["selector"]["matchLabels"].items()))
    read_log = f"kubectl -n {NAMESPACE} logs -l {selector} --tail=-1"
    pods = {str(get_value(pod, "metadata", "name")): pod for pod in snapshot.list_server_pods(server)}
    stale = [
        f"{name} has received nothing about {text.join_first(kinds, 4)} from the API server for five minutes"
        for name in pods
        if (kinds := snapshot.stale_kinds.get(name))
    ]
    if ready < desired:
        reasons = [f"{name}: {why}" for name, pod in pods.items() for why in _find_unready_reasons(pod)]
        detail = "; ".join([f"{ready} of {desired} ready", *stale[:1], *reasons[:3]])
        needs_policy = server in (WEBHOOK, EXTENDER) and snapshot.policy is None and "policy" not in snapshot.unread
        if needs_policy and not snapshot.get_readable_objects("policy"):
            missing = f"ConfigMap {POLICY} does not exist"
            detail = f"{detail}; replicas need a policy to become ready, and {missing}"
            return fail(detail, rows.CREATE_POLICY)
        fix = f"kubectl -n {NAMESPACE} describe pods -l {selector}; log of a running pod: {read_log}"
        return fail(detail, fix, lasting=needs_policy or lacks_image(snapshot, server))
    if stale:
        apply = "apply the roles again: {apply}"
        if server == WEBHOOK and any("resourceclaimtemplates" in line for line in stale):
            apply = f"{shortcomings.GRANT_CLAIMS}: {{apply webhook.claims=true}}"
        return warn(
            "; ".join(stale[:3]), f"the server's log names the missing right, or the error: {read_log}; {apply}"
        )
    if desired == 1 and server == WEBHOOK:
        return warn(
            "1 replica: opted-in pods cannot be created while it restarts or its node is drained", scale, lasting=True
        )
    return ok(f"{ready} of {desired}")


def _find_unready_reasons(pod: Any) -> Iterator[str]:
    """Yield the reasons why a pod is not ready, as kubelet or the scheduler reports them."""
    yield from _list_container_reasons(pod)
    for condition in get_list(pod, "status", "conditions"):
        is_false = condition.get("type") in ("PodScheduled", "Ready") and condition.get("status") == "False"
        if is_false and condition.get("message"):
            yield str(condition["message"])
            return


def _list_container_reasons(pod: Any) -> list[str]:
    """Return kubelet's reason and message for each container of a pod that waits."""
    waiting = [get_map(container, "state", "waiting") for container in get_list(pod, "status", "containerStatuses")]
    return [": ".join(filter(None, (item.get("reason"), item.get("message")))) for item in waiting if item]


# as containerd and CRI-O word it; other errors may end, such as that of a registry whose Secret is created later
_ABSENT_IMAGE = r"InvalidImageName|(?:ErrImagePull|ImagePullBackOff): .*(?:not found|manifest unknown)"


def lacks_image(snapshot: Snapshot, server: str) -> bool:
    """True if every pod of a server waits for an image whose name is malformed or that its registry does not have."""
    pods = snapshot.list_server_pods(server)
    waiting = [any(re.match(_ABSENT_IMAGE, reason) for reason in _list_container_reasons(pod)) for pod in pods]
    return bool(waiting) and all(waiting)


@row("install the CLI of the installed release, or upgrade the servers: {apply}")
def check_images(snapshot: Snapshot) -> Result:
    """CLI and server versions match.

    Skipped if the image tag, such as `latest`, names no version.
    """
    images = {
        name: str(get_value(container, "image"))
        for name in (WEBHOOK, EXTENDER, CERTS)
        for container in list_containers(snapshot.find_object("deployments", name))
    }
    if len({*images.values()}) > 1:
        return warn("; ".join(f"{name} runs {image}" for name, image in images.items()))
    image = next(iter(images.values()), "the image")
    release = re.search(r":v?(\d+\.\d+\.\d+[^@]*)(@.*)?$", image)
    release = require_value(release, f"{image} names no version, so it is not known which release runs")
    if release[1] != version.VERSION:
        return warn(f"the cluster runs {image}, this command is {version.VERSION}: checks may not fit that release")
    return ok(image)


def get_deployment(snapshot: Snapshot, server: str) -> Any:
    """Return the Deployment of a server. Raise SkipError if it does not exist, or could not be read."""
    effect = ": gangs are placed without railwright" if server == EXTENDER else ""
    return require_value(snapshot.find_object("deployments", server), f"Deployment {server} is not installed{effect}")
