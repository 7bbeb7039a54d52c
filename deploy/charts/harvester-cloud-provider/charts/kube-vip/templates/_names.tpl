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

{{- define "vip.image" -}}
{{- $global := .Values.global | default dict -}}
{{- with ($global.cattle | default dict).systemDefaultRegistry }}{{ trimSuffix "/" . }}/{{ end -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
