{{/*
The value of a flag in extraArgs, the last one as for the program; else `default`.
(dict "name" "secure-port" "args" .Values.extraArgs "default" "10258")
*/}}
{{- define "provider.flag" -}}
{{- $flag := printf "--%s" .name -}}
{{- $found := .default -}}
{{- $isNext := false -}}
{{- range .args -}}
  {{- $word := toString . -}}
  {{- if $isNext -}}
    {{- $found = $word -}}
    {{- $isNext = false -}}
  {{- else if eq $word $flag -}}
    {{- $isNext = true -}}
  {{- else if hasPrefix (printf "%s=" $flag) $word -}}
    {{- $found = trimPrefix (printf "%s=" $flag) $word -}}
  {{- end -}}
{{- end -}}
{{- $found -}}
{{- end -}}

{{/* Where probes and metrics are served; "0" is nowhere. */}}
{{- define "provider.port" -}}
{{- include "provider.flag" (dict "name" "secure-port" "args" .Values.extraArgs "default" "10258") -}}
{{- end -}}

{{- define "provider.leaseName" -}}
{{- include "provider.flag" (dict "name" "leader-elect-resource-name" "args" .Values.extraArgs "default" "cloud-controller-manager") -}}
{{- end -}}

{{- define "provider.leaseNamespace" -}}
{{- include "provider.flag" (dict "name" "leader-elect-resource-namespace" "args" .Values.extraArgs "default" "kube-system") -}}
{{- end -}}
