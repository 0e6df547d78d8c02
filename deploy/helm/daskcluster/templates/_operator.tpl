{{- /* Specification of a cluster for the Dask operator: (dict "root" $ "cluster" "...") */ -}}
{{- define "daskcluster.clusterSpec" -}}
scheduler:
  metadata:
    {{- include "daskcluster.podMetadata" (dict "root" .root "component" "scheduler") | nindent 4 }}
  spec:
    {{- include "daskcluster.schedulerPod" . | nindent 4 }}
  service:
    type: {{ .root.Values.scheduler.service.type }}
    selector:
      dask.org/cluster-name: {{ .cluster }}
      dask.org/component: scheduler
    ports:
      - name: tcp-comm
        protocol: TCP
        port: 8786
        targetPort: tcp-comm
      - name: http-dashboard
        protocol: TCP
        port: 8787
        targetPort: http-dashboard
worker:
  replicas: {{ .root.Values.worker.replicas }}
  metadata:
    {{- include "daskcluster.podMetadata" (dict "root" .root "component" "worker") | nindent 4 }}
  spec:
    {{- include "daskcluster.workerPod" . | nindent 4 }}
{{- end -}}
