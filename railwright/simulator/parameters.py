"""Every number the simulation rests on, with its source: the one table that its figures are to be read beside."""

import msgspec

from railwright.fabric.placement import bandwidth
from railwright.simulator import choosers, distributions, schedulers, streams


class Parameter(msgspec.Struct, frozen=True):
    """One number or rule."""

    name: str
    value: str
    source: str


def table() -> tuple[Parameter, ...]:
    """The parameters, as the modules use them."""
    return tuple(Parameter(*row) for row in (*_MODEL, *_NODE, *_SCHEDULERS, *_STREAMS))


_MODEL = (
    ("gang", "min(worst member, worst crossing)", "a ring runs at its slowest edge; NVIDIA/nccl src/graph"),
    (
        "member",
        "sum over the rails all members have / rails wanted",
        "scheduling notes 3.4; a 6-of-8-rail node caps 6/8",
    ),
    (
        "rail, other NUMA node",
        f"{bandwidth.MISALIGNED}",
        "29.68 of 46.93 GB/s, all-reduce 8 GB, two a4-highgpu-8g: google/dranet, Kubernetes Network Driver Model",
    ),
    ("rail, degraded", f"{bandwidth.DEGRADED}", "ours: allocatable below capacity, between whole and gone"),
    ("rail, g gangs on the NIC", "1/g", "0.62 of two NICs measured for a pair: llm-d blog 2026-08-20"),
    (
        "g mates on one NIC",
        "1/g",
        "as strangers: NCCL takes pods with host names of their own for different hosts, NVIDIA/nccl src/misc/utils.cc",
    ),
    (
        "crossing of a domain",
        "min(1, nodes x links / (oversubscription x crossings))",
        "scheduling notes 3.3: 1:1 MegaScale, 1.067:1 and 15:1 Alibaba HPN (SIGCOMM'24), 7:1 Meta RoCE (SIGCOMM'24)",
    ),
    (
        "links",
        "rails of the fabric / rails of the gang where rails share uplinks (placement.uplinks: bundle), else 1",
        "ours: a top-of-rack switch has one bundle upwards for all rails of its nodes",
    ),
    ("node without a domain label", "a domain of one node", "ours: nothing is known of its links"),
    ("left out", "latency, congestion by other jobs, cross-rail hops, NCCL's choice of rings and trees", "ours"),
)
_NODE = (
    (
        "devices a pod gets",
        "best-effort: the narrowest NUMA nodes with room, the lowest, first fit",
        "kubernetes pkg/kubelet/cm/topologymanager, cm/devicemanager",
    ),
    (
        "NodeResourceTopology",
        "up to date as soon as pods are; --no-reports leaves it out",
        "ours; railwright then infers NUMA from node shapes and what is bound",
    ),
    ("rails of a pod", "ceil(GPUs x rails / GPUs per node)", "CONTRACT section 2, railsPerPod: proportional"),
)
_SCHEDULERS = (
    (
        "nodes offered by default",
        (
            f"all up to {schedulers.LEAST_OFFERED}, else max({schedulers.LEAST_OFFERED}, N x "
            f"max({schedulers.LEAST_PERCENT}, {schedulers.BASE_PERCENT} - N/{schedulers.NODES_A_PERCENT}) %), "
            "from where the last search ended"
        ),
        "volcano-sh/volcano pkg/scheduler/util/scheduler_helper.go; kubernetes pkg/scheduler/schedule_one.go",
    ),
    (
        "own points",
        "LeastAllocated + BalancedAllocation of processors and memory, weight 1 each: 0..200",
        "volcano pkg/scheduler/plugins/nodeorder; kubernetes plugins/noderesources",
    ),
    (
        "processors, memory of a GPU",
        (
            f"{schedulers.CORES_A_GPU:g} of {schedulers.CORES:g} cores, {schedulers.MEMORY_A_GPU:g} of "
            f"{schedulers.MEMORY:g} GiB a node"
        ),
        "ours; usual ratios of 8-GPU nodes",
    ),
    (
        "agents on every node",
        f"0..{schedulers.AGENTS_CORES:g} cores, 0..{schedulers.AGENTS_MEMORY:g} GiB by chance",
        "ours: the noise in the scheduler's own points",
    ),
    ("Volcano adds", "raw, railwright's 0..100 x placement.scale (10)", "volcano pkg/scheduler/plugins/extender"),
    (
        "kube-scheduler adds",
        f"10 less the root of the points lost to the best, x weight {schedulers.KUBE_WEIGHT} x 10",
        "kubernetes pkg/scheduler/extender.go; the weight is our example's",
    ),
    ("one feasible node", "taken without scoring", "both schedulers"),
    ("binpack", f"GPU share in use x 100 x {choosers.Binpack.scale:g}", "binpack.weight in Volcano's example"),
    ("greedy", "leaf of a mate 75, its spine 25, packing 0..25; x 10", "ours: locality without a plan"),
    ("queue", "in order of arrival, passed over where it does not fit, tried again whenever a job ends", "ours"),
    ("kube-scheduler's gangs", "admitted when the cluster has room (coscheduling), then pod by pod", "ours"),
)
_STREAMS = (
    ("sizes, GPU time, durations", "tables of Seren, Kalos, Helios, Philly", "InternLM/AcmeTrace (NSDI'24)"),
    (
        "durations of a size",
        "all jobs', cut or bent until the mean is what the GPU-time table asks",
        "railwright/simulator/streams.py; the tables do not hold sizes and durations together",
    ),
    ("longest job", f"at most {distributions.LONGEST / 86400:g} days, such that the mean is the published one", "ours"),
    (
        "early deaths",
        f"{distributions.FAILED:.0%} of jobs with {distributions.FAILED_GPU_TIME:.0%} of GPU time",
        "Acme Kalos; for lack of others taken for every stream",
    ),
    ("513..1023 GPUs", "768", "ours: the middle of the table's step"),
    ("largest job", "half the cluster", "ours: larger ones are left out, the other shares kept to each other"),
    ("pods", f"one up to {streams.NODE} GPUs, beyond it pods of {streams.NODE} (--pod-gpus)", "usual practice"),
    ("arrivals", "Poisson, no day and night; the run begins with the jobs that would be running", "ours"),
)
