"""Reads a cluster into the snapshot that all checks judge: all sources concurrently, then dry runs and metrics.

Failed calls become reasons in the snapshot, never exceptions.
"""

import asyncio
import contextlib
import dataclasses
import datetime as dt
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib import parse

import msgspec

from certs import installation, inventory
from railwright.cli import cluster_access, job_pods
from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, policies, resources, watch_wire
from railwright.cluster.installed_names import EXTENDER, INSTALLATION, NAMESPACE, POLICY, WEBHOOK
from railwright.fabric import hypernodes, names, node_views, views
from railwright.fabric.claims import objects
from railwright.fabric.placement.state import cluster_state
from railwright.fabric.policy import compiled, model, shortcomings
from railwright.fabric.workloads import frameworks, registry
from webhook import state

SECRETS = {f"{INSTALLATION}-{server}": inventory.SECRETS[server] for server in inventory.SERVERS}
NAME_LABEL = "kubernetes.io/metadata.name"
_STALE_SECONDS = 300  # as in the alert RailwrightCacheStale


# --- fields of objects that are plain JSON trees, whatever they contain -----------------------------------------


def find_named(objects_read: Iterable[Any], name: str = "") -> Any | None:
    """Return the first object, or the first of this name; None if there is none."""
    return next((item for item in objects_read if name in ("", get_value(item, "metadata", "name"))), None)


def get_value(tree: Any, *path: str) -> Any:
    """Return the value under these keys, None if a key is missing or a value on the path is not a mapping."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


get_map, get_list = frameworks.get_mapping, frameworks.get_list


def read_selector(tree: Any) -> Sequence[tuple[str, str, Sequence[str]]]:
    """Return key, operator and values of each expression of a label selector, and of each of its matchLabels."""
    expressions = [
        (str(item.get("key")), str(item.get("operator")), sorted(item.get("values") or ()))
        for item in get_list(tree, "matchExpressions")
    ]
    return [*expressions, *((key, "In", [value]) for key, value in get_map(tree, "matchLabels").items())]


def list_excluded_namespaces(hook: Any) -> set[str]:
    """Return the names of the namespaces that a webhook entry's namespaceSelector excludes."""
    excluding = [item for item in read_selector(hook.get("namespaceSelector")) if item[:2] == (NAME_LABEL, "NotIn")]
    return {name for _, _, values in excluding for name in values}


def list_containers(deployment: Any) -> Sequence[Any]:
    """Return the containers of a Deployment."""
    return get_list(deployment, "spec", "template", "spec", "containers")


def read_options(deployment: Any) -> Mapping[str, str]:
    """Return the options of all containers of a Deployment; "" is the value of an option without one."""
    arguments = [argument for container in list_containers(deployment) for argument in get_list(container, "args")]
    return dict(argument.partition("=")[::2] for argument in arguments)


# --- what is read -------------------------------------------------------------------------------------------


class Source(msgspec.Struct, frozen=True):
    """Objects to read: all of a kind, those of a namespace, or one. Status 404 means that no object exists."""

    path: str
    view: Any = Any  # type of the decoded objects
    query: Mapping[str, str] = {}

    @property
    def right(self) -> str:
        """The permission to read the source, as for `kubectl auth can-i`."""
        return errors.parse_permission("GET", self.path) or f"get {self.path}"

    @property
    def is_single(self) -> bool:
        """True for an object, False for a list."""
        return self.right.startswith("get ")


class ServerVersion(views.View, frozen=True):
    """The version of an API server. An answer without gitVersion is not from an API server."""

    git_version: str


OWN = f"namespaces/{parse.quote(NAMESPACE, safe='')}"  # path of the installation's namespace
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
WORKLOADS: Mapping[str, frameworks.WorkloadKind] = {
    f"{kind.plural}.{kind.version}.{kind.group}": kind for kind in registry.KINDS
}
SOURCES: Mapping[str, Source] = {
    "version": Source("/version", ServerVersion),
    "namespaces": Source("/api/v1/namespaces", views.Namespace),
    "nodes": Source("/api/v1/nodes", node_views.Node),
    "deployments": Source(f"/apis/apps/v1/{OWN}/deployments"),
    "own-pods": Source(f"/api/v1/{OWN}/pods", query={"labelSelector": "app.kubernetes.io/part-of=railwright"}),
    **{
        f"{server}-secret": Source(f"/api/v1/{OWN}/secrets/{secret}", installation.Secret)
        for server, secret in SECRETS.items()
    },
    "mutating": Source(f"{_ADMISSION}/mutatingwebhookconfigurations"),
    "validating": Source(f"{_ADMISSION}/validatingwebhookconfigurations"),
    "admission-policies": Source(f"{_ADMISSION}/validatingadmissionpolicies"),
    "admission-bindings": Source(f"{_ADMISSION}/validatingadmissionpolicybindings"),
    "policy": Source(f"/api/v1/{OWN}/configmaps/{POLICY}"),
    "disabled": Source(f"/api/v1/{OWN}/configmaps/{installed_names.DISABLED}"),  # the copy of `railwright disable`
    "networks": Source(resources.NADS.path, views.NetworkAttachmentDefinition),
    "hypernodes": Source(resources.HYPER_NODES.path, hypernodes.HyperNode),
    "device-classes": Source(resources.DEVICE_CLASSES.path, objects.DeviceClass),
    "device-slices": Source(resources.RESOURCE_SLICES.path, objects.ResourceSlice),
    "pods": Source("/api/v1/pods", job_pods.Pod, {"fieldSelector": "status.phase!=Succeeded"}),
    "refusals": Source("/api/v1/events", views.Event, {"fieldSelector": "reason=FabricRefused"}),
    "overwritten": Source("/api/v1/events", views.Event, {"fieldSelector": f"reason={installed_names.OVERWRITTEN}"}),
    "volcano": Source(resources.VOLCANO_CONFIGURATION),
    **{
        name: Source(
            f"/apis/{kind.group}/{kind.version}/{kind.plural}" if kind.group else f"/api/{kind.version}/{kind.plural}"
        )
        for name, kind in WORKLOADS.items()
    },
}


class SkipError(Exception):
    """Raised to skip a row, or one of its subjects, with the reason."""

    def __init__(self, reason: str, *, unread: bool = False) -> None:
        super().__init__(reason)
        self.unread = unread  # the caller could not read what the row needs


_Value = TypeVar("_Value")


def require_value(value: _Value | None, reason: str) -> _Value:
    """Return a value. Raise SkipError with the reason if it is false or empty."""
    if not value:
        raise SkipError(reason)
    return value


@dataclasses.dataclass(eq=False)
class Snapshot:
    """The objects of a cluster that checks read, at one moment: `now`, by the caller's clock."""

    now: dt.datetime
    server: str = ""
    probed: str = ""  # namespace for dry runs; "" for the first that may use the fabric
    objects: dict[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    unread: dict[str, str] = dataclasses.field(default_factory=dict)  # the reason for each unreadable source
    # by fabric, what the API server answers to a dry run of creating a pod: the pod after admission, or the error
    dry_runs: dict[str, views.Pod | errors.ClusterError] = dataclasses.field(default_factory=dict)
    scheduler_requests: dict[str, int] = dataclasses.field(default_factory=dict)  # answered, by pod of the extender
    # by pod of webhook and extender, the kinds about which it has received nothing for _STALE_SECONDS
    stale_kinds: dict[str, Sequence[str]] = dataclasses.field(default_factory=dict)

    def require_sources(self, *sources: str) -> None:
        """Raise SkipError if one of the sources could not be read."""
        if unread := [self.unread[source] for source in sources if source in self.unread]:
            raise SkipError(unread[0], unread=True)

    def get_objects(self, source: str) -> Sequence[Any]:
        """Return the objects of a source. Raise SkipError if it could not be read."""
        self.require_sources(source)
        return self.get_readable_objects(source)

    def get_readable_objects(self, source: str) -> Sequence[Any]:
        """Return the objects of a source, () if it could not be read."""
        return self.objects.get(source, ())

    def find_object(self, source: str, name: str = "") -> Any | None:
        """Return the object of this name, or the only one; None if it does not exist. Raise SkipError if unread."""
        return find_named(self.get_objects(source), name)

    @property
    def hour_ago(self) -> str:
        """The time an hour ago, as objects of the API have it."""
        return f"{self.now - dt.timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"

    def list_recent_events(self, source: str) -> list[views.Event]:
        """Return the Events of the last hour, which is how long the API server keeps them, the newest first."""
        timed = [(event.last_timestamp or event.event_time or "", event) for event in self.get_readable_objects(source)]
        recent = [(time, event) for time, event in timed if time >= self.hour_ago]
        return [event for _, event in sorted(recent, key=lambda pair: pair[0], reverse=True)]

    @functools.cached_property
    def policy_result(self) -> model.Policy | policies.RejectedPolicy | None:
        """The policy in the ConfigMap, or its errors; None if it is missing."""
        text = get_value(find_named(self.get_readable_objects("policy")), "data", names.POLICY_KEY)
        return policies.read(text) if isinstance(text, str) else None

    @property
    def policy(self) -> model.PolicyDocument | None:
        """The policy, None if it is missing or invalid."""
        return self.policy_result.document if isinstance(self.policy_result, model.Policy) else None

    def require_policy(self) -> model.PolicyDocument:
        """Return the policy. Raise SkipError without a valid one."""
        self.require_sources("policy")
        return require_value(self.policy, "there is no valid policy")

    @property
    def fabrics(self) -> Mapping[str, model.Fabric]:
        """The fabrics of the policy, none if it is missing or invalid."""
        return self.policy.fabrics if self.policy else {}

    @property
    def accelerators(self) -> Sequence[str]:
        """The resource names that identify a training container, none if the policy is missing or invalid."""
        return self.policy.accelerators if self.policy else ()

    @functools.cached_property
    def facts(self) -> shortcomings.Cluster:
        """Networks and nodes as the webhook sees them when it reviews a policy, as far as they can be read."""
        known = state.State()
        if "networks" not in self.unread:
            known.networks.replace(self.get_readable_objects("networks"))
            known.configurations.replace(self.get_readable_objects("networks"))
        if "nodes" not in self.unread:
            known.nodes.replace(self.get_readable_objects("nodes"))
        return known.cluster

    @functools.cached_property
    def cluster(self) -> cluster_state.ClusterState:
        """The nodes as placement sees them, with the devices of slices. Raises SkipError."""
        cluster = cluster_state.ClusterState()
        cluster.change_devices(lambda devices: devices.class_sink.replace(self.get_readable_objects("device-classes")))
        cluster.change_devices(lambda devices: devices.slice_sink.replace(self.get_readable_objects("device-slices")))
        if self.policy is not None:
            fabrics = compiled.list_claimed_fabrics(self.policy)
            cluster.change_devices(lambda devices: devices.replace_fabrics(fabrics))
        cluster.replace_nodes(self.get_objects("nodes"))
        return cluster

    def list_server_pods(self, server: str) -> Sequence[Any]:
        """Return the pods of a server that are not being deleted, as far as they can be read."""
        metadata = ((pod, pod["metadata"]) for pod in self.get_readable_objects("own-pods"))
        return [pod for pod, own in metadata if own["name"].startswith(f"{server}-") and "deletionTimestamp" not in own]

    @functools.cached_property
    def live_pods(self) -> Sequence[job_pods.Pod]:
        """The pods that have not ended. Raises SkipError if they could not be read."""
        return [pod for pod in self.get_objects("pods") if not pod.status.has_ended]

    @property
    def webhook_entries(self) -> Sequence[Mapping[str, Any]]:
        """The entries of railwright's mutating and validating webhook configurations, as far as they can be read."""
        configurations = (
            find_named(self.get_readable_objects(source), INSTALLATION) for source in ("mutating", "validating")
        )
        return [hook for configuration in configurations for hook in get_list(configuration, "webhooks")]

    @functools.cached_property
    def excluded_namespaces(self) -> set[str]:
        """The namespaces that the webhook configuration excludes."""
        own = next((hook for hook in self.webhook_entries if hook.get("name") == "pods.railwright.io"), {})
        return list_excluded_namespaces(own) | {"kube-system", NAMESPACE}

    @property
    def workloads(self) -> Sequence[tuple[frameworks.WorkloadKind, Any]]:
        """The workloads that could be read, each with its kind."""
        return [(kind, tree) for source, kind in WORKLOADS.items() for tree in self.get_readable_objects(source)]


# --- reading ------------------------------------------------------------------------------------------------

_METRICS_SECONDS = 3.0  # a NetworkPolicy may drop the packets of the API server's proxy
_ANSWERED = re.compile(
    rb'^railwright_requests_total\{outcome="ok",path="/(?:scheduler|volcano)/.*\} (\S+)$', re.MULTILINE
)
_AGE = re.compile(rb'^railwright_cache_age_seconds\{kind="([^"]+)"\} (\S+)$', re.MULTILINE)
_STRICT = {  # allowed by the `restricted` Pod Security Standard, so by every namespace
    "allowPrivilegeEscalation": False,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


async def read_cluster(client: clients.Client, *, probed: str = "", problem: str = "") -> Snapshot:
    """Return a snapshot of a cluster. Sources that cannot be read are in `unread`; nothing is raised.

    `probed` is the namespace for dry runs. With `problem`, the error of the connection, nothing is read.
    """
    snapshot = Snapshot(dt.datetime.now(dt.UTC), client.host, probed)
    if problem:
        snapshot.unread["version"] = problem
    else:
        await _read_source(client, snapshot, "version")
    if "version" in snapshot.unread:  # no other path would answer either
        return snapshot
    others = [name for name in SOURCES if name != "version"]
    await cluster_access.call_for_each(functools.partial(_read_source, client, snapshot), others)
    await cluster_access.call_for_each(functools.partial(_make_dry_run, client, snapshot), snapshot.fabrics)
    servers = [*snapshot.list_server_pods(EXTENDER), *snapshot.list_server_pods(WEBHOOK)]
    await cluster_access.call_for_each(functools.partial(_read_metrics, client, snapshot), servers)
    return snapshot


async def _read_source(client: clients.Client, snapshot: Snapshot, name: str) -> None:
    source = SOURCES[name]
    try:
        if source.is_single:
            body = await client.get(source.path)
            snapshot.objects[name] = [watch_wire.decode_object(client, source.path, body, source.view)]
        else:
            snapshot.objects[name] = await watch_wire.list_objects(client, source.path, source.view, source.query)
    except errors.ClusterError as error:
        if error.status == 403:
            snapshot.unread[name] = f"you may not {source.right} (403 Forbidden)"
        elif error.status != 404 or name == "version":
            snapshot.unread[name] = error.sentence


def choose_dry_run_namespace(snapshot: Snapshot, fabric: str) -> str:
    """Return the namespace for a fabric's dry run: `probed`, otherwise `default`, otherwise the first that may use it.

    Raise SkipError if no namespace may use the fabric, or if `probed` may not, as far as that can be read.
    """
    if snapshot.probed and "namespaces" in snapshot.unread:
        return snapshot.probed
    allowed: list[str] = [
        namespace.metadata.name
        for namespace in snapshot.get_objects("namespaces")
        if not namespace.metadata.deletion_timestamp
        and namespace.metadata.name not in snapshot.excluded_namespaces
        and snapshot.fabrics[fabric].allows_namespace(namespace.metadata.labels)
    ]
    require_value(allowed, f"no namespace may use fabric {fabric}: the labels of no namespace match its `namespaces`")
    require_value(
        snapshot.probed in ("", *allowed),
        f"namespace {snapshot.probed} does not exist, is excluded, or its labels do not match `namespaces` of fabric "
        f"{fabric}",
    )
    return snapshot.probed or min(allowed, key=lambda name: (name != "default", name))


def build_dry_run_pod(snapshot: Snapshot, fabric: str, namespace: str) -> Mapping[str, Any]:
    """Return the manifest of the dry-run pod. Apart from an accelerator, nothing in it can be rejected.

    For a privileged fabric it has no security context: the strict one excludes privileged containers.
    """
    limits = {snapshot.accelerators[0]: "1", "cpu": "1", "memory": "1Gi"}
    container: dict[str, Any] = {"name": "probe", "image": "railwright.invalid/check", "resources": {"limits": limits}}
    if not snapshot.fabrics[fabric].security.privileged:
        container["securityContext"] = _STRICT
    metadata = {"name": "railwright-check", "namespace": namespace, "labels": {names.FABRIC: fabric}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


async def _make_dry_run(client: clients.Client, snapshot: Snapshot, fabric: str) -> None:
    try:
        namespace = choose_dry_run_namespace(snapshot, fabric)
        path = f"/api/v1/namespaces/{namespace}/pods?dryRun=All"
        body = await client.post(path, build_dry_run_pod(snapshot, fabric, namespace))
        snapshot.dry_runs[fabric] = watch_wire.decode_object(client, path, body, views.Pod)
    except SkipError:
        return  # the row gives the reason
    except errors.ClusterError as error:
        snapshot.dry_runs[fabric] = error


async def _read_metrics(client: clients.Client, snapshot: Snapshot, pod: Any) -> None:
    """Read from a server's metrics how many scheduler requests it has answered, and which of its caches are stale."""
    name = str(get_value(pod, "metadata", "name"))
    ports = [port for container in get_list(pod, "spec", "containers") for port in get_list(container, "ports")]
    port = next((port.get("containerPort") for port in ports if port.get("name") == "ops"), 0)
    with contextlib.suppress(errors.ClusterError, TimeoutError):
        async with asyncio.timeout(_METRICS_SECONDS):
            metrics = await client.get(f"/api/v1/{OWN}/pods/http:{name}:{port}/proxy/metrics")
        if b"railwright_build_info" in metrics:
            snapshot.scheduler_requests[name] = round(sum(map(float, _ANSWERED.findall(metrics))))
            ages = _AGE.findall(metrics)
            snapshot.stale_kinds[name] = [kind.decode() for kind, age in ages if float(age) > _STALE_SECONDS]
