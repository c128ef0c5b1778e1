{{- /*
First part of the name of every object: fullnameOverride, otherwise the release's name, followed by the chart's name
unless the release's name contains it. At most 40 characters, so that the longest suffix fits into 63.
*/}}
{{- define "railwright.fullname" -}}
{{- $release := ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) }}
{{- .Values.fullnameOverride | default $release | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- /* Image of all components, by tag and digest, by one of them, otherwise by the chart's appVersion. */}}
{{- define "railwright.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if not (hasPrefix "@" (.tag | default "")) }}:{{ end }}{{ .tag | default $.Chart.AppVersion }}
{{- end }}
{{- end }}

{{- /* "true" if a fabric needs ResourceClaimTemplates, by the value or by the policy of the values. */}}
{{- define "railwright.needsClaimTemplates" -}}
{{- $fabrics := get (fromYaml (.Values.policy.document | default "")) "fabrics" }}
{{- $found := .Values.webhook.claims }}
{{- if kindIs "map" $fabrics }}
{{- range $fabrics }}
{{- if kindIs "map" . }}
{{- $found = or $found .claims .nvlinkSegment }}
{{- end }}
{{- end }}
{{- end }}
{{- if $found }}true{{ end }}
{{- end }}

{{- /* Labels of every object. Argument: (list . COMPONENT). */}}
{{- define "railwright.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{ include "railwright.podLabels" . }}
{{- end }}

{{- /* Labels of pods: those of an object without the installer's, which change more often than the pods. */}}
{{- define "railwright.podLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
{{ include "railwright.selectorLabels" (index . 1) }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Labels by which a component's pods are selected. They depend on no value: selectors of Deployments are immutable. */}}
{{- define "railwright.selectorLabels" -}}
app.kubernetes.io/part-of: railwright
app.kubernetes.io/component: {{ . }}
{{- end }}

{{- /* Namespaces that railwright never changes, as the content of a YAML list. */}}
{{- define "railwright.excludedNamespaces" -}}
{{ prepend (prepend .Values.webhook.excludedNamespaces .Release.Namespace) "kube-system" | join ", " }}
{{- end }}
