"""Formats the tables of the documentation from code and manifests.

Their rows are commands, metrics, reason codes, checks of `railwright check`, ServiceAccounts and tested versions.
Options of commands are shown by `COMMAND --help` only.
"""

import functools
import json
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from documentation import markdown
from extender import gang_tracker
from railwright.cli import dispatch, options
from railwright.cli.checking import command as check_command
from railwright.cli.checking import rows as check_rows
from railwright.fabric import names
from railwright.fabric.overview import overview_types
from railwright.fabric.reasons import codes
from railwright.serving import metrics

# --- commands ---------------------------------------------------------------------------------------------

# where docs/interface.md, or a page beside it, says more about a command
_DETAILS: Mapping[str, str] = {
    "certs": "operator-guide.md#certificates",
    "check": "reference/check.md",
    "dashboard": "operator-guide.md#the-dashboard",
    "disable": "operator-guide.md#the-emergency-switch",
    "enable": "operator-guide.md#the-emergency-switch",
    "explain": "user-guide.md#why-is-a-pod-where-it-is",
    "fabric": "operator-guide.md#day-to-day",
    "gangs": "operator-guide.md#day-to-day",
    "lint": "reference/lint.md",
    "policy": "reference/policy.md",
    "preflight": "#38-preflight",
    "verify": "user-guide.md#did-it-run-over-rdma",
}


def format_commands() -> str:
    """Return the table of all commands by purpose, in Markdown."""
    root = dispatch.build_parser()
    rows: list[tuple[str, str, str]] = []
    for title, commands in dispatch.GROUPS.items():
        rows.append((f"**{title}**", "", ""))
        rows += [_format_command(name, root.children[name], root.children[name].command.summary) for name in commands]
    return markdown.format_table(("command", "does", "exits with 1 if"), rows)


def _format_command(name: str, command: options.Parser, summary: str) -> tuple[str, str, str]:
    title = f"[`{name}`]({_DETAILS[name]})" if name in _DETAILS else f"`{name}`"
    findings = dict.fromkeys(leaf.command.finding for leaf in command.get_leaves() if leaf.command.finding)
    return title, markdown.escape_cell(summary), "; ".join(findings)


# --- metrics ----------------------------------------------------------------------------------------------


def format_metrics() -> str:
    """Return a table of metrics for each server, in Markdown."""
    common = metrics.Metrics("").descriptions
    sections = {
        "Both servers": common,
        "Webhook": metrics.WebhookMetrics().descriptions[len(common) :],
        "Extender": metrics.ExtenderMetrics().descriptions[len(common) :],
    }
    return "\n".join(_format_metrics_of_server(title, rows) for title, rows in sections.items())


def _format_metrics_of_server(title: str, metric_rows: Sequence[metrics.MetricDescription]) -> str:
    rows = [
        (f"`{row.name}`", row.type, ", ".join(f"`{label}`" for label in row.labels), row.text) for row in metric_rows
    ]
    return f"### {title}\n\n{markdown.format_table(('metric', 'type', 'labels', 'meaning'), rows)}\n"


# --- reasons ----------------------------------------------------------------------------------------------


def format_reason_codes(codes_of_group: Iterable[codes.ReasonCode]) -> str:
    """Return a Markdown table of reason codes and their meanings, and of their fixes if any code has one."""
    rows = [(f"`{code.value}`", code.meaning, code.fix) for code in codes_of_group]
    columns = 3 if any(fix for _, _, fix in rows) else 2
    return markdown.format_table(("code", "meaning", "fix")[:columns], [row[:columns] for row in rows])


def format_gang_states() -> str:
    """Return a Markdown table of the states of a gang, and of the Events about them."""
    events = {state: f"`{reason}`" for state, reason in gang_tracker.EVENT_REASONS.items()}
    rows = ((f"`{state}`", meaning, events.get(state, "")) for state, meaning in overview_types.STATES.items())
    return markdown.format_table(("state", "meaning", "Event"), rows)


# --- rows of `railwright check` ----------------------------------------------------------------------------

_BASE = markdown.ROOT / "manifests" / "base"
_UNCOMPARED = frozenset({"matchPolicy", "sideEffects", "admissionReviewVersions"})


def format_check_rows() -> str:
    """Return a section of Markdown for each row of `check`."""
    return "\n\n".join(
        f"### {row.anchor}\n\n{f'**{row.name}.** {row.text}'.rstrip()}\n\nFix: {check_rows.fill_placeholders(row.fix)}"
        for row in check_command.ROWS.values()
    )


def format_webhook_entries() -> str:
    """Return the entries of the shipped webhook configurations as JSON, which `railwright check` reads."""
    documents = yaml.safe_load_all((_BASE / "admission.yaml").read_text(encoding="utf-8"))
    entries = [
        {key: value for key, value in hook.items() if key not in _UNCOMPARED}
        for document in documents
        for hook in document["webhooks"]
    ]
    return "[\n" + ",\n".join(map(json.dumps, entries)) + "\n]\n"


# --- rights of each account --------------------------------------------------------------------------------

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
    """Return the RBAC rules of a ServiceAccount by scope: cluster, cluster if fabrics need claims, or namespace."""
    objects = [*_read_manifests(*sorted(_BASE.glob("*.yaml"))), *_read_manifests(_CLAIMS)]
    roles = {(role["kind"], role["metadata"]["name"]): role for role in objects if role["kind"].endswith("Role")}
    scopes: dict[str, list[Mapping[str, Any]]] = {}
    for binding in objects:
        if binding["kind"].endswith("RoleBinding") and account in {item["name"] for item in binding["subjects"]}:
            role = roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
            scope = "cluster" if binding["kind"] == "ClusterRoleBinding" else f"`{names.NAMESPACE}`"
            scope = _WITH_CLAIMS if binding in _read_manifests(_CLAIMS) else scope
            scopes.setdefault(scope, []).extend(role["rules"])
    return scopes


def list_accounts() -> list[str]:
    """Return the names of all ServiceAccounts of the manifests."""
    return sorted(
        item["metadata"]["name"] for item in _read_manifests(*_BASE.glob("*.yaml")) if item["kind"] == "ServiceAccount"
    )


@functools.cache
def _read_manifests(*paths: pathlib.Path) -> tuple[dict[str, Any], ...]:
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


# --- tested versions ---------------------------------------------------------------------------------------

_TESTS = markdown.ROOT / "tests"
_MODULES = {  # Go module, and the files below tests that pin it, for the oldest release that is tested first
    "Kubernetes": ("k8s.io/kubernetes", "integration/oldest/go.mod", "integration/go.mod"),
    "etcd": ("go.etcd.io/etcd/server/v3", "integration/oldest/go.mod", "integration/go.mod"),
    "Volcano": ("volcano.sh/volcano", "integration/oldest/go.mod", "integration/volcano/go.mod"),
    "Helm": ("helm.sh/helm/v3", "integration/helm/go.mod"),
    "JobSet": ("sigs.k8s.io/jobset", "integration/jobset/go.mod"),
    "Kueue": ("sigs.k8s.io/kueue", "integration/kueue/go.mod"),
    "LeaderWorkerSet": ("sigs.k8s.io/lws", "integration/lws/go.mod"),
    "MPI Operator": ("github.com/kubeflow/mpi-operator", "integration/mpi-operator/go.mod"),
    "Kubeflow Training Operator": ("github.com/kubeflow/training-operator", "integration/training-operator/go.mod"),
    "Multus": ("gopkg.in/k8snetworkplumbingwg/multus-cni.v4", "e2e/multus/go.mod"),
    "CNI plugins": ("github.com/containernetworking/plugins", "e2e/go.mod"),
    "whereabouts": ("github.com/k8snetworkplumbingwg/whereabouts", "e2e/go.mod"),
    "dranet": ("sigs.k8s.io/dranet", "e2e/dranet/go.mod"),
    "CoreDNS": ("github.com/coredns/coredns", "e2e/coredns/go.mod"),
}


def read_versions() -> Mapping[str, Sequence[str]]:
    """Return the tested versions of each program, the oldest first."""
    return {
        name: [_read_version(module, _TESTS / path) for path in paths] for name, (module, *paths) in _MODULES.items()
    }


def format_versions() -> str:
    """Return a Markdown table of the tested versions."""
    rows = ((name, ", ".join(versions)) for name, versions in read_versions().items())
    return markdown.format_table(("part", "tested versions"), rows)


def _read_version(module: str, path: pathlib.Path) -> str:
    match = re.search(rf"^\s*(?:require )?{re.escape(module)} (v\S+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise LookupError(f"{path}: {module} is not pinned")
    return match[1]
