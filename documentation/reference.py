"""Formats tables of pages: commands, metrics, the codes of reasons, and the reasons of Events.

Commands come from the parsers of the command line, metrics from their rows, codes from their tables, and reasons of
Events from the modules that post them. Options of commands are shown by `COMMAND --help` only.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from documentation import markdown
from extender import gang_events
from railwright.cli import dispatch, options
from railwright.cluster import installed_names
from railwright.fabric.overview import overview_types
from railwright.fabric.reasons import codes
from railwright.serving import metrics
from webhook import object_events

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


def list_commands() -> str:
    """Return the table of all commands by purpose, in Markdown."""
    root = dispatch.build_parser()
    rows: list[tuple[str, str, str]] = []
    for title, names in dispatch.GROUPS.items():
        rows.append((f"**{title}**", "", ""))
        rows += [_format_row(name, root.children[name], root.children[name].command.summary) for name in names]
    return markdown.format_table(("command", "does", "exits with 1 if"), rows)


def _format_row(name: str, command: options.Parser, summary: str) -> tuple[str, str, str]:
    title = f"[`{name}`]({_DETAILS[name]})" if name in _DETAILS else f"`{name}`"
    findings = dict.fromkeys(leaf.command.finding for leaf in command.get_leaves() if leaf.command.finding)
    return title, markdown.escape(summary), "; ".join(findings)


# --- metrics ----------------------------------------------------------------------------------------------

LABELS = {
    "code": "reason code of a warning or of a node",
    "digest": "`sha256:...` of the policy, as in the record of every pod",
    "fabric": "name of a fabric in the policy; `unknown` for any other value",
    "kind": "watched resource, such as `nodes`",
    "outcome": "result, such as `patched`, `allowed`, `refused`, `ok`, `malformed`, `failed`, an HTTP status, "
    "`cancelled` if the caller has hung up; in mode `warn` `would-patch` and `would-refuse`; for Events `written`, "
    "`held_back`, `dropped`, `failed`",
    "path": "route of the server, with parameters as `{name}`; empty for an unknown path",
    "rail": "name of a rail in the policy; `rail0..rail3` where rails share a device pool",
    "reason": "reason code; that of the audit annotation `refused`; for watches that of the log, or `skipped`",
    "role": "`worker`, `launcher`, `head`, ...; `unknown`",
    "server": "`webhook` or `extender`",
    "state": "for assumed pods `allocated`, `pipelined`, `unconfirmed`, `scored`, `confined`, `unseen`; for devices "
    "`free`, `busy`, `dead`, `unschedulable`, `missing`, `overcommitted`; for gangs those of the "
    "[user guide](user-guide.md#why-is-a-pod-where-it-is)",
    "version": "version of railwright",
}


def format_metrics() -> str:
    """Return a table for each server, and one of labels, in Markdown."""
    common = metrics.Metrics("").rows
    sections = {
        "Both servers": common,
        "Webhook": metrics.WebhookMetrics().rows[len(common) :],
        "Extender": metrics.ExtenderMetrics().rows[len(common) :],
    }
    labels = markdown.format_table(
        ("label", "meaning"), ((f"`{label}`", text) for label, text in sorted(LABELS.items()))
    )
    return "\n".join([*(_format_section(title, rows) for title, rows in sections.items()), f"### Labels\n\n{labels}"])


def _format_section(title: str, metric_rows: Sequence[metrics.Row]) -> str:
    rows = [
        (f"`{row.name}`", row.type, ", ".join(f"`{label}`" for label in row.labels), row.text) for row in metric_rows
    ]
    return f"### {title}\n\n{markdown.format_table(('metric', 'type', 'labels', 'meaning'), rows)}\n"


# --- reasons ----------------------------------------------------------------------------------------------


def format_codes(codes_of_group: Iterable[codes.ReasonCode]) -> str:
    """Return the table of a group of codes, in Markdown. It has a column for fixes if messages do not say them."""
    rows = [(f"`{code.value}`", code.meaning, code.fix) for code in codes_of_group]
    columns = 3 if any(fix for _, _, fix in rows) else 2
    return markdown.format_table(("code", "meaning", "fix")[:columns], [row[:columns] for row in rows])


class EventReason(NamedTuple):
    """One reason, and what a reader of the Event does."""

    reason: str
    type: str
    involved: str
    meaning: str
    action: str


EVENTS = (
    EventReason(object_events.REFUSED, "Warning", "owner of the pod", "A pod of this owner was rejected.",
                "Correct what the message names; its code is in [rejections](interface.md#36-rejections)."),
    EventReason(object_events.WARNED, "Warning", "owner of the pod; the pod",
                "A pod was admitted with warnings.",
                "Read the message; a finding of lint begins with its [code](reference/lint.md)."),
    EventReason(object_events.NOT_WRITTEN, "Warning", "pod, or Workload of Kueue",
                "The ResourceClaimTemplate that the pod or Workload waits for cannot be written.",
                "The message has the cause, such as a missing right or a quota. It is tried again."),
    EventReason(object_events.INVALID, "Warning", "ConfigMap `railwright-policy`",
                "The policy is invalid; the last valid one stays in force.",
                "Correct it: the message has line and path of each error. `railwright policy validate` has all of them."
                ),
    EventReason(object_events.IN_FORCE, "Normal", "ConfigMap `railwright-policy`", "The policy is valid again.", ""),
    EventReason(installed_names.OVERWRITTEN, "Warning", "webhook configuration, in namespace `default`",
                "Another writer overwrites a caBundle again and again, and `railwright-certs` writes it with pauses.",
                "The message names the writer. Let one of both write it."),
    EventReason(gang_events.NEVER, "Warning", "PodGroup, or first pod",
                "The gang has waited for 10 s, and would not fit even if no other pod ran. Checked again every minute.",
                "Reduce the gang or its requests, or add nodes. A gang that waits for other pods to end is no Event: "
                "`railwright gangs` shows it with the reason."),
    EventReason(gang_events.SPREAD, "Warning", "PodGroup, or first pod",
                "When its last pod was bound, a placement on fewer leaves, or with more bandwidth, was possible.",
                "Recreate the gang; `railwright explain pod` says whether that would still help."),
    EventReason(gang_events.MIXED, "Warning", "PodGroup, or first pod",
                "Pods of the gang were admitted under different versions of the policy; once for each mixture.",
                "Recreate the pods of the older version."),
)  # fmt: skip


def list_events() -> str:
    """Return the table of all reasons of Events in Markdown."""
    rows = ((f"`{row.reason}`", row.type, row.involved, row.meaning, row.action) for row in EVENTS)
    return markdown.format_table(("reason", "type", "on", "meaning", "what to do"), rows)


def list_gang_states() -> str:
    """Return the table of the states of a gang in Markdown."""
    events = {overview_types.NEVER: f"`{gang_events.NEVER}`", overview_types.SPREAD: f"`{gang_events.SPREAD}`"}
    rows = ((f"`{state}`", meaning, events.get(state, "")) for state, meaning in overview_types.STATES.items())
    return markdown.format_table(("state", "meaning", "Event"), rows)
