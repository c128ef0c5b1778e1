"""Grafana's dashboards: valid for Grafana, without overlapping panels and queries of missing metrics."""

import itertools
import json
import re

import jsonschema
import pytest
import queries
import yaml
from admitting import ROOT

from railwright.serving import metrics

COMPONENT = ROOT / "manifests" / "components" / "prometheus"
FOLDER = COMPONENT / "dashboards"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
PANELS = {
    f"{name}: {panel['title']} ({panel['id']})": panel
    for name, dashboard in DASHBOARDS.items()
    for panel in dashboard["panels"]
    if panel["type"] != "row"
}
# The part of Grafana's dashboard kind (kinds/dashboard/dashboard_kind.cue) that these use.
SOURCE = {
    "type": "object",
    "properties": {"type": {"const": "prometheus"}, "uid": {"const": "${datasource}"}},
    "required": ["type", "uid"],
}
SCHEMA = {
    "type": "object",
    "required": ["uid", "title", "description", "schemaVersion", "panels", "templating", "time", "tags"],
    "properties": {
        "uid": {"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,40}$"},
        "title": {"type": "string", "minLength": 1},
        "schemaVersion": {"type": "integer", "minimum": 36},
        "templating": {
            "properties": {
                "list": {
                    "type": "array",
                    "contains": {"properties": {"type": {"const": "datasource"}, "name": {"const": "datasource"}}},
                    "items": {"required": ["name", "type", "query"]},
                }
            }
        },
        "panels": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["id", "type", "title", "gridPos"],
                "properties": {
                    "id": {"type": "integer", "minimum": 1},
                    "type": {"enum": ["row", "stat", "timeseries", "heatmap"]},
                    "title": {"type": "string", "minLength": 1},
                    "gridPos": {
                        "required": ["x", "y", "w", "h"],
                        "properties": {
                            "x": {"type": "integer", "minimum": 0, "maximum": 23},
                            "y": {"type": "integer", "minimum": 0},
                            "w": {"type": "integer", "minimum": 1, "maximum": 24},
                            "h": {"type": "integer", "minimum": 1},
                        },
                    },
                },
                "if": {"properties": {"type": {"not": {"const": "row"}}}},
                "then": {
                    "required": ["datasource", "description", "fieldConfig", "options", "targets"],
                    "properties": {
                        "datasource": SOURCE,
                        "description": {"type": "string", "minLength": 1},
                        "fieldConfig": {
                            "properties": {
                                "defaults": {
                                    "required": ["unit"],
                                    "properties": {
                                        # ids of Grafana's packages/grafana-data/src/valueFormats/categories.ts
                                        "unit": {"enum": ["short", "s", "bytes", "reqps", "cps", "percentunit"]}
                                    },
                                }
                            },
                            "required": ["defaults", "overrides"],
                        },
                        "targets": {
                            "type": "array",
                            "minItems": 1,
                            "items": {
                                "required": ["refId", "expr", "datasource", "legendFormat"],
                                "properties": {"datasource": SOURCE, "expr": {"type": "string", "minLength": 1}},
                            },
                        },
                    },
                },
            },
        },
    },
}
dashboards = pytest.mark.parametrize("dashboard", DASHBOARDS.values(), ids=list(DASHBOARDS))
panels = pytest.mark.parametrize("panel", PANELS.values(), ids=list(PANELS))


@dashboards
def test_a_dashboard_is_what_grafana_reads(dashboard):
    jsonschema.validate(dashboard, SCHEMA)


@dashboards
def test_panels_do_not_overlap(dashboard):
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = set(
            itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"]))
        )
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)


@panels
def test_a_panel_asks_only_for_metrics_and_labels_that_exist(panel):
    for target in panel["targets"]:
        assert queries.problems(target["expr"]) == []


@panels
def test_a_panels_legend_shows_only_labels_that_its_query_keeps(panel):
    for target in panel["targets"]:
        matches = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        labels = queries.groupings(target["expr"]) or queries.SCRAPED
        assert matches <= labels, target


@dashboards
def test_a_dashboard_uses_exactly_the_variables_that_it_declares(dashboard):
    text = json.dumps(dashboard["panels"])
    declared = {variable["name"] for variable in dashboard["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", text)) - {"__rate_interval"}
    assert used == declared


def test_uids_are_unique():
    assert len({dashboard["uid"] for dashboard in DASHBOARDS.values()}) == len(DASHBOARDS) == 3


def test_every_metric_is_on_a_dashboard_or_in_an_alert():
    """An unused metric only costs memory."""
    text = (COMPONENT / "alerts.yaml").read_text() + "".join(map(json.dumps, DASHBOARDS.values()))
    unseen = [row.full_name for row in metrics.ROWS if row.full_name not in text]
    assert unseen == [
        "railwright_certificate_expiry_timestamp_seconds",  # the time of day that seconds_left counts down to
        "railwright_snapshot_generation",  # without a cluster: demo and tests
    ]


def test_the_component_labels_every_dashboard():
    component = yaml.safe_load((COMPONENT / "kustomization.yaml").read_text())
    (generated,) = component["configMapGenerator"]
    files = dict(file.split("=") for file in generated["files"])
    assert files == {f"railwright-{name}.json": f"dashboards/{name}.json" for name in DASHBOARDS}
    assert generated["options"]["labels"]["grafana_dashboard"] == "1"
    assert {path.name for path in COMPONENT.glob("*.yaml")} == {"kustomization.yaml", *component["resources"]}
