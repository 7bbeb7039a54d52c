{{/* The chart's name, or the user's instead: the label app.kubernetes.io/name. */}}
{{- define "provider.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of every object. Not made of the release's: the bundled chart's objects are named like this, too. */}}
{{- define "provider.fullname" -}}
{{- default (include "provider.name" .) .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "provider.account" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "provider.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.create is false, so serviceAccount.name has to name an account that exists in the release's namespace" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Selectors of a Deployment cannot change, so these two are the original's. */}}
{{- define "provider.selector" -}}
app.kubernetes.io/name: {{ include "provider.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "provider.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "provider.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "provider.clusterName" -}}
{{- ((.Values.global | default dict).cattle | default dict).clusterName | default "" -}}
{{- end -}}

{{/* The cluster's registry comes before the repository, unless it stands there already. */}}
{{- define "provider.image" -}}
{{- $registry := ((.Values.global | default dict).cattle | default dict).systemDefaultRegistry | default "" | trimSuffix "/" -}}
{{- if and $registry (not (hasPrefix (printf "%s/" $registry) .Values.image.repository)) }}{{ $registry }}/{{ end -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
