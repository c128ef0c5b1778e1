"""The state of the cluster that a decision about a pod reads: an immutable excerpt of the caches."""

from collections.abc import Mapping

import msgspec


class ClusterFacts(msgspec.Struct, frozen=True):
    """The state of the cluster that one admission needs.

    `None` means "not known": there is no cache, or the cache has no such object yet. An empty value means "none exist".
    """

    namespace: str  # of the request: the pod's own may be empty at admission
    namespace_labels: Mapping[str, str] | None = None
    networks: Mapping[tuple[str, str], str | None] | None = None  # (namespace, name) -> resourceName annotation
    offered: frozenset[str] | None = None  # resources that are allocatable on some node
    extended: frozenset[str] | None = None  # extended resources that a DeviceClass maps
    # (namespace, name) of ResourceClaimTemplates that users wrote -> DeviceClasses of its requests
    claim_templates: Mapping[tuple[str, str], frozenset[str]] | None = None
    version: int | None = None  # of the four above together; None if they have no version
    # True if a task of the pod's Volcano Job requests an accelerator. Known for templates only, not for pods.
    job_accelerated: bool | None = None
    watched: bool = False  # namespaces are watched, so labels that are None belong to a namespace not observed yet
