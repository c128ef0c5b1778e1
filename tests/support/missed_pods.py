"""Cases of pods that opted in but were not injected, for `railwright check` and the policy of manifests/base."""

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

from railwright.fabric import names

Tree = dict[str, Any]
ACCELERATOR = "nvidia.com/gpu"
NAMESPACE = "train"  # where a case names no namespace of its own


class Case(NamedTuple):
    """A pod and its namespace. `label`: the fabric label that counts, None if the pod is not to be counted."""

    pod: Tree
    label: str | None
    namespace: str = NAMESPACE
    namespace_labels: Mapping[str, str] = {}
    excluded: frozenset[str] = frozenset()  # what an installation excludes beside kube-system and our own namespace
    later: bool = False  # a state that no pod has while it is created, so that the API server's policy never meets it


def _pod(fabric: str | None = None, *, requested: Tree | None = None, **parts: Any) -> Tree:
    made: Tree = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"schedulerName": "nobody"}}
    limits = {ACCELERATOR: "1"} if requested is None else requested
    made["spec"]["containers"] = [{"name": "c", "image": "i", "resources": {"limits": limits, "requests": limits}}]
    if fabric is not None:
        made["metadata"]["labels"] = {names.FABRIC: fabric}
    for part, fields in parts.items():
        made.setdefault(part, {}).update(fields)
    return made


def _annotate(key: str, value: str = "x", fabric: str | None = "f", **spec: Any) -> Tree:
    return _pod(fabric, metadata={"name": "p", "annotations": {key: value}}, spec=spec)


def _label(tree: Tree, fabric: str) -> Tree:
    tree["metadata"]["labels"] = {names.FABRIC: fabric}
    return tree


def _claiming(*, used: bool = True) -> Tree:
    tree = _pod(requested={}, spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]})
    if used:
        tree["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return tree


OPTED = {names.FABRIC: "f"}
_MIRROR = {"metadata": {"name": "p", "annotations": {"kubernetes.io/config.mirror": "x"}}}
_DELETED = {"metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}}
CASES: dict[str, Case] = {
    "the label": Case(_pod("f"), "f"),
    "the label, without an accelerator": Case(_pod("f", requested={}), "f"),
    "the label default": Case(_pod("default"), "default"),
    "an empty label": Case(_pod(""), ""),
    "a fabric that the policy does not have": Case(_pod("gone"), "gone"),
    "the label none": Case(_pod("none"), None),
    "the label none in a namespace that opts in": Case(_pod("none"), None, namespace_labels=OPTED),
    "no label": Case(_pod(), None),
    "the namespace's label": Case(_pod(), "f", namespace_labels=OPTED),
    "the own label before the namespace's": Case(_pod("g"), "g", namespace_labels=OPTED),
    "the namespace's label none": Case(_pod(), None, namespace_labels={names.FABRIC: "none"}),
    "the namespace's label, without an accelerator": Case(_pod(requested={}), None, namespace_labels=OPTED),
    "the namespace's label, with another resource": Case(
        _pod(requested={"example.com/fuse": "1"}), None, namespace_labels=OPTED
    ),
    "the namespace's label, with no accelerator asked": Case(
        _pod(requested={ACCELERATOR: "0"}), None, namespace_labels=OPTED
    ),
    "the namespace's label, with a claim alone": Case(_claiming(), "f", namespace_labels=OPTED),
    "the namespace's label, with a claim that no app container uses": Case(
        _claiming(used=False), None, namespace_labels=OPTED
    ),
    "the record": Case(_annotate(names.INJECTION, "{}"), None),
    "the record, by the namespace's label": Case(_annotate(names.INJECTION, "{}", None), None, namespace_labels=OPTED),
    "no room for a record": Case(_annotate("full", "ü" * 120_000), None),
    "room for a record": Case(_annotate("some", "x" * 40_000), "f"),
    "a mirror pod": Case(_label(_pod(spec={"nodeName": "any"}, **_MIRROR), "f"), None),
    "a mirror pod in a namespace that opts in": Case(
        _pod(requested={ACCELERATOR: "1"}, spec={"nodeName": "any"}, **_MIRROR), None, namespace_labels=OPTED
    ),
    "kube-system": Case(_pod("f"), None, namespace="kube-system"),
    "kube-system that opts in": Case(_pod(), None, namespace="kube-system", namespace_labels=OPTED),
    "our own namespace": Case(_pod("f"), None, namespace=names.NAMESPACE),
    "a namespace that the installation excludes": Case(
        _pod("f"), None, namespace="infra", excluded=frozenset({"infra"})
    ),
    "running": Case(_pod("f", status={"phase": "Running"}), "f", later=True),
    "finished well": Case(_pod("f", status={"phase": "Succeeded"}), None, later=True),
    "finished badly": Case(_pod("f", status={"phase": "Failed"}), None, later=True),
    "finished, by the namespace's label": Case(
        _pod(status={"phase": "Failed"}), None, namespace_labels=OPTED, later=True
    ),
    "being deleted": Case(_label(_pod(**_DELETED), "f"), None, later=True),
    "being deleted, by the namespace's label": Case(_pod(**_DELETED), None, namespace_labels=OPTED, later=True),
}


def pod(case: Case) -> Tree:
    """Return a copy of the case's pod, in its namespace."""
    made = copy.deepcopy(case.pod)
    made["metadata"]["namespace"] = case.namespace
    return made
