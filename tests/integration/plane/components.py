"""The command line of every program of the control plane: a function each, from ports and files to arguments.

It also has the health checks. It does not start programs.
"""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from plane import binaries, credentials, ports, volcano

LOOPBACK = "127.0.0.1"
ENVIRONMENT = {"GOGC": "400"}  # a tenth less CPU time; an API server takes up to 900 MB


@dataclasses.dataclass(frozen=True)
class Health:
    """Health check of a program, and the answer of a healthy one."""

    url: str
    port: str = ""  # the port's name where it is not the program's
    status: int = 200
    anonymous: bool = False  # no client certificate: one that the program cannot verify would be refused


_HEALTH: Mapping[str, Health] = {
    "etcd": Health("http://{}:{}/health"),
    "kube-apiserver": Health("https://{}:{}/readyz"),
    "kube-controller-manager": Health("https://{}:{}/healthz"),
    "kube-scheduler": Health("https://{}:{}/readyz"),
    "kwok": Health("http://{}:{}/healthz"),
    "vc-scheduler": Health("http://{}:{}/healthz", port="vc-scheduler-health"),
    "vc-controller-manager": Health("http://{}:{}/healthz", port="vc-controller-manager-health"),
    # its health port answers long before it serves, so the serving port is asked for a path it does not have
    "vc-webhook-manager": Health("https://{}:{}/", status=404, anonymous=True),
}


class Components:
    """The plane's ports and files, fixed for one run. `gates` and `apis` are switched on in Kubernetes' programs."""

    # A new node would have a taint until it is ready. A scheduler that is late would see only some nodes of a test
    # without it, and place the first pods there.
    admission: Sequence[str] = ("--disable-admission-plugins=TaintNodesByCondition",)

    def __init__(
        self,
        ready: binaries.Binaries,
        certificates: credentials.Credentials,
        folder: pathlib.Path,
        *,
        gates: Sequence[str] = (),
        apis: Sequence[str] = (),
    ) -> None:
        self.ready = ready
        self.certificates = certificates
        self.folder = folder
        self.port: Mapping[str, int] = {name: ports.free() for name in (*binaries.PROGRAMS, *_FURTHER)}
        self.server = f"https://{LOOPBACK}:{self.port['kube-apiserver']}"
        self.volcano_conf = folder / "volcano" / "volcano-scheduler.conf"  # alone in its folder: that is watched
        self.kube_scheduler_conf = folder / "kube-scheduler.yaml"
        self.audit_log = folder / "logs" / "audit.log"  # a line for each pod created
        self._serving = certificates.paths("plane")
        self._volcano_gates: Sequence[str] = ()
        settings, served = [f"{gate}=true" for gate in gates], [f"{version}=true" for version in apis]
        if not binaries.release().has_claims:
            settings.append("DynamicResourceAllocation=false")
            self._volcano_gates = ("--feature-gates=DynamicResourceAllocation=false",)
            served.append("resource.k8s.io/v1=false")
        self._gates = (f"--feature-gates={','.join(settings)}",) if settings else ()
        self._apis = (f"--runtime-config={','.join(served)}",) if served else ()

    def command(self, name: str) -> list[str]:
        """Return the whole command line of a program."""
        return [self.ready[name], *getattr(self, "_" + name.replace("-", "_"))()]

    def health(self, name: str) -> Health:
        """Return the health check of a program."""
        health = _HEALTH[name]
        return dataclasses.replace(health, url=health.url.format(LOOPBACK, self.port[health.port or name]))

    def kubeconfig(self, name: str, user: str, *groups: str) -> str:
        """Return the path of a fresh kubeconfig."""
        return str(self.certificates.kubeconfig(name, self.server, user, groups))

    def _etcd(self) -> list[str]:
        clients = f"http://{LOOPBACK}:{self.port['etcd']}"
        peers = f"http://{LOOPBACK}:{self.port['etcd-peer']}"
        return [
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=plane={peers}",
            "--name=plane",
            "--unsafe-no-fsync=true",  # nothing here has to survive a power cut
        ]

    def _kube_apiserver(self) -> list[str]:
        certificate, key = self._serving
        folder = self.certificates.folder
        return [
            f"--etcd-servers=http://{LOOPBACK}:{self.port['etcd']}",
            f"--bind-address={LOOPBACK}",
            f"--advertise-address={LOOPBACK}",
            f"--secure-port={self.port['kube-apiserver']}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--client-ca-file={self.certificates.ca}",
            "--endpoint-reconciler-type=none",  # a loopback address is refused as an endpoint
            "--anonymous-auth=false",
            f"--service-account-issuer={credentials.ISSUER}",
            f"--service-account-key-file={folder / 'sa.pub'}",
            f"--service-account-signing-key-file={folder / 'sa.key'}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--profiling=false",
            f"--audit-policy-file={DATA / 'audit-policy.yaml'}",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-mode=blocking-strict",  # a line is there when the answer is
            *self.admission,
            *self._gates,
            *self._apis,
        ]

    def _kube_controller_manager(self) -> list[str]:
        config = self.kubeconfig("kube-controller-manager", "system:kube-controller-manager")
        return [
            *self._delegated(config, "kube-controller-manager"),
            f"--kubeconfig={config}",
            f"--root-ca-file={self.certificates.ca}",
            f"--service-account-private-key-file={self.certificates.folder / 'sa.key'}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--node-monitor-grace-period=2h",  # nothing heartbeats: three requests less for each node
            *self._gates,
        ]

    def _kube_scheduler(self) -> list[str]:
        config = self.kubeconfig("kube-scheduler", "system:kube-scheduler")
        return [*self._delegated(config, "kube-scheduler"), f"--config={self.kube_scheduler_conf}", *self._gates]

    def _kwok(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig('kwok', 'kwok', 'system:masters')}",
            f"--config={DATA / 'kwok-stages.yaml'}",
            "--manage-all-nodes=false",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            f"--node-ip={LOOPBACK}",
            "--node-name=localhost",
            f"--node-port={self.port['kwok-node']}",
            f"--server-address={LOOPBACK}:{self.port['kwok']}",
            "--node-lease-duration-seconds=0",
        ]

    def _vc_scheduler(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig('vc-scheduler', 'vc-scheduler', 'system:masters')}",
            f"--scheduler-conf={self.volcano_conf}",
            "--scheduler-name=volcano",
            "--schedule-period=500ms",
            "--leader-elect=false",
            "--enable-metrics=true",
            f"--listen-address={LOOPBACK}:{self.port['vc-scheduler']}",
            "--enable-healthz=true",
            f"--healthz-address={LOOPBACK}:{self.port['vc-scheduler-health']}",
            "--logtostderr=true",
            "--v=3",
            *self._volcano_gates,
        ]

    def _vc_controller_manager(self) -> list[str]:
        off = ",".join(f"-{name}-controller" for name in ("sharding", "jobflow", "jobtemplate", "hypernode"))
        return [
            f"--kubeconfig={self.kubeconfig('vc-controller-manager', 'vc-controller-manager', 'system:masters')}",
            f"--controllers=*,{off}",  # those wait for ever on CRDs that are not installed
            "--scheduler-name=volcano",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            f"--listen-address={LOOPBACK}:{self.port['vc-controller-manager']}",
            "--enable-healthz=true",
            f"--healthz-address={LOOPBACK}:{self.port['vc-controller-manager-health']}",
            "--logtostderr=true",
        ]

    def _vc_webhook_manager(self) -> list[str]:
        certificate, key = self._serving
        port = self.port["vc-webhook-manager"]
        return [
            f"--kubeconfig={self.kubeconfig('vc-webhook-manager', 'vc-webhook-manager', 'system:masters')}",
            f"--enabled-admission={','.join(dict.fromkeys(admission.path for admission in volcano.ADMISSIONS))}",
            f"--webhook-url=https://{LOOPBACK}:{port}",
            f"--listen-address={LOOPBACK}",
            f"--port={port}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--ca-cert-file={self.certificates.ca}",
            "--scheduler-name=volcano",
            "--logtostderr=true",
        ]

    def _delegated(self, kubeconfig: str, name: str) -> list[str]:
        certificate, key = self._serving
        return [
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={self.port[name]}",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
        ]


DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "integration"
_FURTHER = ("etcd-peer", "kwok-node", "vc-scheduler-health", "vc-controller-manager-health")


def kube_scheduler_conf(kubeconfig: str, extenders: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a KubeSchedulerConfiguration; pods that did not fit are tried again soon, for quick tests."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 500, "burst": 1000},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,  # as shipped: extenders see only the nodes of the sample
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 2,
        "extenders": extenders,
    }
