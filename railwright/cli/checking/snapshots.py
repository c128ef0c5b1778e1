"""Objects that the rows read from a cluster, by source, and the reason for each source that could not be read.

Makes no calls: see `reader`.
"""

import datetime as dt
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from certs import installation, inventory
from railwright.cluster import errors, installed_names, policies, resources
from railwright.fabric import hypernodes, label_selectors, names, node_views, views
from railwright.fabric.claims import objects
from railwright.fabric.policy import model as documents
from railwright.fabric.workloads import frameworks, registry

WEBHOOK, EXTENDER, CERTS = installed_names.WEBHOOK, installed_names.EXTENDER, installed_names.CERTS
CONFIGURATION, POLICY = installation.CONFIGURATION, installed_names.POLICY
SECRETS = {f"{installed_names.INSTALLATION}-{server}": inventory.SECRETS[server] for server in inventory.SERVERS}
VOLCANO = "volcano-system/volcano-scheduler-configmap"  # as in Volcano's Helm chart, as is the Deployment
_VOLCANO_NAMESPACE, _, _VOLCANO_CONFIGMAP = VOLCANO.partition("/")

# --- sources ------------------------------------------------------------------------------------------------


class Source(msgspec.Struct, frozen=True):
    """Objects to read: all of a kind, those of a namespace, or one. Status 404 means that no object exists.

    {namespace} in the path is railwright's namespace.
    """

    name: str
    path: str
    view: Any = Any  # type of the decoded objects
    query: Mapping[str, str] = {}

    @property
    def single(self) -> bool:
        """True for an object, False for a list."""
        return self.right.startswith("get ")

    @property
    def right(self) -> str:
        """The permission to read it, as for `kubectl auth can-i`."""
        return str(errors.parse_permission("GET", self.path) or f"get {self.path}")


_OWN, _ADMISSION = "namespaces/{namespace}", "/apis/admissionregistration.k8s.io/v1"
_OURS: Mapping[str, str] = {"labelSelector": "app.kubernetes.io/part-of=railwright"}


class _Waiting(views.View, frozen=True):
    """Why kubelet has not started a container."""

    reason: str | None = None


class _State(views.View, frozen=True):
    waiting: _Waiting | None = None


class _InitContainerStatus(views.ContainerStatus, frozen=True):
    state: _State | None = None


class _PodStatus(views.PodStatus, frozen=True):
    init_container_statuses: list[_InitContainerStatus] | None = None  # type: ignore[assignment]  # safe because frozen


class OptedInPod(views.Pod, frozen=True):
    """A pod with the state of its init containers."""

    status: _PodStatus = _PodStatus()


_WORKLOADS = {
    kind: Source(
        f"{kind.plural}.{kind.version}.{kind.group}",
        f"/{'apis' if kind.group else 'api'}/{kind.group}/{kind.version}/{kind.plural}".replace("//", "/"),
        msgspec.Raw,
    )
    for kind in registry.KINDS
}
WORKLOADS: Mapping[str, frameworks.WorkloadKind] = {source.name: kind for kind, source in _WORKLOADS.items()}
SOURCES: tuple[Source, ...] = (
    Source("version", "/version"),
    Source("namespaces", "/api/v1/namespaces"),
    Source("nodes", "/api/v1/nodes", node_views.Node),
    Source("deployments", f"/apis/apps/v1/{_OWN}/deployments"),
    Source("own-pods", f"/api/v1/{_OWN}/pods", query=_OURS),
    Source("budgets", f"/apis/policy/v1/{_OWN}/poddisruptionbudgets"),
    Source("services", f"/api/v1/{_OWN}/services"),
    Source("slices", f"/apis/discovery.k8s.io/v1/{_OWN}/endpointslices"),
    *(Source(f"{server}-secret", f"/api/v1/{_OWN}/secrets/{secret}") for server, secret in SECRETS.items()),
    Source("mutating", f"{_ADMISSION}/mutatingwebhookconfigurations"),
    Source("validating", f"{_ADMISSION}/validatingwebhookconfigurations"),
    Source("admission-policies", f"{_ADMISSION}/validatingadmissionpolicies"),
    Source("admission-bindings", f"{_ADMISSION}/validatingadmissionpolicybindings"),
    Source("policy", f"/api/v1/{_OWN}/configmaps/{POLICY}"),
    Source("disabled", f"/api/v1/{_OWN}/configmaps/{installed_names.DISABLED}"),  # the copy of `railwright disable`
    Source("networks", resources.NADS.path),
    Source("hypernodes", resources.HYPER_NODES.path, hypernodes.HyperNode),
    Source("kueue-topologies", "/apis/kueue.x-k8s.io/v1beta2/topologies"),
    Source("device-classes", resources.DEVICE_CLASSES.path, objects.DeviceClass),
    Source("device-slices", resources.RESOURCE_SLICES.path, objects.ResourceSlice),
    Source("pods", "/api/v1/pods", OptedInPod, {"labelSelector": names.FABRIC}),
    Source("refusals", "/api/v1/events", views.Event, {"fieldSelector": "reason=FabricRefused"}),
    Source("overwritten", "/api/v1/events", views.Event, {"fieldSelector": f"reason={installed_names.OVERWRITTEN}"}),
    Source("volcano", f"/api/v1/namespaces/{_VOLCANO_NAMESPACE}/configmaps/{_VOLCANO_CONFIGMAP}"),
    Source("volcano-deployment", f"/apis/apps/v1/namespaces/{_VOLCANO_NAMESPACE}/deployments/volcano-scheduler"),
    Source("kube-system", "/api/v1/namespaces/kube-system/configmaps"),
    *_WORKLOADS.values(),
)
# Sources that follow from others, with what `get_all` returns of them
DRY_RUNS = "dry-runs"  # a DryRun for each fabric
NAMESPACED_PODS = "namespaced-pods"  # pods of opted-in namespaces
PERMISSIONS = "permissions"  # to install: pairs of a Permission and whether the caller has it, None if unknown
SERVER_PERMISSIONS = "server-permissions"  # pairs of a ServiceAccount of a server and the Permissions that it lacks
CLUSTER = "cluster"  # the nodes and devices as placement sees them


class DryRun(msgspec.Struct, frozen=True):
    """A dry run of creating a pod, and its result: the pod after admission, or the API server's error."""

    fabric: str
    namespace: str = ""
    problem: str = ""  # why it cannot be made
    privileged: bool = False  # the fabric makes containers privileged
    pod: Any = None
    refusal: str = ""
    forbidden: bool = False  # the caller lacks permission to create pods there


class Snapshot(msgspec.Struct, frozen=True):
    """Snapshot of a cluster. `now` is the caller's clock. `unread` maps each unreadable source to the reason."""

    namespace: str
    now: dt.datetime
    server: str = ""
    objects: Mapping[str, tuple[Any, ...]] = {}
    unread: Mapping[str, str] = {}
    forbidden: tuple[str, ...] = ()  # permissions to read that the caller lacks
    unknown: frozenset[str] = frozenset()  # sources whose kind the API server does not serve

    def get_all(self, source: str) -> tuple[Any, ...]:
        """Return the objects of a source, () if it could not be read."""
        return self.objects.get(source, ())

    def get_one(self, source: str) -> Any | None:
        """Return the object of a single-object source, None if it does not exist."""
        return next(iter(self.get_all(source)), None)

    def find(self, source: str, name: str) -> Any | None:
        """Return the object with this name, None if it does not exist."""
        return next((item for item in self.get_all(source) if get_path(item, "metadata", "name") == name), None)

    def list_recent(self, source: str) -> list[views.Event]:
        """Return the Events of the last hour, which is how long the API server keeps them, the newest first."""
        events = [(_get_event_time(event), event) for event in self.get_all(source)]
        recent = [(time, event) for time, event in events if self.now - time < dt.timedelta(hours=1)]
        return [event for _, event in sorted(recent, key=lambda pair: pair[0], reverse=True)]

    @property
    def policy(self) -> documents.PolicyDocument | None:
        """Return the policy, None if it is missing or invalid."""
        result = self.policy_result
        return result.document if isinstance(result, documents.Policy) else None

    @property
    def fabrics(self) -> Mapping[str, documents.Fabric]:
        """Return the fabrics of the policy, none if it is missing or invalid."""
        return self.policy.fabrics if self.policy else {}

    @property
    def accelerators(self) -> Sequence[str]:
        """Return the resource names that identify a training container: those of the policy, or their default."""
        return self.policy.accelerators if self.policy else ("nvidia.com/gpu",)

    @property
    def policy_result(self) -> documents.Policy | policies.Rejected | None:
        """Return the policy in the ConfigMap, or its errors; None if it is missing."""
        text = get_path(self.get_one("policy"), "data", names.POLICY_KEY)
        return _read_policy(text) if isinstance(text, str) else None

    @property
    def is_disabled(self) -> bool:
        """True while there is a copy of `railwright disable`, which `railwright enable` deletes."""
        return self.get_one("disabled") is not None

    @property
    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of each namespace by its name."""
        return {get_name(item): get_map(item, "metadata", "labels") for item in self.get_all("namespaces")}

    @property
    def hooks(self) -> tuple[Mapping[str, Any], ...]:
        """Return the entries of railwright's mutating and validating webhook configurations."""
        configurations = (self.find(source, CONFIGURATION) for source in ("mutating", "validating"))
        return tuple(hook for item in configurations if item is not None for hook in get_path(item, "webhooks") or ())


@functools.lru_cache(maxsize=8)
def _read_policy(text: str) -> documents.Policy | policies.Rejected:
    """Parse a policy. Cached, because several rows need it."""
    return policies.read(text)


def _get_event_time(event: views.Event) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(
            str(event.last_timestamp or event.event_time or event.metadata.creation_timestamp)
        )
    except ValueError:
        return dt.datetime.fromtimestamp(0, dt.UTC)


# --- fields of objects --------------------------------------------------------------------------------------


def get_path(tree: Any, *path: str) -> Any:
    """Return the value under these keys, None if a key is missing or a value on the path is not a mapping."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


get_map = frameworks.get_mapping


def get_list(tree: Any, *path: str) -> Sequence[Any]:
    """Return the list under these keys, an empty one if there is none."""
    value = get_path(tree, *path)
    return value if isinstance(value, list) else ()


def get_name(obj: Any) -> str:
    """Return NAMESPACE/NAME, or NAME for an object without namespace."""
    metadata = get_path(obj, "metadata")
    return "/".join(filter(None, (get_path(metadata, "namespace"), get_path(metadata, "name"))))


def read_selector(tree: Any) -> Sequence[label_selectors.Expression]:
    """Return the expressions of a label selector, with one for each of its matchLabels."""
    expressions = [
        (str(item.get("key")), str(item.get("operator")), tuple(sorted(item.get("values") or ())))
        for item in get_list(tree, "matchExpressions")
    ]
    labels = [(key, "In", (value,)) for key, value in get_map(tree, "matchLabels").items()]
    return [label_selectors.Expression(*expression) for expression in (*expressions, *labels)]


def format_selector(expressions: Iterable[label_selectors.Expression]) -> str:
    """Return the expressions of a label selector, such as `app=x and tier Exists`; "" without any."""
    return " and ".join(
        f"{key}={values[0]}"
        if operator == "In" and len(values) == 1
        else f"{key} {operator} {','.join(values)}".strip()
        for key, operator, values in expressions
    )


def list_containers(deployment: Any) -> Sequence[Any]:
    """Return the containers of a Deployment."""
    return get_list(deployment, "spec", "template", "spec", "containers")


def list_images(deployment: Any) -> list[str]:
    """Return the images of all containers of a Deployment."""
    return [str(get_path(container, "image") or "") for container in list_containers(deployment)]


_TAG = re.compile(r":v?(\d+\.\d+\.\d+[^@]*)(@.*)?$")


def get_image_version(image: str) -> str:
    """Return the version in an image's tag, "" if the tag names none, such as `latest`."""
    match = _TAG.search(image)
    return match[1] if match else ""


def read_options(deployment: Any) -> Mapping[str, str]:
    """Return the options of all containers of a Deployment; the value of one without is ""."""
    arguments = [argument for container in list_containers(deployment) for argument in get_list(container, "args")]
    return dict(argument.partition("=")[::2] for argument in arguments)


# --- fixes --------------------------------------------------------------------------------------------------

CREATE_POLICY = (
    "describe your rails in policy.yaml (railwright policy schema has every key), then: kubectl -n {namespace} create "
    "configmap {policy} --from-file=policy.yaml"
)
DISABLED = (  # detail of rows about what `railwright disable` has deleted, with the fix
    f"railwright is disabled (`railwright disable`): ConfigMap {installed_names.DISABLED} has the deleted objects, and "
    "labelled pods are created without their network"
)
ENABLE = "railwright enable"
NAME_LABEL = "kubernetes.io/metadata.name"
EXAMPLE = Snapshot(installed_names.NAMESPACE, dt.datetime.fromtimestamp(0, dt.UTC))  # names the installation
_PLACEHOLDER = re.compile(r"\{(namespace|webhook|extender|certs|policy|configuration|edit policy|apply)(?: ([^}]+))?\}")
_RELEASE = "meta.helm.sh/release-name"  # annotation that Helm writes on its objects
# Labels and annotations that GitOps tools write on what they deploy, with the kind whose name is their value. Argo CD's
# tracking-id is APPLICATION:GROUP/KIND:NAMESPACE/NAME. (Its docs: resource tracking; Flux's: spec.commonMetadata.)
_DEPLOYERS: Mapping[str, tuple[str, str]] = {
    "argocd.argoproj.io/tracking-id": ("Argo CD", "Application"),
    "argocd.argoproj.io/instance": ("Argo CD", "Application"),
    "helm.toolkit.fluxcd.io/name": ("Flux", "HelmRelease"),
    "kustomize.toolkit.fluxcd.io/name": ("Flux", "Kustomization"),
}


def fill_in(fix: str, snapshot: Snapshot) -> str:
    """Return a fix with the names and the commands of an installation.

    `{edit policy}` is the command that edits the policy; `{apply}` applies the installation again, by how it was
    installed, and `{apply KEY=VALUE}` sets a value of the chart. `{webhook}` and the like are names of objects.
    """
    words = {
        "namespace": snapshot.namespace,
        "webhook": WEBHOOK,
        "extender": EXTENDER,
        "certs": CERTS,
        "policy": POLICY,
        "configuration": CONFIGURATION,
        "edit policy": f"kubectl -n {snapshot.namespace} edit configmap {POLICY}",
    }
    return _PLACEHOLDER.sub(lambda match: words.get(match[1]) or _format_apply(snapshot, match[2] or ""), fix)


def _format_apply(snapshot: Snapshot, setting: str) -> str:
    """Return how to apply the installation again: by the repository of a GitOps tool, by Helm, or by kubectl.

    `setting` (KEY=VALUE) is a value of the chart that the release must have: Helm keeps another one that was set.
    """
    for name in (WEBHOOK, EXTENDER, CERTS):
        metadata = get_path(snapshot.find("deployments", name), "metadata")
        labels, annotations = get_map(metadata, "labels"), get_map(metadata, "annotations")
        for key, (tool, kind) in _DEPLOYERS.items():
            if value := {**labels, **annotations}.get(key):
                return f"change it in the repository that {tool} ({kind} {value.partition(':')[0]}) deploys"
        if labels.get("app.kubernetes.io/managed-by") == "Helm":
            release = annotations.get(_RELEASE, "railwright")
            value = f" --set {setting}" if setting else ""
            return f"helm upgrade {release} CHART -n {snapshot.namespace} --reset-then-reuse-values{value}"
    return "kubectl apply -k FOLDER (with your kustomization.yaml)"
