"""What a request of anybody who reaches the schedulers' ports may cost, by the fields of each protocol.

The fields come from the structs that decode the requests, so that a new field is covered. docs/security.md, T11.
"""

import json
import os
from pathlib import Path

import cost_budget
import msgspec
import pytest
from placing import LEAF, node, policy

from extender import decoding, kube_wire, schedulers, state, volcano_wire
from railwright.fabric import scheduling_views
from railwright.serving import turns

WIRE = Path(__file__).parents[2] / "data" / "wire"
PRIORITIZE = json.loads((WIRE / "volcano-prioritize.json").read_bytes())
EVENT = json.loads((WIRE / "volcano-allocate.json").read_bytes())
FILTER = json.loads((WIRE / "kube-scheduler-filter.json").read_bytes())
PREDICATE = {"task": PRIORITIZE["task"], "node": PRIORITIZE["nodes"][0]}
ROOM = 3 << 19 if os.environ.get("BUDGET") == "full" else 1 << 18


class KubeArguments(kube_wire._Arguments, frozen=True, rename="pascal"):
    """The request of kube-scheduler with what is decoded from its raw parts."""

    pod: scheduling_views.Pod | None = None
    node_names: list[str] | None = None


class Node(msgspec.Struct):
    """A node of Volcano, likewise."""

    name: str = msgspec.field(default="", name="Name")
    idle: volcano_wire.Amounts | None = msgspec.field(default=None, name="Idle")
    releasing: volcano_wire.Amounts | None = msgspec.field(default=None, name="Releasing")
    pipelined: volcano_wire.Amounts | None = msgspec.field(default=None, name="Pipelined")
    allocatable: volcano_wire.Amounts | None = msgspec.field(default=None, name="Allocatable")


class Prioritize(msgspec.Struct):
    task: volcano_wire.Task | None = None
    nodes: list[Node] | None = None


class Predicate(msgspec.Struct):
    task: volcano_wire.Task | None = None
    node: Node | None = None


class Event(msgspec.Struct):
    task: volcano_wire.Task | None = None


class Handlers:
    """The handlers over 500 nodes in leaves of 20."""

    def __init__(self):
        self.state = state.State(assume_seconds=30)
        for number in range(500):
            name = f"gpu-{number}" if number < 8 else f"n{number}"
            self.state.cluster.upsert_node(node(name, f"leaf-{number // 20}", rails_each=100))
        chosen = policy(required=True, domains=[LEAF])
        self.verbs = schedulers.Schedulers(self.state, lambda: chosen, clock=lambda: 0.0, observe=lambda *_: None)


PROTOCOLS = {
    "filter": (KubeArguments, FILTER),
    "prioritize": (KubeArguments, FILTER),
    "volcano_prioritize": (Prioritize, PRIORITIZE),
    "volcano_predicate": (Predicate, PREDICATE),
    "volcano_allocate": (Event, EVENT),
    "volcano_deallocate": (Event, EVENT),
}


def answer(handlers, verb: str, body: bytes):
    """Answer as the port does; a refusal is an answer too."""

    async def finish(reply):
        try:
            return await reply
        except decoding.MalformedError:
            return None

    try:
        handle = getattr(handlers.verbs, verb)
        if verb == "volcano_prioritize":
            reply = turns.run(handle(body, ""))
            return reply if isinstance(reply, bytes) else finish(reply)
        return handle(body, "") if verb.startswith("volcano") else handle(body)
    except decoding.MalformedError:
        return None


@pytest.mark.parametrize("verb", PROTOCOLS)
def test_each_field_of_a_request_keeps_within_the_budget(verb):
    view, base = PROTOCOLS[verb]
    handlers = Handlers()
    answer(handlers, verb, json.dumps(base).encode())
    problems = []
    for row in cost_budget.list_objects(view, base, room=ROOM):
        body = row.encode()
        cost = cost_budget.measure(lambda body=body: answer(handlers, verb, body), memory=False)
        if cost.stall > cost_budget.STALL_SECONDS or cost.total > cost_budget.TOTAL_SECONDS:
            problems.append(f"{row.title} ({len(body)} bytes): {cost.describe()}")
    assert not problems, "\n".join(problems)
