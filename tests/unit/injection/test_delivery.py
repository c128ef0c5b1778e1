"""The init container's results reach ranks by their environment or by files; some reach none."""

import ipaddress

import admitting
import peers
import pytest
from admitting import admit_pod, build_variables, gpus, list_mounts, plan_pod, pod, read_env, read_record, read_skipped

from railwright.fabric import names
from railwright.fabric.nccl import derive
from railwright.preflight import expected, files
from railwright.preflight import host as hosts

RAILS = "\n    - {name: rail0, network: prod/lan2, resource: nvidia.com/mlx5_0}"
NEW = {"file_keys": True, "offered": frozenset(("nvidia.com/mlx5_0", "nvidia.com/gpu", "cpu"))}
FOUND = {
    *("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_ADDR_FAMILY", "UCX_NET_DEVICES", "UCX_IB_GID_INDEX"),
    *("NVSHMEM_HCA_LIST", "NVSHMEM_ENABLE_NIC_PE_MAPPING", "NVSHMEM_IB_GID_INDEX", "NVSHMEM_IB_ADDR_FAMILY"),
    *("MC_GID_INDEX", "UCCL_IB_GID_INDEX", "MORI_RDMA_DEVICES", "MORI_IB_GID_INDEX"),
}
SSH = {"training.kubeflow.org/operator-name": "mpi-operator", "training.kubeflow.org/job-role": "worker"}


def fabric(more: str = "", transport: str = "roce"):
    return admitting.fabric(f"    resolve: auto\n{more}", rails=RAILS, transport=transport)


def list_read(tree: dict) -> set[str]:
    """Return the variables that kubelet reads from the file."""
    (container,) = tree["spec"]["containers"]
    read = {}
    for entry in container["env"]:
        if reference := entry.get("valueFrom", {}).get("fileKeyRef"):
            assert reference == {
                "volumeName": "railwright-rails", "path": "rails.env", "key": entry["name"], "optional": True
            }  # fmt: skip
            read[entry["name"]] = reference
    return set(read)


def admit(tree: dict, more: str = "", transport: str = "roce", **known) -> dict:
    policy, at = fabric(more, transport), admitting.build_facts(**(NEW | known))
    return admit_pod(tree, policy, at)


def test_values_that_the_init_container_finds_become_environment_variables():
    after = admit(pod())
    assert list_read(after) == FOUND
    assert {"name": "railwright-rails", "emptyDir": {}} in after["spec"]["volumes"]
    (container,) = after["spec"]["containers"]
    assert {"name": "railwright-rails", "mountPath": "/run/railwright", "readOnly": True} in container["volumeMounts"]
    assert "/etc/nccl.conf" not in list_mounts(after)
    (init,) = after["spec"]["initContainers"]
    assert {"name": "railwright-rails", "mountPath": "/run/railwright"} in init["volumeMounts"]
    assert init["command"][init["command"].index("--write") + 1] == "/run/railwright"
    assert "NCCL_SOCKET_IFNAME==eth0" in init["command"]


@pytest.mark.parametrize(
    ("more", "known"),
    [
        ("", {"file_keys": False}),
        ("", {"offered_by_old": frozenset({"nvidia.com/mlx5_0"})}),
        ("", {"offered": frozenset(("nvidia.com/gpu", "cpu"))}),
        ("", {"offered": None}),
        ("    delivery: files\n", {}),
    ],
    ids=["old API server", "old node of the fabric", "no node of the fabric", "unknown nodes", "policy"],
)
def test_found_values_are_files_unless_api_server_and_kubelets_are_new_enough(more, known):
    after = admit(pod(), more, **known)
    assert list_read(after) == set()
    assert read_env(after)["NCCL_CONF_FILE"] == "/run/railwright/nccl.conf"
    assert read_env(after)["UCX_CONFIG_DIR"] == "/run/railwright"
    (container,) = after["spec"]["containers"]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["mountPath"] == "/etc/nccl.conf"]
    assert mount == {
        "name": "railwright-rails", "mountPath": "/etc/nccl.conf", "subPath": "nccl.conf", "readOnly": True
    }  # fmt: skip
    assert names.NCCL_CONF not in after["metadata"].get("annotations", {})
    assert (
        "as files, which NCCL and UCX read, but NVSHMEM, Mooncake, UCCL, MORI need the environment"
        in read_skipped(after)["found"]
    )
    assert "found.UCX" not in read_skipped(after)


@pytest.mark.parametrize("more", ["", "    delivery: files\n"], ids=["environment", "files"])
def test_the_record_names_variables_of_the_author_that_the_init_container_would_find(more):
    own = [{"name": name, "value": "x"} for name in ("NCCL_IB_HCA", "UCX_NET_DEVICES", "NCCL_OTHER")]
    after = admit(pod(gpus(8, env=own)), more)
    assert set(read_record(after)["kept"]["c"]) == {"NCCL_IB_HCA", "UCX_NET_DEVICES"}


@pytest.mark.parametrize(
    ("by_old", "offered", "reads"),
    [([], ["cpu"], True), (["cpu"], ["cpu", "nvidia.com/gpu"], False), ([], [], False)],
    ids=["new nodes", "an old node", "no node"],
)
def test_a_fabric_without_resources_delivers_files_unless_every_kubelet_is_new(by_old, offered, reads):
    at = admitting.build_facts(file_keys=True, offered=frozenset(offered), offered_by_old=frozenset(by_old))
    policy = admitting.fabric("    resolve: auto\n    accelerators: []\n", rails="[{name: rail0, network: prod/lan2}]")
    assert bool(list_read(admit_pod(pod(admitting.cpu()), policy, at))) is reads


def test_ranks_started_by_ssh_get_files_and_the_record_lists_the_variables_they_miss():
    after = admit(pod(labels=SSH))
    assert list_read(after) == FOUND
    assert "/etc/nccl.conf" in list_mounts(after)
    assert "need the environment, and ssh starts the ranks without it" in read_skipped(after)["found"]
    assert (list_mounts(after)["/root/ucx.conf"], "UCX need" in read_skipped(after)["found"]) == (
        "railwright-rails",
        False,
    )
    home = [{"name": "home", "mountPath": "/root"}]
    for other in (
        pod(gpus(8, volumeMounts=home), labels=SSH, volumes=[{"name": "home", "emptyDir": {}}]),
        pod(labels=SSH, securityContext={"runAsUser": 1000}),
    ):
        after = admit(other)
        assert (
            "/root/ucx.conf" in list_mounts(after),
            "which NCCL reads, but NVSHMEM, Mooncake, UCCL, MORI, UCX need" in read_skipped(after)["found"],
        ) == (False, True)


@pytest.mark.parametrize("name", sorted(FOUND))
@pytest.mark.parametrize("own", [{"value": "x"}, {"valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}])
def test_a_variable_of_the_author_is_not_added_a_second_time(name, own):
    after = admit(pod(gpus(8, env=[{"name": name, **own}])))
    assert name not in list_read(after)
    (container,) = after["spec"]["containers"]
    assert len({entry["name"] for entry in container["env"]}) == len(container["env"])


def test_only_containers_that_mount_the_files_get_variables_with_their_paths():
    own = {"volumeMounts": [{"name": "own", "mountPath": "/run/railwright"}]}
    tree = pod(gpus(8, **own), gpus(1, "d"), volumes=[{"name": "own", "emptyDir": {}}])
    after = admit(tree, file_keys=False)
    assert read_env(after).keys().isdisjoint({"NCCL_CONF_FILE", "UCX_CONFIG_DIR"})
    assert list_mounts(after)["/etc/nccl.conf"] == "railwright-rails"
    assert {"NCCL_CONF_FILE", "UCX_CONFIG_DIR"} <= {entry["name"] for entry in after["spec"]["containers"][1]["env"]}
    assert read_record(after)["skipped"]["found.UCX"]["code"] == "LibraryNotReached"
    assert "container c mounts /run/railwright itself" in read_skipped(after)["found.UCX"]


@pytest.mark.parametrize(("transports", "reads"), [("tcp,self", False), ("^ib", False), ("rc,cuda", True)])
@pytest.mark.parametrize("by_policy", [True, False])
def test_ucx_gets_devices_only_if_it_may_use_rdma(transports, reads, by_policy):
    more = f"    env: {{UCX_TLS: '{transports}'}}\n" if by_policy else ""
    own = [] if by_policy else build_variables(UCX_TLS=transports)
    read = list_read(admit(pod(gpus(8, env=own)), more))
    assert ({"UCX_NET_DEVICES", "UCX_IB_GID_INDEX"} <= read) is reads


def test_values_that_the_policy_states_are_set_without_the_init_container():
    more = "    env: {NCCL_IB_HCA: mlx5}\n    nccl: {gidIndex: 3, vendorVariables: ['NVSHMEM_*']}\n"
    after = admit(pod(), more)
    of_mori = {"MORI_RDMA_DEVICES", "MORI_IB_GID_INDEX"}
    of_others = {"UCX_NET_DEVICES", "UCX_IB_GID_INDEX", "UCCL_IB_GID_INDEX", "NCCL_IB_ADDR_FAMILY"}
    assert list_read(after) == of_others | of_mori
    assert (read_env(after)["NCCL_IB_HCA"], read_env(after)["MC_GID_INDEX"]) == ("mlx5", "3")


def test_a_container_with_env_from_gets_the_file_and_a_warning():
    tree = pod(gpus(8, envFrom=[{"secretRef": {"name": "s"}}]))
    after = admit(tree)
    (container,) = after["spec"]["containers"]
    assert "env" not in container
    assert "/etc/nccl.conf" in list_mounts(after)
    (warning,) = [
        w for w in plan_pod(tree, fabric(), admitting.build_facts(**NEW)).warnings if w.code.startswith("Var")
    ]
    assert "UCX_NET_DEVICES" in warning.text
    prefixed = admit(pod(gpus(8, envFrom=[{"prefix": "APP_", "secretRef": {"name": "s"}}])))
    assert list_read(prefixed) == FOUND


def make_rail():
    address = ipaddress.ip_address("fd00::1")
    gid = hosts.Gid(*[None] * len(hosts.Gid._fields))._replace(position=3, address=address)
    port = hosts.Port(*[None] * len(hosts.Port._fields))._replace(number=1)
    device = hosts.Device(*[None] * len(hosts.Device._fields))._replace(name="mlx5_0", ports=(port,))
    return files.resolution.ResolvedRail(
        expected.Rail("rail0"), "mlx5_0", "interface", device, port, None, (gid,), (gid,)
    )


@pytest.mark.parametrize("transport", ["infiniband", "erdma", "pvrdma", "roce"])
def test_ranks_read_every_variable_that_the_init_container_writes(transport):
    rail = make_rail()
    expectations = expected.Expectations(transport=transport, isolated=True, settings=[], vendor_variables=[])
    view = files.resolution.ContainerView(None, expectations, {}, None, ())
    written = files.derive_variables(view, [rail, rail])
    assert written.keys() - {"NCCL_IB_ADDR_RANGE"} <= derive.FOUND.keys()
    assert all(transport in derive.FOUND[name] for name in written)


# --- the first of all init containers -----------------------------------------------------------------------


def test_the_preflight_is_moved_before_the_init_container_of_another_webhook():
    policy, at = fabric(), admitting.build_facts(**NEW)
    once = admit_pod(pod(initContainers=[{"name": "own", "image": "i"}]), policy, at)
    assert [init["name"] for init in once["spec"]["initContainers"]] == ["railwright-preflight", "own"]
    once["spec"]["initContainers"].insert(0, {"name": "istio-init", "image": "i"})
    again = admit_pod(once, policy, at)
    assert [init["name"] for init in again["spec"]["initContainers"]] == ["railwright-preflight", "istio-init", "own"]


def test_ranks_read_files_if_another_webhook_drops_file_key_refs():
    emptied = peers.drop_file_keys(admit(pod()))
    policy, at = fabric(), admitting.build_facts(**NEW)
    outcome = plan_pod(emptied, policy, at)
    (warning,) = [reason for reason in outcome.warnings if "fileKeyRef" in reason.message]
    assert "NCCL_IB_GID_INDEX" in warning.message
    after = admit_pod(emptied, policy, at)
    (container,) = after["spec"]["containers"]
    assert not [entry for entry in container["env"] if "valueFrom" in entry]
    assert read_env(after)["NCCL_CONF_FILE"] == "/run/railwright/nccl.conf"
    assert "are delivered as files" in read_skipped(after)["found"]
    assert plan_pod(peers.drop_file_keys(after), policy, at).changes == (), "it may be called once more"
