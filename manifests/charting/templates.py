"""Lists the chart's templates: for each, the source file in manifests/ and the edits that insert values.

The manifests, with their comments, are the source, so the chart cannot differ from them: if an edit does not find its
text exactly as often as declared, the build fails. Does not know the defaults of the values (`values.py`).
"""

import re
from collections.abc import Callable, Sequence

import msgspec

Change = Callable[[str], str]


class StaleError(Exception):
    """Raised if an edit no longer matches its manifest."""


class Template(msgspec.Struct, frozen=True):
    """Template of the chart, generated from a file of manifests/."""

    name: str
    source: str
    changes: Sequence[Change]

    def render(self, text: str) -> str:
        """Return the template's text. Raises StaleError if an edit no longer matches."""
        for change in self.changes:
            try:
                text = change(text)
            except StaleError as error:
                raise StaleError(f"manifests/charting/templates.py: {self.source}: {error}") from None
        return text


def replace(before: str, after: str, *, times: int = 1, of: int | None = None) -> Change:
    """Replace the first `times` of exactly `of` occurrences of a text."""

    def change(text: str) -> str:
        if text.count(before) != (of or times):
            raise StaleError(f"{before!r} occurs {text.count(before)} times, expected {of or times}: correct this edit")
        return text.replace(before, after, times)

    return change


def block(pattern: str, after: str) -> Change:
    """Replace the only match of a regular expression. The replacement may refer to its groups."""

    def change(text: str) -> str:
        changed, count = re.subn(pattern, after, text, flags=re.MULTILINE)
        if count != 1:
            raise StaleError(f"{pattern!r} matches {count} times, expected 1: correct this edit")
        return changed

    return change


def only(kind: str) -> Change:
    """Keep only documents of one kind."""

    def change(text: str) -> str:
        return "---\n".join(part for part in text.split("---\n") if f"\nkind: {kind}\n" in f"\n{part}")

    return change


def where(condition: str) -> Change:
    """Put the whole file under a condition."""
    return lambda text: f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"


def document_where(name: str, condition: str) -> Change:
    """Put the document with this metadata.name under a condition."""

    def change(text: str) -> str:
        parts = text.split("---\n")
        positions = [index for index, part in enumerate(parts) if f"\n  name: {name}\n" in part]
        if len(positions) != 1:
            raise StaleError(f"{len(positions)} documents are named {name}, expected 1: correct this edit")
        parts[positions[0]] = where(condition)(parts[positions[0]])
        return "---\n".join(parts)

    return change


IMAGE = """image: {{ include "railwright.image" . }}
        # Not always pulled: the tag or digest of a release does not change. image.pullPolicy overrides this.
        {{- with .Values.image.pullPolicy }}
        imagePullPolicy: {{ . }}
        {{- end }}
"""


def pods(table: str, *arguments: str) -> list[Change]:
    """Return the edits that insert a table of values into a Deployment. `arguments` are appended to its args."""
    further = "".join(f"        {line}\n" for line in arguments)
    values = f".Values.{table}"
    extra = f"""        {{{{- with {values}.extraArgs }}}}
        {{{{- toYaml . | nindent 8 }}}}
        {{{{- end }}}}
"""
    return [
        replace("  replicas: 2", f"  replicas: {{{{ {values}.replicas }}}}"),
        block(
            r"^(      serviceAccountName: .*\n)",
            rf'\1      {{{{- include "railwright.pod" (list . {values}) | nindent 6 }}}}\n',
        ),
        replace(
            "priorityClassName: system-cluster-critical", f"priorityClassName: {{{{ {values}.priorityClassName }}}}"
        ),
        block(
            r"^(      affinity:\n(?: {8}.*\n)+)",
            rf"      {{{{- with {values}.affinity }}}}\n      affinity: {{{{- toYaml . | nindent 8 }}}}\n"
            r"      {{- else }}\n\1      {{- end }}\n",
        ),
        block(r"image: railwright:latest .*\n", IMAGE),
        block(r"^(        args:\n(?:        - .*\n)+)", rf"\1{further}{extra}"),
        block(
            r"^        resources:\n(?: {10}.*\n)+",
            rf"        resources: {{{{- toYaml {values}.resources | nindent 10 }}}}\n",
        ),
    ]


OTLP = ("{{- with .Values.tracing.endpoint }}", "- --otlp-endpoint={{ . }}", "{{- end }}")
CLIENT_AUTH = (
    "{{- if .Values.certificates.clientAuth }}",
    "- --client-ca=/tls/ca.crt",
    "- --client-names=kube-apiserver",
    "{{- end }}",
)
EXCLUDED_NAMESPACES = (
    "{{- with .Values.webhook.excludedNamespaces }}",
    '- --excluded-namespaces={{ join "," . }}',
    "{{- end }}",
)
EXCLUDED = "kube-system, railwright-system{{ range .Values.webhook.excludedNamespaces }}, {{ . }}{{ end }}]"
EXCLUDED_BEFORE = "kube-system, railwright-system]"
ROTATOR = 'eq .Values.certificates.mode "rotator"'
ENABLED = ".Values.extender.enabled"
TLS_ARGUMENTS = "        - --tls-cert=/tls/tls.crt\n        - --tls-key=/tls/tls.key\n"
TLS_MOUNT = "        - {name: tls, mountPath: /tls, readOnly: true}\n"
INJECTED = """metadata:
  name: railwright
  {{- if eq .Values.certificates.mode "cert-manager" }}
  annotations: {cert-manager.io/inject-ca-from: railwright-system/railwright-webhook}
  {{- end }}
"""
BUNDLE = r"""\1
    {{- with .Values.certificates.caBundle }}
    caBundle: {{ b64enc . }}
    {{- end }}
"""
PLAIN = (
    "{{- if .Values.extender.plainHttp }}\n        - --plain-http\n        - --allow-plain-http\n        {{- else }}\n"
)


def insert_bundles(text: str) -> str:
    """Insert caBundle beside each Service that the API server calls, if the value is set."""
    changed, count = re.subn(r"^(    service: \{.*\})\n", BUNDLE, text, flags=re.MULTILINE)
    if count != text.count("service: {"):
        raise StaleError("a clientConfig has its `service: {...}` not on a line of its own: correct `insert_bundles`")
    return changed


TEMPLATES = (
    Template("quota.yaml", "base/namespace.yaml", [only("ResourceQuota"), where(".Values.quota")]),
    Template("webhook-rbac.yaml", "base/webhook-rbac.yaml", []),
    Template(
        "webhook.yaml",
        "base/webhook.yaml",
        [
            *pods("webhook", *CLIENT_AUTH, *EXCLUDED_NAMESPACES, *OTLP),
        ],
    ),
    Template("extender-rbac.yaml", "base/extender-rbac.yaml", [where(ENABLED)]),
    Template("dashboard-rbac.yaml", "base/dashboard-rbac.yaml", []),
    Template("user-rbac.yaml", "base/user-rbac.yaml", []),
    Template(
        "extender.yaml",
        "base/extender.yaml",
        [
            *pods("extender", *OTLP),
            replace(TLS_ARGUMENTS, f"        {PLAIN}{TLS_ARGUMENTS}        {{{{- end }}}}\n"),
            replace(
                TLS_MOUNT, f"        {{{{- if not .Values.extender.plainHttp }}}}\n{TLS_MOUNT}        {{{{- end }}}}\n"
            ),
            block(
                r"^(      - name: tls\n        secret:\n(?: {10}.*\n)+)",
                r"      {{- if not .Values.extender.plainHttp }}\n\1      {{- end }}\n",
            ),
            where(ENABLED),
        ],
    ),
    Template(
        "admission.yaml",
        "base/admission.yaml",
        [
            replace(EXCLUDED_BEFORE, EXCLUDED, times=3),
            replace("failurePolicy: Fail", "failurePolicy: {{ .Values.webhook.failurePolicy }}", times=3),
            replace("timeoutSeconds: 5", "timeoutSeconds: {{ .Values.webhook.timeoutSeconds }}", times=3, of=4),
            replace("metadata:\n  name: railwright\n", INJECTED, times=2),
            insert_bundles,
        ],
    ),
    Template(
        "certs.yaml",
        "base/certs.yaml",
        [
            *pods("certificates", "{{- if .Values.certificates.clientAuth }}", "- --clients", "{{- end }}"),
            replace(
                "railwright-webhook-tls, railwright-extender-tls]",
                "railwright-webhook-tls, railwright-extender-tls{{ if .Values.certificates.clientAuth }},"
                " railwright-apiserver-client, railwright-scheduler-client{{ end }}]",
            ),
            where(ROTATOR),
        ],
    ),
    Template(
        "client-secrets.yaml",
        "components/client-auth/secrets.yaml",
        [where(f"and .Values.certificates.clientAuth ({ROTATOR})")],
    ),
    Template(
        "cert-manager.yaml",
        "overlays/cert-manager/certificates.yaml",
        [where('eq .Values.certificates.mode "cert-manager"')],
    ),
    Template(
        "admission-policy.yaml",
        "base/admission-policy.yaml",
        [
            replace(EXCLUDED_BEFORE, EXCLUDED, times=3),
            replace("[Deny, Audit]", "[{{ .Values.admissionPolicy.mode }}, Audit]", times=2, of=3),
            replace("['nvidia.com/gpu']", "['{{ join \"', '\" .Values.admissionPolicy.accelerators }}']"),
            where('ne .Values.admissionPolicy.mode "Off"'),
        ],
    ),
    Template(
        "network-policy.yaml",
        "base/network-policy.yaml",
        [
            replace("name: monitoring}", "name: {{ .Values.networkPolicy.metricsNamespace }}}"),
            document_where("railwright-extender", ENABLED),
            where(".Values.networkPolicy.enabled"),
        ],
    ),
    Template("service-monitor.yaml", "components/prometheus/scraping.yaml", [where(".Values.metrics.serviceMonitor")]),
)
FILES = {  # copied unchanged, read by templates
    "files/policy.yaml": "base/policy.yaml",
    "files/alerts.yaml": "components/prometheus/alerts.yaml",
    **{
        f"files/railwright-{name}.json": f"components/prometheus/dashboards/{name}.json"
        for name in ("admission", "scheduling", "fabric")
    },
}
