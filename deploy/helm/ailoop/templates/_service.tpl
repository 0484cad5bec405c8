{{/* What the pods of all services have in common. */}}

{{/*
A Deployment of one service: (dict
  "root" $  "component" the service  "values" its values
  "name" of the objects  "selector" of the pods  "account" of the pods
  "logins" variable of each credentials file: role  "roles" whose credentials files are mounted without a variable
  "env" "mounts" "volumes" "ports"  YAML lists beside the common ones, as text
  "config" name of the ConfigMap of ailoop.yaml  "preStop" seconds before the process gets SIGTERM)
*/}}
{{- define "ailoop.service" -}}
{{- $root := .root -}}{{- $values := .values -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  labels: {{- include "ailoop.labels" (list $root .component) | nindent 4 }}
spec:
  {{- if not (include "ailoop.isScaled" (list $root .component)) }}
  replicas: {{ $values.replicas }}
  {{- end }}
  revisionHistoryLimit: 3
  minReadySeconds: 5
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  selector:
    matchLabels: {{- .selector | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "ailoop.podLabels" (list $root .component) | nindent 8 }}
        app.kubernetes.io/version: {{ $root.Values.image.tag | default $root.Chart.AppVersion | quote }}
        {{- with get (fromYaml .selector) "ailoop-tool-host" }}
        ailoop-tool-host: {{ . }}
        {{- end }}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "9090"
        prometheus.io/path: /metrics
        {{- with .checksum }}
        checksum/config: {{ . }}
        {{- end }}
    spec:
      serviceAccountName: {{ .account }}
      {{- include "ailoop.podCommon" $root | nindent 6 }}
      # Drain, what happens before it, and 15 s to flush telemetry and close connections.
      terminationGracePeriodSeconds: {{ add $values.drainSeconds .preStop 15 }}
      {{- with $values.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: topology.kubernetes.io/zone
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- .selector | nindent 14 }}
          matchLabelKeys: [pod-template-hash]
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- .selector | nindent 14 }}
          matchLabelKeys: [pod-template-hash]
      containers:
        - name: ailoop
          image: {{ include "ailoop.ownImage" $root }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args: [{{ .component }}]
          ports:
            - {name: health, containerPort: 9090}
            {{- with .ports }}{{ . | nindent 12 }}{{- end }}
          env:
            - {name: AILOOP_CONFIG, value: /etc/ailoop}
            - {name: AILOOP__NATS__URL, value: {{ include "ailoop.nats.url" $root | quote }}}
            {{- with include "ailoop.nats.caEnv" (list $root "AILOOP__NATS__TLS__CA") }}{{ . | nindent 12 }}{{- end }}
            {{- range $variable, $role := .logins }}
            - {name: {{ $variable }}, value: /var/run/secrets/ailoop/{{ $role }}.creds}
            {{- end }}
            - {name: AILOOP__HEALTH__LISTEN, value: "0.0.0.0:9090"}
            - {name: AILOOP__DRAIN_TIMEOUT, value: "{{ $values.drainSeconds }}"}
            - {name: AILOOP__TELEMETRY__LOG, value: json}
            {{- with $root.Values.telemetry }}
            {{- if .otlpEndpoint }}
            - {name: AILOOP__TELEMETRY__OTLP_ENDPOINT, value: {{ .otlpEndpoint | quote }}}
            {{- if eq .otlpProtocol "http" }}
            - {name: AILOOP__TELEMETRY__OTLP_PROTOCOL, value: http}
            {{- end }}
            {{- end }}
            {{- if ne .sampleRatio nil }}
            - {name: AILOOP__TELEMETRY__SAMPLE_RATIO, value: "{{ .sampleRatio }}"}
            {{- end }}
            {{- end }}
            - name: POD_NAME
              valueFrom: {fieldRef: {fieldPath: metadata.name}}
            - {name: OTEL_RESOURCE_ATTRIBUTES, value: k8s.pod.name=$(POD_NAME)}
            {{- with .env }}{{ . | nindent 12 }}{{- end }}
            {{- with $values.env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          {{- with .envFrom }}{{ . | nindent 10 }}{{- end }}
          # The process answers at once, also while it waits for NATS, which it does for five minutes.
          startupProbe:
            httpGet: {path: /healthz, port: health}
            periodSeconds: 2
            timeoutSeconds: 2
            failureThreshold: 30
          # Knows nothing of NATS: an unavailable broker must not restart the fleet.
          livenessProbe:
            httpGet: {path: /healthz, port: health}
            periodSeconds: 10
            timeoutSeconds: 2
            failureThreshold: 3
          readinessProbe:
            httpGet: {path: /readyz, port: health}
            periodSeconds: 5
            timeoutSeconds: 2
            failureThreshold: 2
          {{- if .preStop }}
          # Endpoints learn that this pod goes before it stops taking connections.
          lifecycle:
            preStop: {sleep: {seconds: {{ .preStop }}}}
          {{- end }}
          {{- include "ailoop.hardened" $root | nindent 10 }}
          resources: {{- toYaml $values.resources | nindent 12 }}
          volumeMounts:
            - {name: config, mountPath: /etc/ailoop, readOnly: true}
            - {name: nats-credentials, mountPath: /var/run/secrets/ailoop, readOnly: true}
            {{- with include "ailoop.nats.caMount" $root }}{{ . | nindent 12 }}{{- end }}
            - {name: tmp, mountPath: /tmp}
            {{- with .mounts }}{{ . | nindent 12 }}{{- end }}
            {{- with $values.volumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        {{- include "ailoop.configVolume" (list $root .config) | nindent 8 }}
        {{- include "ailoop.credentialsVolume" (list $root (concat (values .logins) (.roles | default list) | sortAlpha | uniq)) | nindent 8 }}
        {{- with include "ailoop.nats.caVolume" $root }}{{ . | nindent 8 }}{{- end }}
        - name: tmp
          emptyDir: {sizeLimit: 64Mi}
        {{- with .volumes }}{{ . | nindent 8 }}{{- end }}
        {{- with $values.volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end -}}

{{/* Of each pod, nats-server's too. */}}
{{- define "ailoop.podCommon" -}}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  {{- with .Values.runAsUser }}
  runAsUser: {{ . }}
  runAsGroup: {{ . }}
  fsGroup: {{ . }}
  {{- end }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with include "ailoop.priorityClassName" . }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* Of each container. */}}
{{- define "ailoop.hardened" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* The configuration directory: (list $ name-of-the-ConfigMap). */}}
{{- define "ailoop.configVolume" -}}
{{- $root := index . 0 -}}{{- $name := index . 1 -}}
- name: config
  configMap:
    name: {{ $name }}
    items:
      - {key: ailoop.yaml, path: ailoop.yaml}
      {{- if eq $name (include "ailoop.configName" $root) }}
      - {key: agents.yaml, path: agents.yaml}
      - {key: models.yaml, path: models.yaml}
      - {key: rehearsal.yaml, path: scripts/rehearsal.yaml}
      {{- range $file := keys $root.Values.config.files | sortAlpha }}
      {{- if not (has $file (list "ailoop.yaml" "agents.yaml" "models.yaml" "rehearsal.yaml")) }}
      - {key: {{ $file }}, path: scripts/{{ $file }}}
      {{- end }}
      {{- end }}
      {{- end }}
{{- end -}}

{{/* Whom a client of nats-server trusts, where it encrypts: a variable of a pod, and the file that it names. */}}
{{- define "ailoop.nats.caEnv" -}}
{{- if (index . 0).Values.secrets.natsTls -}}
- {name: {{ index . 1 }}, value: /etc/nats-tls/ca.crt}
{{- end -}}
{{- end -}}
{{- define "ailoop.nats.caMount" -}}
{{- if .Values.secrets.natsTls -}}
- {name: nats-tls, mountPath: /etc/nats-tls, readOnly: true}
{{- end -}}
{{- end -}}
{{- define "ailoop.nats.caVolume" -}}
{{- with .Values.secrets.natsTls -}}
- name: nats-tls
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items:
      - {key: ca.crt, path: ca.crt}
{{- end -}}
{{- end -}}

{{/* Credentials of some roles, as a directory, so that a changed Secret arrives in the pod: (list $ roles). */}}
{{- define "ailoop.credentialsVolume" -}}
{{- $root := index . 0 -}}
- name: nats-credentials
  secret:
    secretName: {{ $root.Values.secrets.natsUsers }}
    defaultMode: 0440
    items:
      {{- range $role := index . 1 }}
      - {key: {{ $role }}.creds, path: {{ $role }}.creds}
      {{- end }}
{{- end -}}
