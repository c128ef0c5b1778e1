"""Formats tables of docs/reference: commands, metrics, the codes of reasons, and the reasons of Events.

Commands come from the parsers of the command line, metrics from their rows, codes from their tables, and reasons of
Events from the modules that post them. Options of commands are shown by `COMMAND --help` only.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from documentation import markdown
from extender import gang_events
from railwright.cli import dispatch, parsers
from railwright.fabric.reasons import codes, reason
from railwright.serving import metrics
from webhook import object_events

# --- commands ---------------------------------------------------------------------------------------------

# where docs/reference/commands.md, or a page beside it, says more about a command
_DETAILS: Mapping[str, str] = {
    "certs": "../certificates.md",
    "check": "check.md",
    "completion": "#completion",
    "dashboard": "../dashboard.md",
    "demo": "#demo",
    "disable": "../upgrading.md#the-emergency-switch",
    "enable": "../upgrading.md#the-emergency-switch",
    "explain": "#explain",
    "extender": "../interface.md#6-commands",
    "fabric": "#fabric",
    "gangs": "#gangs",
    "lint": "lint.md",
    "policy": "policy.md",
    "preflight": "../injection.md#preflight",
    "verify": "../verify.md",
    "webhook": "../interface.md#6-commands",
}


def list_commands() -> str:
    """Return the table of all commands by purpose, in Markdown."""
    root = dispatch.build_parser()
    rows: list[tuple[str, str, str]] = []
    for title, names in dispatch.GROUPS.items():
        rows.append((f"**{title}**", "", ""))
        rows += [_format_row(name, root.children[name], root.children[name].command.summary) for name in names]
    return markdown.format_table(("command", "does", "exits with 1 if"), rows)


def _format_row(name: str, command: parsers.Parser, summary: str) -> tuple[str, str, str]:
    title = f"[`{name}`]({_DETAILS[name]})" if name in _DETAILS else f"`{name}`"
    findings = dict.fromkeys(leaf.command.finding for leaf in command.get_leaves() if leaf.command.finding)
    return title, markdown.escape(summary), "; ".join(findings)


# --- metrics ----------------------------------------------------------------------------------------------

LABELS = {
    "belief": "what follows from a report: `exclude`, `avoid` or `ignore`",
    "code": "HTTP status",
    "digest": "`sha256:...` of the policy, as in the record of every pod",
    "domain": "key of a topology domain in the policy",
    "fabric": "name of a fabric in the policy; `unknown` for any other value",
    "kind": "watched resource, such as `nodes`; for workloads, their kind",
    "outcome": "result, such as `patched`, `allowed`, `refused`, `ok`, `malformed`, `failed`; in mode `warn` "
    "`would-patch` and `would-refuse`; for gangs "
    "`compact`, `spread`, `degraded`, `unplaceable`, `mixed`; for Events `written`, `held_back`, `dropped`, `failed`",
    "path": "route of the server, with parameters as `{name}`",
    "rail": "name of a rail in the policy; `rail0..rail3` where rails share a device pool",
    "reason": "reason code; for rejections that of the audit annotation `refused`, for watches that of the log",
    "role": "`worker`, `launcher`, `head`, ...; `unknown`",
    "server": "`webhook` or `extender`",
    "source": "source of a report about a rail: the type of a node condition, or a name of `health.reports`",
    "state": "for assumed pods `allocated`, `pipelined`, `unconfirmed`; for devices `free`, `busy`, `dead`, "
    "`unschedulable`",
    "verb": "verb of the scheduler's request",
    "version": "version of railwright",
}
_SECTIONS: Sequence[tuple[str, metrics.ServerName | None]] = (
    ("Both servers", None),
    ("Webhook", "webhook"),
    ("Extender", "extender"),
)


def format_metrics() -> str:
    """Return a table for each server, and one of labels, in Markdown."""
    return "\n".join([*map(_format_section, _SECTIONS), _format_labels()])


def _format_section(section: tuple[str, metrics.ServerName | None]) -> str:
    title, only = section
    rows = [
        (f"`{row.full_name}`", row.type_name, ", ".join(f"`{label}`" for label in row.labels), row.text)
        for row in metrics.ROWS
        if row.only == only
    ]
    return f"## {title}\n\n{markdown.format_table(('metric', 'type', 'labels', 'meaning'), rows)}\n"


def _format_labels() -> str:
    rows = ((f"`{label}`", text) for label, text in sorted(LABELS.items()))
    return f"## Labels\n\n{markdown.format_table(('label', 'meaning'), rows)}"


# --- reasons ----------------------------------------------------------------------------------------------


def list_codes() -> str:
    """Return the tables of placement's codes, one for each question that they answer, in Markdown."""
    groups: dict[str, list[codes.Code]] = {}
    for code in codes.Code:
        question = reason.ROWS[code.value].get("group") or [*groups][-1]  # the first row of a group states it
        groups.setdefault(question, []).append(code)
    return "\n\n".join(f"**{question}**\n\n{format_codes(group)}" for question, group in groups.items())


def list_variables() -> str:
    """Return the table of the reasons for variables, in Markdown."""
    rows = ((f"`{code.value}`", code.words, code.source) for code in codes.VariableCode)
    return markdown.format_table(("code", "reason", "source"), rows)


def format_codes(rows: Iterable[reason.ReasonCode]) -> str:
    """Return the table of some codes, in Markdown."""
    return markdown.format_table(
        ("code", "meaning", "fix"), ((f"`{code.value}`", code.meaning, code.fix) for code in rows)
    )


class EventReason(NamedTuple):
    """One reason, and what a reader of the Event does."""

    reason: str
    type: str
    involved: str
    meaning: str
    action: str


EVENTS = (
    EventReason(object_events.REFUSED, "Warning", "owner of the pod", "A pod of this owner was rejected.",
                "Correct what the message names; its code is in [rejections](../interface.md#36-rejections)."),
    EventReason(object_events.WARNED, "Warning", "owner of the pod; the pod",
                "A pod was admitted or bound with warnings.",
                "Read the message; a finding of lint begins with its [code](lint.md)."),
    EventReason(object_events.NOT_WRITTEN, "Warning", "pod, or Workload of Kueue",
                "The ResourceClaimTemplate that the pod or Workload waits for cannot be written.",
                "The message has the cause, such as a missing right or a quota. It is tried again."),
    EventReason(object_events.INVALID, "Warning", "ConfigMap `railwright-policy`",
                "The policy is invalid; the last valid one stays in force.",
                "Correct it: the message has line and path of each error. `railwright policy validate` has all of them."
                ),
    EventReason(object_events.IN_FORCE, "Normal", "ConfigMap `railwright-policy`", "The policy is valid again.", ""),
    EventReason(gang_events.UNPLACEABLE, "Warning", "PodGroup, or first pod",
                "The whole cluster cannot hold the gang, which has waited for 10 s. Checked again every minute.",
                "The message names what is missing and who uses it. It begins with `CapacityNever` if the gang would "
                "not fit even without any other pod. `railwright gangs` shows all that wait."),
    EventReason(gang_events.MIXED, "Warning", "PodGroup, or first pod",
                "Pods of the gang were admitted under different versions of the policy; once for each mixture.",
                "Recreate the pods of the older version."),
    EventReason(gang_events.SPREAD, "Warning", "PodGroup, or first pod",
                "The gang runs on more leaves than its plan needed.",
                "Recreate the gang when nodes of one leaf are free."),
    EventReason(gang_events.DEGRADED, "Warning", "PodGroup, or first pod",
                "The gang runs with less modelled bandwidth than its plan.", "The message names the limiting uplinks."),
    EventReason(gang_events.REPORTED, "Warning", "PodGroup, or pod",
                "A rail that the gang uses is reported not to work; once for each report that lasts for five seconds. "
                "No pod is evicted.",
                "The message names node, rail, source and time. Restart the job if NCCL fails or is slow: new pods "
                "leave the rail out ([health of rails](../placement.md#health-of-rails))."),
    EventReason(gang_events.LIMITED, "Normal", "PodGroup, or first pod",
                "The gang is placed as well as possible, below full bandwidth.",
                "Nothing: `railwright explain pod` exits with 0, and metrics count it as `compact`."),
)  # fmt: skip


def list_events() -> str:
    """Return the table of all reasons of Events in Markdown."""
    rows = ((f"`{row.reason}`", row.type, row.involved, row.meaning, row.action) for row in EVENTS)
    return markdown.format_table(("reason", "type", "on", "meaning", "what to do"), rows)
