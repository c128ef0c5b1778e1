"""Defines the input and the output of an outlet."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from railwright.fabric.gang_topology import requests
from railwright.fabric.injection import templates
from railwright.fabric.kueue import queues


class ClusterFacts(msgspec.Struct, frozen=True):
    """Holds what outlets read of the cluster. None means that it is not known."""

    domains: requests.Domains | None = None
    list_tiers: Callable[[], Sequence[int]] = tuple  # of the HyperNodes that exist, ascending
    served: frozenset[str] | None = None  # of the API groups and versions that outlets name, those that are served
    kueue: queues.Queues = queues.Queues()
    namespace: str = ""  # of the workload; its metadata lacks it in a manifest


class Context(msgspec.Struct, frozen=True):
    """Describes a workload that is being created, its gang and the topology request for it."""

    workload: templates.Workload
    tree: Mapping[str, Any]  # the workload as plain data; fields that its API has not validated yet
    parts: tuple[requests.Part, ...]
    request: requests.TopologyRequest
    cluster: ClusterFacts

    def get(self, *path: str) -> Any:
        """Return the value at a path of the workload, None if it has none."""
        node: Any = self.tree
        for step in path:
            node = node.get(step) if isinstance(node, dict) else None
        return node


class Writing(msgspec.Struct, frozen=True):
    """Holds a topology in the fields of one scheduler. `level` is the key that it names, "" for none."""

    level: str
    fields: Mapping[str, Any] = {}  # JSON pointer of the workload -> value
    annotations: Mapping[str, Mapping[str, str]] = {}  # title of a template -> its annotations
