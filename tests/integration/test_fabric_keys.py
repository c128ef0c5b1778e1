"""The API server accepts injected pods of fabrics with rare keys, which no other integration test uses."""

import json

from plane import manifests

from railwright.fabric import names

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


async def test_the_api_server_accepts_pods_of_host_network_device_scope_and_plugin_fabrics(plane, namespace, installed):
    """tests/unit/injection shows the additions themselves."""
    limits = {"nvidia.com/gpu": "8", "memory": "1Gi"}
    container = {"command": ["python", "train.py"], "resources": {"limits": limits}}
    for name in ("host", "flag", "vendor"):
        pod = manifests.pod(name, name, container=container, schedulerName="nobody")
        created = await plane.api.create(pod, namespace=namespace)
        assert names.INJECTION in created["metadata"]["annotations"]
