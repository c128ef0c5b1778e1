"""Mounts that a fabric adds, and mounts of the author, which are left unchanged however their path is written."""

import pytest
import tables
from admitting import admit_pod, fabric, get_refusal, gpus, pod, read_limits, read_record, read_skipped

SHM, DEVICES, FILE = "/dev/shm", "/dev/infiniband", "/etc/nccl.conf"
BY_FILE = {"railwright.io/delivery": "file"}
BY = fabric("    mounts: {sharedMemory: 1Gi, devInfiniband: true}\n    resolve: always\n")
# All of them pass the API server's validation; container runtimes clean them (runc: filepath-securejoin).
SPELLINGS = ["{0}", "{0}/", "/{0}", "//{0}", "/run/..{0}", "{0}/.", "/.{0}", "/../..{0}", "{1}", "./{1}"]


def spell(form: str, path: str) -> str:
    return form.format(path, path[1:])


def ours(tree: dict, path: str) -> list[str]:
    mounts = tree["spec"]["containers"][0].get("volumeMounts", [])
    return [mount["name"] for mount in mounts if mount["mountPath"] == path and mount["name"].startswith("railwright-")]


@pytest.mark.parametrize(("path", "form"), tables.pair([SHM, DEVICES, FILE], [*SPELLINGS, "{0}//", "/dev//..{0}"]))
def test_a_mount_of_the_user_at_the_path_is_kept_in_any_spelling(path, form):
    mount = {"name": "own", "mountPath": spell(form, path)}
    tree = admit_pod(
        pod(gpus(8, volumeMounts=[mount]), volumes=[{"name": "own", "emptyDir": {}}], annotations=BY_FILE), BY
    )
    assert ours(tree, path) == []
    assert all(ours(tree, other) for other in {SHM, DEVICES, FILE} - {path})
    assert {f"mounts.{path}", "nccl.conf"} & read_record(tree)["skipped"].keys()


@pytest.mark.parametrize(("path", "form"), tables.pair([SHM, DEVICES, FILE], ["{0}", "/{0}"]))
def test_a_block_device_of_the_user_at_the_path_is_kept(path, form):
    device = {"name": "disk", "devicePath": spell(form, path)}
    claim = {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}
    tree = admit_pod(pod(gpus(8, volumeDevices=[device]), volumes=[claim], annotations=BY_FILE), BY)
    assert ours(tree, path) == []
    assert all(ours(tree, other) for other in {SHM, DEVICES, FILE} - {path})


@pytest.mark.parametrize(("at", "of"), [("/dev", "/dev"), ("/dev/", "/dev/"), ("//dev", "//dev")])
def test_a_container_that_mounts_the_hosts_dev_keeps_the_hosts_shared_memory(at, of):
    tree = pod(
        gpus(8, volumeMounts=[{"name": "host", "mountPath": at}]), volumes=[{"name": "host", "hostPath": {"path": of}}]
    )
    after = admit_pod(tree, BY)
    assert ours(after, SHM) == []
    assert "/dev of the host" in read_skipped(after)[f"mounts.{SHM}"]


@pytest.mark.parametrize("path", ["/opt/nvidia/", "/opt//nvidia", "//opt/nvidia", "/opt/./nvidia"])
def test_a_mount_path_of_the_policy_is_normalized_and_mounted_once(path):
    by = fabric(f"    mounts: {{hostPaths: {{{path}: /opt/nvidia}}, configMaps: {{{path}/topo/: a}}}}\n")
    once = admit_pod(pod(gpus(8)), by)
    mounted = [mount["mountPath"] for mount in once["spec"]["containers"][0]["volumeMounts"]]
    assert mounted == ["/opt/nvidia", "/opt/nvidia/topo"]
    assert admit_pod(once, by) == once


def test_a_pod_with_host_ipc_keeps_the_hosts_shared_memory():
    """Ranks of one node recognize each other by the device of their /dev/shm, so the pod must not get its own."""
    policy = fabric("    mounts: {sharedMemory: 64Gi, devInfiniband: true}\n")
    after = admit_pod(pod(hostIPC=True), policy)
    assert [mount["mountPath"] for mount in after["spec"]["containers"][0]["volumeMounts"]] == ["/dev/infiniband"]
    assert "spec.hostIPC" in read_skipped(after)["mounts./dev/shm"]
    volume = {"name": "railwright-shm", "emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}}
    assert volume in admit_pod(pod(hostIPC=False), policy)["spec"]["volumes"]


# --- directories of the node, ConfigMaps and other resources ------------------------------------------------

MOUNTED = fabric(
    "    mounts:\n"
    "      hostPaths: {/usr/local/vendor: /opt/vendor, /dev/aperture: /dev/aperture}\n"
    "      configMaps: {/opt/topo: topo, /etc/topo: topo}\n"
    "    resources: {hugepages-2Mi: 5120Mi, a.b/flag: 1}\n"
)


def build_memory_container(**more):
    return gpus(8, **more) | {"resources": {"limits": {"nvidia.com/gpu": "8", "memory": "1Gi"}}}


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


def test_mounts_and_resource_requests_of_the_author_are_kept():
    own = {"name": "own", "mountPath": "/usr/local/vendor"}
    container = build_memory_container(volumeMounts=[own])
    container["resources"]["limits"]["hugepages-2Mi"] = "2Mi"
    tree = admit_pod(pod(container, volumes=[{"name": "own", "emptyDir": {}}]), MOUNTED)
    assert read_skipped(tree)["mounts./usr/local/vendor"] == "container c mounts /usr/local/vendor itself"
    assert read_limits(tree)["hugepages-2Mi"] == "2Mi"
    assert read_limits(tree)["a.b/flag"] == "1"
