"""Failed preflights: which rails of which node they report, and for how long."""

import json

import msgspec
import placing
import pytest
import reporting

from railwright.cluster import snapshots
from railwright.fabric import names, scheduling_views
from railwright.fabric.placement.state import rail_reports
from railwright.preflight import report as preflight


def build_pod(name="p", *, broken="rail2", on="a-00", ended="state", phase="Pending", record=True, fabric="roce"):
    """Return a pod whose preflight has ended and named these rails; "" for none."""
    line = f"railwright preflight {'failed: rail2 mlx5_2: port 1 is DOWN' if broken else '4 rails ready'}"
    message = f"{line}\n{preflight.BROKEN}{broken}\n" if broken else f"{line}\n"
    status = {"name": names.PREFLIGHT_CONTAINER, ended: {"terminated": {"message": message, "exitCode": 1}}}
    injected = json.dumps({"policy": "sha256:test", "fabric": fabric, "rails": list(placing.RAILS)})
    tree = {
        "metadata": {
            "name": name,
            "namespace": "train",
            "uid": f"uid-{name}",
            "labels": {names.FABRIC: "roce"},
            "annotations": {names.INJECTION: injected} if record else {},
        },
        "spec": {"nodeName": on, "containers": [{"name": "c"}]},
        "status": {"phase": phase, "initContainerStatuses": [{"name": "other"}, status]},
    }
    return msgspec.convert(tree, scheduling_views.Pod)


@pytest.fixture
def known():
    return reporting.ReportedCluster(placing.leaves(a=2), reporting.policy())


def test_both_sides_know_the_line():
    assert names.PREFLIGHT_BROKEN == preflight.BROKEN


@pytest.mark.parametrize("ended", ["state", "lastState"])
def test_a_failed_preflight_reports_the_rails_that_it_names_while_the_pod_exists(known, ended):
    known.state.upsert_pod(build_pod(broken="rail0,rail2", ended=ended))
    assert known.list_rails("a-00") == ["rail0 avoided", "rail2 avoided"]
    assert known.list_rails("a-01") == []
    [first, _] = known.state.health.list_states("a-00", "roce")
    assert (first.source, first.detail) == ("PreflightFailed", "by pod train/p")
    known.wait(3600)
    assert known.list_rails("a-00") == ["rail0 avoided", "rail2 avoided"]
    known.state.remove_pod("uid-p")
    known.wait(59)
    assert known.list_rails("a-00") == ["rail0 avoided", "rail2 avoided"]
    known.wait(1)
    assert known.list_rails("a-00") == []


def test_a_pod_that_has_failed_reports_for_the_hold(known):
    known.state.upsert_pod(build_pod(phase="Failed"))
    assert known.list_rails("a-00") == ["rail2 avoided"]
    known.wait(60)
    assert known.list_rails("a-00") == []


def test_a_pod_that_has_failed_reports_once_whatever_is_seen_of_it_later(known):
    known.state.upsert_pod(build_pod())
    for _ in range(3):  # it ends, its Job removes the finalizer, and the watch lists all pods again
        known.state.upsert_pod(build_pod(phase="Failed"))
    known.wait(60)
    assert known.list_rails("a-00") == []
    known.state.upsert_pod(build_pod(phase="Failed"))
    known.state.replace_pods([build_pod(phase="Failed")])
    assert known.list_rails("a-00") == []
    known.state.replace_pods([])
    known.state.upsert_pod(build_pod(phase="Failed"))
    assert known.list_rails("a-00") == ["rail2 avoided"], "nothing is remembered of a pod that is gone"


def test_a_pod_of_a_snapshot_reports_as_one_of_the_cluster_does():
    tree = {"apiVersion": "v1", "kind": "Pod", **msgspec.to_builtins(build_pod())}
    [pod] = snapshots.read(json.dumps(tree))["Pod"]
    assert rail_reports.read_preflight(pod) == rail_reports.read_preflight(build_pod())


def test_a_preflight_that_succeeds_ends_the_report(known):
    known.state.upsert_pod(build_pod())
    known.state.upsert_pod(build_pod(broken=""))
    known.wait(60)
    assert known.list_rails("a-00") == []


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(build_pod(broken=""), id="ready"),
        pytest.param(build_pod(record=False), id="not injected"),
        pytest.param(build_pod(fabric="other"), id="of another fabric"),
        pytest.param(build_pod(broken="mlx5_99,,x" * 9999), id="text of others"),
    ],
)
def test_other_pods_report_nothing(known, pod):
    known.state.upsert_pod(pod)
    assert known.list_rails("a-00") == []


def test_the_policy_may_ignore_preflights(known):
    known.apply(reporting.policy(health={"reports": {"PreflightFailed": "ignore"}}))
    known.state.upsert_pod(build_pod())
    assert known.list_rails("a-00") == []
