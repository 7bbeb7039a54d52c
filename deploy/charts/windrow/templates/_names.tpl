{{- define "windrow.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of every object: the release's, with the chart's unless that is in it. */}}
{{- define "windrow.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "windrow.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "windrow.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "windrow.account" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "windrow.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.create is false, so serviceAccount.name has to name an account that exists in the release's namespace" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "windrow.selector" -}}
app.kubernetes.io/name: {{ include "windrow.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "windrow.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "windrow.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "windrow.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{/* How many pods. An embedded manager is one: two would write one database. */}}
{{- define "windrow.replicas" -}}
{{- $asked := .Values.replicaCount -}}
{{- if not .Values.embedded.enabled -}}
{{- if kindIs "invalid" $asked -}}2{{- else -}}{{ int $asked }}{{- end -}}
{{- else -}}
{{- if gt (int $asked) 1 -}}
{{- fail (printf "replicaCount is %d and embedded.enabled is true: one pod has the database; leave replicaCount out, or keep the objects in this Kubernetes (embedded.enabled: false)" (int $asked)) -}}
{{- end -}}
{{- if kindIs "invalid" $asked -}}1{{- else -}}{{ int $asked }}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "windrow.claim" -}}
{{- default (printf "%s-state" (include "windrow.fullname" . | trunc 57 | trimSuffix "-")) .Values.embedded.persistence.existingClaim -}}
{{- end -}}
