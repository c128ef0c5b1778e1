"""Objects that the checks read from a cluster, by source, and the reason for each source that could not be read.

Defines the sources (path, type, required permission) and lookups for the rows. Makes no calls: see `reader`.
"""

import datetime as dt
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from certs import installation, inventory
from railwright.cluster import failures, installed_names, policies, resources
from railwright.fabric import hypernodes, label_selectors, names, node_views, views
from railwright.fabric.claims import objects
from railwright.fabric.policy import model as documents
from railwright.fabric.workloads import frameworks, registry

# --- sources ------------------------------------------------------------------------------------------------


WEBHOOK, EXTENDER, CERTS = installed_names.WEBHOOK, installed_names.EXTENDER, installed_names.CERTS
CONFIGURATION, POLICY = installation.CONFIGURATION, installed_names.POLICY
SECRETS = {f"{installed_names.INSTALLATION}-{server}": inventory.SECRETS[server] for server in inventory.SERVERS}
VOLCANO_NAMESPACE, VOLCANO_CONFIGMAP = "volcano-system", "volcano-scheduler-configmap"  # as in Volcano's Helm chart
VOLCANO_SCHEDULER = "volcano-scheduler"  # Deployment of the same chart
# Sources that follow from others, with what `get_all` returns of them
DRY_RUNS = "dry-runs"  # a DryRun for each fabric
NAMESPACED_PODS = "namespaced-pods"  # pods of opted-in namespaces
PERMISSIONS = "permissions"  # to install: pairs of a Permission and whether the caller has it, None if unknown
SERVER_PERMISSIONS = "server-permissions"  # pairs of a ServiceAccount of a server and the Permissions that it lacks
CLUSTER = "cluster"  # the nodes and devices as placement sees them
DISABLED = "disabled"  # the copy of `railwright disable`
_CLOCK_SKEW = dt.timedelta(seconds=10)  # between the clock of a Lease's holder and ours
_LEASE_SECONDS = 15  # lease duration if the object has none (client-go's default)


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
        return str(failures.parse_permission("GET", self.path) or f"get {self.path}")


_NAMESPACED = "namespaces/{namespace}"
_CONFIGMAPS, _ADMISSION = f"/api/v1/{_NAMESPACED}/configmaps", "/apis/admissionregistration.k8s.io/v1"
_IN_VOLCANO = f"namespaces/{VOLCANO_NAMESPACE}"
_OURS: Mapping[str, str] = {"labelSelector": "app.kubernetes.io/part-of=railwright"}
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
    Source("deployments", f"/apis/apps/v1/{_NAMESPACED}/deployments"),
    Source("own-pods", f"/api/v1/{_NAMESPACED}/pods", query=_OURS),
    Source("budgets", f"/apis/policy/v1/{_NAMESPACED}/poddisruptionbudgets"),
    Source("services", f"/api/v1/{_NAMESPACED}/services"),
    Source("slices", f"/apis/discovery.k8s.io/v1/{_NAMESPACED}/endpointslices"),
    Source("network-policies", f"/apis/networking.k8s.io/v1/{_NAMESPACED}/networkpolicies"),
    Source("leases", f"/apis/coordination.k8s.io/v1/{_NAMESPACED}/leases"),
    *(Source(f"{server}-secret", f"/api/v1/{_NAMESPACED}/secrets/{secret}") for server, secret in SECRETS.items()),
    Source("mutating", f"{_ADMISSION}/mutatingwebhookconfigurations"),
    Source("validating", f"{_ADMISSION}/validatingwebhookconfigurations"),
    Source("admission-policies", f"{_ADMISSION}/validatingadmissionpolicies"),
    Source("admission-bindings", f"{_ADMISSION}/validatingadmissionpolicybindings"),
    Source("policy", f"{_CONFIGMAPS}/{POLICY}"),
    Source(DISABLED, f"{_CONFIGMAPS}/{installed_names.DISABLED}"),
    Source("networks", resources.NADS.path),
    Source("hypernodes", resources.HYPER_NODES.path, hypernodes.HyperNode),
    Source("topologies", resources.NODE_TOPOLOGIES.path, node_views.NodeResourceTopology),
    Source("device-classes", resources.DEVICE_CLASSES.path, objects.DeviceClass),
    Source("device-slices", resources.RESOURCE_SLICES.path, objects.ResourceSlice),
    Source("pods", "/api/v1/pods", views.Pod, {"labelSelector": names.FABRIC}),
    Source("refusals", "/api/v1/events", views.Event, {"fieldSelector": "reason=FabricRefused"}),
    Source("volcano", f"/api/v1/{_IN_VOLCANO}/configmaps/{VOLCANO_CONFIGMAP}"),
    Source("volcano-deployment", f"/apis/apps/v1/{_IN_VOLCANO}/deployments/{VOLCANO_SCHEDULER}"),
    Source("kube-system", "/api/v1/namespaces/kube-system/configmaps"),
    Source("queues", "/apis/scheduling.volcano.sh/v1beta1/queues"),
    *_WORKLOADS.values(),
)


class DryRun(msgspec.Struct, frozen=True):
    """A dry run of creating a pod, and its result: the pod after admission, or the API server's error."""

    fabric: str
    namespace: str = ""
    problem: str = ""  # why it cannot be made
    privileged: bool = False  # the fabric makes containers privileged
    accelerators: int = 1
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
    def policy_result(self) -> documents.Policy | policies.Rejected | None:
        """Return the policy in the ConfigMap, or its errors; None if it is missing."""
        return None if self.policy_text is None else _read_policy(self.policy_text)

    @property
    def policy_text(self) -> str | None:
        """Return the policy text in the ConfigMap, None if it is missing."""
        text = get_path(self.get_one("policy"), "data", names.POLICY_KEY)
        return text if isinstance(text, str) else None

    @property
    def is_disabled(self) -> bool:
        """True while there is a copy of `railwright disable`, which `railwright enable` deletes."""
        return self.get_one(DISABLED) is not None

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


def get_path(tree: Any, *path: str) -> Any:
    """Return the value under these keys, None if a key is missing or a value on the path is not a mapping."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree


get_map = frameworks.get_mapping


def get_list(tree: Any, *path: str) -> Sequence[Any]:
    """Return the list under these keys, an empty one if there is none."""
    return get_path(tree, *path) or ()


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


_TAG = re.compile(r":v?(\d+\.\d+\.\d+[^@]*)(@.*)?$")


def list_containers(deployment: Any) -> Sequence[Any]:
    """Return the containers of a Deployment."""
    return get_list(deployment, "spec", "template", "spec", "containers")


def list_images(deployment: Any) -> list[str]:
    """Return the images of all containers of a Deployment."""
    return [str(get_path(container, "image") or "") for container in list_containers(deployment)]


def get_image_version(image: str) -> str:
    """Return the version in an image's tag, "" if the tag names none, such as `latest`."""
    match = _TAG.search(image)
    return match[1] if match else ""


def read_options(deployment: Any) -> Mapping[str, str]:
    """Return the options of all containers of a Deployment; the value of one without is ""."""
    arguments = [argument for container in list_containers(deployment) for argument in get_list(container, "args")]
    return dict(argument.partition("=")[::2] for argument in arguments)


def list_accelerators(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the resource names that identify a training container: the policy's `accelerators`, or its default."""
    return snapshot.policy.accelerators if snapshot.policy else ("nvidia.com/gpu",)  # the default of `accelerators`


def get_lease_holder(lease: Any) -> str:
    """Return the holder's identity, "" if the Lease has no holder."""
    return str(get_path(lease, "spec", "holderIdentity") or "")


def find_lease_problem(lease: Any, now: dt.datetime) -> str:
    """Return why the Lease is not held, as a predicate to follow its name; "" while it is held."""
    if lease is None:
        return "does not exist"
    if not (identity := get_lease_holder(lease)):
        return "has no holder"
    renew_time = parse_time(get_path(lease, "spec", "renewTime"))
    seconds = get_path(lease, "spec", "leaseDurationSeconds") or _LEASE_SECONDS
    if now - renew_time > dt.timedelta(seconds=seconds) + _CLOCK_SKEW:
        return f"has expired: {identity} last renewed it at {renew_time:%Y-%m-%d %H:%M:%S} UTC"
    return ""


def parse_time(timestamp: Any) -> dt.datetime:
    """Return a time of an object, 1970 if it has none."""
    try:
        return dt.datetime.fromisoformat(str(timestamp))
    except ValueError:
        return dt.datetime.fromtimestamp(0, dt.UTC)


_MANAGED_BY = "app.kubernetes.io/managed-by"
_RELEASE = "meta.helm.sh/release-name"  # annotation that Helm writes on its objects
# Labels and annotations that GitOps tools write on what they deploy, with the kind whose name is their value. Argo CD's
# tracking-id is APPLICATION:GROUP/KIND:NAMESPACE/NAME. (Its docs: resource tracking; Flux's: spec.commonMetadata.)
_DEPLOYERS: Mapping[str, tuple[str, str]] = {
    "argocd.argoproj.io/tracking-id": ("Argo CD", "Application"),
    "argocd.argoproj.io/instance": ("Argo CD", "Application"),
    "helm.toolkit.fluxcd.io/name": ("Flux", "HelmRelease"),
    "kustomize.toolkit.fluxcd.io/name": ("Flux", "Kustomization"),
}


def format_apply_command(snapshot: Snapshot, setting: str = "") -> str:
    """Return how to apply the installation again: by the repository of a GitOps tool, by Helm, or by kubectl.

    `setting` (KEY=VALUE) is a value of the chart that the release must have: Helm keeps another one that was set.
    """
    for name in (WEBHOOK, EXTENDER, CERTS):
        metadata = get_path(snapshot.find("deployments", name), "metadata")
        labels, annotations = get_map(metadata, "labels"), get_map(metadata, "annotations")
        for key, (tool, kind) in _DEPLOYERS.items():
            if value := {**labels, **annotations}.get(key):
                return f"change it in the repository that {tool} ({kind} {value.partition(':')[0]}) deploys"
        if labels.get(_MANAGED_BY) == "Helm":
            release = annotations.get(_RELEASE, "railwright")
            value = f" --set {setting}" if setting else ""
            return f"helm upgrade {release} CHART -n {snapshot.namespace} --reset-then-reuse-values{value}"
    return "kubectl apply -k FOLDER (with your kustomization.yaml)"


def format_edit_command(snapshot: Snapshot) -> str:
    """Return how to edit the policy."""
    return f"kubectl -n {snapshot.namespace} edit configmap {POLICY}"
