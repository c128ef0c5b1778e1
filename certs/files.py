"""Writes certificates, and the configuration by which an API server presents its client certificate to webhooks.

A certificate is `NAME.crt` and `NAME.key` in one directory. Files are written atomically, with their modes.
"""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Mapping, Sequence

import yaml

from certs import pki
from railwright.cluster import installed_names

KEY_MODE = 0o600  # a private key is readable by its owner only
CERTIFICATE_MODE = 0o644  # certificates are public


def name_files(name: str, pair: pki.Pair) -> dict[str, bytes]:
    """Return the files of a pair. The key comes first, because a server reloads when the certificate changes."""
    return {f"{name}.key": pair.key_pem, f"{name}.crt": pair.certificate_pem}


def write_changed(folder: pathlib.Path, contents: Mapping[str, bytes]) -> list[str]:
    """Write the files whose content differs, in this order, and return their names. Raises OSError.

    Create `folder` (mode 0700) if it is missing.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = {folder / name: content for name, content in contents.items()}
    changed = {path: content for path, content in paths.items() if not path.exists() or path.read_bytes() != content}
    for path, content in changed.items():
        _replace(path, content, KEY_MODE if path.suffix == ".key" else CERTIFICATE_MODE)
    return [path.name for path in changed]


def _replace(path: pathlib.Path, content: bytes, mode: int) -> None:
    """Write `content` to `path` atomically: readers see the old file or the new one."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mkstemp sets mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        pathlib.Path(temporary).replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            pathlib.Path(temporary).unlink()
        raise


DIRECTORY = pathlib.PurePosixPath("/etc/kubernetes/railwright")  # directory on the control plane's machines
ADMISSION, KUBECONFIG = "admission.yaml", "kubeconfig.yaml"
_PLUGINS = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")


# The formats are AdmissionConfiguration (apiserver.config.k8s.io/v1) and the kubeconfig that it names. The API server
# looks up users by `service.namespace.svc` (with the port if it is not 443), by `host:port` for webhooks with a URL,
# then by `*.` suffixes, then by `*` (k8s.io/apiserver, pkg/util/webhook/authentication.go).


def format_user(namespace: str) -> str:
    """Return the user name for the webhook's Service, which is called on port 443."""
    return f"{installed_names.WEBHOOK}.{namespace}.svc"


def build_configuration(directory: pathlib.PurePath) -> str:
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
