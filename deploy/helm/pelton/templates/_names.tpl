{{- define "pelton.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 30 | trimSuffix "-" -}}
{{- end }}

{{- /* What selects pods: never changed. Of (dict "root" $ "component" "worker" "pool" "main"); pool may be "". "role": of a pool that splits
requests, prefill or decode. */}}
{{- define "pelton.selector" -}}
app.kubernetes.io/name: pelton
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- with .pool }}
pelton/pool: {{ . | quote }}
{{- end }}
{{- with get . "role" }}
pelton/role: {{ . }}
{{- end }}
{{- end }}

{{- /* Not empty: several autoscalers, of which one leads. */}}
{{- define "pelton.elects" -}}
{{- if and (include "pelton.acts" .) (gt (int .Values.autoscaler.replicaCount) 1) }}yes{{ end -}}
{{- end }}

{{- /* Not empty: the autoscaler writes the workers' replicas, and says where they are. */}}
{{- define "pelton.acts" -}}
{{- if and .Values.autoscaler.enabled (eq .Values.autoscaler.mode "act") }}yes{{ end -}}
{{- end }}

{{- define "pelton.labels" -}}
{{ include "pelton.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "pelton.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* A pool with all that it leaves to `worker` and `scale`, as YAML. Of (dict "root" $ "pool" $pool). */}}
{{- define "pelton.pool" -}}
{{- $scale := mergeOverwrite (deepCopy .root.Values.scale) (deepCopy (get .pool "scale" | default dict)) -}}
{{- $pool := mergeOverwrite (dict "tokenizer" "" "split" dict) (deepCopy .root.Values.worker) (deepCopy .pool) -}}
{{- $pool = set $pool "scale" $scale -}}
{{ toYaml $pool }}
{{- end }}
