"""Runs `railwright demo --cloud`: what one label makes of a cloud's published job, beside the vendor's own pods.

Values that mean the same to Kubernetes, Multus and NCCL are equal, wherever the job sets them.
"""

import argparse
import collections
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from railwright.cli import formats, object_files, output
from railwright.cli.clouds import profiles
from railwright.cli.explanation import previews, templates
from railwright.cli.output import Line
from railwright.fabric import names, quantity, views
from railwright.fabric.claims import claim_templates as claims
from railwright.fabric.injection import facts
from railwright.fabric.lint import rank_contexts
from railwright.fabric.multus import annotation
from railwright.fabric.workloads import frameworks
from webhook import claim_templates

Tree = object_files.Tree
Pods = Mapping[str, Tree]  # by role
Values = dict[str, Any]  # of a job, by the words under which a profile lists its differences
MISSING = "(absent)"
_SOURCED = re.compile(r"(?:source|\.) (/[-\w./]+)")
_CLAIM_TEMPLATE = "ResourceClaimTemplate"
_PLACES = frozenset(  # read apart, or the job's
    {"initContainers", "containers", "volumes", "resourceClaims", "affinity", "nodeSelector"}
)


def list_pods(shape: profiles.Shape, name: str) -> dict[str, templates.Template]:
    """Return the pods that a controller would create for vendor.yaml or job.yaml, by role."""
    trees = object_files.read_manifest(shape.read_text(name), f"{shape.profile.name}/{name}")
    pods = [item for tree in trees for item in templates.expand(tree, templates.DEFAULT_NAMESPACE) or ()]
    return {(item.part or "pod").split()[-1].lower(): item for item in pods}


def preview_job(shape: profiles.Shape) -> dict[str, previews.AdmissionPreview]:
    """Return what admission does to the pods of the job with one label, by role."""
    caches = previews.load_caches(None)
    return {
        role: previews.preview_admission(item, shape.profile.policy, caches)
        for role, item in list_pods(shape, "job.yaml").items()
    }


def compare(shape: profiles.Shape) -> dict[str, tuple[Any, Any]]:
    """Return the values of the pods and of their claims that differ, as (the vendor's, ours)."""
    trees = object_files.read_manifest(shape.read_text("vendor.yaml"), f"{shape.profile.name}/vendor.yaml")
    claims = {tree["metadata"]["name"]: tree for tree in trees if tree["kind"] == _CLAIM_TEMPLATE}
    vendor = _read_job({role: item.pod for role, item in list_pods(shape, "vendor.yaml").items()}, claims)
    ours = read_job(shape, {role: preview.after for role, preview in preview_job(shape).items()})
    pairs = {path: (vendor.get(path, MISSING), ours.get(path, MISSING)) for path in sorted({*vendor, *ours})}
    return {path: pair for path, pair in pairs.items() if pair[0] != pair[1]}


def read_job(shape: profiles.Shape, pods: Pods) -> Values:
    """Return the values that are compared of the admitted pods of the job with one label."""
    return _read_job(pods, _build_claims(shape, pods.values()))


def count_lines(shape: profiles.Shape, name: str) -> int:
    """Return the number of lines of a manifest as YAML writes it, so that the authors' styles do not count."""
    trees = object_files.read_manifest(shape.read_text(name), f"{shape.profile.name}/{name}")
    return sum(len(object_files.format_yaml_lines(tree)) for tree in trees)


def read_common_differences() -> Sequence[profiles.Difference]:
    """Return the differences from the vendors' pods that all profiles may have."""
    text = (profiles.FOLDER / "differences.yaml").read_text(encoding="utf-8")
    return msgspec.convert(yaml.safe_load(text), list[profiles.Difference])


def _build_claims(shape: profiles.Shape, pods: Iterable[Tree]) -> Mapping[str, Tree]:
    """Return the ResourceClaimTemplates that the webhook writes for pods without a cluster, by name."""
    templates_by_name: dict[str, Tree] = {}
    for pod in pods:
        view, namespace = msgspec.convert(pod, views.Pod), pod["metadata"]["namespace"]
        if claims.list_claims(view):
            writing = claim_templates.prepare(view, shape.profile.policy, facts.ClusterFacts(namespace))
            templates_by_name |= {tree["metadata"]["name"]: tree for tree in writing.build_templates(namespace, ())}
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
    """Return the effective settings of the ranks: what mpirun passes, then the environment and the file of a worker."""
    typed = [msgspec.convert(pod, views.Pod) for pod in pods.values()]
    passed = tuple(
        setting
        for pod in typed
        for index in range(len(pod.spec.containers))
        for setting in rank_contexts.list_passed(pod, index)
    )
    worker = next((pod for pod in typed if not rank_contexts.starts_ranks(pod)), typed[0])
    limited = (index for index, item in enumerate(worker.spec.containers) if item.resources and item.resources.limits)
    job = rank_contexts.JobContext(passed=passed, has_own_ranks=not passed)
    context = rank_contexts.build(worker, next(limited, 0), job)
    return {name: setting.value for name, setting in context.effective.items()}


def _read_pod(pod: Tree) -> Iterator[tuple[str, Any]]:
    spec = pod["spec"]
    yield from ((key, value) for key, value in spec.items() if key not in _PLACES)
    annotations = frameworks.get_mapping(pod, "metadata", "annotations")
    networks = annotation.parse(annotations.get(names.NETWORKS, ""), pod["metadata"]["namespace"])
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


# --- what is shown ----------------------------------------------------------------------------------------

_PICTURE_WIDTH = 140  # columns of the SVG
_UNLISTED = "the profile does not name it"


def show(arguments: argparse.Namespace) -> int:
    """Return 0 if the pods differ from the vendor's only as the profile says, 1 if otherwise.

    Raises UnreadableError for options of the other demo.
    """
    other = [f"--{name}" for name in ("full", "serve") if getattr(arguments, name)]
    if other:
        raise output.UnreadableError(f"{', '.join(other)}: not with --cloud, which starts no server")
    shape = profiles.list_shapes(profiles.find(arguments.cloud))[0]
    differences = compare(shape)
    reasons = {row.at: row.reason for row in (*read_common_differences(), *shape.differences)}
    if formats.is_document(arguments.output):
        formats.print_document(_build_document(shape, differences, reasons), arguments.output)
    else:
        output.print_lines(_format(shape, differences, reasons))
    if arguments.svg:
        lines = _format(shape, differences, reasons)
        title = f"railwright demo --cloud {shape.profile.name}"
        output.write_picture(arguments.svg, output.draw(lines, title=title, width=_PICTURE_WIDTH))
    return output.OK if differences.keys() <= reasons.keys() else output.FINDINGS


def _build_document(
    shape: profiles.Shape, differences: Mapping[str, tuple[Any, Any]], reasons: Mapping[str, str]
) -> Mapping[str, Any]:
    return {
        "profile": shape.profile.name,
        "shape": shape.title,
        "source": shape.profile.source,
        "lines": {name: count_lines(shape, f"{name}.yaml") for name in ("vendor", "job")},
        "pods": {role: preview.after for role, preview in preview_job(shape).items()},
        "differences": [
            {"at": at, "vendor": vendor, "railwright": ours, "reason": reasons.get(at, _UNLISTED)}
            for at, (vendor, ours) in differences.items()
        ],
    }


def _format(
    shape: profiles.Shape, differences: Mapping[str, tuple[Any, Any]], reasons: Mapping[str, str]
) -> Iterator[Line]:
    before, after = (count_lines(shape, name) for name in ("vendor.yaml", "job.yaml"))
    yield ((f"{shape.profile.cloud}: {shape.title}", "bold"),)
    yield ((f"from {shape.profile.source}", "dim"),)
    yield ()
    yield ((f"1. The vendor's job with one label in place of its network settings: {after} lines of {before}", "bold"),)
    for line in shape.read_text("job.yaml").splitlines():
        yield ((f"   {line}", "green" if names.FABRIC in line else ""),)
    yield ()
    yield (("2. What admission changes in its pods", "bold"),)
    for role, preview in preview_job(shape).items():
        yield ((f"   {role}", "bold"),)
        changes = object_files.format_difference(preview.before, preview.after)
        yield from (
            ((f"   {line}", style),) for line, style in itertools.islice(changes, 1, None)
        )  # the first has numbers
    yield ()
    yield (("3. Differences from the vendor's published pods", "bold"),)
    for at, (vendor, ours) in differences.items():
        yield ((f"   {at}: ", "bold"), (f"{_format_value(vendor)} -> {_format_value(ours)}", ""))
        yield ((f"     {reasons.get(at, _UNLISTED)}", "dim" if at in reasons else "red"),)
    if not differences:
        yield (("   none", "green"),)
    yield ()
    yield ((f"Not verified: {shape.profile.unverified}.", "dim"),)
    yield (("Its policy: ", ""), (f"railwright policy init --cloud {shape.profile.name}", "bold"))


def _format_value(value: Any) -> str:
    return str(value) if isinstance(value, str) else json.dumps(value, default=str)
