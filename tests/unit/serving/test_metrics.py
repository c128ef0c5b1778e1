"""The metrics' names and labels are an interface: dashboards and alerts read them."""

import pathlib
import re

import prometheus_client
import pytest
from prometheus_client import parser

from documentation import reference
from railwright.serving import metrics

ROOT = pathlib.Path(__file__).parents[3]
TIMES = {"age", "lag", "duration", "left", "lifetime", "wait", "expiry"}


def families(server="webhook", change=lambda _: None):
    registry = metrics.Metrics(server)
    change(registry)
    return {
        family.name: family for family in parser.text_string_to_metric_families(registry.format_exposition().decode())
    }


@pytest.mark.parametrize("server", ["webhook", "extender"])
def test_a_server_shows_all_common_rows_and_its_own_only(server):
    shown = {name.removeprefix(metrics.PREFIX) for name in families(server)}
    expected = {row.name for row in metrics.ROWS if row.only in (None, server)}
    assert shown - {"process_" + rest for rest in ("cpu_seconds", "virtual_memory_bytes")} >= expected
    assert not shown & {row.name for row in metrics.ROWS if row.only not in (None, server)}


def test_two_servers_of_one_process_count_apart():
    one, other = metrics.Metrics("webhook"), metrics.Metrics("extender")
    one.count_request("/mutate/pods", "allowed", 0.001)
    other.count_request("/scheduler/filter", "ok", 0.001)
    other.webhook_warnings.labels("HostNetwork").inc()  # counted, shown nowhere
    assert b'railwright_webhook_requests_total{outcome="allowed",path="/mutate/pods"} 1.0' in one.format_exposition()
    assert b'railwright_extender_requests_total{outcome="ok",path="/scheduler/filter"} 1.0' in other.format_exposition()
    assert b"webhook" not in other.format_exposition()


def test_exactly_one_policy_digest_is_shown():
    def change(registry):
        registry.show_policy("sha256:old")
        registry.show_policy("sha256:new")

    (sample,) = families(change=change)["railwright_policy_info"].samples
    assert (sample.labels, sample.value) == ({"digest": "sha256:new"}, 1.0)


def test_without_a_certificate_the_time_to_expiry_is_infinite():
    (sample,) = families()["railwright_certificate_expiry_timestamp_seconds"].samples
    assert sample.value == float("inf")


def test_counters_expose_no_created_series():
    registry = metrics.Metrics("webhook")
    registry.webhook_refusals.labels("roce", "network").inc()
    assert b"_created" not in registry.format_exposition()


def test_names_and_labels_follow_prometheus_conventions():
    """prometheus.io/docs/practices/naming: base units, _total for counters only (the client adds it), snake case."""
    for row in metrics.ROWS:
        check_name_and_labels(row)


def check_name_and_labels(row):
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", row.name)
    assert not row.name.endswith(("_total", "_count", "_sum", "_bucket", "_milliseconds", "_minutes"))
    assert not {"counter", "gauge", "histogram"} & set(row.name.split("_"))
    assert not {"pod", "namespace", "name", "uid", "node"} & set(row.labels), "unbounded"
    assert row.text.endswith(".")
    assert row.name.endswith(("_seconds", "_seconds_left")) == bool(TIMES & set(row.name.split("_"))), (
        "seconds are named, and only they"
    )
    if row.kind is prometheus_client.Histogram and row.options["buckets"] is metrics._FAST:
        assert row.name.endswith("_seconds")
        assert {0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0} <= set(row.options["buckets"]), "1 ms to 10 s"
    if row.kind is prometheus_client.Histogram and row.options["buckets"] is metrics._SHARES:
        assert row.name.endswith("_ratio")
    assert row.name.endswith("_info") == (row.labels in {("version", "server"), ("digest",)})


@pytest.mark.parametrize("server", ["webhook", "extender"])
def test_the_exposition_says_help_and_type_of_every_family(server):
    """As promtool's lint reads it; the process's own metrics are prometheus_client's."""
    for name, family in families(server).items():
        assert family.documentation, name
        assert family.type in {"counter", "gauge", "histogram"}, name
        assert name.startswith((metrics.PREFIX, "process_")), name


def test_every_metric_is_changed_somewhere():
    code = "\n".join(
        path.read_text()
        for folder in ("railwright/serving", "webhook", "extender", "railwright/cluster")
        for path in (ROOT / folder).rglob("*.py")
    )
    assert [row.name for row in metrics.ROWS if not re.search(rf"\.{row.name}\b", code)] == []


def test_the_reference_explains_every_label_and_no_other():
    assert set(reference.LABELS) == {label for row in metrics.ROWS for label in row.labels}


def test_the_pods_of_a_fabric_that_left_the_policy_are_no_longer_counted():
    def change(registry):
        registry.show_uninjected({"old": 3, "unknown": 0})
        registry.show_uninjected({"new": 1, "unknown": 0})

    shown = {
        sample.labels["fabric"]: sample.value
        for sample in families(change=change)["railwright_uninjected_pods"].samples
    }
    assert shown == {"old": 0, "new": 1, "unknown": 0}


def test_a_single_extender_counts_as_leader():
    assert families("extender")["railwright_leader"].samples[0].value == 1
