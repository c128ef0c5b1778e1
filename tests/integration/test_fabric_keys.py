"""The API server accepts the additions of each key of a fabric to a pod."""

import json

from plane import manifests

POLICY = manifests.policy(
    {
        "host": {
            "transport": "roce",
            "rails": [{"name": "rail0", "device": "mlx5_0"}],
            "hostNetwork": True,
            "mounts": {"devInfiniband": True},
        },
        "flag": {
            "transport": "infiniband",
            "rails": [{"name": f"rail{number}", "resource": "rdma/ib"} for number in range(8)],
            "deviceScope": "pod",
            "resources": {"hugepages-2Mi": "16Mi"},
            "libraryPath": ["/usr/local/nvidia/lib64"],
        },
        "vendor": {
            "transport": "plugin",
            "rails": [{"name": f"vpc{number}", "interface": f"eth{number}"} for number in (1, 2)],
            "gpusPerNode": 8,
            "annotations": {
                "networking.gke.io/interfaces": json.dumps(
                    [{"interfaceName": f"eth{number}", "network": f"vpc{number}"} for number in (1, 2)]
                )
            },
            "mounts": {
                "hostPaths": {"/usr/local/nvidia": "/home/kubernetes/bin/nvidia"},
                "configMaps": {"/opt/topo": "topo"},
            },
            "nccl": {"plugin": "FasTrak", "vendorVariables": ["NCCL_FASTRAK_*"]},
            "sourceScript": "/usr/local/nvidia/lib64/nccl-env-profile.sh",
        },
    }
)


async def create(plane, namespace, fabric, gpus=8, **container):
    amounts = {"nvidia.com/gpu": str(gpus), "memory": "1Gi"}
    container = {"command": ["python", "train.py"], "resources": {"limits": amounts}, **container}
    pod = manifests.pod(f"{fabric}-{gpus}", fabric, container=container, schedulerName="nobody")
    return await plane.api.create(pod, namespace=namespace)


async def test_a_pod_on_the_host_network_keeps_the_interface_of_the_policy(plane, namespace, installed):
    spec = (await create(plane, namespace, "host"))["spec"]
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert {"name": "NCCL_SOCKET_IFNAME", "value": "=eth0"} in spec["containers"][0]["env"]


async def test_eight_rails_of_one_device_are_requested_once_beside_huge_pages(plane, namespace, installed):
    env = [{"name": "LD_LIBRARY_PATH", "value": "/opt/lib"}]
    container = (await create(plane, namespace, "flag", env=env))["spec"]["containers"][0]
    assert container["resources"]["limits"]["rdma/ib"] == "1"
    assert container["resources"]["requests"]["hugepages-2Mi"] == "16Mi"
    assert {"name": "LD_LIBRARY_PATH", "value": "/opt/lib:/usr/local/nvidia/lib64"} in container["env"]


async def test_a_fabric_of_a_vendors_plugin_is_accepted_as_a_whole(plane, namespace, installed):
    pod = await create(plane, namespace, "vendor")
    container = pod["spec"]["containers"][0]
    script = '. /usr/local/nvidia/lib64/nccl-env-profile.sh && exec "$0" "$@"'
    assert container["command"] == ["/bin/bash", "-c", script, "python", "train.py"]
    interfaces = json.loads(pod["metadata"]["annotations"]["networking.gke.io/interfaces"])
    assert [item["network"] for item in interfaces] == ["vpc1", "vpc2"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert mounts["/usr/local/nvidia"]["readOnly"] is True
    assert mounts["/opt/topo"]["readOnly"] is True
