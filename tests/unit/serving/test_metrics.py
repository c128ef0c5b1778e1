"""The metrics' names and labels are an interface: dashboards and alerts read them."""

import re

import prometheus_client
import pytest
from prometheus_client import parser

from serving import metrics


def families(server="webhook", change=lambda _: None):
    found = metrics.Metrics(server)
    change(found)
    return {family.name: family for family in parser.text_string_to_metric_families(found.exposition().decode())}


def rows():
    return [row for row in vars(metrics.Metrics).values() if isinstance(row, metrics._Row)]


def test_a_rows_attribute_is_its_name_and_no_name_is_taken_twice():
    named = {name: row.name for name, row in vars(metrics.Metrics).items() if isinstance(row, metrics._Row)}
    named["certificate_expiry"] = "certificate_expiry"  # the wire adds what the number is
    assert all(name == written for name, written in named.items())
    assert len(named) == len(rows())


@pytest.mark.parametrize("server", ["webhook", "extender"])
def test_a_server_shows_all_common_rows_and_its_own_only(server):
    shown = {name.removeprefix(metrics.PREFIX) for name in families(server)}
    expected = {row.name for row in rows() if row.only in (None, server)}
    assert shown - {"process_" + rest for rest in ("cpu_seconds", "virtual_memory_bytes")} >= expected
    assert not shown & {row.name for row in rows() if row.only not in (None, server)}


def test_two_servers_of_one_process_count_apart():
    one, other = metrics.Metrics("webhook"), metrics.Metrics("extender")
    one.answered("/mutate/pods", "allowed", 0.001)
    other.answered("/scheduler/filter", "ok", 0.001)
    other.webhook_warnings.inc()  # counted, shown nowhere
    assert b'railwright_webhook_requests_total{outcome="allowed",path="/mutate/pods"} 1.0' in one.exposition()
    assert b'railwright_extender_requests_total{outcome="ok",path="/scheduler/filter"} 1.0' in other.exposition()
    assert b"webhook" not in other.exposition()


def test_exactly_one_policy_digest_is_shown():
    def change(found):
        found.show_policy("sha256:old")
        found.show_policy("sha256:new")

    (sample,) = families(change=change)["railwright_policy_info"].samples
    assert (sample.labels, sample.value) == ({"digest": "sha256:new"}, 1.0)


def test_without_a_certificate_no_expiry_is_near():
    (sample,) = families()["railwright_certificate_expiry_timestamp_seconds"].samples
    assert sample.value == float("inf")


def test_counters_have_no_created_series():
    found = metrics.Metrics("webhook")
    found.webhook_refusals.labels("roce", "network").inc()
    assert b"_created" not in found.exposition()


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_names_and_labels_follow_prometheus_conventions(row):
    """prometheus.io/docs/practices/naming: base units, _total for counters only (the client adds it), snake case."""
    assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", row.name)
    assert not row.name.endswith(("_total", "_count", "_sum", "_bucket", "_milliseconds", "_minutes"))
    assert not {"counter", "gauge", "histogram"} & set(row.name.split("_"))
    assert not {"pod", "namespace", "name", "uid", "node"} & set(row.labels), "unbounded"
    assert row.text.endswith(".")
    if row.kind is prometheus_client.Histogram and row.more["buckets"] is metrics._FAST:
        assert row.name.endswith("_seconds")
