"""Formats the table of commands from the parsers of the command line. Options are shown by `COMMAND --help` only."""

from collections.abc import Mapping

from documentation import markdown
from railwright.cli import dispatch, parsers

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
    "simulate": "#simulate",
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
