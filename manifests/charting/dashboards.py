"""Builds the three Grafana dashboards from dashboards.yaml.

Panels are positioned from left to right, row by row, without overlap.
"""

import json
import pathlib
from collections.abc import Sequence
from typing import Any

import yaml

_PANELS = pathlib.Path(__file__).parent / "dashboards.yaml"
SCHEMA = 39  # Grafana 10.4 and newer can read and migrate it
WIDTH = 24  # columns of a dashboard
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
Json = dict[str, Any]


def format_dashboards() -> dict[str, str]:
    """Return the JSON of each dashboard by its name."""
    dashboards = yaml.safe_load(_PANELS.read_text())
    return {name: format_dashboard(build_dashboard(name, written)) for name, written in dashboards.items()}


def format_dashboard(dashboard: Json) -> str:
    """Return the JSON of a dashboard, with a line for each panel."""
    head = json.dumps({**dashboard, "panels": []}).removesuffix("]}")
    return "\n".join([head, ",\n".join(map(json.dumps, dashboard["panels"])), "]}\n"])


def panel(  # noqa: PLR0913 - one argument per property, most by name
    title: str,
    text: str,
    *queries: tuple[str, str],
    unit: str = "short",
    kind: str = "timeseries",
    width: int = 8,
    height: int = 8,
    red: float | None = None,
    stacked: bool = False,
) -> Json:
    """Return a panel. `queries` are pairs of PromQL and legend. Values from `red` on are shown in red."""
    steps = [{"color": "green", "value": None}, *([{"color": "red", "value": red}] if red is not None else [])]
    defaults: Json = {"unit": unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    if kind == "timeseries":
        defaults["custom"] = {"fillOpacity": 10, "stacking": {"mode": "normal" if stacked else "none"}}
    options: Json = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background"} if kind == "stat" else {}
    if kind == "heatmap":
        options = {"calculate": False, "yAxis": {"unit": unit}}
    return {
        "type": kind,
        "title": title,
        "description": text,
        "datasource": SOURCE,
        "gridPos": {"w": width, "h": height},
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "expr": query,
                "legendFormat": legend,
                "format": "heatmap" if kind == "heatmap" else "time_series",
                "instant": kind == "stat",
            }
            for number, (query, legend) in enumerate(queries)
        ],
    }


def build_panel(written: Json) -> Json:
    """Return the JSON of a panel, of a panel with a single number (`stat`), or of a heading (`row`)."""
    if "row" in written:
        size = {"w": WIDTH, "h": 1}
        return {"type": "row", "title": written["row"], "collapsed": False, "panels": [], "gridPos": size}
    text, options = written["text"], written.get("options", {})
    if "stat" in written:
        return panel(written["stat"], text, (written["query"], ""), kind="stat", width=4, height=4, **options)
    queries = [(query, legend) for legend, query in written.get("queries", {}).items()]
    if "quantiles" in written:
        queries += quantiles(**written["quantiles"])
    return panel(written["panel"], text, *queries, **options)


def quantiles(metric: str, by: str, where: str = "") -> Sequence[tuple[str, str]]:
    """Return queries for the median and the 99th percentile of a histogram, by a label."""
    rate = f"sum by (le, {by}) (rate({metric}_bucket{where}[$__rate_interval]))"
    return [(f"histogram_quantile({share}, {rate})", f"p{share * 100:.0f} {{{{{by}}}}}") for share in (0.5, 0.99)]


def build_variable(name: str, label: str, values: str) -> Json:
    """Return a variable of which several values can be selected; `values` is the query for them."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": values,
        "definition": values,
        "includeAll": True,
        "multi": True,
        "allValue": ".+",
        "refresh": 2,
        "current": {"text": "All", "value": "$__all"},
    }


def build_dashboard(name: str, written: Json) -> Json:
    """Return a dashboard. Its uid, which links use, derives from `name`."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"railwright-{name}",
        "title": f"railwright / {written['title']}",
        "description": written["text"],
        "tags": ["railwright"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source, *(build_variable(**variable) for variable in written.get("variables", ()))]},
        "links": [
            {"type": "dashboards", "tags": ["railwright"], "title": "railwright", "asDropdown": True, "keepTime": True}
        ],
        "panels": lay_out(list(map(build_panel, written["panels"]))),
    }


def lay_out(panels: Sequence[Json]) -> list[Json]:
    """Return the panels with their ids and positions, from left to right."""
    x = y = tallest = 0
    positioned = []
    for number, panel_json in enumerate(panels, 1):
        size = panel_json["gridPos"]
        if x + size["w"] > WIDTH:
            x, y, tallest = 0, y + tallest, 0
        positioned.append({"id": number, **panel_json, "gridPos": {"x": x, "y": y, **size}})
        x, tallest = x + size["w"], max(tallest, size["h"])
    return positioned
