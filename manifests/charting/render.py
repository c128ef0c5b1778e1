"""Renders manifests/base, the overlays and the components from the Helm chart: `python manifests/charting/render.py`.

Needs Helm 3: the program in the environment variable HELM, or `helm` on the PATH, or the one that
`tests/integration/build.py` builds. Comments of the templates are kept.
Written by hand: namespace.yaml, because Helm cannot own the namespace of its release; policy.yaml, the example; and
every kustomization.yaml.
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import yaml

import build

HANDWRITTEN = {"namespace.yaml"}
RESOURCES = yaml.safe_load((build.MANIFESTS / "base" / "kustomization.yaml").read_text())["resources"]
TARGETS = {  # a set of values -> the templates of which it is the source, with the files they are rendered to
    "extender.enabled=true,admissionPolicy.mode=Deny,quota=true": {
        f"templates/{name}": f"base/{name}" for name in RESOURCES if name not in HANDWRITTEN
    },
    "certificates.mode=cert-manager,extender.enabled=true": {
        "templates/cert-manager.yaml": "overlays/cert-manager/certificates.yaml"
    },
    "webhook.claims=true": {"templates/claims-rbac.yaml": "components/claims/rbac.yaml"},
    "metrics.enabled=true": {
        "templates/service-monitor.yaml": "components/prometheus/scraping.yaml",
        "templates/alerts.yaml": "components/prometheus/alerts.yaml",
    },
}
_MISSING = (
    "manifests/charting/render.py: Helm 3 is missing. Install it (https://helm.sh/docs/intro/install), set HELM to the "
    "path of the program, or build it: python tests/integration/build.py\n"
)


def find_helm() -> str | None:
    """Return the path of Helm, None if there is none."""
    program = os.environ.get("HELM") or shutil.which("helm")
    if program is None:
        sys.path.insert(0, str(build.MANIFESTS.parent / "tests" / "integration"))
        from plane import helm  # noqa: PLC0415 - of the tests

        with contextlib.suppress(FileNotFoundError):
            program = str(helm.locate())
    return program


def render_files(helm: str) -> dict[pathlib.Path, str]:
    """Return path and text of every file that is rendered from the chart. Raises CalledProcessError."""
    files = {}
    for settings, targets in TARGETS.items():
        rendered = render_templates(helm, settings)
        for template, target in targets.items():
            header = f"# Rendered from manifests/chart/{template} by manifests/charting/render.py; edit the template.\n"
            files[build.MANIFESTS / target] = header + rendered[template]
    return files


def render_templates(helm: str, settings: str) -> dict[str, str]:
    """Return the text that Helm renders from each template, with labels that name kustomize as its manager."""
    options = ["--namespace=railwright-system", "--set=image.tag=latest"]
    command = [helm, "template", "railwright", str(build.CHART), *options, f"--set={settings}"]
    text = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603 - Helm of the caller
    text = re.sub(r"^ *helm\.sh/chart: .*\n", "", text, flags=re.MULTILINE)
    text = text.replace("app.kubernetes.io/managed-by: Helm", "app.kubernetes.io/managed-by: kustomize")
    documents: dict[str, list[str]] = {}
    for document in re.split(r"^---\n", text, flags=re.MULTILINE):
        source = re.match(r"# Source: railwright/(\S+)\n", document)
        if source is not None:
            documents.setdefault(source.group(1), []).append(document[source.end() :].strip("\n") + "\n")
    return {template: "---\n".join(parts) for template, parts in documents.items()}


def main() -> int:
    """Render and write the files. Return 0, or 2 if Helm is missing."""
    helm = find_helm()
    if helm is None:
        sys.stderr.write(_MISSING)
        return 2
    build.write_files(render_files(helm))
    return 0


if __name__ == "__main__":
    sys.exit(main())
