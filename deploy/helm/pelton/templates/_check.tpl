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
{{- if or .Values.routes .Values.tenants -}}
{{- fail "routes and tenants are a fleet's: kind: fleet" -}}
{{- end -}}
{{- if or .Values.autoscaler.enabled .Values.keda.enabled .Values.hpa.enabled -}}
{{- fail "autoscaler, keda and hpa are for a fleet: kind: fleet" -}}
{{- end -}}
{{- if or .Values.fleetKey.secretName .Values.rankToken.secretName -}}
{{- fail "fleetKey and rankToken are a fleet's: kind: fleet" -}}
{{- end -}}
{{- include "pelton.checkMode" . -}}
{{- if and .Values.podMonitor.enabled .Values.access.keysSecret (not .Values.podMonitor.keySecret.name) -}}
{{- fail "podMonitor.keySecret is missing: this server asks for a key at /metrics, too" -}}
{{- end -}}
{{- if gt (int .Values.server.nodes) 1 -}}
{{- fail "server.nodes: several nodes are a fleet's: kind: fleet" -}}
{{- end -}}
{{- if and .Values.inferencePool.enabled (not .Values.inferencePool.endpointPicker.name) -}}
{{- fail "inferencePool.endpointPicker.name is missing: the Service of who says which pod is asked" -}}
{{- end -}}
{{- if and .Values.inferencePool.enabled .Values.access.keysSecret (not .Values.podMonitor.keySecret.name) -}}
{{- fail "inferencePool: an endpoint picker reads /metrics, for which this server asks for a key: podMonitor.keySecret is missing" -}}
{{- end -}}
{{- include "pelton.checkPod" (dict "where" "server" "pod" .Values.server) -}}
{{- end }}

{{- define "pelton.checkMode" -}}
{{- if and (eq .Values.autoscaler.mode "act") (not .Values.autoscaler.enabled) -}}
{{- fail "autoscaler.mode is act, and autoscaler.enabled is false: nobody would" -}}
{{- end -}}
{{- end }}

{{- define "pelton.checkFleet" -}}
{{- include "pelton.checkMode" . -}}
{{- if .Values.inferencePool.enabled -}}
{{- fail "inferencePool is for kind: server: a fleet's gateways say which pod is asked" -}}
{{- end -}}
{{- if not .Values.pools -}}
{{- fail "pools is empty: a fleet needs at least one" -}}
{{- end -}}
{{- if not .Values.fleetKey.secretName -}}
{{- fail "fleetKey.secretName is missing: pelton gateway --new-key fleet.key; kubectl create secret generic NAME --from-file=fleet.key" -}}
{{- end -}}
{{- if and .Values.keda.enabled .Values.hpa.enabled -}}
{{- fail "keda.enabled and hpa.enabled: two would write the replicas of the same Deployments" -}}
{{- end -}}
{{- if and (gt (int .Values.autoscaler.replicaCount) 1) (not (include "pelton.acts" .)) -}}
{{- fail "autoscaler.replicaCount: several are for autoscaler.enabled with autoscaler.mode: act; whoever advises is one" -}}
{{- end -}}
{{- if and (or .Values.keda.enabled .Values.hpa.enabled) (include "pelton.acts" .) -}}
{{- fail "autoscaler.mode is act, beside keda or hpa: two would write the replicas of the same Deployments" -}}
{{- end -}}
{{- if and (or .Values.keda.enabled .Values.hpa.enabled) (not .Values.autoscaler.enabled) -}}
{{- fail "autoscaler.enabled is false: what keda and hpa act on is its figure" -}}
{{- end -}}
{{- $names := list -}}
{{- $models := list -}}
{{- $has := dict -}}
{{- $routed := list -}}
{{- range .Values.routes -}}
{{- $routed = append $routed .model -}}
{{- end -}}
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
{{- if and (has . $models) (not (has . $routed)) -}}
{{- fail (printf "pool %s: the model %s is served twice, and none of routes says which requests go where" $pool.name .) -}}
{{- end -}}
{{- if hasKey $has (printf "%s %s" $pool.name .) -}}
{{- fail (printf "pool %s: servedModelName has %s twice" $pool.name .) -}}
{{- end -}}
{{- $_ := set $has (printf "%s %s" $pool.name .) true -}}
{{- $models = append $models . -}}
{{- end -}}
{{- if gt (int $pool.scale.min) (int $pool.scale.max) -}}
{{- fail (printf "pool %s: scale.min is more than scale.max" $pool.name) -}}
{{- end -}}
{{- $slo := eq (get $pool.scale.settings "policy" | default "concurrency") "slo" -}}
{{- $objective := or (hasKey $pool.scale.settings "ttft") (hasKey $pool.scale.settings "itl") -}}
{{- if and $slo (not $objective) -}}
{{- fail (printf "pool %s: scale.settings.policy: slo needs ttft, itl or both, in seconds" $pool.name) -}}
{{- end -}}
{{- if and (not $slo) (or $objective (hasKey $pool.scale.settings "percentile")) -}}
{{- fail (printf "pool %s: scale.settings: ttft, itl and percentile are kept by policy: slo alone" $pool.name) -}}
{{- end -}}
{{- if gt (add (int $pool.scale.min) (int (get $pool.scale.settings "standby" | default 0))) (int $pool.scale.max) -}}
{{- fail (printf "pool %s: scale.settings.standby beside scale.min is more than scale.max" $pool.name) -}}
{{- end -}}
{{- if and $.Values.hpa.enabled (lt (int $pool.scale.min) 1) -}}
{{- fail (printf "pool %s: scale.min is 0, and a HorizontalPodAutoscaler does not go to zero; keda does" $pool.name) -}}
{{- end -}}
{{- if $pool.split -}}
{{- include "pelton.checkSplit" (dict "root" $ "pool" $pool) -}}
{{- end -}}
{{- if gt (int $pool.nodes) 1 -}}
{{- include "pelton.checkNodes" (dict "root" $ "pool" $pool) -}}
{{- end -}}
{{- include "pelton.checkPod" (dict "where" (printf "pool %s" $pool.name) "pod" $pool) -}}
{{- end -}}
{{- include "pelton.checkRoutes" (dict "root" . "has" $has "names" $names) -}}
{{- end }}

{{- /* As the gateways and the workers would refuse it, or silently not do it. */}}
{{- define "pelton.checkSplit" -}}
{{- $where := printf "pool %s: split" .pool.name -}}
{{- if .root.Values.autoscaler.enabled -}}
{{- fail (printf "%s is not for pools whose replicas come and go (autoscaler.enabled)" $where) -}}
{{- end -}}
{{- if gt (int .pool.nodes) 1 -}}
{{- fail (printf "%s: its workers are of one node each" $where) -}}
{{- end -}}
{{- if not .pool.tokenizer -}}
{{- fail (printf "%s: tokenizer is missing: gateways name the prompt's blocks by it" $where) -}}
{{- end -}}
{{- range .root.Values.pools -}}
{{- if has .name (list (printf "%s-prefill" $.pool.name) (printf "%s-decode" $.pool.name)) -}}
{{- fail (printf "%s: another pool is called %s, as its workers are" $where .name) -}}
{{- end -}}
{{- end -}}
{{- range $role := list "prefill" "decode" -}}
{{- $pod := mergeOverwrite (deepCopy $.pool) (deepCopy (get $.pool.split $role | default dict)) -}}
{{- $flags := list -}}
{{- range $pod.args -}}
{{- $flags = append $flags (. | splitList "=" | first) -}}
{{- end -}}
{{- range list "--kv-port" "--fleet-role" -}}
{{- if has . $flags -}}
{{- fail (printf "%s: args has %s, which split says itself" $where .) -}}
{{- end -}}
{{- end -}}
{{- if not (has "--swap-space" $flags) -}}
{{- fail (printf "%s: args of its %s workers lack --swap-space: what comes from others lands in the host's memory" $where $role) -}}
{{- end -}}
{{- include "pelton.checkPod" (dict "where" (printf "%s.%s" $where $role) "pod" $pod) -}}
{{- end -}}
{{- end }}

{{- define "pelton.checkNodes" -}}
{{- if not .root.Values.rankToken.secretName -}}
{{- fail "rankToken.secretName is missing: openssl rand -hex 32 > ranks.secret; kubectl create secret generic NAME --from-file=ranks.secret" -}}
{{- end -}}
{{- if or .root.Values.keda.enabled .root.Values.hpa.enabled (include "pelton.acts" .root) -}}
{{- fail (printf "pool %s: nodes: nobody but replicaCount says how many groups of nodes there are" .pool.name) -}}
{{- end -}}
{{- if and .pool.cache.create (ne .pool.cache.accessMode "ReadWriteMany") -}}
{{- fail (printf "pool %s: nodes: a claim of several nodes is ReadWriteMany (cache.accessMode)" .pool.name) -}}
{{- end -}}
{{- range .pool.args -}}
{{- $flag := . | splitList "=" | first -}}
{{- if has $flag (list "--tensor-parallel-size" "--tp" "--tp-size" "--nnodes" "--node-rank" "--master-addr" "--master-port" "--rank-token-file" "--rank-wait-seconds" "--rank-launcher") -}}
{{- fail (printf "pool %s: args has %s, which nodes says itself" $.pool.name $flag) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- /* As a gateway would refuse them. Of the file that it has those that are wrong change nothing, which nobody would see. */}}
{{- define "pelton.checkRoutes" -}}
{{- $taken := list -}}
{{- range $route := .root.Values.routes -}}
{{- $where := printf "route of %s" $route.model -}}
{{- $tenant := get $route "tenant" | default "*" -}}
{{- $fallback := get $route "fallback" | default list -}}
{{- if or (has (printf "%s *" $route.model) $taken) (has (printf "%s %s" $route.model $tenant) $taken) -}}
{{- fail (printf "%s: one above takes all of its requests" $where) -}}
{{- end -}}
{{- $taken = append $taken (printf "%s %s" $route.model $tenant) -}}
{{- $sum := 0.0 -}}
{{- $arms := list -}}
{{- range $route.to -}}
{{- $sum = addf $sum .weight -}}
{{- if has .pool $arms -}}
{{- fail (printf "%s: to has the pool %s twice" $where .pool) -}}
{{- end -}}
{{- $arms = append $arms .pool -}}
{{- end -}}
{{- if not (gt $sum 0.0) -}}
{{- fail (printf "%s: no weight is above 0: nobody would get a request" $where) -}}
{{- end -}}
{{- if and $fallback $.root.Values.autoscaler.enabled -}}
{{- fail (printf "%s: fallback is not for pools whose replicas come and go (autoscaler.enabled)" $where) -}}
{{- end -}}
{{- if ne (len $fallback) (len ($fallback | uniq)) -}}
{{- fail (printf "%s: fallback has a pool twice" $where) -}}
{{- end -}}
{{- range concat $arms $fallback -}}
{{- if not (hasKey $.has (printf "%s %s" . $route.model)) -}}
{{- fail (printf "%s: no pool %s has this model" $where .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .root.Values.tenants (not .root.Values.access.keysSecret) -}}
{{- fail "tenants are those of keys: access.keysSecret is missing" -}}
{{- end -}}
{{- $tenants := list -}}
{{- range .root.Values.tenants -}}
{{- if has .name $tenants -}}
{{- fail (printf "two tenants are called %s" .name) -}}
{{- end -}}
{{- $tenants = append $tenants .name -}}
{{- $pool := get . "pool" -}}
{{- if and $pool (not (has $pool $.names)) -}}
{{- fail (printf "tenant %s: there is no pool %s" .name $pool) -}}
{{- end -}}
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
