"""The programs of a node: their configurations, their start, and their restart when they end.

Standard library only: the first process of a node runs this.
"""

import dataclasses
import json
import os
import pathlib
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from realnode import layout

CONTAINERD = "/run/containerd/containerd.sock"
PAUSE_IMAGE = "localhost/pause:1"
_PAUSE_SECONDS = 0.2  # between the end of a program and its restart
# containerd 2 translates it to its own version; the older one has no NRI and ignores its part. Two seconds, its default
# for a request, can pass on a loaded machine while dranet moves interfaces: containerd then disconnects it, and the
# pod's interfaces are deleted with its network namespace.
_CONTAINERD_CONFIG = f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "{CONTAINERD}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.nri.v1.nri"]
  disable = false
  plugin_path = "%s"
  plugin_registration_timeout = "30s"
  plugin_request_timeout = "30s"
"""


@dataclasses.dataclass(frozen=True)
class Service:
    """A program of the node that is started again whenever it ends."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    logs: str

    def start(self) -> int:
        """Start it and return its process id."""
        with (pathlib.Path(self.logs) / f"{self.name}.log").open("ab") as log:
            return subprocess.Popen(
                list(self.command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
            ).pid


def write_configurations(node: layout.Node) -> None:
    """Write the files that the programs and CNI plugins of a node read."""
    pathlib.Path("/etc/containerd.toml").write_text(_CONTAINERD_CONFIG % node.plugins)
    pathlib.Path("/etc/resolv.conf.node").write_text("")
    _write("/etc/kubelet.json", configure_kubelet(node))
    _write("/etc/kube-proxy.json", configure_proxy(node.credentials))
    _write("/etc/cni/net.d/00-multus.conf", _multus(node))
    _write("/etc/cni/net.d/10-pods.conf", _pod_network(node))
    # read by whereabouts although each network names its kubeconfig
    whereabouts = {
        "datastore": "kubernetes",
        "kubernetes": {"kubeconfig": f"{node.credentials}/whereabouts.kubeconfig"},
    }
    _write("/etc/cni/net.d/whereabouts.d/whereabouts.conf", whereabouts)
    pathlib.Path("/opt/cni/bin").symlink_to(f"{node.programs}/cni")


def list_services(node: layout.Node) -> list[Service]:
    """Return the programs of a node, containerd first."""
    commands = {
        "containerd": [f"{node.containerd}/containerd", "--config=/etc/containerd.toml"],
        "kubelet": [
            node.kubelet,
            "--config=/etc/kubelet.json",
            f"--kubeconfig={node.credentials}/kubelet-{node.name}.kubeconfig",
            f"--hostname-override={node.name}",
            f"--node-ip={node.address}",
            "--cert-dir=/var/lib/kubelet/pki",
        ],
        "deviceplugin": [f"{node.programs}/deviceplugin", "-config", str(node.device_file)],
        "kube-proxy": [
            f"{node.programs}/kube-proxy",
            "--config=/etc/kube-proxy.json",
            f"--hostname-override={node.name}",
        ],
    }
    plain = environment(node.debian)
    special = {
        "containerd": {"PATH": f"{node.containerd}:{plain['PATH']}"},  # where it looks for its shim
        "kube-proxy": environment(node.debian, node.libraries),  # for nft
    }
    return [Service(name, command, special.get(name, plain), node.logs) for name, command in commands.items()]


def environment(debian: str, libraries: str = "") -> dict[str, str]:
    """Return the environment for Debian's unpacked programs, with `libraries`."""
    folders = [f"{debian}{folder}" for folder in ("/usr/bin", "/usr/sbin", "/bin", "/sbin")]
    path = {"PATH": ":".join([*folders, os.environ["PATH"]])}
    return path | ({"LD_LIBRARY_PATH": libraries} if libraries else {})


def supervise(services: Sequence[Service]) -> None:
    """Start the programs and start each again when it ends, for ever; reap what lost its parent."""
    running = {services[0].start(): services[0]}
    while not pathlib.Path(CONTAINERD).exists():
        time.sleep(0.02)
    running |= {service.start(): service for service in services[1:]}
    while True:
        pid, _ = os.wait()
        if service := running.pop(pid, None):
            time.sleep(_PAUSE_SECONDS)
            running[service.start()] = service


def configure_proxy(credentials: str) -> dict[str, Any]:
    """Return kube-proxy's configuration; `credentials` is the folder of its kubeconfig."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": f"{credentials}/kube-proxy.kubeconfig"},
        "mode": "nftables",
        "clusterCIDR": "10.244.0.0/16",
        "conntrack": {"maxPerCore": 0, "min": 0},  # the machine's table stays as it is
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    }


def configure_kubelet(node: layout.Node) -> dict[str, Any]:
    """Return kubelet's configuration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{node.credentials}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD}",
        "evictionHard": {  # the machine's disk is shared: how full it is says nothing about the node
            "memory.available": "1Mi",
            "nodefs.available": "0%",
            "imagefs.available": "0%",
            "nodefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "makeIPTablesUtilChains": False,
        "oomScoreAdj": 0,  # a lower one needs CAP_SYS_RESOURCE
        "nodeStatusUpdateFrequency": "1s",
        "nodeStatusReportFrequency": "5s",
        "syncFrequency": "5s",
        "resolvConf": "/etc/resolv.conf.node",
        "clusterDNS": [layout.DNS_SERVICE],
        "clusterDomain": "cluster.local",
        "logging": {"verbosity": 2},
    }


def _multus(node: layout.Node) -> dict[str, Any]:
    return {
        "cniVersion": "0.3.1",
        "name": "multus-cni-network",
        "type": "multus",
        "kubeconfig": f"{node.credentials}/multus.kubeconfig",
        "confDir": "/etc/cni/net.d",
        "logLevel": "verbose",
        "logFile": f"{node.logs}/multus.log",
        # no .conflist: Multus 4.2 drops its unknown keys on DEL, and addresses would leak
        "clusterNetwork": "/etc/cni/net.d/10-pods.conf",
    }


def _pod_network(node: layout.Node) -> dict[str, Any]:
    return {
        "cniVersion": "0.3.1",
        "name": "pods",
        "type": "bridge",
        "bridge": "cni0",
        "isDefaultGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": node.pods}]]},
    }


def _write(path: str, document: Mapping[str, Any]) -> None:
    file = pathlib.Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=1))
