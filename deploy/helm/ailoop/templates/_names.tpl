{{/* Names and labels. Helpers of one component take (list $ "component"). */}}

{{- define "ailoop.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains "ailoop" .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-ailoop" (.Release.Name | trunc 33 | trimSuffix "-") }}
{{- end -}}
{{- end -}}

{{- define "ailoop.name" -}}
{{- $root := index . 0 -}}{{- $component := index . 1 -}}
{{- if eq $component "nats" -}}
{{ include "ailoop.nats.name" $root }}
{{- else -}}
{{ include "ailoop.fullname" $root }}-{{ $component }}
{{- end -}}
{{- end -}}

{{- define "ailoop.nats.name" -}}
{{ .Values.nats.fullnameOverride | default (printf "%s-nats" (include "ailoop.fullname" .)) }}
{{- end -}}

{{- define "ailoop.configName" -}}
{{ .Values.config.name | default (printf "%s-config" (include "ailoop.fullname" .)) }}
{{- end -}}

{{- define "ailoop.promptsName" -}}
{{ .Values.prompts.name | default (printf "%s-prompts" (include "ailoop.fullname" .)) }}
{{- end -}}

{{/* What selects the pods of a component, for ever: selectors cannot be changed. */}}
{{- define "ailoop.selector" -}}
{{- $root := index . 0 -}}{{- $component := index . 1 -}}
app.kubernetes.io/name: ailoop
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ $component }}
{{- end -}}

{{/* As ailoop.selector, for extra tool-hosts, which share their component. */}}
{{- define "ailoop.toolHost.selector" -}}
{{ include "ailoop.selector" (list (index . 0) "tool-host") }}
ailoop-tool-host: {{ index . 1 }}
{{- end -}}

{{- define "ailoop.labels" -}}
{{- $root := index . 0 -}}{{- $component := index . 1 -}}
{{ include "ailoop.selector" . }}
app.kubernetes.io/version: {{ $root.Values.image.tag | default $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: ailoop
app.kubernetes.io/managed-by: {{ $root.Values.managedBy | default $root.Release.Service }}
{{- if not $root.Values.managedBy }}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version }}
{{- end }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Of pods: no label that changes without them. */}}
{{- define "ailoop.podLabels" -}}
{{ include "ailoop.selector" . }}
app.kubernetes.io/part-of: ailoop
{{- with (index . 0).Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An image by digest, else by tag: (dict "repository" … "tag" … "digest" …). */}}
{{- define "ailoop.image" -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag }}
{{- end -}}
{{- end -}}

{{- define "ailoop.ownImage" -}}
{{ include "ailoop.image" (dict "repository" .Values.image.repository "digest" .Values.image.digest "tag" (.Values.image.tag | default .Chart.AppVersion)) }}
{{- end -}}

{{/* Addresses of NATS: each server by name, so that a client finds another one when its own goes. */}}
{{- define "ailoop.nats.url" -}}
{{- $name := include "ailoop.nats.name" . -}}
{{- $scheme := ternary "tls" "nats" (ne .Values.secrets.natsTls "") -}}
{{- if not .Values.nats.enabled -}}
{{ .Values.nats.url }}
{{- else if gt (int .Values.nats.replicas) 1 -}}
{{- range $i := until (int .Values.nats.replicas) }}{{ if $i }},{{ end }}{{ $scheme }}://{{ $name }}-{{ $i }}.{{ $name }}:4222{{ end -}}
{{- else -}}
{{ $scheme }}://{{ $name }}:4222
{{- end -}}
{{- end -}}

{{/* Copies of each stream. */}}
{{- define "ailoop.nats.copies" -}}
{{- if .Values.nats.copies -}}
{{ .Values.nats.copies }}
{{- else if and .Values.nats.enabled (ge (int .Values.nats.replicas) 3) -}}
3
{{- else -}}
1
{{- end -}}
{{- end -}}

{{/* Bytes of a quantity such as 512Mi, as a whole number. */}}
{{- define "ailoop.bytes" -}}
{{- $units := dict "" 1 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $number := regexFind "^[0-9]+" (toString .) -}}
{{- $unit := trimPrefix $number (toString .) -}}
{{- if or (not $number) (not (hasKey $units $unit)) -}}
{{- fail (printf "%q is no size: write a whole number with Ki, Mi, Gi, Ti, k, M, G or T, such as 512Mi" (toString .)) -}}
{{- end -}}
{{ mul (int64 $number) (int64 (get $units $unit)) }}
{{- end -}}

{{- define "ailoop.priorityClassName" -}}
{{- if .Values.priorityClass.create -}}
{{ .Values.priorityClass.name | default (include "ailoop.fullname" .) }}
{{- else -}}
{{ .Values.priorityClass.name }}
{{- end -}}
{{- end -}}

{{/* Whether an autoscaler sets the number of pods of a component. */}}
{{- define "ailoop.isScaled" -}}
{{- $root := index . 0 -}}
{{- if and (ne $root.Values.autoscaling.mode "none") (has (index . 1) (list "orchestrator" "gateway" "executor" "edge")) -}}
true
{{- end -}}
{{- end -}}
