"""Finds the namespace that kubectl would use: that of the kubeconfig's context."""

import contextlib
import os
import pathlib
from typing import Any

import yaml

from railwright.cli import kubeconfigs, options

DEFAULT = "default"


def choose(given: str, cluster: options.ClusterOptions) -> str:
    """Return `given`, or else the namespace of the context, or else `default`. Never raises for a kubeconfig."""
    return given or _find(cluster) or DEFAULT


def _find(cluster: options.ClusterOptions) -> str:
    documents = [_read(path) for path in (cluster.kubeconfig or kubeconfigs.find() or "").split(os.pathsep) if path]
    current = cluster.context or next(
        (name for document in documents if (name := document.get("current-context"))), None
    )
    for document in documents:
        for entry in document.get("contexts") or ():
            if isinstance(entry, dict) and entry.get("name") == current and isinstance(entry.get("context"), dict):
                return str(entry["context"].get("namespace") or "")
    return ""


def _read(path: str) -> dict[str, Any]:
    """Return a kubeconfig, empty if it cannot be read: the connection reports why."""
    with contextlib.suppress(OSError, ValueError, yaml.YAMLError):
        document = yaml.safe_load(pathlib.Path(path).expanduser().read_text(encoding="utf-8"))
        if isinstance(document, dict):
            return document
    return {}
