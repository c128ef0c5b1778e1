"""docs/metrics.md, written from the rows themselves: `python -m railwright.serving.metrics_reference >
docs/metrics.md`.

Owns the page's form and what each label says; names, types and meanings are the rows'.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from railwright.serving import metric_row, metrics

LABELS = {
    "code": "HTTP status",
    "digest": "`sha256:...` of the policy, as in the record of every pod",
    "domain": "a domain key of the policy",
    "fabric": "a fabric of the policy; `unknown` for anything else",
    "kind": "a watched kind, such as `nodes`; of workloads their kind",
    "outcome": "what came of it, such as `patched`, `allowed`, `refused`, `ok`, `malformed`, `failed`; of gangs "
    "`compact`, `spread`, `degraded`, `unplaceable`, `mixed`; of Events `written`, `held_back`, `dropped`, `failed`",
    "path": "a route of the server, its parameters as `{name}`",
    "rail": "a rail of the policy; `rail0..rail3` where rails share a device pool",
    "reason": "a word for why: of refusals as in the audit annotation `refused`, of watches as in the log",
    "role": "`worker`, `launcher`, `head`, ...; `unknown`",
    "server": "`webhook` or `extender`",
    "state": "of the ledger `allocated`, `pipelined`, `unconfirmed`; of devices `free`, `busy`, `dead`, "
    "`unschedulable`",
    "verb": "what the scheduler asked for",
    "version": "of railwright",
}
_HEAD = """# Metrics

<!-- Written by `python -m railwright.serving.metrics_reference`; a test says when it is out of date. -->

Both servers show their metrics at `/metrics` of `--ops-listen` (`:8080`), plain HTTP. Pods and nodes are never labels,
so that the number of series does not grow with the cluster. Seconds, ratios of 0 to 1 and plain counts are the only
units. With `--workers`, counters are summed over the workers, and of gauges the worst one shows.
[Alerts](runbook.md) and dashboards are in `manifests/components/prometheus`.
"""
_SECTIONS: Sequence[tuple[str, metric_row.ServerName | None]] = (
    ("Both servers", None),
    ("Webhook", "webhook"),
    ("Extender", "extender"),
)


def rows() -> Sequence[metric_row.Row[Any]]:
    """All metrics, in the table's order."""
    return [row for row in vars(metrics.Metrics).values() if isinstance(row, metric_row.Row)]


def text() -> str:
    """The whole page."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD
    for title, only in _SECTIONS:
        yield from (f"## {title}", "", "| metric | type | labels | meaning |", "|---|---|---|---|")
        for row in rows():
            if row.only == only:
                labels = ", ".join(f"`{label}`" for label in row.labels)
                yield f"| `{row.shown}` | {row.told} | {labels} | {row.text} |"
        yield ""
    yield from ("## Labels", "", "| label | says |", "|---|---|")
    yield from (f"| `{label}` | {meaning} |" for label, meaning in sorted(LABELS.items()))
    yield ""
    yield "The process's own memory, files and CPU are `process_*`, with one process only (no `--workers`)."
    yield ""


if __name__ == "__main__":
    sys.stdout.write(text())
