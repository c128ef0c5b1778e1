"""Removes the fields of a pod that differ between runs: uids, random ends of names, and later changes."""

import json
import re

from plane import api

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TOKEN = re.compile(r"kube-api-access-[a-z0-9]{5}")
_RUN = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "finalizers")
_RANDOM = 5  # characters that the API server puts behind generateName


def title(pod: api.Object) -> str:
    """Return the pod's name without a random end; a StatefulSet's pod has a shorter number there."""
    name, start = pod["metadata"]["name"], pod["metadata"].get("generateName", "")
    return f"{start}xxxxx" if start and len(name) == len(start) + _RANDOM else str(name)


def strip_changing_parts(pod: api.Object) -> api.Object:
    """Return the pod without the fields that differ between runs."""
    metadata = {key: value for key, value in pod["metadata"].items() if key not in _RUN}
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": title(pod)}, "spec": spec}
    text = _UID.sub("00000000-0000-0000-0000-000000000000", json.dumps(tree))
    document: api.Object = json.loads(_TOKEN.sub("kube-api-access-xxxxx", text))
    return document
