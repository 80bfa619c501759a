"""The usual flags of vLLM and SGLang that this program has not, and what to use instead.

Flags that mean the same here are in `gateway.habits`.
"""

ALWAYS = """--enable-prefix-caching --enable-chunked-prefill --enable-auto-tool-choice --enable-prompt-tokens-details
--enable-cache-report --enable-request-id-headers --enable-tokenizer-info-endpoint --enable-ssl-refresh
--disable-log-requests --no-enable-log-requests --enable-metrics""".split()  # noqa: SIM905
"""Switches for what this program always does. They are accepted, and change nothing."""

_FILE = """--dtype --quantization -q --load-format --tokenizer --tokenizer-path --tokenizer-mode --trust-remote-code
--hf-config-path --hf-overrides --config-format --model-impl"""
_MEMORY = """--gpu-memory-utilization --mem-fraction-static --kv-cache-memory-bytes --num-gpu-blocks-override
--max-total-tokens --block-size --page-size"""
_ENGINE = """--enforce-eager --compilation-config --disable-cuda-graph --attention-backend --sampling-backend
--grammar-backend --structured-outputs-config --guided-decoding-backend --distributed-executor-backend
--disable-custom-all-reduce --enable-expert-parallel --async-scheduling --max-logprobs"""
_DRAFTS = """--speculative-config --speculative-algorithm --speculative-draft-model-path --speculative-num-steps
--speculative-num-draft-tokens --num-speculative-tokens"""

_ANSWERS = {
    _FILE: "the GGUF file decides on the types of weights and on the tokenizer, and has no code",
    _MEMORY: "the KV cache has --slots times --context tokens, by default as many as fit",
    _ENGINE: "this cannot be chosen",
    _DRAFTS: "there are no draft models: --speculation drafts from a sequence's own text",
    "--max-num-seqs --max-running-requests": "use --slots, each of which has --context tokens of the KV cache",
    "--max-num-batched-tokens --chunked-prefill-size --max-prefill-tokens": "the engine chooses the sizes of batches: "
    "--step-target-ms bounds their time",
    "--no-enable-chunked-prefill --no-enable-prefix-caching --disable-radix-cache": "prompts are always computed in "
    "chunks, and cached by equal beginnings",
    "--tensor-parallel-size -tp --tp --tp-size": "all GPUs share the model; --split-mode tensor divides its tensors",
    "--pipeline-parallel-size -pp --pp --pp-size": "all GPUs share the model, each with whole layers",
    "--data-parallel-size -dp --dp --dp-size": "use --replicas, in a cluster of Ray",
    "--nnodes --node-rank --dist-init-addr --master-addr --headless": "several machines are a cluster of Ray",
    "--kv-cache-dtype": "use --kv-type-k and --kv-type-v",
    "--swap-space --kv-offloading-size --hicache-size": "use --prefix-store, host memory for cached prompts",
    "--cpu-offload-gb": "--fit keeps in host memory what the GPUs do not hold",
    "--scheduling-policy --schedule-policy": "clients take turns, and requests may set priority",
    "--max-queued-requests": "use --queue-limit",
    "--tool-call-parser --reasoning-parser --chat-template-content-format": "the chat template decides",
    "--enable-lora --lora-modules --lora-paths --max-loras --max-lora-rank": "use --lora FILE",
    "--generation-config --override-generation-config": "use --temperature, --top-p and the other flags of sampling",
    "--random-seed": "use --seed",
    "--task --runner --convert --is-embedding": "/v1/embeddings and /v1/rerank are always served; use --pooling if the "
    "model's file lacks the type",
    "--limit-mm-per-prompt --mm-processor-kwargs": "images, audio and video are not supported",
    "--revision --tokenizer-revision --code-revision": "models of the hub are those of its newest commit",
    "--download-dir": "set the variable HF_HUB_CACHE",
    "--uds": "use --unix-socket",
    "--ssl-ca-certs --ssl-cert-reqs": "use --tls-client-ca",
    "--allowed-origins --allowed-methods --allowed-headers --allow-credentials": "use --allow-origin",
    "--root-path": "paths have no prefix: let the proxy remove it",
    "--enable-log-requests --enable-log-outputs --log-requests --max-log-len": "use --log-content",
    "--uvicorn-log-level": "use --log-level",
    "--disable-uvicorn-access-log": "use --access-log off",
    "--disable-log-stats": "use --no-metrics",
    "--otlp-traces-endpoint": "set the variable OTEL_EXPORTER_OTLP_ENDPOINT",
    "--enable-force-include-usage": "requests ask for it, by stream_options",
    "--api-server-count": "one process listens",
    "--enable-sleep-mode": "use --idle-unload",
}
ANSWERS = {flag: answer for flags, answer in _ANSWERS.items() for flag in flags.split()}
"""What to use instead of each flag."""
