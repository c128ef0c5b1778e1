"""Finds the label that opts a pod in, and why an opted-in pod is not injected, as far as the caller may read it."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from railwright.cli import job_pods, policy_sources
from railwright.cluster import client as clients
from railwright.cluster import errors, watch_wire
from railwright.fabric import names, text, views
from railwright.fabric.injection import facts, opt_in, templates
from railwright.fabric.reasons import reason
from railwright.fabric.workloads import registry


class OptIn(NamedTuple):
    """The label that opts a pod in, if there is one, and why the label is rejected, unknown or without effect."""

    label: str | None
    refusal: str = ""  # why admission rejects the label, and the fix
    unknown: str = ""  # why it is not known whether the pod opted in
    unaccelerated: str = ""  # why the label of the namespace does not opt the pod in


async def find_opt_in(client: clients.Client, pod: views.Pod) -> OptIn:
    """Return the label by which the webhook opts a pod in, as far as the caller may read it."""
    namespace = pod.metadata.namespace
    if namespace in opt_in.ALWAYS_EXCLUDED:
        return OptIn(opt_in.find_label(pod, None))
    policy = await policy_sources.find_readable_policy(client)
    accelerators = policy.document.accelerators if policy else None
    labels: Mapping[str, str] | None = None
    with contextlib.suppress(errors.ClusterError):
        labels = await policy_sources.find_namespace_labels(client, namespace)
    refusal = unknown = ""
    if labels is None and opt_in.awaits_namespace(pod, facts.ClusterFacts(namespace, watched=True), accelerators):
        unknown = (
            f"the pod has no label {names.FABRIC}, and the labels of namespace {namespace}, which may opt it in, "
            f"cannot be read; to have the right, ask for a RoleBinding to ClusterRole view in {namespace}"
        )
    cluster = facts.ClusterFacts(namespace, labels)
    if policy is not None:
        try:
            opt_in.find_fabric(pod, policy.document, cluster)
        except reason.RefusedError as error:
            refusal = error.message
    unaccelerated = opt_in.explain_unaccelerated(pod, cluster, accelerators)
    return OptIn(opt_in.find_label(pod, labels, accelerators), refusal, unknown, unaccelerated)


async def describe_uninjected(client: clients.Client, pod: views.Pod, opted_in: OptIn) -> str:
    """Return why a pod that opted in is not injected, and the fix."""
    again = "delete the pod, so that its controller creates it again"
    if opted_in.refusal:
        return f"not injected: {opted_in.refusal}; correct this, then {again}"
    cause, label = await find_cluster_cause(client), f"label {names.FABRIC} {text.quote(opted_in.label or '')}"
    possible = "after the pod's creation, the webhook was not called, or the policy was in mode warn"
    if names.FABRIC in pod.metadata.labels:
        cause = cause or f"the label was set {possible}; set the label in the pod template"
        return f"{label}, but not injected: {cause}, then {again}"
    cause = f"{cause}, then" if cause else f"the namespace got the label {possible};"
    return f"{label} of namespace {pod.metadata.namespace}, but not injected: {cause} {again}"


async def find_cluster_cause(client: clients.Client) -> str:
    """Return why nothing is injected in this cluster now, and the fix; "" if pods are, or if that is not known."""
    with contextlib.suppress(errors.ClusterError):
        if disabled := await policy_sources.describe_disabled(client):
            return disabled
    return policy_sources.UNENFORCED if await policy_sources.is_policy_in_mode_warn(client) else ""


_MAX_OWNERS = 4  # of a pod, one above the other: the longest known chain is Job, JobSet and TrainJob


async def read_owners(client: clients.Client, metadata: views.ObjectMeta) -> Sequence[templates.Workload]:
    """Return the owners of a pod that are of known kinds and may be read, the closest first."""
    workloads: list[templates.Workload] = []
    while (owner := metadata.controller) is not None and len(workloads) < _MAX_OWNERS:
        group, _, version = owner.api_version.rpartition("/")
        kind = registry.find_kind(group, version, owner.kind)
        if kind is None:
            break
        path = job_pods.build_workload_path(kind, metadata.namespace, owner.name)
        try:
            workload = templates.read_workload(kind, await watch_wire.find_object(client, path, dict[str, Any]))
        except (errors.ClusterError, templates.UnreadableError):
            break  # without the right to read it, only what it owns is known
        workloads.append(workload)
        metadata = workload.metadata
    return workloads
