"""The control plane of a site of real nodes: that of the integration tests, in the site's network namespace.

Unlike there, it has addresses that nodes can reach, kubelet's credentials and cluster DNS, and no kwok.
"""

import base64
import json
import pathlib
import ssl
import sys
from collections.abc import Mapping

import aiohttp
import yaml
from plane import binaries, components, plane, processes, releases, waiting

from realnode import builds, layout, network, services

_SCHEDULERS = releases.ROOT / "manifests/examples/schedulers"

# cluster DNS, as a pod of the host's network has it, and the webhooks of job controllers on loopback
_RESOLVE = 'mount --bind "$0/resolv.conf" /etc/resolv.conf; mount --bind "$0/hosts" /etc/hosts; exec "$@"'
_HOSTS = "127.0.0.1 localhost training-operator.kubeflow.svc jobset-webhook-service.jobset-system.svc\n"
# a scheduler's question about a pod that is not railwright's, with the CAs of SSL_CERT_FILE
_ASK = """
import sys, urllib.request
body = b'{"Pod": {"metadata": {"name": "question", "namespace": "default"}}, "NodeNames": []}'
question = urllib.request.Request(sys.argv[1], body, {"Content-Type": "application/json"})
urllib.request.urlopen(question, timeout=5)
"""
_DNS_OBJECTS = f"""
apiVersion: v1
kind: Service
metadata: {{name: kube-dns, namespace: kube-system}}
spec:
  clusterIP: {layout.DNS_SERVICE}
  ports: [{{name: dns, port: 53, protocol: UDP}}, {{name: dns-tcp, port: 53, protocol: TCP}}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: kube-dns, namespace: kube-system, labels: {{kubernetes.io/service-name: kube-dns}}}}
addressType: IPv4
ports: [{{name: dns, port: 53, protocol: UDP}}, {{name: dns-tcp, port: 53, protocol: TCP}}]
endpoints: [{{addresses: [{layout.GATEWAY}], conditions: {{ready: true}}}}]
"""


class Components(components.Components):
    """Command lines of the programs of a control plane for real nodes."""

    admission = ()

    @property
    def outside(self) -> str:
        """The API server's URL for nodes."""
        return f"https://{layout.GATEWAY}:{self.port['kube-apiserver']}"

    def _kube_apiserver(self) -> list[str]:
        names = ("kubernetes.default.svc", "kubernetes", layout.GATEWAY, layout.KUBERNETES_SERVICE)
        certificate, key = self.certificates.server("kube-apiserver", names)
        groups = ("system:masters",)
        client_certificate, client_key = self.certificates.client("kube-apiserver-kubelet", "kube-apiserver", groups)
        return [
            *super()._kube_apiserver(),
            "--bind-address=0.0.0.0",
            f"--advertise-address={layout.GATEWAY}",
            "--endpoint-reconciler-type=lease",
            f"--tls-cert-file={certificate}",
            f"--tls-private-key-file={key}",
            f"--kubelet-client-certificate={client_certificate}",
            f"--kubelet-client-key={client_key}",
            "--kubelet-preferred-address-types=InternalIP",
            "--enable-aggregator-routing=true",  # webhooks are called by pod addresses: no kube-proxy is here
        ]

    def _kube_controller_manager(self) -> list[str]:
        return [*super()._kube_controller_manager(), "--node-monitor-grace-period=10s"]


class Controls(plane.Plane):
    """A control plane for real nodes."""

    rows = (("kube-controller-manager", "kube-scheduler", "vc-webhook-manager"), *plane.Plane.rows[1:])
    parts: Components

    def __init__(self, ready: binaries.Binaries, folder: pathlib.Path, cables: network.Network) -> None:
        self._cables = cables
        super().__init__(ready, folder)
        self.extender_ca = folder / "extender-ca.crt"  # read by a scheduler when it first calls the extender
        (folder / "resolv.conf").write_text(f"nameserver {layout.GATEWAY}\nsearch svc.cluster.local cluster.local\n")
        (folder / "hosts").write_text(_HOSTS)
        variables = ("env", f"SSL_CERT_FILE={self.extender_ca}")
        self.enter = (*cables.enter, *variables, "unshare", "--mount", "sh", "-ec", _RESOLVE, str(folder))

    def make_components(self, ready: binaries.Binaries) -> Components:
        """Return command lines for the site."""
        return Components(ready, self.certificates, self.folder)

    def make_connector(self, tls: ssl.SSLContext) -> aiohttp.BaseConnector:
        """Return a connector whose sockets are in the site's namespace."""
        return aiohttp.TCPConnector(ssl=tls, limit=0, socket_factory=self._cables.make_socket)

    def write_credentials(self) -> None:
        """Write the kubeconfigs of the nodes' programs. CNI plugins act as administrators, as with their charts."""
        users = {
            f"kubelet-{name}": (f"system:node:{name}", ("system:nodes",))
            for name in (*layout.NODES, *layout.VIRTUAL_NODES)
        }
        users |= {name: (name, ("system:masters",)) for name in ("multus", "whereabouts", "coredns")}
        users["kube-proxy"] = ("system:kube-proxy", ())
        for name, (user, groups) in users.items():
            self.certificates.kubeconfig(name, self.parts.outside, user, groups)

    async def install_networks(self, ready: builds.Builds) -> None:
        """Create whereabouts' CRDs, and start cluster DNS and the program that connects this process to Services."""
        for path in sorted(ready.crds.glob("*.yaml")):
            await self.apply(path.read_text())
        await self.apply(_DNS_OBJECTS)
        core_file, proxy_file = self.folder / "Corefile", self.folder / "kube-proxy.json"
        core_file.write_text(_configure_dns(self.certificates.folder / "coredns.kubeconfig"))
        proxy_file.write_text(json.dumps(services.configure_proxy(str(self.certificates.folder))))
        self._start_program("coredns", [str(ready.programs / "coredns"), "-conf", str(core_file)], {})
        command = [str(ready.programs / "kube-proxy"), f"--config={proxy_file}", "--hostname-override=control-plane"]
        self._start_program("kube-proxy", command, services.environment(str(ready.packages), ready.libraries))

    async def call_extender(self) -> None:
        """Configure Volcano as in the shipped example; return when the next session uses the configuration."""
        await self._wait_extender()
        await self.schedulers.volcano(yaml.safe_load((_SCHEDULERS / "volcano-scheduler.yaml").read_text()))

    async def call_extender_from_kube_scheduler(self) -> None:
        """Restart kube-scheduler with the extender of the shipped example."""
        await self._wait_extender()
        (extender,) = yaml.safe_load((_SCHEDULERS / "kube-scheduler.yaml").read_text())["extenders"]
        await self.schedulers.kube({**extender, "tlsConfig": {"caFile": str(self.extender_ca)}})

    async def _wait_extender(self) -> None:
        """Write the extender's CA, and wait until the extender answers through its Service, as schedulers call it.

        Its Deployment is available before kube-proxy has its address.
        """
        secret = await self.api.get("Secret", "railwright-extender-tls", releases.NAMESPACE)
        self.extender_ca.write_bytes(base64.b64decode(secret["data"]["ca.crt"]))
        (extender,) = yaml.safe_load((_SCHEDULERS / "kube-scheduler.yaml").read_text())["extenders"]
        command = [*self.enter, sys.executable, "-Ic", _ASK, f"{extender['urlPrefix']}/prioritize"]

        async def is_reachable() -> bool:
            code, _, errors = await processes.run(*command)
            assert code == 0, errors
            return True

        await waiting.wait(is_reachable, seconds=60, describe="the extender to answer through its Service")

    def _start_program(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        process = processes.Process(name, [*self._cables.enter, *command], logs=self.logs)
        self.processes[name] = process.start(environment)


def _configure_dns(kubeconfig: pathlib.Path) -> str:
    """Return CoreDNS' configuration: the cluster's names and no others."""
    kubernetes = f"kubernetes cluster.local {{\n kubeconfig {kubeconfig}\n ttl 1\n }}"
    return f".:53 {{\n bind {layout.GATEWAY}\n errors\n {kubernetes}\n}}\n"
