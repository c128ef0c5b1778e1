"""Generates the tables of the documentation: commands, metrics and reason codes.

They come from the command line's parsers, from `railwright.serving.metrics` and from `railwright.fabric.reasons.codes`.
Options of commands are shown by `COMMAND --help` only.
"""

from collections.abc import Iterable, Mapping, Sequence

from documentation import markdown
from extender import gang_tracker
from railwright.cli import dispatch, options
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
    for title, names in dispatch.GROUPS.items():
        rows.append((f"**{title}**", "", ""))
        rows += [_format_row(name, root.children[name], root.children[name].command.summary) for name in names]
    return markdown.format_table(("command", "does", "exits with 1 if"), rows)


def _format_row(name: str, command: options.Parser, summary: str) -> tuple[str, str, str]:
    title = f"[`{name}`]({_DETAILS[name]})" if name in _DETAILS else f"`{name}`"
    findings = dict.fromkeys(leaf.command.finding for leaf in command.get_leaves() if leaf.command.finding)
    return title, markdown.escape_cell(summary), "; ".join(findings)


# --- metrics ----------------------------------------------------------------------------------------------


def format_metrics() -> str:
    """Return a table of metrics for each server, in Markdown."""
    common = metrics.Metrics("").rows
    sections = {
        "Both servers": common,
        "Webhook": metrics.WebhookMetrics().rows[len(common) :],
        "Extender": metrics.ExtenderMetrics().rows[len(common) :],
    }
    return "\n".join(_format_section(title, rows) for title, rows in sections.items())


def _format_section(title: str, metric_rows: Sequence[metrics.Row]) -> str:
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
