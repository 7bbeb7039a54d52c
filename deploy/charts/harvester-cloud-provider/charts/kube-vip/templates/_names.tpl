{{- define "vip.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "vip.fullname" -}}
{{- default (include "vip.name" .) .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "vip.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "vip.account" -}}
{{- default (.Values.serviceAccount.create | ternary (include "vip.fullname" .) "default") .Values.serviceAccount.name -}}
{{- end -}}

{{- define "vip.selector" -}}
app.kubernetes.io/name: {{ include "vip.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "vip.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "vip.selector" . }}
app.kubernetes.io/version: {{ default .Chart.AppVersion .Values.image.tag | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The cluster's registry comes before the repository, unless that names a registry itself: a first part with "." or ":",
or "localhost", as in every image reference. The original puts none, so its users wrote theirs into the repository. */}}
{{- define "vip.image" -}}
{{- $registry := ((.Values.global | default dict).cattle | default dict).systemDefaultRegistry | default "" | trimSuffix "/" -}}
{{- $names := regexMatch "^(localhost|[^/]*[.:][^/]*)/" .Values.image.repository -}}
{{- if and $registry (not $names) (not (hasPrefix (printf "%s/" $registry) .Values.image.repository)) }}{{ $registry }}/{{ end -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
