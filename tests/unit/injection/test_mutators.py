"""The table of mutators: each reads the changes of earlier ones. An additional one needs only a row."""

import json

import msgspec
from admitting import build_facts, decode_pod, fabric, pod

from railwright.fabric.injection import context, drafts, plan

SITE = "example.com/nic-count"


def count_devices(draft: drafts.Draft, ctx: context.InjectionContext) -> None:
    """Add an annotation of a site: the pod's current devices and variables."""
    if "nic-count" in ctx.options.skip:
        draft.skip("nic-count", context.SKIPPED)
        return
    pod_now = draft.pod
    target = pod_now.spec.containers[ctx.targets[0]]
    devices = sorted(name for name in target.requests if name.startswith("nvidia.com/mlx5"))
    _, hca = target.env_by_name["NCCL_IB_HCA"]
    value = f"{len(devices)} devices, {len(pod_now.networks)} networks, HCA {hca.value}"
    if pod_now.metadata.annotations.get(SITE) != value:
        draft.set_annotation(SITE, value, "nic-count")
    draft.add_entry("nic-count")


ROWS = (*plan.MUTATORS, plan.Row("nic-count", count_devices))


def plan_pod(tree, by, rows=ROWS):
    return plan.plan(decode_pod(tree), by, build_facts(), rows=rows)


def test_a_mutator_from_outside_the_package_sees_earlier_edits_and_is_in_patch_and_record():
    outcome = plan_pod(pod(), fabric())
    assert isinstance(outcome, plan.Injection)
    assert outcome.pod.metadata.annotations[SITE] == "2 devices, 2 networks, HCA =mlx5_0,mlx5_1"
    operations = json.loads(msgspec.json.encode(drafts.list_operations(outcome.changes)))
    assert [operation["value"] for operation in operations if operation["path"].endswith("nic-count")] == [
        outcome.pod.metadata.annotations[SITE]
    ]
    record = json.loads(outcome.pod.metadata.annotations["railwright.io/injection"])
    assert record["added"][-1] == "nic-count"
