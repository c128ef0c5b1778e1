"""Runs `railwright policy scheduler-config`: prints the configuration with which a scheduler calls the extender.

Also parses the configuration of a cluster's Volcano.
"""

import argparse
import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import yaml

from railwright.cli import cluster_access, object_files, output, policy_sources
from railwright.cluster import client as clients
from railwright.cluster import documents, installed_names, resources, watch_wire
from railwright.fabric import intent, names, text, views
from railwright.fabric.policy import model, shortcomings
from railwright.fabric.workloads import frameworks

MANAGED = "extender.managedResources"  # argument of Volcano's plugin
_DEFAULT = "default-scheduler"
_PORT = 8713
SERVICE = f"{installed_names.INSTALLATION}-extender"
SERVER_NAME = f"{SERVICE}.{installed_names.NAMESPACE}.svc"
_CA_FILE = "/etc/kubernetes/railwright/ca.crt"
_CLAIMED = '  # pods whose rails come as claims: the webhook adds a limit of "0" of it'


# --- the configuration of a cluster's Volcano ---------------------------------------------------------------


def read_volcano_configuration(configmap: Any) -> Any:
    """Return Volcano's configuration in a ConfigMap as a tree; None without one, the error as text if it is invalid."""
    data = frameworks.get_mapping(configmap, "data")
    configuration = next((str(value) for key, value in data.items() if key.endswith(".conf")), "")
    try:
        return yaml.load(configuration, Loader=documents.LOADER)  # noqa: S506 - a safe one
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a date that is none
        return f"is not valid YAML: {' '.join(str(error).split())}"


def list_plugins(tree: Any) -> Mapping[str, Mapping[str, Any]]:
    """Return the arguments of each plugin in Volcano's configuration, by name, in the order of the tiers."""
    plugins = [plugin for tier in frameworks.get_list(tree, "tiers") for plugin in frameworks.get_list(tier, "plugins")]
    return {
        str(frameworks.get_mapping(plugin).get("name")): frameworks.get_mapping(plugin, "arguments")
        for plugin in plugins
    }


def get_scheduler(pod: views.Pod) -> str:
    """Return the name of the scheduler that places a pod."""
    return pod.spec.scheduler_name or _DEFAULT


# --- the configuration of both schedulers -------------------------------------------------------------------


class ExtenderAddress(NamedTuple):
    """The extender's address: the host of its URL, and the CA in base64 ("" if the CA is in a file)."""

    host: str = SERVER_NAME
    ca_data: str = ""


def list_managed_resources(policy: model.PolicyDocument) -> Sequence[str]:
    """Return the managed resources: a scheduler calls the extender for the pods that request one of them.

    They are the resources of the rails, the accelerators if the rails of a fabric have no resource (PVRDMA), and
    `railwright.io/rails`, which stands for claims.
    """
    fabrics = policy.fabrics.values()
    rails = dict.fromkeys(rail.resource for fabric in fabrics for rail in fabric.rails if rail.resource)
    is_bare = any(fabric.claims is None and not any(rail.resource for rail in fabric.rails) for fabric in fabrics)
    claimed = [names.RAILS] if any(fabric.claims for fabric in fabrics) else []
    return [*rails, *(policy.accelerators if is_bare else ()), *claimed]


def format_kube_scheduler(managed: Sequence[str], extender: ExtenderAddress) -> str:
    """Return the text of the file for kube-scheduler's --config."""
    tls = (
        [f"caData: {json.dumps(extender.ca_data)}"]
        if extender.ca_data
        else [f"caFile: {_CA_FILE}  # without a CA, kube-scheduler does not verify the certificate"]
    )
    if extender.host != SERVER_NAME:
        tls.append(f"serverName: {SERVER_NAME}  # the certificate's name; the URL has the address of the Service")
    host = f"[{extender.host}]" if ":" in extender.host else extender.host
    return _KUBE_SCHEDULER.format(
        url=f"https://{host}:{_PORT}/scheduler",
        tls="\n".join(f"    {line}" for line in tls),
        resources="\n".join(
            f"  - {{name: {resource}, ignoredByScheduler: false}}{_CLAIMED if resource == names.RAILS else ''}"
            for resource in managed
        ),
    )


def format_volcano(managed: Sequence[str]) -> str:
    """Return the text of volcano-scheduler.conf for vc-scheduler."""
    lines = (f"      - {resource}{_CLAIMED if resource == names.RAILS else ''}" for resource in managed)
    return _VOLCANO.format(url=f"https://{SERVER_NAME}:{_PORT}/volcano", resources="\n".join(lines))


# --- railwright policy scheduler-config ---------------------------------------------------------------------

_WITHOUT_CLUSTER = (
    "the address above is a DNS name and the CA a file, but kubeadm's kube-scheduler resolves no Service names and "
    "mounts no such file; leave out --policy to print the IP address of the Service and the CA of the cluster"
)


def print_scheduler_configuration(arguments: argparse.Namespace) -> int:
    """Print the configuration of kube-scheduler or Volcano and return 0. Raise UnreadableError or ClusterError.

    Without --policy, it has the IP address of the extender's Service and the CA, because kube-scheduler often runs on
    the host network: kubeadm's static pod uses the host's resolver, which does not know the names of Services.
    """
    if arguments.policy:
        document, extender = object_files.read_policy(arguments.policy).document, ExtenderAddress()
    else:
        document, extender = cluster_access.run_with_client(
            arguments, _read_extender, "read the policy from a file: --policy FILE"
        )
    managed, is_volcano = list_managed_resources(document), arguments.scheduler == "volcano"
    print(format_volcano(managed) if is_volcano else format_kube_scheduler(managed, extender), end="")
    if arguments.policy and not is_volcano:
        output.print_note(_WITHOUT_CLUSTER)
    if arguments.policy and (unnamed := _list_rails_without_resource(document)):
        _print_missing_resources(unnamed, "leave out --policy to read the networks from the cluster")
    return output.OK


def _list_rails_without_resource(document: model.PolicyDocument) -> Sequence[str]:
    """Return the rails for which the policy states no resource, so that an annotation of their network names it."""
    return [
        f"fabrics.{name}.rails {rail.name}"
        for name, fabric in document.fabrics.items()
        if fabric.claims is None and fabric.transport not in shortcomings.TRANSPORTS_WITHOUT_RESOURCE
        for rail in fabric.rails
        if rail.network and not rail.resource
    ]


def _print_missing_resources(rails: Sequence[str], fix: str) -> None:
    output.print_note(
        f"managedResources lacks the resources of {text.join_first(rails, 5)}, which only their networks name; state "
        f"`resource` of these rails, or {fix}"
    )


async def _read_extender(client: clients.Client) -> tuple[model.PolicyDocument, ExtenderAddress]:
    """Return the policy in force, with the resources that networks name, and the extender's address."""
    namespace, name = installed_names.NAMESPACE, SERVICE
    webhooks = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{installed_names.INSTALLATION}"
    (policy, _), service, installed = await asyncio.gather(
        policy_sources.fetch_policy(client),
        watch_wire.find_object(client, f"/api/v1/namespaces/{namespace}/services/{name}", dict[str, Any]),
        watch_wire.find_object(client, webhooks, dict[str, Any]),
    )
    if service is None:
        raise output.UnreadableError(
            f"there is no Service {name} in namespace {namespace}: the extender is not installed; "
            "install it with the chart value extender.enabled=true, or give --policy FILE"
        )
    bundles = (
        frameworks.get_mapping(hook, "clientConfig").get("caBundle")
        for hook in frameworks.get_list(installed, "webhooks")
    )
    address = frameworks.get_mapping(service, "spec").get("clusterIP")
    host = SERVER_NAME if address in (None, "", "None") else str(address)  # None: a headless Service
    document = await _fill_resources(client, policy.document)
    return document, ExtenderAddress(host, str(next(filter(None, bundles), "")))


async def _fill_resources(client: clients.Client, document: model.PolicyDocument) -> model.PolicyDocument:
    unnamed = _list_rails_without_resource(document)
    listed = await cluster_access.list_if_allowed(client, resources.NADS.path, resources.NADS.view) if unnamed else []
    if listed is None:
        _print_missing_resources(unnamed, "get the right to list network-attachment-definitions")
        return document
    networks = {item.metadata.key: item.metadata.annotations.get(names.NAD_RESOURCE_NAME) or None for item in listed}
    fabrics = {
        name: fabric if fabric.claims else intent.fill_resources(name, fabric, networks)
        for name, fabric in document.fabrics.items()
    }
    return msgspec.structs.replace(document, fabrics=fabrics)


# --- the texts ----------------------------------------------------------------------------------------------

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
# Merge the plugin `extender` and `configurations` into volcano-scheduler.conf, a key of the ConfigMap
# volcano-scheduler-configmap; your other plugins stay. Volcano reloads it without a restart.
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
