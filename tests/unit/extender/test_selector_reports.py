"""Reports of expressions whose selected devices are unknown."""

import devices
import pytest
import selecting

from extender import cluster_reports
from extender import state as states
from railwright.cluster import events
from railwright.serving import metrics

CIDR = 'device.driver == "dra.net" && cidr("10.0.0.0/8").containsIP("10.1.2.3")'
UNGUARDED = 'device.driver == "dra.net" && device.attributes["dra.net"].nic == "a"'


class Poster(events.Events):
    """Collects the Events that are posted."""

    def __init__(self):
        self.posted = []

    def post(self, involved, *, warning, reason, message):
        self.posted.append((involved.kind, involved.namespace, involved.name, warning, reason, message))


@pytest.fixture
def report():
    """Return a function that reports an expression of a class at a time, the posted Events and the gauge."""

    def build(expression, *, is_leader=True):
        state, poster, now = states.State(assume_seconds=30), Poster(), [0.0]
        counters = metrics.Metrics("extender")
        known = state.cluster.claimed.inventory
        known.class_sink.replace(devices.read_classes(devices.build_class("nics", expression)))
        known.slice_sink.replace(devices.read_slices(*devices.build_slices("n1")))
        reports = cluster_reports.SelectorReports(state, counters, poster, lambda: is_leader, lambda: now[0])

        def update(seconds=0.0):
            now[0] += seconds
            known.count_devices("n1")
            reports.update()
            return {
                name: counters.registry.get_sample_value("railwright_unknown_selectors", {"state": name})
                for name in ("unknown", "fails", "pending")
            }

        return update, poster.posted, known

    return build


def test_pending_questions_are_counted_and_reported_once_in_half_an_hour(report):
    update, posted, known = report(CIDR)
    assert update()["pending"] > 0
    assert posted == []
    selecting.answer_here(known.names.evaluations)
    known.answer({})
    assert update() == {"unknown": 1, "fails": 0, "pending": 0}
    [(kind, namespace, name, warning, reason, message)] = posted
    assert (kind, namespace, name, warning, reason) == ("DeviceClass", "", "nics", True, "SelectorUnknown")
    assert message.startswith(f"it is unknown which devices the expression {CIDR} selects for device dra.net/n1/")
    assert "undeclared reference to 'cidr'" in message
    assert "kube-scheduler decides" in message
    update(600)
    assert len(posted) == 1
    update(1300)
    assert len(posted) == 2


def test_an_expression_that_fails_names_the_attribute_and_the_fix(report):
    update, posted, _ = report(UNGUARDED)
    assert update() == {"unknown": 0, "fails": 1, "pending": 0}
    [(*_, message)] = posted
    assert message.startswith(f"the expression {UNGUARDED} fails for device dra.net/n1/")
    assert message.endswith("test the attribute with has() first")


def test_a_standby_reports_nothing(report):
    update, posted, _ = report(UNGUARDED, is_leader=False)
    assert update()["fails"] == 1
    assert posted == []
