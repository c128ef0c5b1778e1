"""The demo's play: the job's pods through the real admission path, the gang through the real Volcano protocol.

Every answer comes from the running servers over HTTP. What Volcano would do of itself is the simulator's model.
"""

import base64
import json
import random
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import jsonpatch
import msgspec

from railwright.cli.demo import stage as stages
from railwright.fabric import names
from railwright.simulator import shapes, volcano

Tree = dict[str, Any]


class Admitted(msgspec.Struct, frozen=True):
    """One pod before and after admission."""

    before: Tree
    after: Tree
    warnings: Sequence[str]


class Placed(msgspec.Struct, frozen=True):
    """One pod and the node it landed on."""

    pod: str
    node: str
    leaf: str
    spine: str


class Outcome(msgspec.Struct, frozen=True):
    """The whole play."""

    admitted: Sequence[Admitted]
    placed: Sequence[Placed]
    without: Sequence[Placed]
    free_by_leaf: Mapping[str, int]
    annotations: Sequence[Tree]  # railwright.io/placement of each pod, as the binding webhook wrote it


async def run(stage: stages.Stage) -> Outcome:
    """Admit, place with us, place without us, bind."""
    uid = str(uuid.UUID(int=1))  # the job's uid: fixed, so that the demo shows the same names every time
    pods = list(shapes.build_volcano_pods(stage.job, uid=uid))
    async with aiohttp.ClientSession() as session:
        admitted = [await _admit(session, stage, pod) for pod in pods]
        ready = [each.after for each in admitted]
        for index, pod in enumerate(ready):
            pod["metadata"]["uid"] = str(uuid.UUID(int=index + 2))
        await stages.store(stage, ready)
        placed = await _place(session, stage, ready)
        annotations = [await _bind(session, stage, pod, on) for pod, on in zip(ready, placed, strict=True)]
    return Outcome(
        admitted=admitted,
        placed=placed,
        without=_place_alone(stage, ready),
        free_by_leaf=_free_by_leaf(stage, ready[0]),
        annotations=annotations,
    )


async def _admit(session: aiohttp.ClientSession, stage: stages.Stage, pod: Tree) -> Admitted:
    answer = (await _post_review(session, stage, "/mutate/pods", _review(pod, "Pod")))["response"]
    if not answer["allowed"]:
        raise stages.StageError(f"the webhook refused {pod['metadata']['name']}: {answer['status']['message']}")
    return Admitted(before=pod, after=_patched(pod, answer), warnings=answer.get("warnings") or [])


async def _bind(session: aiohttp.ClientSession, stage: stages.Stage, pod: Tree, on: Placed) -> Tree:
    metadata = pod["metadata"]
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            "annotations": metadata["annotations"],  # Volcano sends the pod's own along
        },
        "target": {"kind": "Node", "name": on.node},
    }
    answer = (await _post_review(session, stage, "/mutate/bindings", _review(binding, "Binding", "binding")))[
        "response"
    ]
    written = _patched(binding, answer)["metadata"]["annotations"]
    placement: Tree = json.loads(written.get(names.PLACEMENT, "{}"))
    return placement


def _review(subject: Tree, kind: str, sub_resource: str = "") -> Tree:
    """The AdmissionReview an API server sends when `subject` is created."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": str(uuid.uuid4()),
            "kind": {"group": "", "version": "v1", "kind": kind},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "subResource": sub_resource,
            "name": subject["metadata"]["name"],
            "namespace": subject["metadata"]["namespace"],
            "operation": "CREATE",
            "object": subject,
            "dryRun": False,
        },
    }


async def _post_review(session: aiohttp.ClientSession, stage: stages.Stage, path: str, review: Tree) -> Tree:
    url = f"https://{stage.webhook.address}{path}?timeout=5s"
    async with session.post(url, json=review, ssl=stage.trust) as response:
        response.raise_for_status()
        answer: Tree = await response.json()
        return answer


def _patched(tree: Tree, answer: Tree) -> Tree:
    """The object after the answer's patch, by an applier that is not ours."""
    operations = json.loads(base64.b64decode(answer.get("patch") or "") or "[]")
    result: Tree = jsonpatch.apply_patch(tree, operations)
    return result


async def _place(session: aiohttp.ClientSession, stage: stages.Stage, pods: Sequence[Tree]) -> list[Placed]:
    """Volcano's loop for one gang: prioritize, take the best sum of scores, announce it; then close the session."""
    state, chance = volcano.Session(stage.nodes, stage.pods), random.Random(stages.SEED)  # noqa: S311 - repeats
    placed = []
    for pod in pods:
        offered = state.list_feasible(pod)
        answer = await _post_verb(session, stage, "prioritize", state.build_request(pod, offered))
        scores = {name: state.score(pod, name) + answer["nodeScore"].get(name, 0.0) for name in offered}
        node = _best(scores, chance)
        await _post_verb(session, stage, "allocate", {"task": state.add_pod(pod, node)})
        placed.append(_placed(stage, pod, node))
    await _post_verb(session, stage, "session-close", {})
    return placed


def _place_alone(stage: stages.Stage, pods: Sequence[Tree]) -> list[Placed]:
    """The same loop with Volcano's own scores only."""
    state, chance = volcano.Session(stage.nodes, stage.pods), random.Random(stages.SEED)  # noqa: S311 - repeats
    placed = []
    for pod in pods:
        node = _best({name: state.score(pod, name) for name in state.list_feasible(pod)}, chance)
        state.add_pod(pod, node)
        placed.append(_placed(stage, pod, node))
    return placed


async def _post_verb(session: aiohttp.ClientSession, stage: stages.Stage, verb: str, body: Tree) -> Tree:
    async with session.post(f"http://{stage.extender.address}/volcano/{verb}", json=body) as response:
        response.raise_for_status()
        answer: Tree = await response.json()
        return answer


def _best(scores: Mapping[str, float], chance: random.Random) -> str:
    if not scores:
        raise stages.StageError("no node has room for the gang")
    top = max(scores.values())
    return chance.choice([name for name, score in scores.items() if score == top])  # Volcano breaks ties by chance


def _placed(stage: stages.Stage, pod: Tree, node: str) -> Placed:
    labels = next(each["metadata"]["labels"] for each in stage.nodes if each["metadata"]["name"] == node)
    name = pod["metadata"]["name"]
    return Placed(pod=name, node=node, leaf=labels[shapes.LEAF_LABEL], spine=labels[shapes.SPINE_LABEL])


def _free_by_leaf(stage: stages.Stage, pod: Tree) -> dict[str, int]:
    state = volcano.Session(stage.nodes, stage.pods)
    free = dict.fromkeys((node["metadata"]["labels"][shapes.LEAF_LABEL] for node in stage.nodes), 0)
    for node in state.list_feasible(pod):
        free[_placed(stage, pod, node).leaf] += 1
    return free


def leaves(placed: Sequence[Placed]) -> int:
    """Leaves a placement uses."""
    return len({each.leaf for each in placed})


def crossings(placed: Sequence[Placed]) -> int:
    """Edges of the ring of ranks that leave a leaf; each is paid at the uplinks' oversubscription."""
    return sum(one.leaf != other.leaf for one, other in zip(placed, [*placed[1:], placed[0]], strict=True))


def least_leaves(free_by_leaf: Mapping[str, int], size: int) -> int:
    """The fewest leaves that can hold so many whole-node pods at all."""
    count = 0
    for room in sorted(free_by_leaf.values(), reverse=True):
        if size <= 0:
            break
        size -= room
        count += 1
    return count
