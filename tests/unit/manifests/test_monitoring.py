"""Grafana's dashboards, alerts and their runbook: valid, and about metrics and labels that exist."""

import dataclasses
import json
import re
from collections.abc import Iterator

import promql_parser
import pytest
import yaml
from admitting import ROOT

from railwright.serving import metrics

COMPONENT = ROOT / "manifests" / "components" / "prometheus"
FOLDER = COMPONENT / "dashboards"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
dashboards = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=list(DASHBOARDS))


# --- expressions of PromQL: the metrics they read and the labels they name -------------------------------------

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
    """A selector of an expression, and the labels that the expression groups by."""

    metric: str
    labels: frozenset[str]


METRICS = {row.name: row for build in (metrics.WebhookMetrics, metrics.ExtenderMetrics) for row in build().descriptions}


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
    """Return the errors of an expression: metrics and labels that no server exposes."""
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


# --- dashboards and alerts ---------------------------------------------------------------------------------------


def list_panels(dashboard):
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


@dashboards
def test_grafana_queries_use_only_existing_metrics_and_labels(dashboard):
    for target in (target for panel in list_panels(dashboard) for target in panel["targets"]):
        assert list_problems(target["expr"]) == []
        shown = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert shown <= (list_groupings(target["expr"]) or SCRAPED), target


@dashboards
def test_a_grafana_dashboard_uses_all_variables_that_it_declares_and_no_others(dashboard):
    text = json.dumps(dashboard["panels"])
    declared = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval"}
    assert used == declared


def test_every_metric_is_on_a_grafana_dashboard_or_in_an_alert():
    """An unused metric only costs memory."""
    text = (COMPONENT / "alerts.yaml").read_text() + "".join(map(json.dumps, DASHBOARDS.values()))
    assert [name for name in METRICS if name not in text] == []


def test_the_prometheus_component_has_every_grafana_dashboard_with_its_label():
    component = yaml.safe_load((COMPONENT / "kustomization.yaml").read_text())
    (generated,) = component["configMapGenerator"]
    files = dict(file.split("=") for file in generated["files"])
    assert files == {f"railwright-{name}.json": f"dashboards/{name}.json" for name in DASHBOARDS}
    assert generated["options"]["labels"]["grafana_dashboard"] == "1"
    assert {path.name for path in COMPONENT.glob("*.yaml")} == {"kustomization.yaml", *component["resources"]}


# --- alerts and their runbook ---------------------------------------------------------------------------------


RULES = yaml.safe_load((COMPONENT / "alerts.yaml").read_text())
ALERTS = [rule for group in RULES["spec"]["groups"] for rule in group["rules"]]
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text()
PARTS = ("Meaning", "Check", "Fix")


def entries() -> dict[str, str]:
    """Return the text of every entry of the runbook, by its heading."""
    parts = re.split(r"^## (Railwright\w+)$", RUNBOOK, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_alert_queries_use_only_existing_metrics_and_labels():
    for alert in ALERTS:
        assert list_problems(alert["expr"]) == []
        text = alert["annotations"]["summary"] + alert["annotations"]["description"]
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= list_groupings(alert["expr"]), alert["alert"]
        assert text.count("{{") == text.count("}}")


def test_an_alert_contains_its_entry_of_the_runbook():
    for alert in ALERTS:
        entry = entries()[alert["alert"]]
        assert re.findall(r"^\*\*(\w+):\*\* \S", entry, re.MULTILINE) == list(PARTS)
        paragraphs = dict(re.findall(r"^\*\*(\w+):\*\* (.+)$", entry, re.MULTILINE))
        text = alert["annotations"]["runbook"]
        for part in ("Check", "Fix"):
            assert f"{part}: " + re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", paragraphs[part]) in text
        assert "](" not in text
        assert "{{" not in text, "Prometheus would read it as a template"


def test_the_runbook_names_only_existing_metrics():
    shown = set(list_our_labels()) | set(METRICS)
    for name in re.findall(r"railwright_\w+", RUNBOOK):
        assert name in shown, name


def test_prometheus_scrapes_a_port_that_every_server_has():
    objects = yaml.safe_load_all((COMPONENT / "scraping.yaml").read_text())
    service, monitor = sorted(objects, key=lambda document: document["kind"])
    labels = service["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    target = service["spec"]["ports"][0]["targetPort"]
    scraped = 0
    for path in (ROOT / "manifests" / "base").glob("*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            if document["kind"] != "Deployment":
                continue
            template = document["spec"]["template"]
            ports = {port["name"] for port in template["spec"]["containers"][0]["ports"]}
            assert target in ports, path
            assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
            scraped += 1
    assert scraped >= 2
