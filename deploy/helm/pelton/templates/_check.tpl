{{- /* What the schema cannot say: values that do not go together end the installation, with the reason. */}}
{{- define "pelton.check" -}}
{{- if and (not .Values.access.keysSecret) (not .Values.access.open) -}}
{{- fail "who may ask? access.keysSecret names a Secret with API keys; access.open: true lets whoever reaches the Service" -}}
{{- end -}}
{{- if and .Values.access.keysSecret .Values.access.open -}}
{{- fail "access.keysSecret and access.open: true exclude each other" -}}
{{- end -}}
{{- if eq .Values.kind "server" -}}
{{- include "pelton.checkServer" . -}}
{{- else -}}
{{- include "pelton.checkFleet" . -}}
{{- end -}}
{{- end }}

{{- define "pelton.checkServer" -}}
{{- if .Values.pools -}}
{{- fail "pools are a fleet's: kind: fleet" -}}
{{- end -}}
{{- if or .Values.autoscaler.enabled .Values.keda.enabled .Values.hpa.enabled -}}
{{- fail "autoscaler, keda and hpa are for a fleet: kind: fleet" -}}
{{- end -}}
{{- if and .Values.podMonitor.enabled .Values.access.keysSecret (not .Values.podMonitor.keySecret.name) -}}
{{- fail "podMonitor.keySecret is missing: this server asks for a key at /metrics, too" -}}
{{- end -}}
{{- include "pelton.checkPod" (dict "where" "server" "pod" .Values.server) -}}
{{- end }}

{{- define "pelton.checkFleet" -}}
{{- if not .Values.pools -}}
{{- fail "pools is empty: a fleet needs at least one" -}}
{{- end -}}
{{- if not .Values.fleetKey.secretName -}}
{{- fail "fleetKey.secretName is missing: pelton gateway --new-key fleet.key; kubectl create secret generic NAME --from-file=fleet.key" -}}
{{- end -}}
{{- if and .Values.keda.enabled .Values.hpa.enabled -}}
{{- fail "keda.enabled and hpa.enabled: two would write the replicas of the same Deployments" -}}
{{- end -}}
{{- if and (or .Values.keda.enabled .Values.hpa.enabled) (include "pelton.acts" .) -}}
{{- fail "autoscaler.mode is act, beside keda or hpa: two would write the replicas of the same Deployments" -}}
{{- end -}}
{{- if and (or .Values.keda.enabled .Values.hpa.enabled) (not .Values.autoscaler.enabled) -}}
{{- fail "autoscaler.enabled is false: what keda and hpa act on is its figure" -}}
{{- end -}}
{{- $names := list -}}
{{- $models := list -}}
{{- range .Values.pools -}}
{{- $pool := include "pelton.pool" (dict "root" $ "pool" .) | fromYaml -}}
{{- if has $pool.name $names -}}
{{- fail (printf "two pools are called %s" $pool.name) -}}
{{- end -}}
{{- $names = append $names $pool.name -}}
{{- if or (hasPrefix "gateway" $pool.name) (hasPrefix "autoscaler" $pool.name) -}}
{{- fail (printf "pool %s: names of objects that begin so are the gateways' and the autoscaler's" $pool.name) -}}
{{- end -}}
{{- if not $pool.servedModelName -}}
{{- fail (printf "pool %s: servedModelName is missing: requests find the pool by it" $pool.name) -}}
{{- end -}}
{{- range $pool.servedModelName -}}
{{- if has . $models -}}
{{- fail (printf "pool %s: the model %s is served twice; splits between pools ([[route]]) are not in this chart" $pool.name .) -}}
{{- end -}}
{{- $models = append $models . -}}
{{- end -}}
{{- if gt (int $pool.scale.min) (int $pool.scale.max) -}}
{{- fail (printf "pool %s: scale.min is more than scale.max" $pool.name) -}}
{{- end -}}
{{- if and $.Values.hpa.enabled (lt (int $pool.scale.min) 1) -}}
{{- fail (printf "pool %s: scale.min is 0, and a HorizontalPodAutoscaler does not go to zero; keda does" $pool.name) -}}
{{- end -}}
{{- include "pelton.checkPod" (dict "where" (printf "pool %s" $pool.name) "pod" $pool) -}}
{{- end -}}
{{- end }}

{{- define "pelton.checkPod" -}}
{{- if and (eq (toString .pod.rollout.maxSurge) "0") (eq (toString .pod.rollout.maxUnavailable) "0") -}}
{{- fail (printf "%s: rollout.maxSurge and rollout.maxUnavailable are both 0: nothing could ever be rolled out" .where) -}}
{{- end -}}
{{- if and .pod.cache.create .pod.cache.claimName -}}
{{- fail (printf "%s: cache.create and cache.claimName exclude each other" .where) -}}
{{- end -}}
{{- $own := list "--host" "--port" "--open" "--api-key" "--api-key-file" "--served-model-name" "--drain-seconds" "--drain-delay-seconds" "--log-json" "--fleet-host" "--fleet-port" "--fleet-key-file" "--fleet-name" "--console" "--config" "--replicas" "--uds" -}}
{{- range .pod.args -}}
{{- $flag := . | splitList "=" | first -}}
{{- if has $flag $own -}}
{{- fail (printf "%s: args has %s, which the chart gives itself" $.where $flag) -}}
{{- end -}}
{{- end -}}
{{- end }}
