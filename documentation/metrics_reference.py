"""Formats the tables of all metrics, and the meaning of each label. Names, types and meanings come from the rows."""

from collections.abc import Sequence

from documentation import markdown
from railwright.serving import metrics

LABELS = {
    "belief": "what follows from a report: `exclude`, `avoid` or `ignore`",
    "code": "HTTP status",
    "digest": "`sha256:...` of the policy, as in the record of every pod",
    "domain": "key of a topology domain in the policy",
    "fabric": "name of a fabric in the policy; `unknown` for any other value",
    "kind": "watched resource, such as `nodes`; for workloads, their kind",
    "outcome": "result, such as `patched`, `allowed`, `refused`, `ok`, `malformed`, `failed`; in audit mode "
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


def format_tables() -> str:
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
