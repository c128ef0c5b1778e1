"""What a decision about a pod knows of the cluster: a frozen excerpt of the caches, taken before it begins."""

from collections.abc import Mapping

import msgspec


class Facts(msgspec.Struct, frozen=True):
    """The cluster as far as one admission needs it.

    `None` means "not known" (no cache, or the cache has not seen it), which is not the same as "there is none".
    """

    namespace: str  # of the request: the pod's own may be empty at admission
    namespace_labels: Mapping[str, str] | None = None
    networks: Mapping[tuple[str, str], str | None] | None = None  # (namespace, name) -> resourceName annotation
    offered: frozenset[str] | None = None  # resources some node has allocatable
    version: int | None = None  # of networks and offers together: equal ones mean the same; None tells nothing
    # Whether a task of the pod's Volcano Job requests an accelerator: seen with the Job's templates, not with a pod.
    job_accelerated: bool | None = None
    watched: bool = False  # namespaces come from a cluster: one without labels here is too new to be seen
