"""Runs `railwright policy scheduler-config`: prints the configuration with which a scheduler calls the extender.

Read from a cluster, it has the address of the extender's Service and the CA, because kube-scheduler often runs on the
host network: kubeadm's static pod uses the host's resolver, which does not know the names of Services.
"""

import argparse
import asyncio
import json
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from railwright.cli import cluster_access, options, output, policies, policy_sources
from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, watch_wire
from railwright.cluster import resources as resource_kinds
from railwright.fabric import intent, names, views
from railwright.fabric import text as texts
from railwright.fabric.policy import model

_NOT_FOUND = 404
_WITHOUT_RESOURCE = frozenset({model.Transport.PVRDMA, model.Transport.PLUGIN, model.Transport.TCP})
_PORT = 8713
_SERVICE = f"{installed_names.INSTALLATION}-extender"
_SERVER_NAME = f"{_SERVICE}.{installed_names.NAMESPACE}.svc"
_CA_FILE = "/etc/kubernetes/railwright/ca.crt"
_CLAIMED = '  # pods whose rails come as claims: the webhook adds a limit of "0" of it'


_WITHOUT_CLUSTER = (
    "the address is a DNS name and the CA a file, but kube-scheduler of kubeadm resolves no Service and mounts no such "
    "file; without --policy, the address and the CA of the cluster are printed"
)


class Extender(NamedTuple):
    """Where a scheduler finds the extender: host of the URL, and the CA in base64, "" if it is read from a file."""

    host: str = _SERVER_NAME
    ca_data: str = ""


class _ServiceSpec(msgspec.Struct, frozen=True, rename="camel"):
    cluster_ip: str = msgspec.field(name="clusterIP", default="")


class _Service(msgspec.Struct, frozen=True):
    spec: _ServiceSpec = _ServiceSpec()


class _ClientConfig(msgspec.Struct, frozen=True, rename="camel"):
    ca_bundle: str = ""


class _Webhook(msgspec.Struct, frozen=True, rename="camel"):
    client_config: _ClientConfig = _ClientConfig()


class _Configuration(msgspec.Struct, frozen=True):
    webhooks: list[_Webhook] = []


def run(arguments: argparse.Namespace) -> int:
    """Print the configuration and return 0. Raise UnreadableError or ClusterError."""
    if arguments.policy:
        document, extender = policies.read_file(arguments.policy).document, Extender()
    else:
        document, extender = cluster_access.run(
            options.get_cluster(arguments), _read, "read the policy from a file: --policy FILE"
        )
    resources = list_resources(document)
    text = format_volcano(resources) if arguments.scheduler == "volcano" else format_kube_scheduler(resources, extender)
    print(text, end="")
    if arguments.policy and arguments.scheduler != "volcano":
        output.print_note(_WITHOUT_CLUSTER)
    if arguments.policy and (unnamed := _list_unnamed(document)):
        output.print_note(
            f"resources are missing that only the networks of {texts.join_first(unnamed, 5)} name: state `resource` "
            "there, or leave out --policy to read the networks from the cluster"
        )
    return output.OK


def _list_unnamed(document: model.PolicyDocument) -> Sequence[str]:
    """Return the rails whose resource is to be read from the annotation of their network."""
    return [
        f"fabrics.{name}.rails {rail.name}"
        for name, fabric in document.fabrics.items()
        if fabric.claims is None and fabric.transport not in _WITHOUT_RESOURCE
        for rail in fabric.rails
        if rail.network and not rail.resource
    ]


async def _read(client: clients.Client) -> tuple[model.PolicyDocument, Extender]:
    """Return the policy, with the resources that its networks name, and the extender."""
    service_path = f"/api/v1/namespaces/{installed_names.NAMESPACE}/services/{_SERVICE}"
    webhooks_path = (
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/" + installed_names.INSTALLATION
    )
    policy, service, configuration = await asyncio.gather(
        policy_sources.fetch(client),
        cluster_access.find_object(client, service_path, _Service),
        cluster_access.find_object(client, webhooks_path, _Configuration),
    )
    if service is None:
        raise output.UnreadableError(
            f"there is no Service {_SERVICE} in namespace {installed_names.NAMESPACE}: the extender is not installed; "
            "install it with the chart value extender.enabled=true, or give --policy FILE"
        )
    hooks = configuration.webhooks if configuration is not None else []
    ca_data = next((hook.client_config.ca_bundle for hook in hooks if hook.client_config.ca_bundle), "")
    address = service.spec.cluster_ip
    document = await _fill_resources(client, policy.document)
    return document, Extender(_SERVER_NAME if address in ("", "None") else address, ca_data)  # None: a headless Service


async def _fill_resources(client: clients.Client, document: model.PolicyDocument) -> model.PolicyDocument:
    if not _list_unnamed(document):
        return document
    try:
        listed = await watch_wire.list_objects(client, resource_kinds.NADS.path, views.NetworkAttachmentDefinition)
    except errors.ApiError as error:
        if error.status != _NOT_FOUND:
            raise
        listed = []
    networks = {item.metadata.key: item.metadata.annotations.get(names.NAD_RESOURCE_NAME) or None for item in listed}
    fabrics = {
        name: fabric if fabric.claims else intent.fill_resources(name, fabric, networks)
        for name, fabric in document.fabrics.items()
    }
    return msgspec.structs.replace(document, fabrics=fabrics)


def list_resources(policy: model.PolicyDocument) -> Sequence[str]:
    """Return the resources by which a scheduler knows pods of these fabrics.

    These are the resources of the rails, the accelerators if the rails of a fabric have no resource (PVRDMA), and the
    name that stands for claims.
    """
    fabrics = policy.fabrics.values()
    rails = dict.fromkeys(rail.resource for fabric in fabrics for rail in fabric.rails if rail.resource)
    is_bare = any(fabric.claims is None and not any(rail.resource for rail in fabric.rails) for fabric in fabrics)
    claimed = [names.RAILS] if any(fabric.claims for fabric in fabrics) else []
    return [*rails, *(policy.accelerators if is_bare else ()), *claimed]


def format_kube_scheduler(resources: Sequence[str], extender: Extender) -> str:
    """Return the file for kube-scheduler's --config."""
    tls = (
        [f"caData: {json.dumps(extender.ca_data)}"]
        if extender.ca_data
        else [f"caFile: {_CA_FILE}  # without a CA, kube-scheduler does not verify the certificate"]
    )
    if extender.host != _SERVER_NAME:
        tls.append(f"serverName: {_SERVER_NAME}  # the certificate's name; the URL has the address of the Service")
    host = f"[{extender.host}]" if ":" in extender.host else extender.host
    return _KUBE_SCHEDULER.format(
        url=f"https://{host}:{_PORT}/scheduler",
        tls="\n".join(f"    {line}" for line in tls),
        resources="\n".join(
            f"  - {{name: {resource}, ignoredByScheduler: false}}{_CLAIMED if resource == names.RAILS else ''}"
            for resource in resources
        ),
    )


def format_volcano(resources: Sequence[str]) -> str:
    """Return the configuration of vc-scheduler."""
    lines = (f"      - {resource}{_CLAIMED if resource == names.RAILS else ''}" for resource in resources)
    return _VOLCANO.format(url=f"https://{_SERVER_NAME}:{_PORT}/volcano", resources="\n".join(lines))


_KUBE_SCHEDULER = """\
# File for kube-scheduler's --config. Keep percentageOfNodesToScore at 100: extenders see only the nodes of the sample.
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: /etc/kubernetes/scheduler.conf
leaderElection:
  leaderElect: true
percentageOfNodesToScore: 100
extenders:
- urlPrefix: {url}
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: 5  # a leaf outside of the plan costs 250 points; a preferred node affinity gives 200
  enableHTTPS: true
  tlsConfig:
{tls}
  httpTimeout: 5s
  nodeCacheCapable: true
  ignorable: true  # places pods without the extender while it is down; false: such pods wait
  managedResources:
  # With ignoredByScheduler: true nobody counts the devices, and two pods may get one.
{resources}
"""

_VOLCANO = """\
# volcano-scheduler.conf, a key of the ConfigMap volcano-scheduler-configmap. Volcano reloads it without a restart.
# List `extender` after `predicates`. Types matter: booleans unquoted, httpTimeout a duration string, managedResources
# a list. Start the scheduler with --minimum-feasible-nodes of at least your number of nodes, or with
# --percentage-nodes-to-find=100: a node that is not offered cannot be chosen.
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: binpack  # for pods that never reach railwright
  - name: extender
    arguments:
      extender.urlPrefix: {url}
      # https is verified with SSL_CERT_FILE in the scheduler's pod; the plugin has no setting for it
      extender.httpTimeout: 5s
      extender.prioritizeVerb: prioritize
      extender.allocateFuncVerb: allocate
      extender.deallocateFuncVerb: deallocate
      extender.onSessionCloseVerb: session-close
      # extender.predicateVerb: predicate   # only with nvlinkSegment, or if no pod may start beside a broken rail
      extender.ignorable: true  # places pods without railwright while it is down
      extender.managedResources:  # only pods that request one of these reach railwright
{resources}
configurations:
- name: allocate
  arguments:
    predicateErrorCacheEnable: false
"""
