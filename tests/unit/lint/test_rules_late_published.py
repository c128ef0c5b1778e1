"""Settings that vendors publish: exactly which of the rules N23 to N60 speak, and why that is no false alarm.

After our notes on the manifests and guides named beside each, abridged to what concerns NCCL; not copies of them.
"""

import msgspec
import pytest
import yaml
from admitting import EXAMPLES

from railwright.fabric.lint import engine, fabric_context, rank_contexts, rule_types, settings, workloads

POD = {"accelerators": 8, "shared_memory": 32 << 30, "capabilities": frozenset({"IPC_LOCK"}), "count": 2, "job": 16}


def build(template):
    networks = fabric_context.parse_networks(template.pod, "prod")
    return rank_contexts.build(template.pod, 0, rank_contexts.JobContext(networks=networks, count=template.count))


def worker(origin=rule_types.Origin.ENV, /, *, more=None, **values):
    """Eight GPUs, room in /dev/shm and memory that may be locked, but for what is said."""
    entries = tuple(msgspec.structs.replace(entry, origin=origin) for entry in settings.build_env(**values))
    return rule_types.RankContext("worker", entries, **{**POD, **(more or {})})


PUBLISHED = {
    # coreweave/nccl-tests mpi-operator/nccl-test-distributed-h100-64-mpijob.yaml
    "coreweave-infiniband": (
        worker(
            rule_types.Origin.MPIRUN,
            NCCL_SOCKET_IFNAME="eth0",
            NCCL_IB_HCA="ibp",
            UCX_NET_DEVICES="ibp0:1,ibp1:1,ibp2:1,ibp3:1,ibp4:1,ibp5:1,ibp6:1,ibp7:1",
            SHARP_COLL_ENABLE_PCI_RELAXED_ORDERING="1",
            NCCL_COLLNET_ENABLE="0",
            more={"devices": {"rdma/ib": 1}, "capabilities": frozenset(), "shared_memory": 0},
        ),
        {"N45"},  # unless it selects nodes of CoreWeave, see tests/data/lint/vendors.yaml
    ),
    # coreweave/nccl-tests mpi-operator/nccl-test-distributed-gb300-roce-nvl72-mpijob.yaml
    "coreweave-roce": (
        worker(
            rule_types.Origin.MPIRUN,
            NCCL_SOCKET_IFNAME="eth0",
            NCCL_IB_HCA="ibp",
            NCCL_IB_ADDR_FAMILY="AF_INET6",
            NCCL_IB_ADDR_RANGE="fd00::/8",
            NCCL_IB_ROCE_VERSION_NUM="2",
            NCCL_IB_TC="96",
            NCCL_IB_ADAPTIVE_ROUTING="1",
            NCCL_NET="IB",
            NCCL_NET_PLUGIN="none",
            UCX_TLS="tcp",
            UCX_NET_DEVICES="eth0",
            more={"devices": {"rdma/ib": 1}, "accelerators": 4, "privileged": True},
        ),
        set(),
    ),
    # oracle-quickstart/oci-hpc-oke manifests/nccl-tests/kueue/BM.GPU.H100.8.yaml: the host's network
    "oracle-host-network": (
        worker(
            rule_types.Origin.MPIRUN,
            NCCL_DEBUG="WARN",
            NCCL_CUMEM_ENABLE="0",
            NCCL_IB_SPLIT_DATA_ON_QPS="0",
            NCCL_IB_QPS_PER_CONNECTION="4",
            NCCL_IB_GID_INDEX="3",
            NCCL_IB_TC="41",
            NCCL_IB_SL="0",
            NCCL_IB_TIMEOUT="22",
            NCCL_NET_PLUGIN="none",
            NCCL_SOCKET_IFNAME="eth0",
            NCCL_IB_HCA="=" + ",".join(f"mlx5_{n}" for n in (0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17)),
            OMPI_MCA_coll="^hcoll",
            more={"privileged": True},
        ),
        set(),
    ),
    # oracle-quickstart/oci-hpc-oke manifests/.../virtual-functions/BM.GPU.H100.8.yaml
    "oracle-virtual-functions": (
        worker(
            rule_types.Origin.MPIRUN,
            NCCL_IB_QPS_PER_CONNECTION="4",
            NCCL_IB_GID_INDEX="3",
            NCCL_IB_TC="41",
            NCCL_IB_SL="0",
            NCCL_NET_PLUGIN="none",
            NCCL_IB_HCA="mlx5",
            more={"devices": {"nvidia.com/sriov-rdma-vf": 16}, "privileged": True, "networks": 16},
        ),
        set(),  # a function of each port of a whole node
    ),
    # GoogleCloudPlatform/container-engine-accelerators gpudirect-rdma/nccl-test-a4.yaml
    "google-a4": (
        worker(
            NCCL_NET="gIB",
            NCCL_CROSS_NIC="0",
            NCCL_NET_GDR_LEVEL="PIX",
            NCCL_P2P_NET_CHUNKSIZE="131072",
            NCCL_NVLS_CHUNKSIZE="524288",
            NCCL_IB_ADAPTIVE_ROUTING="1",
            NCCL_IB_QPS_PER_CONNECTION="4",
            NCCL_IB_TC="52",
            NCCL_IB_FIFO_TC="84",
            NCCL_TUNER_CONFIG_PATH="/usr/local/gib/configs/tuner_config_a4.txtpb",
            more={"mounts": {"/usr/local/gib": "hostPath"}},
        ),
        set(),
    ),
    # Azure/aks-rdma-infiniband tests/scenarios, on nodes of Azure/azhpc-images
    "azure-infiniband": (
        worker(
            rule_types.Origin.MPIRUN,
            NCCL_TOPO_FILE="/opt/microsoft/ndv5-topo.xml",
            NCCL_IB_PCI_RELAXED_ORDERING="1",
            NCCL_NET_GDR_LEVEL="SYS",
            NCCL_DEBUG="INFO",
            UCX_TLS="tcp",
            more={"devices": {"rdma/shared_ib": 1}, "mounts": {"/opt/microsoft": "hostPath"}},
        ),
        {"N43"},  # a benchmark's log level; for information
    ),
    "azure-infiniband-without-the-file": (
        worker(NCCL_TOPO_FILE="/opt/microsoft/ndv5-topo.xml", more={"devices": {"rdma/shared_ib": 1}}),
        {"N40"},
    ),
    # AliyunContainerService/alibabacloud-erdma-controller docs/erdma-benchmark
    "alibaba-ack": (
        worker(
            rule_types.Origin.MPIRUN,
            NCCL_SOCKET_IFNAME="eth0",
            NCCL_IB_GID_INDEX="1",
            NCCL_IB_ADDR_FAMILY="AF_INET",
            NCCL_IB_ADDR_RANGE="10.0.0.0/8",
            NCCL_IB_ROCE_VERSION_NUM="2",
            NCCL_NET_GDR_LEVEL="SYS",
            NCCL_GRAPH_FILE="/etc/nccl/graph.xml",
            OMPI_MCA_btl_tcp_if_include="eth0",
            OMPI_MCA_oob_tcp_if_include="eth0",
            more={"devices": {"aliyun/erdma": 2}, "mounts": {"/etc/nccl": "other"}},
        ),
        set(),
    ),
    # Alibaba Cloud PAI, NCCL over eRDMA
    "alibaba-pai": (
        worker(
            NCCL_SOCKET_IFNAME="eth0",
            NCCL_IB_HCA="erdma",
            NCCL_IB_GID_INDEX="1",
            NCCL_IB_QPS_PER_CONNECTION="8",
            NCCL_MIN_NCHANNELS="16",
            NCCL_NET_PLUGIN="none",
            NCCL_DEBUG="INFO",
            more={"devices": {"aliyun/erdma": 2}},
        ),
        {"N43", "N60"},  # a benchmark's log level, and a name with a successor; both for information
    ),
    # aws-samples/awsome-distributed-training, nccl-tests on EKS
    "aws-efa": (
        worker(
            rule_types.Origin.MPIRUN,
            FI_PROVIDER="efa",
            FI_EFA_USE_DEVICE_RDMA="1",
            FI_EFA_FORK_SAFE="1",
            NCCL_SOCKET_IFNAME="^docker,lo,veth",
            NCCL_DEBUG="INFO",
            NCCL_BUFFSIZE="8388608",
            NCCL_P2P_NET_CHUNKSIZE="524288",
            more={"devices": {"vpc.amazonaws.com/efa": 32}, "shared_memory": None, "mounts": {"/dev/shm": "hostPath"}},
        ),
        {"N43"},
    ),
    "aws-efa-with-leftovers": (
        worker(
            NCCL_PROTO="simple",
            RDMAV_FORK_SAFE="1",
            NCCL_IB_DISABLE="1",
            more={"devices": {"vpc.amazonaws.com/efa": 4}},
        ),
        {"N27", "N34", "N55"},  # what the plugin's own document tells to remove
    ),
    # kubernetes-sigs/dranet, examples for Alibaba ACK: one GPU in a pod
    "dranet-one-gpu": (
        worker(
            NCCL_SHM_DISABLE="1",
            NCCL_SOCKET_IFNAME="eth0",
            NCCL_IB_HCA="erdma",
            more={"accelerators": 1, "shared_memory": None},
        ),
        set(),  # no neighbour to share memory with
    ),
    "dranet-copied-to-eight-gpus": (worker(NCCL_SHM_DISABLE="1"), {"N38"}),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_exactly_these_rules_speak_of_what_is_published(name):
    ranks, expected = PUBLISHED[name]
    assert {finding.code for finding in engine.check(ranks) if int(finding.code[1:]) >= 23} == expected


@pytest.mark.parametrize("site", ["360-roce", "360-infiniband"])
def test_a_job_written_by_hand_learns_what_it_lacks(site):
    tree = yaml.safe_load((EXAMPLES / site / "handwritten.yaml").read_text())
    (workload,) = workloads.read(tree)
    for template in workload.templates:
        ranks = build(template)
        codes = {finding.code for finding in engine.check(ranks) if int(finding.code[1:]) >= 23}
        # Room in /dev/shm and memory that may be locked are what the site's own policy adds; the log level is a remark.
        assert codes == {"N43", "N45", "N46"}


def test_a_job_that_leaves_it_to_the_webhook_gets_no_warning_about_what_it_leaves_out():
    for site in ("360-roce", "360-infiniband"):
        (workload,) = workloads.read(yaml.safe_load((EXAMPLES / site / "job.yaml").read_text()))
        for template in workload.templates:
            ranks = build(template)
            assert not [finding for finding in engine.check(ranks) if finding.severity is not rule_types.Severity.INFO]
