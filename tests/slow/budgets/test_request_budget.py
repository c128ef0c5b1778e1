"""The cost of requests to the extender's port stays within the budget for any value of each protocol's fields.

The fields come from the structs that decode the requests, so a new field is covered.
"""

import contextlib
import inspect
import itertools
import json
import time

import cost_budget
import extending
import msgspec
import pytest
import read_keys
from admitting import WIRE
from placing import LEAF, build_leaves, build_pod, build_policy

from extender import decoding, state, volcano
from railwright.fabric import scheduling_views

FILTER = json.loads((WIRE / "kube-scheduler.json").read_bytes())
PREDICATE, PRIORITIZE = extending.PREDICATE, extending.build_prioritize("gpu-0", "gpu-5", "gpu-6")
EVENT = extending.build_event("gpu-5")


class Arguments(msgspec.Struct, rename="pascal"):
    """A request of kube-scheduler, with the types of the parts that the extender decodes later."""

    pod: scheduling_views.Pod | None = None
    node_names: list[str] | None = None


class Prioritize(msgspec.Struct):
    task: volcano.Task | None = None
    nodes: list[volcano._Node] | None = None


class Predicate(msgspec.Struct):
    task: volcano.Task | None = None
    node: volcano._Node | None = None


class Event(msgspec.Struct):
    task: volcano.Task | None = None


PROTOCOLS = {
    "filter": (Arguments, FILTER),
    "prioritize": (Arguments, FILTER),
    "volcano_prioritize": (Prioritize, PRIORITIZE),
    "volcano_predicate": (Predicate, PREDICATE),
    "volcano_allocate": (Event, EVENT),
    "volcano_deallocate": (Event, EVENT),
}


@pytest.fixture(scope="module")
def handlers():
    known = state.State()
    for node in build_leaves(**{f"a{number}": 20 for number in range(25)}):
        known.cluster.upsert_node(node)
    chosen = build_policy(domains=[LEAF])
    return extending.Extender(known, lambda: chosen, clock=lambda: 0.0)


def answer(handlers, verb: str, body: bytes) -> None:
    handle = handlers.find(verb)
    with contextlib.suppress(decoding.MalformedError):
        handle(body, *([""] if "scope" in inspect.signature(handle).parameters else []))


def list_rows(verb: str):
    """Yield requests in which one field has the largest, longest or most ambiguous value."""
    view, base = PROTOCOLS[verb]
    yield from cost_budget.list_objects(view, base)
    if verb == "filter":
        for row in read_keys.list_pods(FILTER["Pod"], read_keys.list_keys()):
            yield cost_budget.Row(row.title, lambda row=row: {**FILTER, "Pod": row.build()})


FIRST = ("filter", "volcano_prioritize")  # the others decode the same objects, and do less with them


def choose_rows(verb: str, rows):
    """Return a sample of the requests, a larger one for the first verb that decodes an object."""
    return cost_budget.sample_rows(rows, 4 if verb in FIRST else 32)


@pytest.mark.parametrize("verb", PROTOCOLS)
def test_the_cost_of_one_field_of_a_scheduler_request_stays_within_the_budget(verb, handlers):
    answer(handlers, verb, json.dumps(PROTOCOLS[verb][1]).encode())
    problems, rows = [], 0
    for row in choose_rows(verb, list_rows(verb)):
        rows, body = rows + 1, row.encode()
        began = time.thread_time()
        answer(handlers, verb, body)
        if time.thread_time() - began > cost_budget.STALL_SECONDS:  # measured again, and turn by turn
            cost = cost_budget.measure_cost(lambda body=body: answer(handlers, verb, body), memory=False)
            if cost.stall > cost_budget.STALL_SECONDS or cost.total > cost_budget.TOTAL_SECONDS:
                problems.append(f"{row.title} ({len(body)} bytes): {cost.describe()}")
    assert rows > 2
    assert not problems, "\n".join(problems)


def repeat(part: str, count: int) -> str:
    return ",".join([part] * count)


NAMED = [f'{{"Name":"n{number}","Node":{{}}}}' for number in range(200_000)]
TASK = json.dumps(PRIORITIZE["task"], separators=(",", ":"))
MANY = {
    "nodes without a name": ("volcano_prioritize", '{"task":' + TASK + ',"nodes":[' + repeat("{}", 1_000_000) + "]}"),
    "nodes": ("volcano_prioritize", '{"task":' + TASK + ',"nodes":[' + ",".join(NAMED) + "]}"),
    "containers": ("filter", '{"Pod":{"spec":{"containers":[' + repeat("{}", 700_000) + ']}},"NodeNames":[]}'),
    "names": ("filter", '{"Pod":{},"NodeNames":[' + repeat('"a"', 700_000) + "]}"),
    "values that are not read": ("filter", '{"x":[' + repeat("{}", 1_000_000) + '],"Pod":{},"NodeNames":[]}'),
    "fields of a session": ("volcano_close_session", "{" + ",".join(f'"{n}":1' for n in range(200_000)) + "}"),
}


@pytest.mark.parametrize("title", MANY)
def test_a_request_with_many_small_values_needs_at_most_eight_times_its_size_in_memory(title, handlers):
    verb, text = MANY[title]
    body = text.encode()
    cost = cost_budget.measure_cost(lambda: answer(handlers, verb, body))
    assert cost.stall <= cost_budget.STALL_SECONDS, cost.describe()
    assert cost.total <= cost_budget.TOTAL_SECONDS, cost.describe()
    assert cost.peak <= 8 * len(body), f"{len(body)} bytes: {cost.describe()}"
    assert cost.retained <= cost_budget.RETAINED_BYTES, cost.describe()


# --- the first request about a new kind of pod, in a cluster as large as the one on the performance page -----------


KINDS = itertools.count(1)


@pytest.fixture(scope="module")
def large_site():
    """Return an extender over 5,000 nodes, each with a pod."""
    nodes = build_leaves(**{f"l{number}": 50 for number in range(100)})
    return extending.Site(nodes, [build_pod(f"low-{item.metadata.name}", on=item.metadata.name) for item in nodes])


def build_request(site, kind: int) -> bytes:
    """Return a request about a pod; pods of each kind request other memory."""
    tree = msgspec.to_builtins(build_pod("p"))
    tree["spec"]["containers"][0]["resources"]["requests"]["memory"] = str(kind)
    return json.dumps({"Pod": tree, "NodeNames": site.names}).encode()


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
def test_the_first_request_about_a_new_kind_of_pod_stays_within_the_budget(large_site, verb):
    bodies = (build_request(large_site, kind) for kind in KINDS)

    async def answer():
        getattr(large_site.verbs.kube, verb)(next(bodies))

    cost = cost_budget.measure_cost(answer, memory=False)
    assert cost.stall <= cost_budget.STALL_SECONDS, cost.describe()
    assert cost.total <= cost_budget.TOTAL_SECONDS, cost.describe()
