{{- define "pelton.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "pelton.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* Where pods of one kind should be: in other zones and on other nodes, if there are some. Of pelton.selector's dict. */}}
{{- define "pelton.spread" -}}
- maxSkew: 1
  topologyKey: topology.kubernetes.io/zone
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "pelton.selector" . | nindent 6 }}
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "pelton.selector" . | nindent 6 }}
{{- end }}

{{- /* What a pod's place and images come from. Of (dict "root" $ "pod" values). */}}
{{- define "pelton.placement" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .pod.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Quantities as texts, and requestGPU beside them: GPUs are a limit, and the request is the same. */}}
{{- define "pelton.resources" -}}
{{- $resources := dict -}}
{{- range $kind, $quantities := .resources -}}
{{- $texts := dict -}}
{{- range $name, $quantity := $quantities -}}
{{- $_ := set $texts $name (toString $quantity) -}}
{{- end -}}
{{- $_ := set $resources $kind $texts -}}
{{- end -}}
{{- if gt (int .requestGPU) 0 -}}
{{- $resources = mergeOverwrite $resources (dict "limits" (dict "nvidia.com/gpu" (toString .requestGPU))) -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end }}

{{- /* The arguments of `pelton serve`. Of (dict "root" $ "pod" values "pool" name-or-empty). */}}
{{- define "pelton.serveArgs" -}}
{{- $isWorker := ne .pool "" -}}
{{- $access := .root.Values.access -}}
- serve
- {{ .pod.model | quote }}
{{- range .pod.servedModelName }}
- --served-model-name
- {{ . | quote }}
{{- end }}
- --host
- 0.0.0.0
- --port
- "8000"
{{- if $isWorker }}
- --open
- --console
- "off"
- --fleet-host
- 0.0.0.0
- --fleet-port
- "9101"
- --fleet-key-file
- /etc/pelton/fleet/{{ .root.Values.fleetKey.secretKey }}
- --fleet-name
- $(POD_NAME)
{{- with get . "role" }}
- --fleet-role
- {{ . }}
- --kv-port
- "9201"
{{- end }}
{{- else if $access.keysSecret }}
- --api-key-file
- /etc/pelton/keys/keys
{{- else }}
- --open
{{- end }}
- --drain-seconds
- {{ .pod.drainSeconds | quote }}
- --drain-delay-seconds
- {{ .pod.drainDelaySeconds | quote }}
- --log-json
{{- range .pod.args }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- /* Of one of several nodes: the controller says who leads, and who this is. The leader waits at its own address. */}}
{{- define "pelton.rankArgs" -}}
- --tensor-parallel-size
- {{ .pod.nodes | quote }}
- --nnodes
- {{ .pod.nodes | quote }}
- --master-port
- "29501"
- --rank-token-file
- /etc/pelton/ranks/{{ .root.Values.rankToken.secretKey }}
- --rank-wait-seconds
- {{ .pod.startupSeconds | quote }}
{{- if eq .rank "leader" }}
- --node-rank
- "0"
- --master-addr
- $(POD_IP)
{{- else }}
- --node-rank
- $(LWS_WORKER_INDEX)
- --master-addr
- $(LWS_LEADER_ADDRESS)
{{- end }}
{{- end }}

{{- /* A pod of `pelton serve`. Of (dict "root" $ "pod" values "component" "worker" "pool" name); of one of several nodes "rank", leader or
follower: who follows listens nowhere. */}}
{{- define "pelton.servePod" -}}
{{- $isWorker := ne .pool "" -}}
{{- $rank := get . "rank" | default "" -}}
{{- $keys := and (not $isWorker) .root.Values.access.keysSecret -}}
metadata:
  labels:
    {{- include "pelton.labels" . | nindent 4 }}
    {{- with $rank }}
    pelton/rank: {{ . }}
    {{- end }}
    {{- with .pod.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .pod.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  # Longer than all that a pod does when it ends: the delay, the drain, and slow readers' five seconds.
  terminationGracePeriodSeconds: {{ add (int .pod.drainDelaySeconds) (int .pod.drainSeconds) 15 }}
  {{- with .pod.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  {{- with include "pelton.placement" . }}
  {{- . | trim | nindent 2 }}
  {{- end }}
  securityContext:
    {{- include "pelton.podSecurity" . | nindent 4 }}
  topologySpreadConstraints:
    {{- include "pelton.spread" . | nindent 4 }}
  containers:
    - name: pelton
      image: {{ include "pelton.image" .root | quote }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      command: [pelton]
      args:
        {{- include "pelton.serveArgs" . | nindent 8 }}
        {{- if $rank }}
        {{- include "pelton.rankArgs" . | nindent 8 }}
        {{- end }}
      env:
        - name: POD_NAME
          valueFrom:
            fieldRef:
              fieldPath: metadata.name
        {{- if eq $rank "leader" }}
        - name: POD_IP
          valueFrom:
            fieldRef:
              fieldPath: status.podIP
        {{- end }}
        - name: HOME
          value: /var/cache/pelton
        - name: XDG_CACHE_HOME
          value: /var/cache/pelton
        - name: HF_HOME
          value: /var/cache/pelton/huggingface
        {{- if .pod.hf_token.secretName }}
        - name: HF_TOKEN
          valueFrom:
            secretKeyRef:
              name: {{ .pod.hf_token.secretName | quote }}
              key: {{ .pod.hf_token.secretKey | quote }}
        {{- end }}
        {{- with .pod.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- if eq $rank "leader" }}
      ports:
        - name: http
          containerPort: 8000
        - name: fleet
          containerPort: 9101
        - name: ranks
          containerPort: 29501
      {{- else if not $rank }}
      ports:
        - name: http
          containerPort: 8000
        {{- if $isWorker }}
        - name: fleet
          containerPort: 9101
        {{- end }}
        {{- if get . "role" }}
        - name: kv
          containerPort: 9201
        {{- end }}
      {{- end }}
      {{- if ne $rank "follower" }}
      # 503 while the model is loaded.
      startupProbe:
        httpGet:
          path: /health
          port: http
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: {{ div (add (int .pod.startupSeconds) 4) 5 }}
      # 503 when a step is stuck or weights are damaged.
      livenessProbe:
        httpGet:
          path: /health/live
          port: http
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      readinessProbe:
        httpGet:
          path: /ready
          port: http
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      {{- end }}
      {{- with include "pelton.resources" .pod | fromYaml }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- include "pelton.containerSecurity" . | nindent 8 }}
      # The last lines of the log say why it ended.
      terminationMessagePolicy: FallbackToLogsOnError
      volumeMounts:
        - name: cache
          mountPath: /var/cache/pelton
        - name: shm
          mountPath: /dev/shm
        - name: tmp
          mountPath: /tmp
        {{- if .pod.modelsClaim }}
        - name: models
          mountPath: /mnt/models
          readOnly: true
        {{- end }}
        {{- if $isWorker }}
        - name: fleet
          mountPath: /etc/pelton/fleet
          readOnly: true
        {{- end }}
        {{- if $rank }}
        - name: ranks
          mountPath: /etc/pelton/ranks
          readOnly: true
        {{- end }}
        {{- if $keys }}
        - name: keys
          mountPath: /etc/pelton/keys
          readOnly: true
        {{- end }}
  volumes:
    - name: cache
      {{- if or .pod.cache.claimName .pod.cache.create }}
      persistentVolumeClaim:
        claimName: {{ .pod.cache.claimName | default (printf "%s-cache" .name) | quote }}
      {{- else }}
      emptyDir:
        sizeLimit: {{ .pod.cache.size | quote }}
      {{- end }}
    - name: shm
      emptyDir:
        medium: Memory
        sizeLimit: {{ .pod.shmSize | quote }}
    - name: tmp
      emptyDir:
        sizeLimit: 64Mi
    {{- if .pod.modelsClaim }}
    - name: models
      persistentVolumeClaim:
        claimName: {{ .pod.modelsClaim | quote }}
        readOnly: true
    {{- end }}
    {{- if $isWorker }}
    - name: fleet
      secret:
        secretName: {{ .root.Values.fleetKey.secretName | quote }}
        defaultMode: 288 # 0440
    {{- end }}
    {{- if $rank }}
    - name: ranks
      secret:
        secretName: {{ .root.Values.rankToken.secretName | quote }}
        defaultMode: 288 # 0440
    {{- end }}
    {{- if $keys }}
    - name: keys
      secret:
        secretName: {{ .root.Values.access.keysSecret | quote }}
        defaultMode: 288 # 0440
    {{- end }}
{{- end }}

{{- /* The Deployment of these pods. Of the same dict with "name", and "replicas" unless somebody else writes them. */}}
{{- define "pelton.serveDeployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name | quote }}
  labels:
    {{- include "pelton.labels" . | nindent 4 }}
spec:
  {{- if hasKey . "replicas" }}
  replicas: {{ .replicas }}
  {{- end }}
  revisionHistoryLimit: 3
  progressDeadlineSeconds: {{ add (int .pod.startupSeconds) 120 }}
  strategy:
    type: RollingUpdate
    rollingUpdate:
      {{- toYaml .pod.rollout | nindent 6 }}
  selector:
    matchLabels:
      {{- include "pelton.selector" . | nindent 6 }}
  template:
    {{- include "pelton.servePod" . | nindent 4 }}
{{- end }}

{{- /* Groups of these pods, each of which is one worker: a leader, which serves, and those that compute with it. When one ends all are made anew. */}}
{{- define "pelton.serveGroups" -}}
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata:
  name: {{ .name | quote }}
  labels:
    {{- include "pelton.labels" . | nindent 4 }}
spec:
  replicas: {{ .replicas }}
  startupPolicy: LeaderCreated
  rolloutStrategy:
    type: RollingUpdate
    rollingUpdateConfiguration:
      {{- toYaml .pod.rollout | nindent 6 }}
  leaderWorkerTemplate:
    size: {{ .pod.nodes }}
    restartPolicy: RecreateGroupOnPodRestart
    leaderTemplate:
      {{- include "pelton.servePod" (merge (dict "rank" "leader") .) | nindent 6 }}
    workerTemplate:
      {{- include "pelton.servePod" (merge (dict "rank" "follower") .) | nindent 6 }}
{{- end }}

{{- /* The claim for what they fetch. Of the same dict. */}}
{{- define "pelton.cacheClaim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ printf "%s-cache" .name | quote }}
  labels:
    {{- include "pelton.labels" . | nindent 4 }}
spec:
  accessModes: [{{ .pod.cache.accessMode }}]
  {{- with .pod.cache.storageClassName }}
  storageClassName: {{ . | quote }}
  {{- end }}
  resources:
    requests:
      storage: {{ .pod.cache.size | quote }}
{{- end }}
