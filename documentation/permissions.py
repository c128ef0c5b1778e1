"""Formats a table of the rights that the manifests give to each ServiceAccount."""

import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from documentation import markdown
from railwright.fabric import names

_BASE = markdown.ROOT / "manifests" / "base"
_CLAIMS = markdown.ROOT / "manifests" / "components" / "claims" / "rbac.yaml"
_WITH_CLAIMS = "cluster, for fabrics with `claims` or `nvlinkSegment`"
_READ_VERBS = ("get", "list", "watch")


def format_permissions() -> str:
    """Return a Markdown table of what each ServiceAccount may read and change, by scope."""
    rows = [
        (f"`{account}`", scope, _describe_rules(rules, is_reading=True), _describe_rules(rules, is_reading=False))
        for account in list_accounts()
        for scope, rules in sorted(list_account_rules(account).items())
    ]
    return markdown.format_table(("account", "where", "reads", "changes"), rows)


def list_account_rules(account: str) -> dict[str, list[Mapping[str, Any]]]:
    """Return the RBAC rules of a ServiceAccount by scope: cluster, cluster for claims, or namespace."""
    objects = [*_read_objects(*sorted(_BASE.glob("*.yaml"))), *_read_objects(_CLAIMS)]
    roles = {(role["kind"], role["metadata"]["name"]): role for role in objects if role["kind"].endswith("Role")}
    scopes: dict[str, list[Mapping[str, Any]]] = {}
    for binding in objects:
        if binding["kind"].endswith("RoleBinding") and account in {item["name"] for item in binding["subjects"]}:
            role = roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
            scope = "cluster" if binding["kind"] == "ClusterRoleBinding" else f"`{names.NAMESPACE}`"
            scope = _WITH_CLAIMS if binding in _read_objects(_CLAIMS) else scope
            scopes.setdefault(scope, []).extend(role["rules"])
    return scopes


def list_accounts() -> list[str]:
    """Return the names of all ServiceAccounts of the manifests."""
    return sorted(
        item["metadata"]["name"] for item in _read_objects(*_BASE.glob("*.yaml")) if item["kind"] == "ServiceAccount"
    )


@functools.cache
def _read_objects(*paths: pathlib.Path) -> tuple[dict[str, Any], ...]:
    texts = (path.read_text(encoding="utf-8") for path in paths)
    return tuple(tree for text in texts for tree in yaml.safe_load_all(text) if tree)


def _describe_rules(rules: Sequence[Mapping[str, Any]], *, is_reading: bool) -> str:
    """Return `VERBS RESOURCES` of each rule, with the names to which the rule is limited."""
    parts: dict[tuple[str, str], list[str]] = {}
    for rule in rules:
        verbs = ", ".join(verb for verb in rule["verbs"] if (verb in _READ_VERBS) is is_reading)
        named = ", ".join(f"`{name}`" for name in rule.get("resourceNames", ()))
        if verbs:
            parts.setdefault((verbs, named), []).extend(f"`{resource}`" for resource in rule["resources"])
    texts = [
        f"{verbs} {', '.join(dict.fromkeys(resources))}{f' named {named}' if named else ''}"
        for (verbs, named), resources in parts.items()
    ]
    return "; ".join(texts) or "nothing"
