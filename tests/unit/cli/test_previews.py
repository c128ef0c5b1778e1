"""Pods of a file that share a decision have the previews that each would have alone."""

import pytest
from admitting import cpu, fabric, gpus, pod

from railwright.cli.explanation import previews, templates
from railwright.fabric import admission

POLICY = "    security: {capabilities: [IPC_LOCK]}\n    resolve: always\n"


def build(tree: dict, name: str = "p", *, requested: frozenset[str] | None = None) -> templates.Template:
    tree["metadata"]["name"] = name
    return templates.Template(f"Pod prod/{name}", "", 1, "prod", tree, requested=requested)


def build_all() -> list[templates.Template]:
    """Return pods that differ in what admission reads, in what it does not read, and in nothing."""
    chatty = gpus(8, env=[{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "RANK", "value": "1"}])
    large = gpus(8, command=["run"], args=[""] * 10_001)  # too many values, and the excerpt of the first
    jobs = [frozenset({"nvidia.com/gpu"}), frozenset({"cpu"}), None]
    return [
        build(pod(gpus(8, command=["run"])), "a"),
        build(pod(gpus(8, command=["run", "again"]), schedulerName="volcano"), "b"),
        build(pod(gpus(8, "other")), "c"),
        build(pod(chatty), "d"),
        build(pod(large), "e"),
        build(pod(label="g"), "f"),
        build(pod(label="g"), "g"),
        build(pod(label=None), "h"),
        build(pod(hostNetwork=True), "i"),
        *[build(pod(cpu()), f"of-{number}", requested=requested) for number, requested in enumerate(jobs)],
    ]


@pytest.mark.parametrize("mode", ["", "mode: warn\n"])
def test_a_preview_is_the_same_after_others_as_alone(mode):
    policy, caches = fabric(POLICY, top=mode), previews.load_caches(None)
    pods, decisions = [*build_all(), *reversed(build_all())], previews.Decisions()
    together = [previews.preview_admission(item, policy, caches, decisions=decisions) for item in pods]
    alone = [previews.preview_admission(item, policy, caches) for item in pods]
    assert together == alone
    assert len({(item.outcome, item.role, len(item.changes), item.message) for item in alone}) > 5


def test_pods_of_a_gang_are_planned_once(monkeypatch):
    planned = []
    plan = admission.plan
    monkeypatch.setattr(admission, "plan", lambda *words: planned.append(words) or plan(*words))
    policy, caches, decisions = fabric(POLICY), previews.load_caches(None), previews.Decisions()
    for rank in range(5):
        item = build(pod(gpus(8, env=[{"name": "RANK", "value": str(rank)}])), f"worker-{rank}")
        preview = previews.preview_admission(item, policy, caches, decisions=decisions)
        assert preview.after["spec"]["containers"][0]["env"][0]["value"] == str(rank)
    assert len(planned) == 2  # for the answer, and for its reasons
