{{- define "windrow.podSecurity" -}}
{{- $set := dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532 "fsGroupChangePolicy" "OnRootMismatch" "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- mustMergeOverwrite $set (deepCopy .Values.podSecurityContext) | toYaml -}}
{{- end -}}

{{- define "windrow.containerSecurity" -}}
{{- $set := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) -}}
{{- mustMergeOverwrite $set (deepCopy .Values.securityContext) | toYaml -}}
{{- end -}}

{{/* The new pod of a rollout waits for the Lease, which the old one gives back when it ends. */}}
{{- define "windrow.strategy" -}}
{{- if .Values.strategy -}}
{{- toYaml .Values.strategy -}}
{{- else if .Values.embedded.enabled -}}
type: Recreate
{{- else -}}
type: RollingUpdate
rollingUpdate:
  maxSurge: 1
  maxUnavailable: 0
{{- end -}}
{{- end -}}

{{- define "windrow.affinity" -}}
{{- if .Values.affinity -}}
{{- toYaml .Values.affinity -}}
{{- else -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        labelSelector:
          matchLabels:
            {{- include "windrow.selector" . | nindent 12 }}
        topologyKey: kubernetes.io/hostname
{{- end -}}
{{- end -}}

{{/* The arguments. One that stands twice would count as the last, against what ports, volumes and rights say. */}}
{{- define "windrow.arguments" -}}
{{- range .Values.extraArgs -}}
{{- $flag := (splitn "=" 2 .)._0 -}}
{{- if has $flag (list "--state-dir" "--kubeconfig" "--metrics-bind-address" "--bind" "--port" "--proxy" "--log-format" "--no-dashboard" "--dashboard-bind" "--dashboard-port") -}}
{{- fail (printf "extraArgs has %s, which the chart sets; leave it out (proxy, metrics.port and embedded are values)" $flag) -}}
{{- end -}}
{{- end -}}
- serve
# A folder in the volume: the volume's own belongs to root, and the manager keeps its state where it alone may read.
- --state-dir=/var/lib/windrow/state
{{- if .Values.embedded.enabled }}
- --bind=0.0.0.0
- --port=6443
- --no-dashboard
{{- else }}
# In a pod: this Kubernetes, as the pod's service account.
- --kubeconfig=
{{- end }}
- --metrics-bind-address=:{{ .Values.metrics.port }}
- --log-format=json
{{- with .Values.proxy }}
- {{ printf "--proxy=%s" . | quote }}
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}
