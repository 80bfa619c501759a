"""Flags of llama-server that this program has not, and what to use instead.

The list is that of llama.cpp's `common/arg.cpp`, as of llama-cpp-python 0.3.36. Flags that mean the same here are in
`gateway.habits`.
"""

ON, OFF = frozenset({"on", "enabled", "true", "1"}), frozenset({"off", "disabled", "false", "0"})
"""Words for on and off."""
ALWAYS = (
    "--cache-prompt",
    "-cb",
    "--cont-batching",
    "--jinja",
    "--kv-offload",
    "-kvo",
    "--log-prefix",
    "--log-timestamps",
    "--op-offload",
    "--warmup",
)
"""Switches for what this program always does. They are accepted, and change nothing."""

_SAMPLING = """--adaptive-target --adaptive-decay --grammar --grammar-file -j --json-schema -jf --json-schema-file -sp
--special -rea --reasoning --reasoning-effort
--reasoning-preserve --no-reasoning-preserve --reasoning-format --skip-chat-parsing --no-skip-chat-parsing"""

_DRAFTS = """-lcs --lookup-cache-static -lcd --lookup-cache-dynamic --spec-draft-hf -hfd -hfrd --hf-repo-draft
--spec-draft-threads -td --threads-draft --spec-draft-threads-batch -tbd --threads-batch-draft --spec-draft-cpu-mask
-Cd --cpu-mask-draft --spec-draft-cpu-range -Crd --cpu-range-draft --spec-draft-cpu-strict --cpu-strict-draft
--spec-draft-prio --prio-draft --spec-draft-poll --poll-draft --spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft
--spec-draft-cpu-strict-batch --cpu-strict-batch-draft --spec-draft-prio-batch --prio-batch-draft
--spec-draft-poll-batch --poll-batch-draft --spec-draft-type-k -ctkd --cache-type-k-draft --spec-draft-type-v -ctvd
--cache-type-v-draft --spec-draft-override-tensor -otd --override-tensor-draft --spec-draft-cpu-moe -cmoed
--cpu-moe-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft --spec-draft-n-max
--spec-draft-n-min --spec-synth-len --spec-synth-rates --spec-draft-p-split --draft-p-split --spec-draft-p-min
--draft-p-min --spec-draft-backend-sampling --no-spec-draft-backend-sampling --spec-draft-device -devd --device-draft
--spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft --spec-draft-model -md --model-draft --spec-type
--spec-ngram-mod-n-min --spec-ngram-mod-n-max --spec-ngram-mod-n-match --spec-ngram-simple-size-n
--spec-ngram-simple-size-m --spec-ngram-simple-min-hits --spec-ngram-map-k-size-n --spec-ngram-map-k-size-m
--spec-ngram-map-k-min-hits --spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-min-hits
--draft --draft-n --draft-max --draft-min --draft-n-min --spec-ngram-size-n --spec-ngram-size-m
--spec-ngram-min-hits --spec-default"""

PRESETS = """--embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default --fim-qwen-7b-default
--fim-qwen-7b-spec --fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default --gpt-oss-120b-default
--vision-gemma-4b-default --vision-gemma-12b-default"""
"""Flags that each stand for a model."""

_PAGE = """--path --api-prefix --ui --webui --no-ui --no-webui --ui-config --webui-config --ui-config-file
--webui-config-file --ui-mcp-proxy --webui-mcp-proxy --no-ui-mcp-proxy --no-webui-mcp-proxy --tools --tools-runtime
--mcp-servers-config --mcp-servers-json -ag --agent -no-ag --no-agent"""

_MEDIA = """-mm --mmproj -mmu --mmproj-url --mmproj-auto --no-mmproj --no-mmproj-auto --mmproj-offload
--no-mmproj-offload -mmdev --mmproj-device --image-min-tokens --image-max-tokens --mtmd-batch-max-tokens --video-fps
--video-timestamp-interval --video-ffmpeg-dir --media-path"""

_ANSWERS = {
    _SAMPLING: "requests set this, by a field of the same purpose",
    _DRAFTS: "there are no draft models: --speculation drafts from a sequence's own text",
    PRESETS: "name the model: --model FILE",
    _PAGE: "this server has no page and runs no tools",
    _MEDIA: "images, audio and video are not supported",
    "-b --batch-size -ub --ubatch-size": "the engine chooses the sizes of batches: --step-target-ms bounds their time",
    "-Cb --cpu-mask-batch -Crb --cpu-range-batch": "--cpus is for all passes",
    "--cpu-strict --cpu-strict-batch --poll --poll-batch": "use --cpus and --threads: the waits are OpenMP's "
    "(OMP_WAIT_POLICY, GOMP_SPINCOUNT)",
    "--prio-batch": "--engine-priority is for all passes",
    "-no-kvu --no-kv-unified --kv-unified-per-slot": "each slot has a part of the KV cache of its own, which is the "
    "default: --context is the size of one",
    "-nkvo --no-kv-offload": "the KV cache of a layer is where the layer is: --gpu-layers",
    "--swa-full -ctxcp --ctx-checkpoints --swa-checkpoints -cms --checkpoint-min-step": "the engine chooses how it "
    "keeps prompts",
    "--cache-idle-slots --no-cache-idle-slots": "prompts stay cached in idle slots, and then in --prefix-store",
    "--no-cache-prompt --cache-reuse -sps --slot-prompt-similarity": "prompts are always cached by equal beginnings",
    "-dt --defrag-thold": "the KV cache is never fragmented",
    "-p --prompt -f --file -bf --binary-file -e --escape --no-escape": "prompts come with requests",
    "--perf --no-perf": "the metrics have the times: GET /metrics",
    "--no-warmup --no-host --no-op-offload --check-tensors --override-kv -lzm --lazy-mode": "this cannot be chosen",
    "--spm-infill": "the model's file decides on the order of fill-in-the-middle prompts",
    "--embd-normalize": "vectors of /v1/embeddings always have length 1",
    "--embedding --embeddings": "/v1/embeddings is always served; --embedding-model adds a model for it",
    "--rerank --reranking": "/v1/rerank is always served; use --pooling rank if the model's file lacks the type",
    "-ncffn --n-cpu-ffn": r"use --override-tensor, such as 'blk\.[0-9]\.ffn_(up|down|gate)\.=CPU' for 10 layers",
    "-fitt --fit-target": "--fit leaves 1 GiB of each GPU free",
    "-fitc --fit-ctx": "use --context, which --fit leaves room for",
    "--list-devices": "use llama-gateway doctor",
    "--rpc": "devices of other machines are not supported",
    "-hff --hf-file -mu --model-url -dr --docker-repo": "use --model hf:USER/REPO:QUANT, or --model FILE",
    "-hft --hf-token": "set the variable HF_TOKEN",
    "-cl --cache-list": "use llama-gateway list",
    "--completion-bash": "there is no completion script",
    "--no-jinja": "chat templates are always Jinja",
    "-nocb --no-cont-batching": "batching is always continuous",
    "--reuse-port --threads-http": "one process listens",
    "--cors-methods --cors-headers --cors-credentials --no-cors-credentials": "--allow-origin decides",
    "--api-key-file": "use --config FILE with api-key = ['…'], or --keys",
    "-to --timeout": "use --request-timeout",
    "--sse-ping-interval": "streams have a fixed keep-alive",
    "--models-preset": "use tables in the file of --config: [models.NAME]",
    "--models-max": "use --models-memory",
    "--models-autoload --no-models-autoload": "models are loaded on demand",
    "--sleep-idle-seconds": "use --idle-unload",
    "--prefill-assistant --no-prefill-assistant": "requests set continue_final_message",
    "--log-disable --log-file --log-colors": "use --log-level, and redirect standard error",
    "--log-prompts-dir": "use --log-content",
    "--no-log-prefix --no-log-timestamps": "use --log-format",
}
ANSWERS = {flag: answer for flags, answer in _ANSWERS.items() for flag in flags.split()}
"""What to use instead of each flag."""
