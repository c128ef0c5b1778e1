"""Namespace and names of the installation's objects, which its Helm release determines.

In the servers' pods the chart sets one environment variable for the namespace and one for the names. Commands read the
same variables; without them, the names are those of `manifests/base`. The values are constant for the life of the
process.
"""

import os

NAMESPACE = os.environ.get("RAILWRIGHT_NAMESPACE") or "railwright-system"
INSTALLATION = os.environ.get("RAILWRIGHT_INSTALLATION") or "railwright"  # first part of every name; also the name of
# the webhook configurations
WEBHOOK = f"{INSTALLATION}-webhook"
EXTENDER = f"{INSTALLATION}-extender"  # Deployment and Service
CERTS = f"{INSTALLATION}-certs"
SCHEDULER = f"{INSTALLATION}-scheduler"  # the chart's kube-scheduler, and the schedulerName of its pods
OVERWRITTEN = "CABundleOverwritten"  # reason of an Event of the rotator
POLICY = f"{INSTALLATION}-policy"
LAST_POLICY = f"{INSTALLATION}-last-policy"  # ConfigMap with the last valid policy
DISABLED = f"{INSTALLATION}-disabled"  # ConfigMap with what `railwright disable` has deleted
USER_ROLE = f"{INSTALLATION}-user"  # Role with the rights to read the policy and to ask the extender
CLUSTER_ROLE = f"{INSTALLATION}-cluster-view"  # ClusterRole with the rights of commands that show gangs and fabrics
