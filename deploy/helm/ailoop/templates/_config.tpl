{{/* ailoop.yaml: a whole file of the values, else the shipped one with `config.settings`. */}}
{{- define "ailoop.config.ailoop" -}}
{{- $shipped := .Files.Get "files/config/ailoop.yaml" -}}
{{- with index .Values.config.files "ailoop.yaml" -}}
{{ . }}
{{- else -}}
{{- if .Values.config.settings -}}
{{ toYaml (mustMergeOverwrite (fromYaml $shipped) (deepCopy .Values.config.settings)) }}
{{- else -}}
{{ $shipped }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "ailoop.config.data" -}}
ailoop.yaml: |
  {{- include "ailoop.config.ailoop" . | nindent 2 }}
{{- $root := . }}
{{- range $file, $shipped := dict "agents.yaml" "agents.yaml" "models.yaml" "models.yaml" "rehearsal.yaml" "scripts/rehearsal.yaml" }}
{{- $own := index $root.Values.config.files $file }}
{{ $file }}: |
  {{- $own | default ($root.Files.Get (printf "files/config/%s" $shipped)) | nindent 2 }}
{{- end }}
{{- range $file, $text := omit .Values.config.files "ailoop.yaml" "agents.yaml" "models.yaml" "rehearsal.yaml" }}
{{ $file }}: |
  {{- $text | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
What needs a restart: ailoop.yaml and prompts/default.md. Services load changes of agents.yaml, models.yaml and the
other prompts by themselves.
*/}}
{{- define "ailoop.config.checksum" -}}
{{- if .Values.config.create -}}
{{ printf "%s%s%s" (include "ailoop.config.ailoop" .) (.Files.Get "files/prompts/default.md") .Values.prompts.default | sha256sum | trunc 16 }}
{{- end -}}
{{- end -}}
