"""Generates the files with which an API server presents a client certificate to the webhook, and a scheduler to the
extender.

The formats are AdmissionConfiguration (apiserver.config.k8s.io/v1) and the kubeconfig that it names. The API server
looks up users by `service.namespace.svc` (with the port if it is not 443), by `host:port` for webhooks with a URL,
then by `*.` suffixes, then by `*` (k8s.io/apiserver, pkg/util/webhook/authentication.go).
"""

import pathlib
from collections.abc import Sequence

import yaml

from railwright.cluster import installed_names

DIRECTORY = pathlib.PurePosixPath("/etc/kubernetes/railwright")  # directory on the control plane's machines
ADMISSION, KUBECONFIG = "admission.yaml", "kubeconfig.yaml"
_PLUGINS = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")


def format_user(namespace: str) -> str:
    """Return the user name for the webhook's Service, which is called on port 443."""
    return f"{installed_names.WEBHOOK}.{namespace}.svc"


def build_configuration(directory: pathlib.PurePath = DIRECTORY) -> str:
    """Return the AdmissionConfiguration for `--admission-control-config-file`. The path in it must be absolute."""
    plugin_configuration = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(directory / KUBECONFIG),
    }
    document = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": name, "configuration": dict(plugin_configuration)} for name in _PLUGINS],
    }
    return yaml.safe_dump(document, sort_keys=False)


def build_kubeconfig(users: Sequence[str], certificate: pathlib.PurePath, key: pathlib.PurePath) -> str:
    """Return a kubeconfig that gives each of `users` the same client certificate file, which is read again on use."""
    credentials = {"client-certificate": str(certificate), "client-key": str(key)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "users": [{"name": name, "user": dict(credentials)} for name in users],
    }
    return yaml.safe_dump(document, sort_keys=False)
