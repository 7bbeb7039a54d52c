{{/* The chart's name, or the user's instead: the label app.kubernetes.io/name. */}}
{{- define "csi.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* How the names of all objects begin. Not made of the release's: the bundled chart's objects are named like this, too. */}}
{{- define "csi.fullname" -}}
{{- default (include "csi.name" .) .Values.fullnameOverride | trunc 49 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of CSI, which PersistentVolumes hold: it never changes. */}}
{{- define "csi.driver" -}}driver.harvesterhci.io{{- end -}}

{{/*
Where the node plugin's socket is. Not where the original has it: there the original's side-cars look for a controller. Their
csi-attacher takes a driver without one for a driver that attaches nothing, and would mark every VolumeAttachment as done.
*/}}
{{- define "csi.socketDirectory" -}}
{{- printf "%s/plugins/%s" (include "csi.kubelet" .) (include "csi.driver" .) -}}
{{- end -}}

{{- define "csi.kubelet" -}}
{{- $path := .Values.kubeletRootDir | default "" | trimSuffix "/" -}}
{{- if not (hasPrefix "/" $path) -}}
{{- fail (printf "kubeletRootDir %q is no absolute path; write the kubelet's --root-dir, which is /var/lib/kubelet unless it was changed" .Values.kubeletRootDir) -}}
{{- end -}}
{{- $path -}}
{{- end -}}

{{/* Selectors of a Deployment and of a DaemonSet cannot change, so these, with `component`, are the original's. */}}
{{- define "csi.selector" -}}
app.kubernetes.io/name: {{ include "csi.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "csi.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "csi.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* (dict "top" $ "image" .Values.image.csi.attacher) The cluster's registry comes before the repository, unless it stands there. */}}
{{- define "csi.image" -}}
{{- $registry := ((.top.Values.global | default dict).cattle | default dict).systemDefaultRegistry | default "" | trimSuffix "/" -}}
{{- if and $registry (not (hasPrefix (printf "%s/" $registry) .image.repository)) }}{{ $registry }}/{{ end -}}
{{ .image.repository }}:{{ default .top.Chart.AppVersion .image.tag }}
{{- end -}}

{{/* Names, or objects with one; the original takes both. */}}
{{- define "csi.pullSecrets" -}}
{{- $names := list -}}
{{- range ((.Values.global | default dict).cattle | default dict).imagePullSecrets -}}
{{- $names = append $names (kindIs "map" . | ternary (get (kindIs "map" . | ternary . dict) "name") .) -}}
{{- end -}}
{{- with $names | uniq }}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* "true" where snapshots are served, else "". */}}
{{- define "csi.snapshots" -}}
{{- if kindIs "bool" .Values.snapshots.enabled -}}
{{- if .Values.snapshots.enabled }}true{{ end -}}
{{- else if .Capabilities.APIVersions.Has "snapshot.storage.k8s.io/v1" -}}
true
{{- end -}}
{{- end -}}
