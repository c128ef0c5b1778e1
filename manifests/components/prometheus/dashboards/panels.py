"""Builds the JSON of panels and dashboards. Positions panels from left to right, row by row, without overlap."""

from collections.abc import Sequence
from typing import Any

SCHEMA = 39  # Grafana 10.4 and newer can read and migrate it
WIDTH = 24  # columns of a dashboard
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
Json = dict[str, Any]


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


def stat(title: str, text: str, query: str, *, unit: str = "short", red: float | None = None) -> Json:
    """Return a panel with a single number."""
    return panel(title, text, (query, ""), unit=unit, kind="stat", width=4, height=4, red=red)


def row(title: str) -> Json:
    """Return a heading."""
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"w": WIDTH, "h": 1}}


def quantiles(metric: str, by: str, where: str = "") -> Sequence[tuple[str, str]]:
    """Return queries for the median and the 99th percentile of a histogram, by a label."""
    rate = f"sum by (le, {by}) (rate({metric}_bucket{where}[$__rate_interval]))"
    return [(f"histogram_quantile({share}, {rate})", f"p{share * 100:.0f} {{{{{by}}}}}") for share in (0.5, 0.99)]


def dashboard(name: str, title: str, text: str, panels: Sequence[Json], variables: Sequence[Json] = ()) -> Json:
    """Return a dashboard. Its uid, which links use, derives from `name`."""
    source = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"railwright-{name}",
        "title": f"railwright / {title}",
        "description": text,
        "tags": ["railwright"],
        "schemaVersion": SCHEMA,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [source, *variables]},
        "links": [
            {"type": "dashboards", "tags": ["railwright"], "title": "railwright", "asDropdown": True, "keepTime": True}
        ],
        "panels": lay_out(panels),
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
