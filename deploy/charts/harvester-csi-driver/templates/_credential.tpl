{{/* The Secret with the credential, "" for none. */}}
{{- define "csi.secretName" -}}
{{- (.Values.cloudConfig | default dict).secretName | default "" -}}
{{- end -}}

{{/* The servers' directory with the credential; "" where a Secret has it. Says what is wrong with the values. */}}
{{- define "csi.credentialDirectory" -}}
{{- if not (include "csi.secretName" .) -}}
{{- $path := (.Values.cloudConfig | default dict).hostPath | default "" -}}
{{- if not $path -}}
{{- fail "the CSI driver has no credential for Harvester: cloudConfig.secretName and cloudConfig.hostPath are both empty; set one of them" -}}
{{- end -}}
{{- if not (hasPrefix "/" $path) -}}
{{- fail (printf "cloudConfig.hostPath %q is relative; write the absolute path of a directory on the servers, or use cloudConfig.secretName" $path) -}}
{{- end -}}
{{- if eq (base $path) "cloud-provider-config" -}}
{{- fail (printf "cloudConfig.hostPath %q is the file; name its directory, %s/" $path (dir $path)) -}}
{{- end -}}
{{- $path -}}
{{- end -}}
{{- end -}}

{{/*
The file belongs to root, who alone may read it. Its owner needs no capability to read it, so root without any is enough;
with a Secret the pod need not run as root. The socket is for the user who made it, so all containers are this user.
*/}}
{{- define "csi.podSecurity" -}}
{{- $set := dict "seccompProfile" (dict "type" "RuntimeDefault") -}}
{{- if include "csi.secretName" . -}}
{{- $set = merge $set (dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532) -}}
{{- else -}}
{{- $set = merge $set (dict "runAsUser" 0 "runAsGroup" 0) -}}
{{- end -}}
{{- mustMergeOverwrite $set (deepCopy .Values.controller.podSecurityContext) | toYaml -}}
{{- end -}}

{{- define "csi.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
