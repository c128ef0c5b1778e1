"""Precedence and delivery of environment variables, and scripts that set them (docs/interface.md 2.3 and 3.3)."""

import subprocess

import pytest
from admitting import (
    LAUNCHER,
    admit_pod,
    build_facts,
    build_variables,
    cpu,
    decode_pod,
    fabric,
    gpus,
    list_messages,
    list_mounts,
    plan_pod,
    pod,
    read_env,
    read_record,
    read_skipped,
)
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric import admission

CONF = "railwright.io/nccl.conf"
BY_FILE = {"railwright.io/delivery": "file"}


def test_a_variable_that_the_user_sets_in_any_form_is_kept_and_recorded():
    policy = fabric("    env: {NCCL_DEBUG: INFO}\n")
    own = [
        {"name": "NCCL_DEBUG", "value": "WARN"},
        {"name": "NCCL_IB_HCA", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "NCCL_SOCKET_IFNAME", "value": "=eth0"},
    ]
    tree = admit_pod(pod(gpus(8, env=own)), policy)
    assert tree["spec"]["containers"][0]["env"][:3] == own
    assert read_record(tree)["kept"] == {"c": ["NCCL_DEBUG", "NCCL_IB_HCA"]}


def test_a_container_with_envfrom_gets_the_file_and_no_env_entries():
    source = [{"configMapRef": {"name": "settings"}}]
    tree = pod(gpus(8, envFrom=source))
    after = admit_pod(tree, fabric())
    assert "env" not in after["spec"]["containers"][0]
    assert after["metadata"]["annotations"][CONF] == "NCCL_SOCKET_IFNAME==eth0\nNCCL_IB_HCA==mlx5_0,mlx5_1\n"
    assert list_mounts(after) == {"/etc/nccl.conf": "railwright-nccl-conf"}
    (volume,) = after["spec"]["volumes"]
    assert volume["downwardAPI"]["items"] == [
        {"path": "nccl.conf", "fieldRef": {"fieldPath": "metadata.annotations['railwright.io/nccl.conf']"}}
    ]
    (warning,) = list_messages(plan_pod(tree, fabric()))
    assert (
        "whose values env would override, so railwright does not set GLOO_SOCKET_IFNAME, TP_SOCKET_IFNAME in env"
        in warning
    )
    own = pod(gpus(8, envFrom=source, env=[{"name": "GLOO_SOCKET_IFNAME", "value": "eth1"}]))
    (warning,) = list_messages(plan_pod(own, fabric()))
    assert "does not set TP_SOCKET_IFNAME in env" in warning


@pytest.mark.parametrize(
    ("annotation", "in_env", "in_file"),
    [
        (None, True, False),
        ("file", False, True),
        (" file", False, True),
        ("file\n", False, True),
        ("env", True, False),
    ],
)
def test_nccl_settings_are_environment_variables_unless_the_pod_asks_for_nccl_conf(annotation, in_env, in_file):
    annotations = {"railwright.io/delivery": annotation} if annotation else None
    after = admit_pod(pod(annotations=annotations), fabric())
    assert ("NCCL_IB_HCA" in read_env(after)) is in_env
    assert ("NCCL_IB_HCA" in after["metadata"]["annotations"].get(CONF, "")) is in_file
    assert ("/etc/nccl.conf" in list_mounts(after)) is in_file
    assert read_env(after)["GLOO_SOCKET_IFNAME"] == "eth0"  # a file cannot carry it


# --- the file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "own",
    [{"value": "mlx5_9"}, {"valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    ids=["value", "valueFrom"],
)
def test_nccl_conf_lacks_variables_that_the_container_sets_itself(own):
    mount = {"volumeMounts": [{"name": "keys", "mountPath": "/root/.ssh"}]}
    keys = [{"name": "keys", "secret": {"secretName": "keys"}}]
    after = admit_pod(pod(gpus(8, env=[{"name": "NCCL_IB_HCA", **own}], **mount), volumes=keys), fabric())
    assert after["metadata"]["annotations"][CONF] == "NCCL_SOCKET_IFNAME==eth0\n"
    assert read_record(after)["kept"] == {"c": ["NCCL_IB_HCA"]}
    assert "env.NCCL_IB_HCA" not in read_record(after)["added"]


@pytest.mark.parametrize("path", ["/etc", "/usr/../etc", "/etc/nccl.conf"])
def test_nccl_conf_is_not_mounted_over_or_into_a_volume_of_the_user(path):
    """With a ConfigMap mounted at /etc, the runtime cannot create the mount point, and the container does not start."""
    container = gpus(8, volumeMounts=[{"name": "own", "mountPath": path}])
    tree = pod(container, volumes=[{"name": "own", "configMap": {"name": "x"}}], annotations=BY_FILE)
    policy = fabric()
    after = admit_pod(tree, policy)
    assert list_mounts(after) == {path: "own"}
    assert after["spec"]["volumes"] == tree["spec"]["volumes"]
    assert "env.NCCL_IB_HCA" not in read_record(after)["added"]
    assert CONF not in after["metadata"]["annotations"]
    clean = "/etc/nccl.conf" if path.endswith("conf") else "/etc"
    assert [f"mounts {clean} itself" in warning for warning in list_messages(plan_pod(tree, policy))] == [True]
    assert read_skipped(after)["nccl.conf"] == "container c mounts /etc/nccl.conf itself"


MPI_WORKER = {"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-role": "worker"}


@pytest.mark.parametrize(
    ("labels", "mounted", "file"),
    [
        (MPI_WORKER, None, True),
        (MPI_WORKER | {"training.kubeflow.org/operator-name": "mpijob-controller"}, None, False),
        ({}, "/root/.ssh", True),
        ({}, "/root/.ssh/id_rsa", True),
        ({}, "/root/.sshd", False),
        ({}, "/etc/keys", False),
        ({"volcano.sh/job-name": "train"}, "/etc/keys", True),  # the volume of Volcano's ssh plugin
    ],
)
def test_ranks_started_by_ssh_get_the_file_and_environment_variables(labels, mounted, file):
    container = gpus(8, volumeMounts=[{"name": "train-ssh", "mountPath": mounted}] if mounted else [])
    keys = [{"name": "train-ssh", "secret": {"secretName": "keys"}}]
    after = admit_pod(pod(container, labels=labels, volumes=keys), fabric())
    assert ("/etc/nccl.conf" in list_mounts(after)) is file
    assert ("NCCL_IB_HCA" in after["metadata"]["annotations"].get(CONF, "")) is file
    assert "NCCL_IB_HCA" in read_env(after)


@pytest.mark.parametrize(
    ("container", "labels", "annotations"),
    [
        (gpus(8), {}, {}),
        (gpus(8), {}, {"railwright.io/skip": "env"}),
        (cpu(), LAUNCHER, {}),
        (cpu(), LAUNCHER, {"railwright.io/skip": "env"}),
        (cpu(), LAUNCHER | {"trainer.kubeflow.org/trainjob-ancestor-step": "model-initializer"}, {}),
    ],
    ids=["rank", "without env", "launcher", "launcher without env", "bystander"],
)
def test_a_forged_nccl_conf_annotation_is_emptied(container, labels, annotations):
    """Values that a user writes into railwright's own keys are never trusted (docs/interface.md 1.5)."""
    tree = pod(container, labels=labels, annotations={CONF: "NCCL_ALGO=Ring\n", **annotations})
    assert any(CONF in warning for warning in list_messages(plan_pod(tree, fabric())))
    after = admit_pod(tree, fabric())
    assert after["metadata"]["annotations"][CONF] == ""
    assert not any(CONF in warning for warning in list_messages(plan_pod(after, fabric())))


def test_a_value_too_long_for_nccl_conf_is_set_in_the_environment():
    policy = fabric(f"    env: {{NCCL_LONG: {'x' * 1024}, NCCL_SHORT: {'x' * 1023}}}\n")
    after = admit_pod(pod(annotations=BY_FILE), policy)
    assert "NCCL_LONG" in read_env(after)
    assert "NCCL_SHORT" not in read_env(after)
    assert "NCCL_SHORT=" in after["metadata"]["annotations"][CONF]


def test_env_of_the_policy_that_names_a_pod_interface_is_omitted_with_host_network():
    policy = fabric("    env: {NCCL_SOCKET_IFNAME: eth0, GLOO_SOCKET_IFNAME: eth0, TP_SOCKET_IFNAME: eth0, A: b}\n")
    assert read_env(admit_pod(pod(hostNetwork=True), policy)) == {"A": "b", "NCCL_IB_HCA": "=mlx5_0,mlx5_1"}


# --- libraries beside NCCL --------------------------------------------------------------------------------

FACTS = "    nccl: {trafficClass: 96, addressRange: 10.0.0.0/8}\n"
SIDE_CHANNEL = {"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def list_library_variables(tree: dict) -> dict:
    return {
        name: value for name, value in read_env(tree).items() if name.startswith(("NVSHMEM_", "UCX_", "OMPI_", "PRTE_"))
    }


def test_a_pod_that_sets_an_nvshmem_variable_gets_the_derived_nvshmem_variables():
    after = admit_pod(pod(gpus(8, env=[{"name": "NVSHMEM_DEBUG", "value": "INFO"}])), fabric(FACTS))
    assert list_library_variables(after) == {
        "NVSHMEM_DEBUG": "INFO",
        "NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "eth0",
        "NVSHMEM_HCA_LIST": "mlx5_0,mlx5_1",
        "NVSHMEM_ENABLE_NIC_PE_MAPPING": "1",
        "NVSHMEM_IB_ADDR_RANGE": "10.0.0.0/8",
    }


@pytest.mark.parametrize(
    ("name", "value", "others"),
    [
        ("NVSHMEM_HCA_LIST", "mlx5_7", {"NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "eth0"}),
        ("NVSHMEM_ENABLE_NIC_PE_MAPPING", "0", {"NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "eth0"}),
        ("NVSHMEM_HCA_PE_MAPPING", "mlx5_0:1:2", {"NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "eth0"}),
        ("UCX_TLS", "tcp", {}),
        ("UCX_NET_DEVICES", "mlx5_7:1", {}),
    ],
)
def test_a_device_list_that_the_user_set_for_a_library_is_kept(name, value, others):
    own = [{"name": name, "value": value}, *([SIDE_CHANNEL] if name.startswith("UCX") else [])]
    assert list_library_variables(admit_pod(pod(gpus(8, env=own)), fabric())) == {name: value} | others


def test_a_rank_that_uses_rdma_by_ucx_gets_devices_and_traffic_class_for_ucx():
    after = admit_pod(pod(gpus(8, env=[{"name": "UCX_TLS", "value": "rc,cuda"}])), fabric(FACTS))
    assert list_library_variables(after) == {
        "UCX_TLS": "rc,cuda",
        "UCX_IB_TRAFFIC_CLASS": "96",
        "UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1",
    }


RENAMED = '[{"name": "r0", "namespace": "prod", "interface": "ib0"}, {"name": "r1", "namespace": "prod"}]'


@pytest.mark.parametrize(
    ("annotations", "has_interface"),
    [
        ({}, True),
        ({"railwright.io/rails": "rail0"}, True),
        ({"railwright.io/rails": "rail1"}, False),
        ({"railwright.io/skip": "networks"}, False),
        ({"k8s.v1.cni.cncf.io/networks": RENAMED}, False),
    ],
)
def test_a_pod_gets_an_interface_variable_only_for_an_interface_that_it_has(annotations, has_interface):
    rails = "\n" + "\n".join(
        f"    - {{name: rail{index}, network: prod/r{index}, interface: rdma{index}, device: mlx5_{index}}}"
        for index in (0, 1)
    )
    policy = fabric("    primaryInterface: rdma0\n    mounts: {devInfiniband: true}\n", rails=rails)
    networks = build_facts(networks={("prod", "r0"): None, ("prod", "r1"): None})
    after = admit_pod(pod(annotations=annotations), policy, networks)
    interfaces = {value for name, value in read_env(after).items() if name.endswith("IFNAME")}
    assert interfaces == ({"rdma0", "=rdma0"} if has_interface else set())
    assert ("env.NCCL_SOCKET_IFNAME" in read_record(after)["skipped"]) != has_interface


def test_envfrom_with_a_prefix_sets_only_variables_with_that_prefix():
    prefixes = {"APP_": True, "NCCL_IB_": False, "GLOO_": False, "": False, None: False, 7: False, "nccl_": True}
    for prefix, by_env in prefixes.items():
        sources = [{"prefix": "X_", "secretRef": {"name": "a"}}, {"prefix": prefix, "secretRef": {"name": "s"}}]
        after = admit_pod(pod(gpus(8, envFrom=sources)), fabric())
        assert (read_env(after).get("NCCL_IB_HCA") == "=mlx5_0,mlx5_1") == by_env, prefix
        assert (CONF in after["metadata"]["annotations"]) != by_env, prefix


def test_the_primary_interface_of_a_fabric_may_be_that_of_a_rail():
    by = fabric("    primaryInterface: net1\n")
    assert read_env(admit_pod(pod(), by))["NCCL_SOCKET_IFNAME"] == "=net1"
    assert (
        read_env(admit_pod(pod(gpus(8, env=build_variables(NCCL_SOCKET_IFNAME="eth0"))), by))["NCCL_SOCKET_IFNAME"]
        == "eth0"
    )


# --- LD_LIBRARY_PATH is extended and never replaced -------------------------------------------------------------

WITH_LIBRARIES = fabric("    libraryPath: [/v/lib64, /w]\n")
LIBRARY_PATH = "LD_LIBRARY_PATH"


def read_path(**container):
    return read_env(admit_pod(pod(gpus(8, **container)), WITH_LIBRARIES)).get(LIBRARY_PATH)


def test_library_directories_are_appended_to_those_of_the_container():
    assert read_path() == "/v/lib64:/w"
    assert read_path(env=build_variables(LD_LIBRARY_PATH="/a:/b")) == "/a:/b:/v/lib64:/w"
    assert read_path(env=build_variables(LD_LIBRARY_PATH="/w:/a")) == "/w:/a:/v/lib64"
    assert read_path(env=build_variables(LD_LIBRARY_PATH="")) == "/v/lib64:/w"
    assert read_path(env=build_variables(LD_LIBRARY_PATH="/v/lib64/x:/ww")) == "/v/lib64/x:/ww:/v/lib64:/w"


@pytest.mark.parametrize(
    "container",
    [
        {"env": [{"name": LIBRARY_PATH, "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]},
        {"envFrom": [{"configMapRef": {"name": "c"}}]},
    ],
    ids=["valueFrom", "envFrom"],
)
def test_a_library_path_from_valuefrom_or_envfrom_is_kept_with_a_warning(container):
    tree = pod(gpus(8, **container))
    assert "VariablesLeftToEnvFrom" in [warning.code for warning in plan_pod(tree, WITH_LIBRARIES).warnings]
    assert (" valueFrom" if "env" in container else " envFrom") in read_skipped(admit_pod(tree, WITH_LIBRARIES))[
        f"env.{LIBRARY_PATH}"
    ]
    entries = [
        entry
        for entry in admit_pod(tree, WITH_LIBRARIES)["spec"]["containers"][0].get("env", [])
        if entry["name"] == LIBRARY_PATH
    ]
    assert entries == container.get("env", [])


# --- a script before the command --------------------------------------------------------------------------------

WITH_SCRIPT = fabric("    sourceScript: /v/env.sh\n")
SCRIPT = ["/bin/bash", "-c", '. /v/env.sh && exec "$0" "$@"']


@given(st.lists(st.text(max_size=8), min_size=1, max_size=4), st.none() | st.lists(st.text(max_size=8), max_size=2))
def test_a_sourced_script_leaves_command_and_arguments_unchanged(command, args):
    more = {} if args is None else {"args": args}
    once = admit_pod(pod(gpus(8, command=command, **more)), WITH_SCRIPT)
    container = once["spec"]["containers"][0]
    assert container["command"] == [*SCRIPT, *command]
    assert container.get("args") == args


@pytest.mark.parametrize("by", [fabric(), fabric("    sourceScript: /v/env.sh\n")], ids=["plain", "sourced"])
def test_lint_reads_the_command_that_follows_a_sourced_script(by):
    tree = pod(gpus(8, command=["bash", "-c", "export NCCL_IB_DISABLE=1; train"]))
    assert "N31" in [warning.code for warning in admission.plan_pod(decode_pod(tree), by, build_facts()).warnings]


def test_a_warning_says_that_the_script_is_not_sourced_in_a_container_without_a_command():
    tree = pod(gpus(8, args=["--x"]))
    assert "has no command, so /v/env.sh is not sourced" in list_messages(plan_pod(tree, WITH_SCRIPT))[0]
    after = admit_pod(tree, WITH_SCRIPT)
    assert "command" not in after["spec"]["containers"][0]
    assert "sourceScript" in read_record(after)["skipped"]


def test_the_shell_runs_the_program_with_its_original_arguments(tmp_path):
    script = tmp_path / "env.sh"
    script.write_text("export A=set\n")
    words = ["/bin/sh", "-c", 'printf "%s|" "$A" "$@"', "sh", "a b", "$HOME", "'"]
    command = [*SCRIPT[:2], SCRIPT[2].replace("/v/env.sh", str(script)), *words]
    assert subprocess.run(command, capture_output=True, check=True, text=True).stdout == "set|a b|$HOME|'|"
    script.unlink()
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
