"""The files by which an API server presents a certificate to our webhooks, and a scheduler to our extender.

Owns their form: AdmissionConfiguration (apiserver.config.k8s.io/v1) and the kubeconfig it names. The API server looks
users up by `service.namespace.svc` (with the port where that is not 443), by `host:port` for webhooks by URL, then by
`*.` suffixes, then by `*` (k8s.io/apiserver, pkg/util/webhook/authentication.go). Knows no key and writes nothing.
"""

import pathlib
from collections.abc import Sequence

import yaml

DIRECTORY = pathlib.PurePosixPath("/etc/kubernetes/railwright")  # on the machines of the control plane
ADMISSION, KUBECONFIG = "admission.yaml", "kubeconfig.yaml"
_PLUGINS = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")


def user(namespace: str) -> str:
    """The entry of our webhook's Service, which is called on port 443."""
    return f"railwright-webhook.{namespace}.svc"


def configuration(directory: pathlib.PurePath = DIRECTORY) -> str:
    """The AdmissionConfiguration for `--admission-control-config-file`. The path in it has to be absolute."""
    told = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration",
        "kubeConfigFile": str(directory / KUBECONFIG),
    }
    document = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration",
        "plugins": [{"name": name, "configuration": dict(told)} for name in _PLUGINS],
    }
    return yaml.safe_dump(document, sort_keys=False)


def kubeconfig(users: Sequence[str], certificate: pathlib.PurePath, key: pathlib.PurePath) -> str:
    """The kubeconfig: for each of `users` the same certificate, by file, so that the API server reads it anew."""
    given = {"client-certificate": str(certificate), "client-key": str(key)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "users": [{"name": name, "user": dict(given)} for name in users],
    }
    return yaml.safe_dump(document, sort_keys=False)
