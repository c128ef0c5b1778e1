"""Finds the label that opts a pod in, its own or its namespace's, with what the caller may read of the cluster."""

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

from railwright.cli import policy_sources
from railwright.cluster import client as clients
from railwright.cluster import errors
from railwright.fabric import names, views
from railwright.fabric.injection import facts, opt_in
from railwright.fabric.reasons import reason


class OptIn(NamedTuple):
    """The label by which a pod opted in, None for every other pod, and why the label is rejected, unknown or void."""

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
            f"it has no label {names.FABRIC}, and the labels of namespace {namespace}, which may opt it in, cannot be "
            "read; ClusterRole view in the namespace has the right"
        )
    cluster = facts.ClusterFacts(namespace, labels)
    if policy is not None:
        try:
            opt_in.find_fabric(pod, policy.document, cluster)
        except reason.RefusedError as error:
            refusal = error.message
    unaccelerated = opt_in.explain_unaccelerated(pod, cluster, accelerators)
    return OptIn(opt_in.find_label(pod, labels, accelerators), refusal, unknown, unaccelerated)
