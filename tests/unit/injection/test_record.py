"""The injection record, and the size limit of all annotations (docs/interface.md 1.5 and 5)."""

from admitting import LAUNCHER, admit_pod, cpu, fabric, gpus, pod, read_env, read_record

from railwright.fabric import version
from railwright.fabric.injection import plan
from railwright.fabric.reasons.codes import VariableCode

UCX = [{"name": "UCX_TLS", "value": "rc"}]


def test_the_record_has_the_changes_and_the_policy():
    policy = fabric("    security: {capabilities: [IPC_LOCK]}\n")
    own = gpus(8, name="pytorch", env=[{"name": "NCCL_IB_HCA", "value": "mlx5"}])
    written = read_record(admit_pod(pod(own), policy))
    order = "version,policy,fabric,role,containers,rails,added,kept,skipped,reasons"
    assert ",".join(written) == order
    assert written == {
        "version": version.VERSION,
        "policy": policy.digest,
        "fabric": "f",
        "role": "worker",
        "containers": ["pytorch"],
        "rails": ["rail0", "rail1"],
        "added": [
            "networks",
            "devices",
            "security.IPC_LOCK",
            "env.NCCL_SOCKET_IFNAME",
            "env.GLOO_SOCKET_IFNAME",
            "env.TP_SOCKET_IFNAME",
        ],
        "kept": {"pytorch": ["NCCL_IB_HCA"]},
        "skipped": {
            "env.NCCL_IB_GID_INDEX": {
                "code": "ValueUnstated",
                "message": "the policy does not state the value, and no init container finds it",
            }
        },
        "reasons": {
            "env.NCCL_SOCKET_IFNAME": "InterfaceOffRails",
            "env.GLOO_SOCKET_IFNAME": "InterfaceOffRails",
            "env.TP_SOCKET_IFNAME": "InterfaceOffRails",
        },
    }


def test_every_recorded_variable_has_a_reason_with_its_source():
    policy = fabric("    env: {A: b, NVSHMEM_DEBUG: WARN, OMPI_MCA_pml: ucx}\n    nccl: {trafficClass: 96}\n")
    launcher = pod(cpu(), labels=LAUNCHER)
    trees = pod(), pod(gpus(8, envFrom=[{"secretRef": {"name": "s"}}])), pod(gpus(8, env=UCX)), launcher
    for tree in trees:
        written = read_record(admit_pod(tree, policy))
        variables = [entry for entry in written["added"] if entry.startswith("env.")]
        assert variables
        assert list(written["reasons"]) == variables
        assert all(VariableCode(code).meaning.endswith(")") for code in written["reasons"].values())
    assert read_record(admit_pod(pod(), policy))["reasons"]["env.A"] == "SetByPolicy"


def test_a_second_admission_under_a_changed_policy_adds_only_missing_parts():
    once = admit_pod(pod(), fabric())
    policy = fabric("    env: {NCCL_IB_HCA: other, NEW: '1'}\n")
    again = admit_pod(once, policy)
    assert read_env(again)["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1"
    assert read_env(again)["NEW"] == "1"
    assert read_record(again)["policy"] == policy.digest
    assert read_record(again)["kept"] == {"c": ["NCCL_IB_HCA"]}


def filler(left: int) -> dict:
    """Return annotations that leave `room` bytes below the limit."""
    return {"fill": "x" * (plan.MAX_ANNOTATIONS - len("fill") - left)}


def test_a_record_at_the_size_limit_fits_at_the_second_admission_too():
    needed = sum(len(k) + len(v) for k, v in admit_pod(pod(), fabric())["metadata"]["annotations"].items())
    once = admit_pod(pod(annotations=filler(needed)), fabric())
    assert "railwright.io/injection" in once["metadata"]["annotations"]
    assert (
        "railwright.io/injection"
        not in admit_pod(pod(annotations=filler(needed - 1)), fabric())["metadata"]["annotations"]
    )
