"""Compares the admitted pods of a cloud's published job with one label with the vendor's own pods.

Values that mean the same to Kubernetes, Multus and NCCL are equal, wherever the job sets them. tests/data/clouds has
for each profile the vendor's job, that job with one label, and the differences with their reasons; `variants` has the
replacements in both texts for other shapes of the profile.
"""

import collections
import functools
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from railwright.cli import object_files
from railwright.cli.clouds import profiles
from railwright.cli.explanation import previews, templates
from railwright.fabric import names, quantity, views
from railwright.fabric.claims import claim_templates as claims
from railwright.fabric.injection import claim_requests, facts
from railwright.fabric.lint import rank_contexts
from railwright.fabric.multus import network_selection
from railwright.fabric.policy import model
from railwright.fabric.workloads import frameworks

FOLDER = pathlib.Path(__file__).parents[1] / "data" / "clouds"
Tree = object_files.Tree
Pods = Mapping[str, Tree]  # by role
Values = dict[str, Any]  # of a job, by the words under which a profile lists its differences
MISSING = "(absent)"
_SOURCED = re.compile(r"(?:source|\.) (/[-\w./]+)")
_CLAIM_TEMPLATE = "ResourceClaimTemplate"
_PLACES = frozenset(  # read apart, or the job's
    {"initContainers", "containers", "volumes", "resourceClaims", "affinity", "nodeSelector"}
)


class Difference(msgspec.Struct, frozen=True):
    """A value of the vendor's pods that the admitted pods do not have, and the reason."""

    at: str
    reason: str


class Variant(msgspec.Struct, frozen=True):
    """The jobs of a shape: replacements in the texts of both, and further differences."""

    fabric: str = ""
    vendor: Mapping[str, str] = {}
    job: Mapping[str, str] = {}
    differences: Sequence[Difference] = ()


class Comparison(msgspec.Struct, frozen=True):
    """The differences of one profile."""

    differences: Sequence[Difference]
    variants: Sequence[Variant] = ()


class Shape(msgspec.Struct, frozen=True, dict=True):
    """A node shape of a profile, with its jobs."""

    profile: profiles.Profile
    shape: profiles.Shape
    differences: Sequence[Difference]
    replacements: Mapping[str, Mapping[str, str]]  # by file

    def __str__(self) -> str:
        """Return the profile and the shape."""
        return f"{self.profile.name} {self.shape.title}"

    def read_text(self, name: str) -> str:
        """Return the text of vendor.yaml or job.yaml for this shape."""
        text = (FOLDER / self.profile.name / name).read_text()
        for old, new in self.replacements[name].items():
            text = text.replace(old, new)
        return text

    @property
    def fabric(self) -> model.Fabric:
        """Its fabric."""
        return self.profile.policy.document.fabrics[self.shape.fabric]


@functools.cache
def list_shapes() -> Sequence[Shape]:
    """Return the shapes of all profiles."""
    return [shape for profile in profiles.list_profiles() for shape in _read_shapes(profile)]


def _read_shapes(profile: profiles.Profile) -> Iterator[Shape]:
    comparison = msgspec.convert(_read_differences()[profile.name], Comparison)
    variants = {variant.fabric: variant for variant in comparison.variants}
    for shape in profile.shapes:
        variant = variants.get(shape.fabric, Variant())
        yield Shape(
            profile=profile,
            shape=shape,
            differences=(*comparison.differences, *variant.differences),
            replacements={"vendor.yaml": variant.vendor, "job.yaml": variant.job},
        )


def list_pods(shape: Shape, name: str) -> dict[str, templates.Template]:
    """Return the pods that a controller would create for vendor.yaml or job.yaml, by role."""
    trees = object_files.read_manifest(shape.read_text(name), f"{shape.profile.name}/{name}")
    pods = [item for tree in trees for item in templates.list_templates(tree, templates.DEFAULT_NAMESPACE)]
    return {(item.part or "pod").split()[-1].lower(): item for item in pods}


def compare(shape: Shape) -> dict[str, tuple[Any, Any]]:
    """Return the values of the pods and of their claims that differ, as (the vendor's, ours)."""
    trees = object_files.read_manifest(shape.read_text("vendor.yaml"), f"{shape.profile.name}/vendor.yaml")
    claims = {tree["metadata"]["name"]: tree for tree in trees if tree["kind"] == _CLAIM_TEMPLATE}
    vendor = _read_job({role: item.pod for role, item in list_pods(shape, "vendor.yaml").items()}, claims)
    caches, own = previews.fill_caches({}), list_pods(shape, "job.yaml")
    policy = shape.profile.policy
    pods = {role: previews.preview_admission(item, policy, caches).after for role, item in own.items()}
    ours = _read_job(pods, _build_claims(shape, pods.values()))
    pairs = {path: (vendor.get(path, MISSING), ours.get(path, MISSING)) for path in sorted({*vendor, *ours})}
    return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}


def read_common_differences() -> Sequence[Difference]:
    """Return the differences from the vendors' pods that all profiles may have."""
    return msgspec.convert(_read_differences()["common"], list[Difference])


@functools.cache
def _read_differences() -> Mapping[str, Any]:
    content: Mapping[str, Any] = yaml.safe_load((FOLDER / "differences.yaml").read_text())
    return content


def _build_claims(shape: Shape, pods: Iterable[Tree]) -> Mapping[str, Tree]:
    """Return the ResourceClaimTemplates that the webhook writes for pods without a cluster, by name."""
    templates_by_name: dict[str, Tree] = {}
    for pod in pods:
        view, namespace = msgspec.convert(pod, views.Pod), pod["metadata"]["namespace"]
        if claims.list_railwright_claims(view):
            plan = claim_requests.replan_claims(view, shape.profile.policy, facts.ClusterFacts(namespace))
            templates = plan.build_templates(namespace) if plan else []
            templates_by_name |= {tree["metadata"]["name"]: tree for tree in templates}
    return templates_by_name


def _read_job(pods: Pods, claims: Mapping[str, Tree]) -> Values:
    """Return the fields of a job's pods that a profile compares, and the settings of its ranks.

    `claims` has ResourceClaimTemplates by name.
    """
    values: Values = {f"ranks {name}": value for name, value in _read_settings(pods).items()}
    for role, pod in pods.items():
        values |= {f"{role} {path}": value for path, value in (*_read_pod(pod), *_read_claims(pod, claims))}
    return values


def _read_claims(pod: Tree, claims: Mapping[str, Tree]) -> Iterator[tuple[str, Any]]:
    """Yield the number of devices of each DeviceClass and the attributes that pair them; claims without a template."""
    entries = pod["spec"].get("resourceClaims", ())
    others = [entry for entry in entries if entry.get("resourceClaimTemplateName") not in claims]
    if others:
        yield "resourceClaims", others
    counts: collections.Counter[str] = collections.Counter()
    for entry in entries:
        if entry in others:
            continue
        devices = claims[entry["resourceClaimTemplateName"]]["spec"]["spec"]["devices"]
        for request in (item["exactly"] for item in devices["requests"]):
            if request.get("allocationMode") == "All":
                yield f"claims {request['deviceClassName']}", "All"
            else:
                counts[request["deviceClassName"]] += request.get("count", 1)
        yield from ((f"claims by {item['matchAttribute']}", True) for item in devices.get("constraints", ()))
    yield from ((f"claims {name}", count) for name, count in counts.items())


def _read_settings(pods: Pods) -> Values:
    """Return the effective settings of the ranks: those that mpirun passes, then a worker's environment and file."""
    typed = [msgspec.convert(pod, views.Pod) for pod in pods.values()]
    passed = tuple(
        setting
        for pod in typed
        for index in range(len(pod.spec.containers))
        for setting in rank_contexts.list_passed_settings(pod, index)
    )
    worker = next((pod for pod in typed if not rank_contexts.starts_ranks(pod)), typed[0])
    limited = (index for index, item in enumerate(worker.spec.containers) if item.resources and item.resources.limits)
    job = rank_contexts.JobContext(passed=passed, has_own_ranks=not passed)
    context = rank_contexts.build_context(worker, next(limited, 0), job)
    return {name: setting.value for name, setting in context.effective_settings.items()}


def _read_pod(pod: Tree) -> Iterator[tuple[str, Any]]:
    spec = pod["spec"]
    yield from ((key, value) for key, value in spec.items() if key not in _PLACES)
    annotations = frameworks.get_mapping(pod, "metadata", "annotations")
    networks = network_selection.parse_networks(annotations.get(names.NETWORKS, ""), pod["metadata"]["namespace"])
    if networks:
        yield "networks", [selection.key for selection in networks]
    for key, value in annotations.items():
        if key != names.NETWORKS and not key.startswith(f"{names.DOMAIN}/"):
            yield f"annotation {key}", yaml.safe_load(value)
    sidecars = [item for item in spec.get("initContainers", ()) if item.get("restartPolicy") == "Always"]
    containers = [*sidecars, *spec["containers"]]
    for container in containers:
        prefix = f"{container['name']} " if len(containers) > 1 else ""
        values = (*_read_container(container, spec), *_read_program(container, is_alone=len(containers) == 1))
        yield from ((f"{prefix}{path}", value) for path, value in values)


def _read_program(container: Tree, *, is_alone: bool) -> Iterator[tuple[str, Any]]:
    """Yield the scripts that the container sources; of containers beside that of the ranks, the whole program."""
    words = " ".join([*container.get("command", ()), *container.get("args", ())])
    yield from ((f"script {path}", True) for path in _SOURCED.findall(words))
    if not is_alone and "limits" not in container.get("resources", {}):
        keys = ("image", "command", "args", "env", "restartPolicy")
        yield from ((key, container[key]) for key in keys if key in container)


def _read_container(container: Tree, spec: Tree) -> Iterator[tuple[str, Any]]:
    """Yield the mounts, devices and privileges of a container."""
    volumes = {volume["name"]: volume for volume in spec.get("volumes", ())}
    for mount in container.get("volumeMounts", ()):
        path, volume = mount["mountPath"], volumes[mount["name"]]
        if path == names.NCCL_CONF_PATH:  # among the settings of the ranks
            continue
        ((kind, source),) = ((key, value) for key, value in volume.items() if key != "name")
        yield path, kind
        yield from ((f"{path} {key}", value) for key, value in source.items())
        if kind == "hostPath" and mount.get("readOnly"):
            yield f"{path} readOnly", True
    limits = frameworks.get_mapping(container, "resources", "limits")
    yield from ((name, quantity.parse(amount)) for name, amount in limits.items() if name != names.MANAGED_RESOURCE)
    security = container.get("securityContext", {})
    yield from ((capability, True) for capability in security.get("capabilities", {}).get("add", ()))
    yield from ((key, value) for key, value in security.items() if key != "capabilities" and value is not False)
