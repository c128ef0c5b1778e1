"""The API server accepts what each key of a fabric adds to a pod."""

import json

import pytest
from plane import api, manifests

POLICY = manifests.policy(
    {
        "host": {
            "transport": "roce",
            "rails": [{"name": "rail0", "device": "mlx5_0"}],
            "pod": {"hostNetwork": True, "tolerations": [{"key": "gpu", "effect": "NoSchedule"}]},
            "mounts": {"devInfiniband": True},
        },
        "flag": {
            "transport": "infiniband",
            "rails": [{"name": f"rail{number}", "resource": "rdma/ib"} for number in range(8)],
            "deviceScope": "pod",
            "resources": {"hugepages-2Mi": "16Mi"},
            "libraryPath": {"directories": ["/usr/local/nvidia/lib64"]},
        },
        "vendor": {
            "transport": "plugin",
            "rails": [{"name": f"vpc{number}", "interface": f"eth{number}"} for number in (1, 2)],
            "gpusPerNode": 8,
            "wholeNode": True,
            "networkAnnotation": {
                "key": "networking.gke.io/interfaces",
                "item": {"interfaceName": "{interface}", "network": "{rail}"},
            },
            "mounts": {
                "hostPaths": [{"path": "/home/kubernetes/bin/nvidia", "mountPath": "/usr/local/nvidia"}],
                "configMaps": [{"name": "topo", "key": "topo.xml", "mountPath": "/opt/topo.xml"}],
            },
            "nccl": {"plugin": {"network": "FasTrak"}, "vendorVariables": ["NCCL_FASTRAK_*"]},
            "sourceScript": {"path": "/usr/local/nvidia/lib64/nccl-env-profile.sh", "shell": "/bin/sh"},
            "sidecars": [
                {
                    "name": "daemon",
                    "image": "daemon:1",
                    "capabilities": ["NET_ADMIN"],
                    "hostPaths": [{"path": "/run/daemon", "readOnly": False}],
                    "startupProbe": {"exec": {"command": ["test", "-S", "/run/daemon/socket"]}},
                }
            ],
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
    assert {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"} in spec["tolerations"]
    assert {"name": "NCCL_SOCKET_IFNAME", "value": "=eth0"} in spec["containers"][0]["env"]


async def test_eight_rails_of_one_device_are_requested_once_beside_huge_pages(plane, namespace, installed):
    env = [{"name": "LD_LIBRARY_PATH", "value": "/opt/lib"}]
    container = (await create(plane, namespace, "flag", env=env))["spec"]["containers"][0]
    assert container["resources"]["limits"]["rdma/ib"] == "1"
    assert container["resources"]["requests"]["hugepages-2Mi"] == "16Mi"
    assert {"name": "LD_LIBRARY_PATH", "value": "/opt/lib:/usr/local/nvidia/lib64"} in container["env"]


async def test_a_fabric_of_a_vendors_plugin_is_accepted_as_a_whole(plane, namespace, installed):
    pod = await create(plane, namespace, "vendor")
    container, (daemon,) = pod["spec"]["containers"][0], pod["spec"]["initContainers"]
    script = '. /usr/local/nvidia/lib64/nccl-env-profile.sh && exec "$0" "$@"'
    assert container["command"] == ["/bin/sh", "-c", script, "python", "train.py"]
    assert (daemon["restartPolicy"], daemon["startupProbe"]["failureThreshold"]) == ("Always", 120)
    interfaces = json.loads(pod["metadata"]["annotations"]["networking.gke.io/interfaces"])
    assert [item["network"] for item in interfaces] == ["vpc1", "vpc2"]
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert mounts["/usr/local/nvidia"]["readOnly"] is True
    assert mounts["/opt/topo.xml"]["subPath"] == "topo.xml"


async def test_a_pod_with_half_a_node_is_rejected_by_a_fabric_of_whole_nodes(plane, namespace, installed):
    with pytest.raises(api.ApiError, match="requests 4 of the 8 accelerators of a node"):
        await create(plane, namespace, "vendor", gpus=4)
