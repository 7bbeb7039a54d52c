{{/*
A side-car of the controller: (dict "top" $ "name" "csi-attacher" "image" .Values.image.csi.attacher "values" .Values.attacher
"args" (list …)). The driver ends each call by itself after 105 s, so none is cut off by --timeout. What the side-cars' own
defaults allow, 5 requests a second, makes many volumes wait for each other.
*/}}
{{- define "csi.sidecar" -}}
- name: {{ .name }}
  image: {{ include "csi.image" (dict "top" .top "image" .image) | quote }}
  imagePullPolicy: {{ .top.Values.image.pullPolicy }}
  args:
    - --csi-address=/csi/csi.sock
    - --timeout=1m50s
    - --leader-election
    - --leader-election-namespace={{ .top.Release.Namespace }}
    - --kube-api-qps=50
    - --kube-api-burst=100
    {{- range concat .args .values.extraArgs }}
    - {{ toString . | quote }}
    {{- end }}
  securityContext:
    {{- include "csi.containerSecurity" .top | nindent 4 }}
  {{- with .values.resources }}
  resources:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  volumeMounts:
    - name: socket
      mountPath: /csi
{{- end -}}
