"""The metrics' names and labels are an interface: dashboards and alerts read them."""

import pathlib
import re

import pytest
from prometheus_client import parser

from railwright.serving import metrics

ROOT = pathlib.Path(__file__).parents[3]


SERVERS = {"webhook": metrics.WebhookMetrics, "extender": metrics.ExtenderMetrics}
METRICS = {metric.name: metric for build in SERVERS.values() for metric in build().descriptions}.values()


def families(server="webhook", change=lambda _: None):
    registry = SERVERS[server]()
    change(registry)
    return {
        family.name: family for family in parser.text_string_to_metric_families(registry.format_exposition().decode())
    }


@pytest.mark.parametrize("server", SERVERS)
def test_a_server_exposes_its_documented_metrics_and_no_others(server):
    shown = {family.name + ("_total" if family.type == "counter" else "") for family in families(server).values()}
    assert {name for name in shown if name.startswith(metrics.PREFIX)} == {
        metric.name for metric in SERVERS[server]().descriptions
    }


def test_the_metric_of_the_policy_digest_has_exactly_one_series():
    def change(registry):
        for digest in ("sha256:old", "sha256:new"):
            registry.set_source_gauges(policy_valid=True, policy_digest=digest, caches=())

    (sample,) = families(change=change)["railwright_policy_info"].samples
    assert (sample.labels, sample.value) == ({"digest": "sha256:new"}, 1.0)


def test_without_a_certificate_the_time_to_expiry_is_infinite():
    (sample,) = families()["railwright_certificate_expiry_timestamp_seconds"].samples
    assert sample.value == float("inf")


def test_no_metric_has_a_series_for_each_object():
    objects = {"pod", "namespace", "name", "uid", "node"}
    assert [metric.name for metric in METRICS if objects & set(metric.labels)] == []


def test_every_metric_is_updated_in_the_code():
    code = "\n".join(
        path.read_text()
        for folder in ("railwright/serving", "webhook", "extender", "railwright/cluster")
        for path in (ROOT / folder).rglob("*.py")
    )
    attributes = [metric.name.removeprefix(metrics.PREFIX).removesuffix("_total") for metric in METRICS]
    assert [name for name in attributes if len(re.findall(rf"\.{name}\b", code)) < 2] == []


def test_the_runbook_explains_every_label_and_no_other():
    labels = (ROOT / "docs" / "runbook.md").read_text().partition("\n### Labels\n")[2]
    assert set(re.findall(r"^\| `(\w+)` \|", labels, re.MULTILINE)) == {
        label for metric in METRICS for label in metric.labels
    }
