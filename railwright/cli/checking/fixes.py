"""Fixes of rows, with the names and the commands of the installation, by how it was installed."""

import datetime as dt
import re
from collections.abc import Mapping

from railwright.cli.checking import snapshots
from railwright.cli.checking.fields import get_map, get_path
from railwright.cli.checking.snapshots import CERTS, EXTENDER, POLICY, WEBHOOK
from railwright.cluster import installed_names

CREATE_POLICY = (
    "describe your rails in policy.yaml (railwright policy schema has every key), then: kubectl -n {namespace} create "
    "configmap {policy} --from-file=policy.yaml"
)
DISABLED = (  # detail of rows about what `railwright disable` has deleted, with the fix
    f"railwright is disabled (`railwright disable`): ConfigMap {installed_names.DISABLED} has the deleted objects, and "
    "labelled pods are created without their network"
)
ENABLE = "railwright enable"
EXAMPLE = snapshots.Snapshot(installed_names.NAMESPACE, dt.datetime.fromtimestamp(0, dt.UTC))  # names the installation
_PLACEHOLDER = re.compile(r"\{(namespace|webhook|extender|certs|policy|configuration|edit policy|apply)(?: ([^}]+))?\}")
# Labels and annotations that GitOps tools write on what they deploy, with the kind whose name is their value. Argo CD's
# tracking-id is APPLICATION:GROUP/KIND:NAMESPACE/NAME. (Its docs: resource tracking; Flux's: spec.commonMetadata.)
_DEPLOYERS: Mapping[str, tuple[str, str]] = {
    "argocd.argoproj.io/tracking-id": ("Argo CD", "Application"),
    "argocd.argoproj.io/instance": ("Argo CD", "Application"),
    "helm.toolkit.fluxcd.io/name": ("Flux", "HelmRelease"),
    "kustomize.toolkit.fluxcd.io/name": ("Flux", "Kustomization"),
}


def fill_in(fix: str, snapshot: snapshots.Snapshot) -> str:
    """Return a fix with the names and the commands of an installation.

    `{edit policy}` is the command that edits the policy; `{apply}` applies the installation again, by how it was
    installed, and `{apply KEY=VALUE}` sets a value of the chart. `{webhook}` and the like are names of objects.
    """
    words = {
        "namespace": snapshot.namespace,
        "webhook": WEBHOOK,
        "extender": EXTENDER,
        "certs": CERTS,
        "policy": POLICY,
        "configuration": installed_names.INSTALLATION,
        "edit policy": f"kubectl -n {snapshot.namespace} edit configmap {POLICY}",
    }
    return _PLACEHOLDER.sub(lambda match: words.get(match[1]) or _format_apply(snapshot, match[2] or ""), fix)


def _format_apply(snapshot: snapshots.Snapshot, setting: str) -> str:
    """Return how to apply the installation again: by the repository of a GitOps tool, by Helm, or by kubectl.

    `setting` (KEY=VALUE) is a value of the chart that the release must have: Helm keeps another one that was set.
    """
    for deployment in snapshot.peek("deployments"):
        if get_path(deployment, "metadata", "name") not in (WEBHOOK, EXTENDER, CERTS):
            continue
        labels, annotations = (get_map(deployment, "metadata", key) for key in ("labels", "annotations"))
        for key, (tool, kind) in _DEPLOYERS.items():
            if value := {**labels, **annotations}.get(key):
                return f"change it in the repository that {tool} ({kind} {value.partition(':')[0]}) deploys"
        if labels.get("app.kubernetes.io/managed-by") == "Helm":
            release = annotations.get("meta.helm.sh/release-name", "railwright")
            value = f" --set {setting}" if setting else ""
            return f"helm upgrade {release} CHART -n {snapshot.namespace} --reset-then-reuse-values{value}"
    return "kubectl apply -k FOLDER (with your kustomization.yaml)"
