"""Fields of the pod, resources, host paths and ConfigMaps that a fabric adds, and what stays the author's."""

import json

from admitting import admitted, env, fabric, gpus, limits, planned, pod, record, skipped, variables

HOST_RAILS = "[{name: rail0, device: mlx5_0}]"
ON_HOST = fabric(
    "    pod: {hostNetwork: true, runtimeClassName: nvidia, tolerations: [{key: gpu}]}\n"
    "    mounts: {devInfiniband: true}\n    env: {UCX_TLS: tcp}\n    nccl: {addressRange: 10.0.0.0/8}\n",
    rails=HOST_RAILS,
)
MOUNTED = fabric(
    "    mounts:\n"
    "      hostPaths: [{path: /opt/vendor, mountPath: /usr/local/vendor}, {path: /dev/aperture, readOnly: false}]\n"
    "      configMaps: [{name: topo, key: a.xml, mountPath: /opt/a.xml}, {name: topo, mountPath: /etc/topo}]\n"
    "    resources: {hugepages-2Mi: 5120Mi, a.b/flag: 1}\n"
)


def with_memory(**more):
    return gpus(8, **more) | {"resources": {"limits": {"nvidia.com/gpu": "8", "memory": "1Gi"}}}


def test_a_fabric_on_the_host_network_keeps_its_interfaces_and_addresses():
    tree = admitted(pod(), ON_HOST)
    spec = tree["spec"]
    assert (spec["hostNetwork"], spec["dnsPolicy"], spec["runtimeClassName"]) == (
        True,
        "ClusterFirstWithHostNet",
        "nvidia",
    )
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert env(tree)["NCCL_SOCKET_IFNAME"] == "=eth0"
    assert env(tree)["NCCL_IB_ADDR_RANGE"] == "10.0.0.0/8"
    assert planned(pod(), ON_HOST).warnings == ()


def test_a_pod_that_is_not_in_the_network_that_the_policy_describes_gets_no_interface_names():
    stays = admitted(pod(annotations={"railwright.io/skip": "pod"}), ON_HOST)
    assert "NCCL_SOCKET_IFNAME" not in env(stays)
    assert "hostNetwork" not in stays["spec"]
    moved = admitted(pod(hostNetwork=True), fabric(rails=HOST_RAILS))
    assert "NCCL_SOCKET_IFNAME" not in env(moved)


def test_the_api_servers_default_dns_policy_counts_as_unset_and_no_other_does():
    assert admitted(pod(dnsPolicy="ClusterFirst"), ON_HOST)["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"
    tree = admitted(pod(dnsPolicy="Default", runtimeClassName="kata"), ON_HOST)
    assert (tree["spec"]["dnsPolicy"], tree["spec"]["runtimeClassName"]) == ("Default", "kata")
    assert skipped(tree)["pod.runtimeClassName"] == "the pod sets runtimeClassName itself, to kata"
    assert not {"pod.dnsPolicy", "pod.runtimeClassName"} & {*record(tree)["added"]}


def test_tolerations_follow_those_of_the_pod_and_are_added_once():
    own = [{"key": "x", "operator": "Exists"}]
    once = admitted(pod(tolerations=own), ON_HOST)
    assert once["spec"]["tolerations"] == [*own, {"key": "gpu", "operator": "Exists"}]
    assert planned(once, ON_HOST).changes == ()


def test_host_paths_are_read_only_unless_the_policy_says_otherwise():
    tree = admitted(pod(with_memory()), MOUNTED)
    mounts = {mount["mountPath"]: mount for mount in tree["spec"]["containers"][0]["volumeMounts"]}
    assert mounts["/usr/local/vendor"]["readOnly"] is True
    assert "readOnly" not in mounts["/dev/aperture"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in tree["spec"]["volumes"] if "hostPath" in volume}
    assert paths[mounts["/usr/local/vendor"]["name"]] == "/opt/vendor"


def test_two_mounts_of_a_config_map_share_a_volume_and_the_record_names_what_was_added():
    tree = admitted(pod(with_memory()), MOUNTED)
    volumes = [volume for volume in tree["spec"]["volumes"] if "configMap" in volume]
    assert [volume["configMap"] for volume in volumes] == [{"name": "topo"}]
    mounts = {mount["mountPath"]: mount.get("subPath") for mount in tree["spec"]["containers"][0]["volumeMounts"]}
    assert (mounts["/opt/a.xml"], mounts["/etc/topo"]) == ("a.xml", None)
    added = json.dumps(record(tree)["added"])
    for entry in ("mounts./usr/local/vendor", "mounts./etc/topo", "resources.hugepages-2Mi", "resources.a.b/flag"):
        assert entry in added


def test_the_authors_mount_and_amounts_stay():
    own = {"name": "own", "mountPath": "/usr/local/vendor"}
    container = with_memory(volumeMounts=[own])
    container["resources"]["limits"]["hugepages-2Mi"] = "2Mi"
    tree = admitted(pod(container, volumes=[{"name": "own", "emptyDir": {}}]), MOUNTED)
    assert skipped(tree)["mounts./usr/local/vendor"] == "container c mounts /usr/local/vendor itself"
    assert limits(tree)["hugepages-2Mi"] == "2Mi"
    assert limits(tree)["a.b/flag"] == "1"


def test_huge_pages_need_a_request_of_memory():
    outcome = planned(pod(), MOUNTED)
    assert [warning.code for warning in outcome.warnings] == ["HugePagesWithoutMemory"]
    assert "hugepages-2Mi" not in limits(admitted(pod(), MOUNTED))
    assert limits(admitted(pod(with_memory()), MOUNTED))["hugepages-2Mi"] == "5120Mi"


def test_the_interface_of_a_rail_may_carry_the_bootstrap_of_its_fabric():
    by = fabric("    primaryInterface: net1\n")
    assert env(admitted(pod(), by))["NCCL_SOCKET_IFNAME"] == "=net1"
    assert env(admitted(pod(gpus(8, env=variables(NCCL_SOCKET_IFNAME="eth0"))), by))["NCCL_SOCKET_IFNAME"] == "eth0"


TOPOLOGIES = fabric(
    "    nccl: {topologyFile: /t/default.xml}\n",
    top="nodeShapes:\n- {name: a, match: {gpu: a}, topologyFile: /t/a.xml}\n- {name: b, match: {gpu: b}}\n",
)


def test_the_topology_file_follows_the_shape_that_the_pod_selects():
    for shape, file in (("a", "/t/a.xml"), ("b", "/t/default.xml"), ("c", "/t/default.xml")):
        assert env(admitted(pod(nodeSelector={"gpu": shape}), TOPOLOGIES))["NCCL_TOPO_FILE"] == file
    tree = admitted(pod(), TOPOLOGIES)
    assert "NCCL_TOPO_FILE" not in env(tree)
    assert "/t/a.xml, /t/default.xml" in skipped(tree)["env.NCCL_TOPO_FILE"]
    own = pod(gpus(8, env=variables(NCCL_TOPO_FILE="/mine")))
    assert env(admitted(own, TOPOLOGIES))["NCCL_TOPO_FILE"] == "/mine"
    assert planned(own, TOPOLOGIES).warnings == ()
