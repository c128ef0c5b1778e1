"""Finds the label that opts a pod in, its own or its namespace's, with what the caller may read of the cluster."""

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

from railwright.cli import policy_sources
from railwright.cluster import client as clients
from railwright.cluster import errors
from railwright.fabric import names, views
from railwright.fabric.injection import facts, opt_in
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason


class OptIn(NamedTuple):
    """The label of a pod that opted in, None for every other pod, and what it was found from."""

    label: str | None
    policy: model.Policy | None = None  # None: there is no valid one, or it may not be read
    namespace_labels: Mapping[str, str] | None = None  # None: they may not be read
    unknown: str = ""  # why it is not known whether the pod opted in


async def find(client: clients.Client, pod: views.Pod) -> OptIn:
    """Return the label by which a pod opted in, as the webhook finds it."""
    namespace = pod.metadata.namespace
    if namespace in opt_in.ALWAYS_EXCLUDED:
        return OptIn(opt_in.find_label(pod, None))
    policy = await policy_sources.find_readable(client)
    accelerators = policy.document.accelerators if policy else None
    labels: Mapping[str, str] | None = None
    with contextlib.suppress(errors.ClusterError):
        labels = await policy_sources.find_namespace_labels(client, namespace)
    unknown = ""
    if labels is None and opt_in.awaits_namespace(pod, facts.ClusterFacts(namespace, watched=True), accelerators):
        unknown = (
            f"it has no label {names.FABRIC}, and the labels of namespace {namespace}, which may opt it in, cannot be "
            "read; ClusterRole view in the namespace has the right"
        )
    return OptIn(opt_in.find_label(pod, labels, accelerators), policy, labels, unknown)


def find_refusal(pod: views.Pod, found: OptIn) -> str:
    """Return why admission rejects the label of a pod, and the fix; "" if it does not, or if the policy is unknown."""
    if found.policy is None:
        return ""
    cluster = facts.ClusterFacts(pod.metadata.namespace, found.namespace_labels)
    try:
        opt_in.find_fabric(pod, found.policy.document, cluster)
    except reason.RefusedError as error:
        if error.reason != opt_in.UNKNOWN_FABRIC:
            return error.message
        place = "in the pod template" if names.FABRIC in pod.metadata.labels else "of the namespace"
        return f"{error.message}; correct the label {place}"
    return ""
