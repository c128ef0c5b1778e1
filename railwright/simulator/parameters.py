"""Lists every number that the simulation uses, with its source."""

from collections.abc import Mapping, Sequence

from railwright.fabric.placement import bandwidth
from railwright.simulator import job_stream, policies, schedulers


def list_parameters() -> Sequence[Mapping[str, str]]:
    """Return `name`, `value` and `source` of each number or rule, with the values that the modules use."""
    rows = (*_MODEL, *_NODE, *_SCHEDULERS, *_STREAMS)
    return [{"name": name, "value": value, "source": source} for name, value, source in rows]


_MODEL = (
    ("gang", "min(slowest member, slowest crossing)", "a ring is as fast as its slowest edge; NVIDIA/nccl src/graph"),
    (
        "member",
        "sum over the rails that all members have / rails requested",
        "NCCL uses the rails that all ranks have: a node with 6 of 8 rails limits the gang to 6/8",
    ),
    (
        "rail, other NUMA node",
        f"{bandwidth.MISALIGNED}",
        "29.68 of 46.93 GB/s, all-reduce 8 GB, two a4-highgpu-8g: google/dranet, Kubernetes Network Driver Model",
    ),
    ("rail, degraded", f"{bandwidth.DEGRADED}", "assumed: allocatable below capacity, between healthy and dead"),
    ("rail, g gangs on the NIC", "1/g", "0.62 of two NICs measured for a pair: llm-d blog 2026-08-20"),
    (
        "g members on one NIC",
        "1/g",
        "as other pods: NCCL treats pods with different host names as different hosts, NVIDIA/nccl src/misc/utils.cc",
    ),
    (
        "crossing of a domain",
        "min(1, nodes x links / (oversubscription x crossings))",
        "1:1 MegaScale, 1.067:1 and 15:1 Alibaba HPN (SIGCOMM'24), 7:1 Meta RoCE (SIGCOMM'24)",
    ),
    (
        "links",
        "rails of the fabric / rails of the gang where rails share uplinks (placement.uplinks: bundle), else 1",
        "assumed: a top-of-rack switch has one bundle of uplinks for all rails of its nodes",
    ),
    ("node without a domain label", "a domain of one node", "assumed: its links are unknown"),
    (
        "left out",
        "latency, congestion by other jobs, cross-rail hops, NCCL's choice of rings and trees",
        "not modelled",
    ),
)
_NODE = (
    (
        "devices a pod gets",
        "best-effort: the narrowest NUMA nodes with enough free devices, the lowest, first fit",
        "kubernetes pkg/kubelet/cm/topologymanager, cm/devicemanager",
    ),
    (
        "NodeResourceTopology",
        "current as soon as the pods are; --no-reports omits it",
        "assumed; without it railwright infers NUMA from node shapes and what is bound",
    ),
    ("rails of a pod", "ceil(GPUs x rails / GPUs per node)", "docs/reference/policy.md, railsPerPod: proportional"),
)
_SCHEDULERS = (
    (
        "nodes offered by default",
        (
            f"all up to {schedulers.MIN_FEASIBLE}, else max({schedulers.MIN_FEASIBLE}, N x "
            f"max({schedulers.MIN_PERCENT}, {schedulers.BASE_PERCENT} - N/{schedulers.NODES_PER_PERCENT}) %), "
            "from where the last search ended"
        ),
        "volcano-sh/volcano pkg/scheduler/util/scheduler_helper.go; kubernetes pkg/scheduler/schedule_one.go",
    ),
    (
        "own scores",
        "LeastAllocated + BalancedAllocation of CPU and memory, weight 1 each: 0..200",
        "volcano pkg/scheduler/plugins/nodeorder; kubernetes plugins/noderesources",
    ),
    (
        "CPU, memory for each GPU",
        (
            f"{schedulers.CORES_PER_GPU:g} of {schedulers.CORES:g} cores, {schedulers.MEMORY_PER_GPU:g} of "
            f"{schedulers.MEMORY:g} GiB per node"
        ),
        "assumed; usual ratios of 8-GPU nodes",
    ),
    (
        "agents on every node",
        f"0..{schedulers.AGENT_CORES:g} cores, 0..{schedulers.AGENT_MEMORY:g} GiB at random",
        "assumed: the noise in the scheduler's own scores",
    ),
    ("Volcano adds", "raw, railwright's 0..100 x placement.scale (10)", "volcano pkg/scheduler/plugins/extender"),
    (
        "kube-scheduler adds",
        f"10 minus the root of the difference to the best score, x weight {schedulers.KUBE_WEIGHT} x 10",
        "kubernetes pkg/scheduler/extender.go; the weight is that of the example configuration",
    ),
    ("one feasible node", "taken without scoring", "both schedulers"),
    ("binpack", f"GPU share in use x 100 x {policies.Binpack.scale:g}", "binpack.weight in Volcano's example"),
    ("greedy", "leaf of a peer 75, its spine 25, packing 0..25; x 10", "assumed: locality without a plan"),
    ("queue", "in order of arrival; a job that does not fit is skipped and tried again whenever a job ends", "assumed"),
    (
        "kube-scheduler's gangs",
        "admitted if the cluster has capacity (coscheduling), then placed pod by pod",
        "assumed",
    ),
)
_STREAMS = (
    ("sizes, GPU time, durations", "tables of Seren, Kalos, Helios, Philly", "InternLM/AcmeTrace (NSDI'24)"),
    (
        "durations of a size",
        "those of all jobs, cut off or skewed until the mean matches the GPU-time table",
        "railwright/simulator/job_stream.py; the tables do not combine sizes and durations",
    ),
    (
        "longest job",
        f"at most {job_stream.LONGEST / 86400:g} days, chosen so that the mean is the published one",
        "assumed",
    ),
    (
        "early failures",
        f"{job_stream.FAILED:.0%} of jobs with {job_stream.FAILED_GPU_TIME:.0%} of GPU time",
        "Acme Kalos; used for every stream, as no other is published",
    ),
    ("513..1023 GPUs", "768", "assumed: the middle of the table's step"),
    ("largest job", "half the cluster", "assumed: larger ones are omitted, other shares keep their proportions"),
    ("pods", f"one up to {job_stream.NODE} GPUs, above it pods of {job_stream.NODE} (--pod-gpus)", "usual practice"),
    ("arrivals", "Poisson, no day and night; the run starts with the jobs that would be running", "assumed"),
)
