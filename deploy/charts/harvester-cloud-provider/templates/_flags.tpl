{{/*
The value of a flag in extraArgs, the last one as for the program; else `default`. As there, --secure_port is
--secure-port.
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
  {{- else -}}
    {{- $parts := splitn "=" 2 $word -}}
    {{- if eq (replace "_" "-" $parts._0) $flag -}}
      {{- if contains "=" $word -}}
        {{- $found = $parts._1 -}}
      {{- else -}}
        {{- $isNext = true -}}
      {{- end -}}
    {{- end -}}
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
