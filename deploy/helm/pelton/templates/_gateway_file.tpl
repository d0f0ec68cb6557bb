{{- /* The gateways' file, which the autoscaler reads, too. */}}
{{- define "pelton.gatewayFile" -}}
{{ include "pelton.gatewayStart" . }}
{{- range .Values.pools }}
{{- $pool := include "pelton.pool" (dict "root" $ "pool" .) | fromYaml }}

[[pool]]
name = {{ $pool.name | toJson }}
model = {{ $pool.servedModelName | toJson }}
{{- if include "pelton.acts" $ }}
# The autoscaler says where its workers are.
{{- else if eq $.Values.gateway.discovery "kubernetes" }}
kubernetes = {{ printf "%s/%s-%s:fleet" $.Release.Namespace (include "pelton.fullname" $) $pool.name | toJson }}
{{- else }}
dns = {{ printf "%s-%s:9101" (include "pelton.fullname" $) $pool.name | toJson }}
{{- end }}
{{- with $pool.tokenizer }}
tokenizer = {{ . | toJson }}
{{- end }}
{{- with $pool.split }}
split = {{ .mode | toJson }}
{{- with get . "handoff" }}
handoff = {{ . | toJson }}
{{- end }}
{{- end }}
{{- include "pelton.poolScale" (dict "root" $ "pool" $pool) }}
{{- end }}
{{- range $route := .Values.routes }}

[[route]]
{{- range $key := list "model" "tenant" "sticky" "fallback" }}
{{- if hasKey $route $key }}
{{ $key }} = {{ get $route $key | toJson }}
{{- end }}
{{- end }}
to = [
{{- range $route.to }}
    {pool = {{ .pool | toJson }}, weight = {{ .weight }}},
{{- end }}
]
{{- end }}
{{- range $tenant := .Values.tenants }}

[[tenant]]
{{- range $key := list "name" "models" "pool" "weight" }}
{{- if hasKey $tenant $key }}
{{ $key }} = {{ get $tenant $key | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What the autoscaler of a pool goes by; without one, nothing. */}}
{{- define "pelton.poolScale" -}}
{{- if .root.Values.autoscaler.enabled }}

[pool.scale]
min = {{ .pool.scale.min }}
max = {{ .pool.scale.max }}
{{- range $key, $value := .pool.scale.settings }}
{{ $key }} = {{ $value | toJson }}
{{- end }}

[pool.launch]
{{- if include "pelton.acts" .root }}
kind = "kubernetes"
workload = {{ printf "%s/deployment/%s-%s" .root.Release.Namespace (include "pelton.fullname" .root) .pool.name | toJson }}
port = 9101
{{- else }}
serve = [{{ .pool.model | toJson }}]
{{- end }}
start_seconds = {{ .pool.scale.startSeconds }}
{{- end }}
{{- end }}

{{- /* The part of it that a running gateway does not take anew. */}}
{{- define "pelton.gatewayStart" -}}
[gateway]
listen = "0.0.0.0:8000"
admin = "0.0.0.0:8091"
threads = {{ .Values.gateway.threads }}
drain_seconds = {{ .Values.gateway.drainSeconds }}
fleet_key_file = {{ printf "/etc/pelton/fleet/%s" .Values.fleetKey.secretKey | toJson }}
{{- if .Values.access.keysSecret }}
keys_file = "/etc/pelton/keys/keys"
{{- end }}
{{- if .Values.autoscaler.enabled }}

[autoscaler]
state_dir = "/var/lib/pelton"
listen = "0.0.0.0:8092"
{{- if include "pelton.elects" . }}
lead = "kubernetes"
lease = {{ printf "%s/%s-autoscaler" .Release.Namespace (include "pelton.fullname" .) | toJson }}
{{- end }}
gateways = [
{{- $set := printf "%s-gateway" (include "pelton.fullname" .) }}
{{- range until (int .Values.gateway.replicaCount) }}
    {{ printf "http://%s-%d.%s-pods:8091" $set . $set | toJson }},
{{- end }}
]
{{- end }}
{{- end }}

{{- /* What pools scale by takes a new start, too. */}}
{{- define "pelton.poolsStart" -}}
{{- range .Values.pools }}
{{- $pool := include "pelton.pool" (dict "root" $ "pool" .) | fromYaml }}
{{- with include "pelton.poolScale" (dict "root" $ "pool" $pool) }}
{{ $pool.name }}{{ . }}
{{- end }}
{{- end }}
{{- end }}
