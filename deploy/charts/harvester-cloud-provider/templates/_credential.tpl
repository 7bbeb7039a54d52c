{{/* The Secret with the credential, "" for none. */}}
{{- define "provider.secretName" -}}
{{- (.Values.cloudConfig | default dict).secretName | default "" -}}
{{- end -}}

{{/* The node's file with the credential; "" where a Secret has it. Says what is wrong with the values. */}}
{{- define "provider.credentialPath" -}}
{{- if not (include "provider.secretName" .) -}}
{{- $path := .Values.cloudConfigPath | default (.Values.cloudConfig | default dict).hostPath -}}
{{- if not $path -}}
{{- fail "the cloud provider has no credential for Harvester: cloudConfig.secretName, cloudConfigPath and cloudConfig.hostPath are all empty; set one of them" -}}
{{- end -}}
{{- if not (hasPrefix "/" $path) -}}
{{- fail (printf "the credential's path %q is relative; write the absolute path of a file on the node, or use cloudConfig.secretName" $path) -}}
{{- end -}}
{{- if hasSuffix "/" $path -}}
{{- fail (printf "the credential's path %q is a directory; name the file in it, for example %scloud-provider-config" $path $path) -}}
{{- end -}}
{{- $path -}}
{{- end -}}
{{- end -}}

{{/*
The file belongs to root, who alone may read it. Its owner needs no capability to read it, so root without any is
enough; with a Secret the pod need not run as root.
*/}}
{{- define "provider.podSecurity" -}}
{{- $set := dict "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- if include "provider.secretName" . -}}
{{- $set = merge $set (dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532) -}}
{{- else -}}
{{- $set = merge $set (dict "runAsUser" 0 "runAsGroup" 0) -}}
{{- end -}}
{{- mustMergeOverwrite $set (deepCopy .Values.podSecurityContext) | toYaml -}}
{{- end -}}

{{- define "provider.containerSecurity" -}}
{{- $set := dict "allowPrivilegeEscalation" false "readOnlyRootFilesystem" true "capabilities" (dict "drop" (list "ALL")) -}}
{{- mustMergeOverwrite $set (deepCopy .Values.securityContext) | toYaml -}}
{{- end -}}
