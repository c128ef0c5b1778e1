{{- /*
What the pods of all components have in common. Argument: (dict "root" . "component" COMPONENT "values" TABLE), with the
component as in the label app.kubernetes.io/component and its table of values.
*/}}
{{- define "railwright.deploymentSettings" -}}
{{- if eq .component "certs" -}}
replicas: 1  # its writes would meet those of a second one
strategy:
  type: Recreate
{{- else -}}
replicas: {{ .values.replicas }}
strategy:
  rollingUpdate:
    maxSurge: 1
    maxUnavailable: 0
{{- end }}
selector:
  matchLabels:
    {{- include "railwright.selectorLabels" .component | nindent 4 }}
{{- end }}

{{- define "railwright.podMetadata" -}}
{{- with .root.Values.pods.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
labels:
  {{- include "railwright.podLabels" (list .root .component) | nindent 2 }}
{{- end }}

{{- define "railwright.podSettings" -}}
{{- include "railwright.podScheduling" . }}
serviceAccountName: {{ include "railwright.fullname" .root }}-{{ .component }}
automountServiceAccountToken: false  # the only token is in the volume `account` below
enableServiceLinks: false  # no addresses of other Services in the environment
# The server is then not PID 1, for which the kernel drops a SIGTERM until Python has set a handler.
shareProcessNamespace: true
{{- if .values.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
priorityClassName: {{ .root.Values.pods.priorityClassName }}
# Replicas of a revision run on different nodes while another node can take one. Nodes with taints that they do not
# tolerate, such as cordoned nodes, do not count. On a single node all replicas run, and a rollout proceeds.
# Different zones are preferred.
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: DoNotSchedule
  nodeTaintsPolicy: Honor
  matchLabelKeys: [pod-template-hash]
  labelSelector:
    matchLabels:
      {{- include "railwright.selectorLabels" .component | nindent 6 }}
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "railwright.selectorLabels" .component | nindent 6 }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "railwright.selectorLabels" .component | nindent 12 }}
# fsGroup is the group that can read the mounted Secrets and the token.
securityContext:
  {{- toYaml .root.Values.pods.securityContext | nindent 2 }}
{{- end }}

{{- /* Also for the pod of `helm test`. */}}
{{- define "railwright.podScheduling" -}}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.pods.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.pods.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "railwright.imageSettings" -}}
image: {{ include "railwright.image" .root }}  # in manifests/base a placeholder: your kustomization sets the release
{{- end }}

{{- /* Environment of all servers: where the installation is and what its objects are called. */}}
{{- define "railwright.environment" -}}
- name: RAILWRIGHT_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: RAILWRIGHT_INSTALLATION
  value: {{ include "railwright.fullname" .root }}
{{- end }}

{{- define "railwright.containerSettings" -}}
startupProbe:  # a start may take half a minute on a busy node
  httpGet:
    path: /livez
    port: ops
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 150
readinessProbe:
  httpGet:
    path: /readyz
    port: ops
  periodSeconds: 2
livenessProbe:
  httpGet:
    path: /livez
    port: ops
  timeoutSeconds: 5
# No CPU limit: it would slow the server down while cores are idle. No request or limit of ephemeral storage: the
# root file system is read-only, kubelet rotates the log, and a node that does not count it would reject the pod.
# The request of memory is for 1,000 nodes, the limit for 5,000 (docs/evidence/status.md#memory).
resources:
  {{- toYaml .values.resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- /* Mounts and volumes: the serving certificate (`secret` names its Secret, absent without TLS), the account's token. */}}
{{- define "railwright.mounts" -}}
{{- if .secret }}
- name: tls
  mountPath: /tls
  readOnly: true
{{- end }}
- name: account
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end }}

{{- define "railwright.volumes" -}}
{{- if .secret }}
- name: tls
  secret:
    secretName: {{ .secret }}
    defaultMode: 0440
    # listing the keys makes kubelet wait until railwright-certs has filled the Secret
    items:
    - key: tls.crt
      path: tls.crt
    - key: tls.key
      path: tls.key
    - key: ca.crt
      path: ca.crt
{{- end }}
{{ include "railwright.accountVolume" . }}
{{- end }}

{{- define "railwright.accountVolume" -}}
- name: account  # as kubelet would mount it by default; kubelet renews the token
  projected:
    defaultMode: 0440
    sources:
    - serviceAccountToken:
        path: token
        expirationSeconds: 3607
    - configMap:
        name: kube-root-ca.crt
        items:
        - key: ca.crt
          path: ca.crt
    - downwardAPI:
        items:
        - path: namespace
          fieldRef:
            fieldPath: metadata.namespace
{{- end }}

{{- define "railwright.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "railwright.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "railwright.labels" (list .root .component) | nindent 4 }}
automountServiceAccountToken: false  # mounted explicitly by the Deployment
{{- end }}

{{- define "railwright.serviceMetadata" -}}
name: {{ include "railwright.fullname" .root }}-{{ .component }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "railwright.labels" (list .root .component) | nindent 2 }}
{{- end }}

{{- define "railwright.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "railwright.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "railwright.labels" (list .root .component) | nindent 4 }}
spec:
  maxUnavailable: 1  # unlike minAvailable, this lets a node with the only replica be drained
  unhealthyPodEvictionPolicy: AlwaysAllow  # replicas that are not ready do not block a drain
  selector:
    matchLabels:
      {{- include "railwright.selectorLabels" .component | nindent 6 }}
{{- end }}
