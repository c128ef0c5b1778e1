{{- /* Image of all components, by digest, otherwise by tag, otherwise by the chart's appVersion. */}}
{{- define "railwright.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* Settings of a pod that the manifests lack, as keys of its spec. Argument: (list . TABLE). */}}
{{- define "railwright.pod" -}}
{{- $values := index . 1 }}
{{- with (index . 0).Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
