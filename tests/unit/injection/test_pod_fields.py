"""Host network, resources, host paths and ConfigMaps that a fabric adds, and the author's fields that stay."""

from admitting import (
    admit_pod,
    build_variables,
    fabric,
    get_refusal,
    gpus,
    plan_pod,
    pod,
    read_env,
    read_limits,
    read_record,
    read_skipped,
)

HOST_RAILS = "[{name: rail0, device: mlx5_0}]"
ON_HOST = fabric(
    "    hostNetwork: true\n"
    "    mounts: {devInfiniband: true}\n    env: {UCX_TLS: tcp}\n    nccl: {addressRange: 10.0.0.0/8}\n",
    rails=HOST_RAILS,
)
MOUNTED = fabric(
    "    mounts:\n"
    "      hostPaths: {/usr/local/vendor: /opt/vendor, /dev/aperture: /dev/aperture}\n"
    "      configMaps: {/opt/topo: topo, /etc/topo: topo}\n"
    "    resources: {hugepages-2Mi: 5120Mi, a.b/flag: 1}\n"
)


def build_memory_container(**more):
    return gpus(8, **more) | {"resources": {"limits": {"nvidia.com/gpu": "8", "memory": "1Gi"}}}


def test_a_pod_on_the_host_network_of_its_fabric_gets_the_policys_interface_and_addresses():
    tree = admit_pod(pod(), ON_HOST)
    spec = tree["spec"]
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert {"pod.hostNetwork", "pod.dnsPolicy"} <= {*read_record(tree)["added"]}
    assert read_env(tree)["NCCL_SOCKET_IFNAME"] == "=eth0"
    assert read_env(tree)["NCCL_IB_ADDR_RANGE"] == "10.0.0.0/8"
    assert plan_pod(pod(), ON_HOST).warnings == ()


def test_a_pod_with_a_user_namespace_is_refused_on_the_host_network():
    outcome = plan_pod(pod(hostUsers=False), ON_HOST)
    assert outcome.reason == "security"
    assert "spec.hostUsers is false" in outcome.message
    assert "remove hostUsers" in outcome.message
    assert admit_pod(pod(hostUsers=True), ON_HOST)["spec"]["hostNetwork"] is True


def test_the_api_servers_default_dns_policy_counts_as_unset_and_no_other_does():
    assert admit_pod(pod(dnsPolicy="ClusterFirst"), ON_HOST)["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    tree = admit_pod(pod(dnsPolicy="Default"), ON_HOST)
    assert (tree["spec"]["hostNetwork"], tree["spec"]["dnsPolicy"]) == (True, "Default")
    assert "pod.dnsPolicy" not in read_record(tree)["added"]


def test_a_pod_with_the_default_scheduler_gets_the_scheduler_of_the_fabric():
    placed = fabric("    placement: {schedulerName: railwright-scheduler}\n")
    for own in ({}, {"schedulerName": "default-scheduler"}):
        tree = admit_pod(pod(**own), placed)
        assert tree["spec"]["schedulerName"] == "railwright-scheduler"
        assert "pod.schedulerName" in read_record(tree)["added"]
    assert admit_pod(pod(schedulerName="volcano"), placed)["spec"]["schedulerName"] == "volcano"
    assert "schedulerName" not in admit_pod(pod(), fabric())["spec"]


def test_host_paths_are_mounted_read_only_and_a_config_map_has_one_volume():
    tree = admit_pod(pod(build_memory_container()), MOUNTED)
    mounts = {mount["mountPath"]: mount for mount in tree["spec"]["containers"][0]["volumeMounts"]}
    assert mounts["/usr/local/vendor"]["readOnly"] is True
    volumes = {volume["name"]: volume for volume in tree["spec"]["volumes"]}
    assert volumes[mounts["/usr/local/vendor"]["name"]]["hostPath"] == {"path": "/opt/vendor"}
    assert [volume["configMap"] for volume in volumes.values() if "configMap" in volume] == [{"name": "topo"}]
    assert mounts["/opt/topo"]["name"] == mounts["/etc/topo"]["name"]
    entries = {"mounts./usr/local/vendor", "mounts./etc/topo", "resources.hugepages-2Mi", "resources.a.b/flag"}
    assert entries <= {*read_record(tree)["added"]}


def test_a_pod_whose_own_volume_has_the_name_of_railwrights_is_rejected():
    tree = pod(build_memory_container())
    for volume in admit_pod(tree, MOUNTED)["spec"]["volumes"]:
        (source,) = [field for field in volume.values() if isinstance(field, dict)]
        source |= dict.fromkeys(source, "/own")
        assert volume["name"] in get_refusal(pod(build_memory_container(), volumes=[volume]), MOUNTED)


def test_mounts_and_amounts_of_the_author_are_kept():
    own = {"name": "own", "mountPath": "/usr/local/vendor"}
    container = build_memory_container(volumeMounts=[own])
    container["resources"]["limits"]["hugepages-2Mi"] = "2Mi"
    tree = admit_pod(pod(container, volumes=[{"name": "own", "emptyDir": {}}]), MOUNTED)
    assert read_skipped(tree)["mounts./usr/local/vendor"] == "container c mounts /usr/local/vendor itself"
    assert read_limits(tree)["hugepages-2Mi"] == "2Mi"
    assert read_limits(tree)["a.b/flag"] == "1"


def test_the_primary_interface_of_a_fabric_may_be_that_of_a_rail():
    by = fabric("    primaryInterface: net1\n")
    assert read_env(admit_pod(pod(), by))["NCCL_SOCKET_IFNAME"] == "=net1"
    assert (
        read_env(admit_pod(pod(gpus(8, env=build_variables(NCCL_SOCKET_IFNAME="eth0"))), by))["NCCL_SOCKET_IFNAME"]
        == "eth0"
    )
