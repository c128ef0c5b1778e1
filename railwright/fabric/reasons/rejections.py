"""Lists the codes of rejections at admission, each with its meaning and what the user can do about it.

The codes are part of the public interface (docs/interface.md 3.6, generated from this table): they are in the status of
a denial, in audit annotations and in metrics.
"""

import enum
from typing import Self


class RejectionCode(enum.StrEnum):
    """A code of a rejection. Its value is the public name."""

    meaning: str
    fix: str

    def __new__(cls, name: str, meaning: str, fix: str) -> Self:
        """Create the member `name`."""
        code = str.__new__(cls, name)
        code._value_ = name
        code.meaning, code.fix = meaning, fix
        return code

    NO_POLICY = (
        "no-policy",
        "No valid policy is in force.",
        "Try again in a moment; otherwise run `railwright check`.",
    )
    UNKNOWN_FABRIC = (
        "unknown-fabric",
        "The label or annotation `railwright.io/fabric` names no fabric of the policy.",
        "Use one of the names in the message, or `default`.",
    )
    NAMESPACE = (
        "namespace",
        "The fabric's namespace selector in the policy does not match this namespace.",
        "Use another fabric, or have the namespace labelled.",
    )
    NAMESPACE_UNKNOWN = (
        "namespace-unknown",
        "The labels of the namespace, which may opt the pod in, are not known yet.",
        "Try again, or set the label on the pod.",
    )
    ANNOTATION = (
        "annotation",
        "An annotation `railwright.io/...` has an invalid value.",
        "Use one of the values in the message.",
    )
    ANNOTATIONS = (
        "annotations",
        "The annotations would exceed the limit of Kubernetes.",
        "Remove some annotations.",
    )
    PLACEMENT = (
        "placement",
        "The annotation `railwright.io/placement` is written by railwright and was set by the user.",
        "Remove the annotation.",
    )
    RAILS = ("rails", "The annotation `railwright.io/rails` is invalid.", "Name rails of the fabric, or remove it.")
    CONTAINERS = (
        "containers",
        "The containers that get the rails cannot be chosen.",
        "Name containers of the pod in `railwright.io/containers`, or remove the annotation.",
    )
    QUANTITY = (
        "quantity",
        "A resource quantity is invalid, or there are more GPUs than claims of a pod can have (1,024).",
        "Write a valid quantity.",
    )
    NETWORKS = (
        "networks",
        "The networks annotation is invalid, or conflicts with the networks of the rails.",
        "Correct the annotation, or remove it.",
    )
    MISSING_NETWORK = (
        "missing-network",
        "A NetworkAttachmentDefinition of a rail does not exist.",
        "Create it, or correct the policy.",
    )
    VOLUME = (
        "volume",
        "The pod has a volume with a name that railwright uses.",
        "Rename the volume.",
    )
    CLAIM = (
        "claim",
        "The pod has an entry of `spec.resourceClaims` with a name that railwright uses.",
        "Rename the entry, also in `resources.claims` of the containers.",
    )
    NODE_NAME = (
        "node-name",
        "The pod names its node, so that no scheduler allocates the claims of its rails.",
        "Remove `nodeName`, and select the node by `nodeSelector`.",
    )
    SECURITY = (
        "security",
        "The container forbids the privilege that the fabric needs.",
        "Remove the setting in the message.",
    )
    POD_SECURITY = (
        "pod-security",
        "The pod-security level of the namespace forbids what the fabric needs.",
        "Raise the namespace's level, or use a fabric that needs no privilege.",
    )
    PREFLIGHT = (
        "preflight",
        "The pod has a container with the name of the preflight container.",
        "Rename the container, or skip the preflight.",
    )
    WINDOWS = ("windows", "The pod is for Windows, which has no RDMA fabric.", "Remove the label.")
    TEMPLATES = (
        "templates",
        "The workload has more opted-in templates than the webhook handles.",
        "Use `replicas` for equal templates, or split the workload.",
    )
    TOO_LARGE = (
        "too-large",
        "The object has more list entries and keys than the webhook reads: 10,000 of a pod, 30,000 of a workload.",
        "Shorten the list in the message, or move settings into a ConfigMap.",
    )


class RefusedError(Exception):
    """Raised to end the plan of an injection with a Refusal. `reason` is one of the codes, `message` says the fix."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
