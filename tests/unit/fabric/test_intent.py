"""A pod's intent is read in one place, so admission and placement agree about it."""

import json

import admitting
import pytest

from railwright.fabric import intent
from railwright.fabric.injection import plan

RAILS = ("rail0", "rail1", "rail2", "a-b")
RESOURCES = {name: f"example.com/{name}" for name in RAILS}
POLICY = admitting.fabric(
    rails="[" + ", ".join(f"{{name: {name}, resource: {RESOURCES[name]}, device: mlx5_{name}}}" for name in RAILS) + "]"
)
FABRIC = POLICY.document.fabrics["f"]


def pod(rails: str | None = None, record: object = None, **more: object) -> dict:
    annotations = {} if rails is None else {"railwright.io/rails": rails}
    if record is not None:
        annotations["railwright.io/injection"] = record if isinstance(record, str) else json.dumps(record)
    return admitting.pod(admitting.gpus(8), annotations=annotations, **more)


def find_counted(tree: dict) -> tuple[str, ...]:
    """Return the rails of which placement counts devices, without resource requests."""
    return tuple(rail for need in intent.find_needs(admitting.decode_pod(tree), {}, FABRIC) for rail in need.rails)


def test_placement_counts_the_rails_that_admission_gives():
    for rails in (None, "1", " 4 ", "rail0", "rail2, rail0", "rail0-rail2", "a-b", "rail1-a-b,rail1"):
        planned = admitting.plan_pod(pod(rails), POLICY)
        assert isinstance(planned, plan.Injection)
        assert find_counted(pod(rails)) == planned.rails, rails


def test_placement_ignores_an_invalid_rails_annotation():
    for rails in ("", "0", "5", "bogus", "rail0,bogus", "rail2-rail0", "rail0,,rail1", "-", "99999999999999999999"):
        assert isinstance(admitting.plan_pod(pod(rails), POLICY), plan.Refusal), rails
        assert find_counted(pod(rails)) == RAILS


def test_the_rails_in_a_record_take_precedence_over_the_rails_annotation():
    assert find_counted(pod("1", {"rails": ["rail1", "rail2"]})) == ("rail1", "rail2")
    assert find_counted(pod("1", {"rails": []})) == ()
    assert find_counted(pod("1", {"rails": ["gone"]})) == ("rail0",)
    assert find_counted(pod("1", {"fabric": "f"})) == ("rail0",)


def test_an_unreadable_record_is_ignored():
    for record in ("{", "[]", '{"rails": 7}', '{"kept": []}', "[" * 100_000, "x" * 10_000):
        assert intent.read_record(admitting.decode_pod(pod(record=record))) == intent.Record()
        with pytest.raises(intent.InvalidRecordError):
            intent.decode_record(record)
        tree = admitting.pod(annotations={"railwright.io/topology": record.replace("rails", "reason")})
        assert intent.read_topology(admitting.decode_pod(tree)) == intent.TopologyRecord()


@pytest.mark.parametrize(
    ("label", "record", "expected"),
    [
        ("f", None, "f"),
        ("default", None, "f"),
        ("none", {"fabric": "f"}, ""),
        ("gone", {"fabric": "f"}, ""),
        (None, {"fabric": "f"}, "f"),
        (None, None, ""),
    ],
)
def test_the_fabric_label_takes_precedence_over_the_record(label, record, expected):
    view = admitting.decode_pod(pod(record=record, label=label))
    assert intent.find_fabric(view, POLICY.document)[0] == expected
    assert intent.is_opted_in(view) == (label != "none" and bool(label or record))
