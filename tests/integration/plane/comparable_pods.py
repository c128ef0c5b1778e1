"""Removes fields of pods that differ between runs, and defaults that every pod has."""

import json
import re
from typing import Any

from plane import api

_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# The API server adds to each pod the token of its account, and tolerations.
_TOKEN, _TOLERATION = (
    re.compile(r"kube-api-access-[a-z0-9]{5}"),
    re.compile("node.kubernetes.io/(not-ready|unreachable)"),
)
_DEFAULTS = {
    "dnsPolicy": "ClusterFirst",
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
    "priority": 0,
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "serviceAccount": "default",
    "serviceAccountName": "default",
    "terminationGracePeriodSeconds": 30,
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_RUN = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "finalizers")
_RANDOM = 5  # characters that the API server puts behind generateName


def title(pod: api.Object) -> str:
    """Return the pod's name without a random end; a StatefulSet's pod has a shorter number there."""
    name, start = pod["metadata"]["name"], pod["metadata"].get("generateName", "")
    return f"{start}xxxxx" if start and len(name) == len(start) + _RANDOM else str(name)


def strip_common_parts(pod: api.Object) -> api.Object:
    """Return the pod without the fields that differ between runs, and without defaults."""
    metadata = {key: value for key, value in pod["metadata"].items() if key not in _RUN}
    spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "name": title(pod)},
        "spec": _strip_defaults(spec),
    }
    document: api.Object = json.loads(_UID.sub("00000000-0000-0000-0000-000000000000", json.dumps(tree)))
    return document


def _strip_defaults(value: Any) -> Any:
    if isinstance(value, list):
        return [_strip_defaults(item) for item in value if not _is_added(item)]
    if not isinstance(value, dict):
        return value
    own = {
        key: _strip_defaults(child) for key, child in value.items() if key not in _DEFAULTS or child != _DEFAULTS[key]
    }
    return {key: child for key, child in own.items() if child != [] or value[key] == []}


def _is_added(item: Any) -> bool:
    """Return True for the volume and the mounts of the token, and for a toleration that every pod gets."""
    fields = item if isinstance(item, dict) else {}
    return bool(_TOKEN.fullmatch(fields.get("name", "")) or _TOLERATION.fullmatch(fields.get("key", "")))
