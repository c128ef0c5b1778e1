"""An existing mount at a path is left unchanged, however the path is written."""

import pytest
import tables
from admitting import admit_pod, fabric, gpus, pod, read_record, read_skipped

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
