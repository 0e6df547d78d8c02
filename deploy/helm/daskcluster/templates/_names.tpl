{{- define "daskcluster.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "daskcluster.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "daskcluster.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "daskcluster.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "daskcluster.selector" -}}
app.kubernetes.io/name: {{ include "daskcluster.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "daskcluster.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "daskcluster.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- /* Labels of pods: (dict "root" $ "component" "worker") */ -}}
{{- define "daskcluster.podLabels" -}}
{{ include "daskcluster.labels" .root }}
app.kubernetes.io/component: {{ .component }}
{{- with .root.Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* Labels and annotations of pods: (dict "root" $ "component" "worker") */ -}}
{{- define "daskcluster.podMetadata" -}}
labels:
  {{- include "daskcluster.podLabels" . | nindent 2 }}
{{- with .root.Values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "daskcluster.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "daskcluster.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "daskcluster.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "daskcluster.scheme" -}}
{{- ternary "tls" "tcp" .Values.tls.enabled -}}
{{- end -}}

{{- /* Address of a cluster's scheduler: (dict "root" $ "cluster" "..."); default: the cluster of the release */ -}}
{{- define "daskcluster.schedulerAddress" -}}
{{ include "daskcluster.scheme" .root }}://{{ .cluster | default (include "daskcluster.fullname" .root) }}-scheduler:8786
{{- end -}}
