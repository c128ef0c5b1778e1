"""Prints the functions that two requests call: an admission and a prioritize, both warm, on fixed inputs.

A request is followed by `sys.setprofile`. For each it prints the functions of railwright that were called, the files
that they are in, and the switches: calls from a function of one file to one of another. `--files` lists the files.
"""

import argparse
import collections
import pathlib
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, NamedTuple

import admitting
import bodies
import clusters
import msgspec

from extender import decider, kube_scheduler
from extender import state as states
from railwright.cluster import policies, resources
from webhook import pods

ROOT = pathlib.Path(__file__).resolve().parents[2]
_PACKAGES = tuple(str(ROOT / name) for name in ("railwright", "webhook", "extender"))
_POLICY = ROOT / "manifests" / "examples" / "360-roce" / "policy.yaml"
_PLACEMENT = ROOT / "tests" / "bench" / "placement.yaml"
_POD = {
    "metadata": {"name": "train-0", "namespace": "prod", "labels": {"railwright.io/fabric": "roce"}},
    "spec": {"containers": [{"name": "pytorch", "image": "torch", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]},
}


class Walk(NamedTuple):
    """The functions that were called, with the number of calls, and the switches between files."""

    calls: collections.Counter[CodeType]
    switches: int

    @property
    def files(self) -> collections.Counter[str]:
        """The number of functions of each file."""
        return collections.Counter(code.co_filename.removeprefix(f"{ROOT}/") for code in self.calls)


def trace_calls(request: Callable[[], Any]) -> Walk:
    """Return the walk of a request."""
    calls: collections.Counter[CodeType] = collections.Counter()
    switches = 0

    def count_call(frame: FrameType, event: str, _: object) -> None:
        nonlocal switches
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(_PACKAGES):
            return
        calls[code] += 1
        above = frame.f_back
        while above is not None and not above.f_code.co_filename.startswith(_PACKAGES):
            above = above.f_back
        switches += above is not None and above.f_code.co_filename != code.co_filename

    sys.setprofile(count_call)
    try:
        request()
    finally:
        sys.setprofile(None)
    return Walk(calls, switches)


def build_admission() -> Callable[[], Any]:
    """Return an admission of a pod that no cache knows."""
    policy, known = policies.read(_POLICY.read_text()), admitting.build_facts("prod")
    return lambda: pods.answer_review(admitting.review(_POD), policy, lambda _: known)


def build_prioritize() -> Callable[[], Any]:
    """Return a prioritize for a pod of a gang, on a half-full cluster whose nodes are known."""
    cluster, ranks = clusters.Cluster(clusters.Shape(volcano_gangs=())), iter(range(clusters.GANG))
    policy = policies.read(_PLACEMENT.read_text())
    state = states.State()
    watches = {watch.kind.name: watch for watch in states.list_watches(state)}
    groups = resources.GANG_SIZES["podgroups.scheduling.x-k8s.io"]
    for kind, objects in (
        (groups, cluster.list_kube_groups()),
        (resources.NODES, cluster.list_nodes()),
        (resources.PLACED_PODS, cluster.list_pods()),
    ):
        watch, decode = watches[kind.name], msgspec.json.Decoder(kind.view).decode
        watch.sink.replace([watch.excerpt(decode(text)) for text in objects])
    state.apply_policy(policy)
    chosen = decider.Decider(state, lambda: policy, clock=lambda: 1000.0, count_rejected=lambda *_: None)
    chosen.warm_caches()
    handlers = kube_scheduler.KubeScheduler(chosen)
    return lambda: handlers.prioritize(
        bodies.build_kube_request(clusters.build_kube_pod(0, next(ranks)), cluster.names)
    )


def main() -> int:
    """Print both walks; return 0."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--files", action="store_true", help="list the files with the number of their functions")
    options = parser.parse_args()
    for name, request in (("admission", build_admission()), ("prioritize", build_prioritize())):
        request()
        walk = trace_calls(request)
        print(f"{name:<12}{len(walk.calls):4} functions {len(walk.files):4} files {walk.switches:5} switches of file")
        for file, count in walk.files.most_common() if options.files else ():
            print(f"    {count:3}  {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
