{{/* The labels of everything; the argument is [context, component]. */}}
{{- define "rollcall.labels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: rollcall
app.kubernetes.io/component: {{ index . 1 }}
app.kubernetes.io/part-of: rollcall
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What selects the pods of a component. */}}
{{- define "rollcall.selector" -}}
app.kubernetes.io/name: rollcall
app.kubernetes.io/component: {{ . }}
{{- end }}

{{/* An image; the argument is [context, image]. */}}
{{- define "rollcall.image" -}}
{{- $image := index . 1 -}}
{{ $image.repository }}:{{ $image.tag | default (index . 0).Chart.AppVersion }}
{{- end }}

{{/* The namespace in which the controller and its Lease are. */}}
{{- define "rollcall.controllerNamespace" -}}
{{- if eq .Values.controller.mode "Sidecar" }}{{ .Values.sidecar.namespace }}{{ else }}{{ .Release.Namespace }}{{ end -}}
{{- end }}

{{/* The service account under which the controller runs. */}}
{{- define "rollcall.controllerServiceAccount" -}}
{{- if eq .Values.controller.mode "Sidecar" }}{{ .Values.sidecar.serviceAccountName }}{{ else }}rollcall-controller{{ end -}}
{{- end }}

{{/* The controller's command line. As a sidecar it stands in Karpenter's values, which this chart cannot reach: NOTES.txt prints it. */}}
{{- define "rollcall.controllerArgs" -}}
{{- $c := .Values.controller -}}
- --leader-elect-namespace={{ include "rollcall.controllerNamespace" . }}
{{- /* Karpenter has 8080 and 8081. */}}
- --health-address=:{{ ternary 8082 8081 (eq .Values.controller.mode "Sidecar") }}
- --log-format={{ $c.logFormat }}
- --verbosity={{ $c.verbosity }}
- --mark={{ join "," $c.mark }}
- --loss-retention={{ $c.lossRetention }}
- --losses-per-namespace={{ $c.lossesPerNamespace }}
- --condition={{ $c.condition }}
- --readiness-taint={{ $c.readinessTaint }}
- --settle={{ $c.settle }}
- --held-warning={{ $c.heldWarning }}
{{- range $c.interruptionTaints }}
- {{ printf "--interruption-taint=%s" . | quote }}
{{- end }}
{{- range $cause, $time := $c.notice }}
- {{ printf "--notice=%s=%s" $cause $time | quote }}
{{- end }}
{{- range $c.ownerKinds }}
- --owner-kinds={{ .group }}/{{ .kind }}
{{- end }}
{{- if $c.releaseTaint }}
- --release-taint
{{- end }}
{{- if $c.dryRun }}
- --dry-run
{{- end }}
{{- with $c.kubeAPIQPS }}
- --kube-api-qps={{ . }}
{{- end }}
{{- range $c.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/* The agent's command line. */}}
{{- define "rollcall.agentArgs" -}}
{{- $a := .Values.agent -}}
- --pods-api-socket={{ with $a.podsAPIDirectory }}{{ . }}/pods-api.sock{{ end }}
- --manifests={{ $a.manifests.path }}
{{- if $a.manifests.optional }}
- --manifests-optional
{{- end }}
{{- with $a.kubeletPodsURL }}
- --kubelet-pods-url={{ . }}
{{- end }}
{{- with $a.kubeletCAFile }}
- --kubelet-ca-file={{ . }}
{{- end }}
{{- with $a.apiServer }}
- --api-server={{ . }}
{{- end }}
{{- if $a.standalone }}
- --standalone
- --condition={{ .Values.controller.condition }}
- --readiness-taint={{ .Values.controller.readinessTaint }}
- --settle={{ .Values.controller.settle }}
- --held-warning={{ .Values.controller.heldWarning }}
{{- end }}
{{- range $a.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}
