{{- /* Shared by the pods of all roles: (dict "root" $ "role" .Values.worker) */ -}}
{{- define "daskcluster.pod" -}}
serviceAccountName: {{ include "daskcluster.serviceAccountName" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- with .role.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .role.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .role.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .role.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .role.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  - name: tmp
    emptyDir:
      sizeLimit: 1Gi
  - name: cache
    {{- if .root.Values.worker.cacheClaim }}
    persistentVolumeClaim:
      claimName: {{ .root.Values.worker.cacheClaim }}
    {{- else }}
    emptyDir:
      sizeLimit: {{ .root.Values.worker.cacheSizeLimit }}
    {{- end }}
  - name: scratch
    emptyDir:
      sizeLimit: {{ .root.Values.worker.spillSizeLimit }}
{{- if .root.Values.tls.enabled }}
  - name: tls
    secret:
      secretName: {{ required "tls.secretName should name the secret of the certificates" .root.Values.tls.secretName }}
      defaultMode: 0440
{{- end }}
{{- end -}}

{{- define "daskcluster.container" -}}
image: {{ include "daskcluster.image" .root }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  privileged: false
  capabilities:
    drop: [ALL]
resources:
  {{- toYaml .role.resources | nindent 2 }}
{{- with .root.Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
env:
  - name: DASK_TEMPORARY_DIRECTORY
    value: /scratch
  {{- /* Also with the Dask operator, whose own address would not use the scheme of an encrypted scheduler. */}}
  - name: DASK_SCHEDULER_ADDRESS
    value: {{ include "daskcluster.schedulerAddress" . }}
{{- if .root.Values.tls.enabled }}
  - name: DASK_DISTRIBUTED__COMM__DEFAULT_SCHEME
    value: tls
  - name: DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION
    value: "True"
  - name: DASK_DISTRIBUTED__COMM__TLS__CA_FILE
    value: /tls/{{ .root.Values.tls.caKey }}
{{- range list "SCHEDULER" "WORKER" "CLIENT" }}
  - name: DASK_DISTRIBUTED__COMM__TLS__{{ . }}__CERT
    value: /tls/{{ $.root.Values.tls.certKey }}
  - name: DASK_DISTRIBUTED__COMM__TLS__{{ . }}__KEY
    value: /tls/{{ $.root.Values.tls.keyKey }}
{{- end }}
{{- end }}
{{- range .root.Values.env }}
{{- if and .value (regexMatch "(?i)(secret|password|passwd|token|access_key|account_key|credential|sas|connection_string)" .name) (not (has .name (list "AWS_WEB_IDENTITY_TOKEN_FILE" "GOOGLE_APPLICATION_CREDENTIALS"))) }}
{{- fail (printf "env: %s looks like a secret and has its value in the chart's values; give it by reference (valueFrom.secretKeyRef, or envFrom)" .name) }}
{{- end }}
  - {{- toYaml . | nindent 4 }}
{{- end }}
{{- with .env }}
{{ toYaml . | indent 2 }}
{{- end }}
volumeMounts:
  - name: tmp
    mountPath: /tmp
  - name: cache
    mountPath: /cache
  - name: scratch
    mountPath: /scratch
{{- if .root.Values.tls.enabled }}
  - name: tls
    mountPath: /tls
    readOnly: true
{{- end }}
{{- end -}}

{{- define "daskcluster.probe" -}}
httpGet:
  path: /health
  port: {{ .port }}
periodSeconds: {{ .root.Values.probes.periodSeconds }}
timeoutSeconds: {{ .root.Values.probes.timeoutSeconds }}
failureThreshold: {{ .root.Values.probes.failureThreshold }}
{{- end -}}

{{- /* (dict "root" $ "cluster" "..."), as the address above */ -}}
{{- define "daskcluster.schedulerPod" -}}
{{- $own := dict "root" .root "cluster" .cluster "role" .root.Values.scheduler -}}
{{ include "daskcluster.pod" $own }}
terminationGracePeriodSeconds: 30
containers:
  - name: scheduler
    args:
      - scheduler
      - --host
      - {{ include "daskcluster.scheme" .root }}://0.0.0.0
      {{- with .root.Values.scheduler.extraArgs }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    ports:
      - name: tcp-comm
        containerPort: 8786
      - name: http-dashboard
        containerPort: 8787
    startupProbe:
      httpGet: {path: /health, port: http-dashboard}
      periodSeconds: 2
      failureThreshold: 60
    readinessProbe:
      {{- include "daskcluster.probe" (dict "root" .root "port" "http-dashboard") | nindent 6 }}
    livenessProbe:
      {{- include "daskcluster.probe" (dict "root" .root "port" "http-dashboard") | nindent 6 }}
    {{- include "daskcluster.container" $own | nindent 4 }}
{{- end -}}

{{- define "daskcluster.threads" -}}
{{- if .Values.worker.threads -}}
{{ .Values.worker.threads }}
{{- else -}}
{{- $cpu := dig "limits" "cpu" (dig "requests" "cpu" "1" .Values.worker.resources) .Values.worker.resources | toString -}}
{{- if hasSuffix "m" $cpu -}}
{{ max 1 (ceil (divf (trimSuffix "m" $cpu | float64) 1000.0)) }}
{{- else -}}
{{ max 1 (ceil ($cpu | float64)) }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "daskcluster.workerPod" -}}
{{- $pod := list (dict "name" "POD_NAME" "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.name"))) -}}
{{- $own := dict "root" .root "cluster" .cluster "role" .root.Values.worker "env" $pod -}}
{{ include "daskcluster.pod" $own }}
terminationGracePeriodSeconds: {{ .root.Values.worker.terminationGracePeriodSeconds }}
containers:
  - name: worker
    args:
      - worker
      - --name
      - {{ ternary "$(DASK_WORKER_NAME)" "$(POD_NAME)" (eq .root.Values.mode "operator") }}
      - --nthreads
      - {{ include "daskcluster.threads" .root | quote }}
      - --memory-limit
      - auto
      - --worker-port
      - "8789"
      - --nanny-port
      - "8790"
      {{- with .root.Values.worker.extraArgs }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    ports:
      - name: http-dashboard
        containerPort: 8788
      - name: tcp-worker
        containerPort: 8789
      - name: tcp-nanny
        containerPort: 8790
    startupProbe:
      httpGet: {path: /health, port: http-dashboard}
      periodSeconds: 10
      timeoutSeconds: 10
      failureThreshold: {{ .root.Values.probes.startupFailureThreshold }}
    livenessProbe:
      {{- include "daskcluster.probe" (dict "root" .root "port" "http-dashboard") | nindent 6 }}
    {{- include "daskcluster.container" $own | nindent 4 }}
{{- end -}}

{{- /* A pod that runs a command: (dict "root" $ "role" .Values.job "restart" "Never" "jobName" "..."). With
       "stall", it is restarted after that many seconds without progress. */ -}}
{{- define "daskcluster.commandPod" -}}
{{- $command := first .role.args -}}
{{- $driven := has $command (list "fit" "coreset" "sample" "dedup" "partition" "predict" "score" "sweep" "stream") -}}
{{ include "daskcluster.pod" . }}
restartPolicy: {{ .restart }}
terminationGracePeriodSeconds: 60
containers:
  - name: {{ .name | default "command" }}
    args:
      {{- toYaml .role.args | nindent 6 }}
      {{- if and $driven (not (has "--scheduler" .role.args)) }}
      - --scheduler
      - $(DASK_SCHEDULER_ADDRESS)
      - --timeout
      - "300"
      {{- end }}
      {{- if and $driven (not (has "--name" .role.args)) }}
      - --name
      - {{ .jobName | quote }}
      {{- end }}
    {{- if .stall }}
      - --metrics-port
      - "8791"
      - --metrics-address
      - 0.0.0.0
      - --stall-after
      - {{ printf "%ds" (int .stall) }}
    ports:
      - name: http-metrics
        containerPort: 8791
    startupProbe:
      httpGet: {path: /health, port: http-metrics}
      periodSeconds: 10
      timeoutSeconds: 10
      failureThreshold: {{ .root.Values.probes.startupFailureThreshold }}
    livenessProbe:
      {{- include "daskcluster.probe" (dict "root" .root "port" "http-metrics") | nindent 6 }}
    {{- end }}
    {{- include "daskcluster.container" . | nindent 4 }}
{{- end -}}
