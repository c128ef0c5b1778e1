"""Rank contexts: the NCCL settings that have an effect in each rank's container, by their precedence."""

import admitting
import pytest
from admitting import build_variables

from railwright.fabric.injection import plan
from railwright.fabric.lint import engine, rank_contexts, rule_types

CONF = {"railwright.io/nccl.conf": "# ours\nNCCL_IB_SL=4\nNCCL_IB_TIMEOUT=4\n"}
FILE = {"volumeMounts": [{"name": "f", "mountPath": "/etc/nccl.conf"}]}


def ranks(tree, **around):
    pod = admitting.decode_pod(tree)
    networks = rank_contexts.parse_pod_networks(pod, "prod")
    return rank_contexts.build_context(pod, 0, rank_contexts.JobContext(networks=networks, **around))


def test_a_variable_is_taken_from_mpirun_before_script_environment_and_nccl_conf():
    script = "export NCCL_IB_TIMEOUT=2 NCCL_IB_TC=2\nmpirun -x NCCL_IB_TIMEOUT=1 train"
    entries = build_variables(NCCL_IB_TIMEOUT="3", NCCL_IB_TC="3", NCCL_IB_RETRY_CNT="3")
    tree = admitting.pod(admitting.gpus(8, command=["sh", "-c", script], env=entries, **FILE), annotations=CONF)
    contexts = ranks(tree)
    names = ("NCCL_IB_TIMEOUT", "NCCL_IB_TC", "NCCL_IB_RETRY_CNT", "NCCL_IB_SL")
    assert [contexts.get_value(name) for name in names] == ["1", "2", "3", "4"]
    places = [contexts.get_setting(name).where for name in names]
    assert places == ["command: -x", "command: export", "env[2]", "line 2"]


def test_nccl_conf_is_read_only_in_a_container_that_mounts_it():
    assert ranks(admitting.pod(admitting.gpus(8), annotations=CONF)).settings == ()
    contexts = ranks(admitting.pod(admitting.gpus(8, **FILE), annotations=CONF))
    assert [(setting.name, setting.where) for setting in contexts.settings] == [
        ("NCCL_IB_SL", "line 2"),
        ("NCCL_IB_TIMEOUT", "line 3"),
    ]


def test_a_variable_that_mpirun_passes_by_name_has_the_value_from_the_env_of_its_container():
    tree = admitting.pod(
        admitting.gpus(
            8, command=["mpirun", "-x", "NCCL_IB_SL", "-x", "NCCL_DEBUG"], env=build_variables(NCCL_IB_SL="9")
        )
    )
    passed = rank_contexts.list_passed_settings(admitting.decode_pod(tree), 0)
    assert [(setting.name, setting.value) for setting in passed] == [("NCCL_IB_SL", "9"), ("NCCL_DEBUG", None)]


def test_a_rank_context_has_the_resources_mounts_and_privileges_of_its_container():
    tree = admitting.pod(
        admitting.gpus(
            8,
            resources={"limits": {"nvidia.com/gpu": "8", "rdma/hca": "2", "hugepages-2Mi": "1Gi", "cpu": "4"}},
            volumeMounts=[{"name": "shm", "mountPath": "/dev/shm"}, {"name": "h", "mountPath": "/h"}],
            securityContext={"capabilities": {"add": ["IPC_LOCK"]}},
        ),
        annotations={"k8s.v1.cni.cncf.io/networks": "a,b@rail1"},
        label=None,
        volumes=[
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
            {"name": "h", "hostPath": {"path": "/"}},
        ],
        securityContext={"runAsUser": 1000},
    )
    contexts = ranks(tree)
    assert (contexts.accelerators, contexts.devices) == (8, {"rdma/hca": 2})
    assert (contexts.capabilities, contexts.run_as_user, contexts.privileged) == (frozenset({"IPC_LOCK"}), 1000, False)
    assert (contexts.mounts, contexts.shared_memory) == ({"/dev/shm": "other", "/h": "hostPath"}, 2 << 30)
    assert contexts.fabric_context.interfaces == ("eth0", "net1", "rail1")
    assert contexts.fabric_context.rail_interfaces == ("net1", "rail1")
    assert contexts.image == "i"


def test_too_small_shared_memory_is_attributed_to_the_policy_that_set_it():
    by = admitting.fabric("    mounts: {sharedMemory: 256Mi}\n")
    injected = plan.plan_pod(admitting.decode_pod(admitting.pod(admitting.gpus(8))), by, admitting.build_facts())
    use = rank_contexts.build_full_use(by.document, by.document.fabrics["f"])
    findings = engine.check_ranks(
        rank_contexts.build_context(injected.pod, 0, rank_contexts.JobContext(use=use, networks=()))
    )
    assert any("the policy's memory volume at /dev/shm" in finding.message for finding in findings), findings


@pytest.mark.parametrize(
    "more",
    [
        {"hostNetwork": True},
        {"resourceClaims": [{"name": "nic"}]},
    ],
)
def test_interfaces_are_unknown_with_host_network_or_resource_claims(more):
    assert ranks(admitting.pod(admitting.gpus(8), label=None)).fabric_context.interfaces == ("eth0",)
    assert ranks(admitting.pod(admitting.gpus(8), label=None, **more)).fabric_context.interfaces is None


def test_an_opted_in_pod_is_not_reported_for_lacking_variables_that_the_webhook_adds():
    networks = {"k8s.v1.cni.cncf.io/networks": "a"}
    opted = engine.check_ranks(ranks(admitting.pod(admitting.gpus(8), annotations=networks)))
    alone = engine.check_ranks(ranks(admitting.pod(admitting.gpus(8), annotations=networks, label=None)))
    assert "N18" not in {violation.code for violation in opted}
    assert "N18" in {violation.code for violation in alone}


@pytest.mark.parametrize(
    ("words", "launcher", "runs_script"),
    [
        (["/launch/run"], "", True),
        (["bash", "-c", "sleep 10\nbash /launch/run.sh --steps 3"], "", True),
        (["bash", "-c", 'exec "$LAUNCHER"'], "/launch/run.sh", True),
        (["bash", "-c", "bash /opt/run.sh"], "", False),
        (["bash", "-c", "train --config /launch/values.yaml"], "", False),
        (["bash", "-c", "/" * 300_000], "", False),  # takes an hour if each path is searched from each of its steps
    ],
)
def test_a_command_that_runs_a_script_of_a_config_map_is_recognized(words, launcher, runs_script):
    mount = {"volumeMounts": [{"name": "launch", "mountPath": "/launch"}]}
    tree = admitting.pod(admitting.gpus(8, command=words, env=build_variables(LAUNCHER=launcher), **mount))
    tree["spec"]["volumes"] = [{"name": "launch", "configMap": {"name": "launch"}}]
    assert ranks(tree).has_hidden_names is runs_script


@pytest.mark.parametrize(
    "name",
    ["rdma/hca_shared_devices_a", "nvidia.com/mlx5_0", "nvidia.com/mlnx_roce", "aliyun/erdma", "vpc.amazonaws.com/efa",
     "nvidia.com/sriov-rdma-vf", "openshift.io/mellanoxnics", "nvidia.com/hostdev", "example.com/ib0", "x.y/cx7"],
)  # fmt: skip
def test_resource_names_of_common_rdma_device_plugins_are_recognized(name):
    assert rule_types.is_rdma_resource(name)


@pytest.mark.parametrize(
    "name",
    ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "example.com/performance", "example.com/library", "x.y/attribute"],
)
def test_resource_names_that_only_contain_rdma_letters_are_not_recognized(name):
    assert not rule_types.is_rdma_resource(name)
