"""Parses PromQL expressions: the metrics they read and the labels they name."""

import dataclasses
import re
from collections.abc import Iterator

import promql_parser

from railwright.serving import metrics

# Metrics that others show, and the labels of them that we read.
FOREIGN = {
    "up": {"job", "component"},  # Prometheus's own, one a target
    # the API server's view of our webhook (k8s.io/apiserver, pkg/admission/metrics)
    "apiserver_admission_webhook_admission_duration_seconds_bucket": {"name", "le"},
    "apiserver_admission_webhook_rejection_count": {"name", "error_type"},
    "apiserver_admission_webhook_fail_open_count": {"name"},
    # prometheus_client's ProcessCollector
    "process_resident_memory_bytes": {"job", "pod"},
    "process_cpu_seconds_total": {"job", "pod"},
}
SCRAPED = {"job", "component", "pod", "namespace", "instance"}  # what the ServiceMonitor adds to each series
_PLACES = {"$__rate_interval": "5m", "$fabric": "f"}  # Grafana's variables, as values that parse


@dataclasses.dataclass(frozen=True)
class Asked:
    """One selector of an expression, and the labels that the expression groups by."""

    metric: str
    labels: frozenset[str]


METRICS = {row.name: row for build in (metrics.WebhookMetrics, metrics.ExtenderMetrics) for row in build().rows}


def list_our_labels() -> dict[str, set[str]]:
    """Return the labels of every exposed series by its name."""
    labels_by_metric: dict[str, set[str]] = {}
    for row in METRICS.values():
        labels = SCRAPED | set(row.labels)
        if row.type == "histogram":
            labels_by_metric |= {
                f"{row.name}_sum": labels,
                f"{row.name}_count": labels,
                f"{row.name}_bucket": labels | {"le"},
            }
        else:
            labels_by_metric[row.name] = labels
    return labels_by_metric


def list_selectors(text: str) -> list[Asked]:
    """Return the selectors of an expression. Raises ValueError if it is no PromQL."""
    for variable, value in _PLACES.items():
        text = text.replace(variable, value)
    try:
        tree = promql_parser.parse(text)
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from None
    return list(_yield_selectors(tree))


def list_groupings(text: str) -> set[str]:
    """Return the labels that an expression groups by."""
    matches = re.findall(r"\b(?:by|on) \(([^)]*)\)", text)
    return {label.strip() for labels in matches for label in labels.split(",")}


def list_problems(text: str) -> list[str]:
    """Return what is wrong with an expression: metrics and labels that no server exposes."""
    known = {**FOREIGN, **list_our_labels()}
    selectors = list_selectors(text)
    missing = [f"{selector.metric} does not exist" for selector in selectors if selector.metric not in known]
    missing += [
        f"{selector.metric} has no label {label}"
        for selector in selectors
        for label in sorted(selector.labels - known.get(selector.metric, selector.labels))
    ]
    shown = set().union(*(known.get(selector.metric, set()) for selector in selectors))
    return missing + [f"nothing in it has the label {label}" for label in sorted(list_groupings(text) - shown)]


def _yield_selectors(tree: object) -> Iterator[Asked]:
    if isinstance(tree, promql_parser.VectorSelector):
        labels = frozenset(matcher.name for matcher in tree.matchers.matchers)
        yield Asked(tree.name or "", labels - {"__name__"})
    for name in ("lhs", "rhs", "expr", "param", "vector_selector"):
        if (inner := getattr(tree, name, None)) is not None:
            yield from _yield_selectors(inner)
    for inner in getattr(tree, "args", None) or ():
        yield from _yield_selectors(inner)
