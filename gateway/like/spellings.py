"""Spellings of llama-server: flags without a value, variables that stand for flags, letters and names of samplers.

The lists are those of llama.cpp's `common/arg.cpp`, as of llama-cpp-python 0.3.36.
"""

from collections.abc import Iterator, Mapping
from typing import get_args

from engine import SamplerName
from gateway.like.llama_server_flags import OFF, ON, PRESETS

SAMPLER_LETTERS: Mapping[str, SamplerName] = {
    "e": "penalties",
    "d": "dry",
    "s": "top_n_sigma",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "m": "min_p",
    "x": "xtc",
    "t": "temperature",
    "i": "infill",
}
"""Letters of the samplers."""

_OTHER_NAMES: Mapping[str, SamplerName] = {
    "nucleus": "top_p",
    "temp": "temperature",
    "typ": "typ_p",
    "typical": "typ_p",
    "typicalp": "typ_p",
}
_SAMPLERS: Mapping[str, SamplerName] = {
    **{name.replace("_", ""): name for name in get_args(SamplerName)},
    **_OTHER_NAMES,
}


def sampler_named(name: str) -> SamplerName | None:
    """Return the sampler with a name in any case, with or without hyphens or underscores; None if it is unknown."""
    return _SAMPLERS.get(name.lower().replace("_", "").replace("-", ""))


_VALUELESS = """-h --help --usage --version -cl --cache-list --completion-bash --swa-full -kvu --kv-unified -no-kvu
--no-kv-unified --cache-idle-slots --no-cache-idle-slots --context-shift --no-context-shift --perf --no-perf -e --escape
--no-escape -sp --special --warmup --no-warmup --spm-infill --ignore-eos -bs --backend-sampling -kvo --kv-offload -nkvo
--no-kv-offload --repack -nr --no-repack --no-host -cb --cont-batching -nocb --no-cont-batching --mmproj-auto
--no-mmproj --no-mmproj-auto --mmproj-offload --no-mmproj-offload --list-devices -cmoe --cpu-moe --check-tensors
--op-offload --no-op-offload --reuse-port --cors-credentials --no-cors-credentials --ui-mcp-proxy --webui-mcp-proxy
--no-ui-mcp-proxy --no-webui-mcp-proxy -ag --agent -no-ag --no-agent --ui --webui --no-ui --no-webui --embedding
--embeddings --rerank --reranking --cache-prompt --no-cache-prompt --metrics --props --slots --no-slots
--models-autoload --no-models-autoload --jinja --no-jinja --reasoning-preserve --no-reasoning-preserve
--skip-chat-parsing --no-skip-chat-parsing --prefill-assistant --no-prefill-assistant --lora-init-without-apply
--log-disable --log-jsonl --no-log-jsonl -v --verbose --log-verbose --offline --log-prefix --no-log-prefix
--log-timestamps --no-log-timestamps --spec-draft-cpu-moe -cmoed --cpu-moe-draft --spec-draft-backend-sampling
--no-spec-draft-backend-sampling --spec-default"""
VALUELESS = frozenset(f"{_VALUELESS} {PRESETS}".split())
"""Flags without a value."""

_NAMED_AS_FLAGS = """AGENT ALIAS API_KEY_FILE API_PREFIX BACKEND_SAMPLING CACHE_IDLE_SLOTS CACHE_PROMPT CACHE_RAM
CACHE_REUSE CACHE_TYPE_K CACHE_TYPE_V CHAT_TEMPLATE CHAT_TEMPLATE_FILE CHAT_TEMPLATE_KWARGS CONTEXT_SHIFT
CONT_BATCHING CORS_CREDENTIALS CORS_HEADERS CORS_METHODS CORS_ORIGINS CPU_MOE CTX_CHECKPOINTS CTX_SIZE DEFRAG_THOLD
DEVICE DOCKER_REPO DRAFT_MAX DRAFT_MIN EMBEDDINGS FIT FIT_CTX FIT_TARGET FLASH_ATTN FREQUENCY_PENALTY HF_FILE HF_REPO
HOST IMAGE_MAX_TOKENS IMAGE_MIN_TOKENS JINJA KV_OFFLOAD KV_UNIFIED KV_UNIFIED_PER_SLOT LAZY_MODE LOAD_MODE LOG_COLORS
LOG_FILE LOG_JSONL LOG_PREFIX LOG_TIMESTAMPS LOG_VERBOSITY MAIN_GPU MCP_SERVERS_CONFIG MCP_SERVERS_JSON MIN_P MMPROJ
MMPROJ_AUTO MMPROJ_OFFLOAD MMPROJ_URL MODEL MODELS_AUTOLOAD MODELS_DIR MODELS_MAX MODELS_PRESET MODEL_URL
MTMD_BATCH_MAX_TOKENS NO_HOST NUMA N_CPU_FFN N_CPU_MOE N_GPU_LAYERS N_GPU_LAYERS_DRAFT N_PREDICT OFFLINE
OVERRIDE_TENSOR PERF POOLING PORT PREFILL_ASSISTANT PRESENCE_PENALTY REASONING REASONING_EFFORT REASONING_PRESERVE
REPACK REPEAT_PENALTY RERANKING REUSE_PORT ROPE_FREQ_BASE ROPE_FREQ_SCALE ROPE_SCALE RPC SKIP_CHAT_PARSING
SPEC_DRAFT_BACKEND_SAMPLING SPEC_DRAFT_CPU_MOE SPEC_DRAFT_MODEL SPEC_DRAFT_N_CPU_MOE SPEC_DRAFT_N_MAX
SPEC_DRAFT_N_MIN SPEC_DRAFT_P_MIN SPEC_DRAFT_P_SPLIT SPEC_SYNTH_LEN SPEC_SYNTH_RATES SPEC_TYPE SPLIT_MODE
SSE_PING_INTERVAL SSL_CERT_FILE SSL_KEY_FILE SWA_FULL TAGS TEMPERATURE TENSOR_SPLIT THREADS THREADS_HTTP TIMEOUT
TOOLS TOOLS_RUNTIME TOP_K TOP_P UI UI_CONFIG UI_CONFIG_FILE UI_MCP_PROXY VIDEO_FFMPEG_DIR VIDEO_FPS
VIDEO_TIMESTAMP_INTERVAL YARN_ATTN_FACTOR YARN_BETA_FAST YARN_BETA_SLOW YARN_EXT_FACTOR YARN_ORIG_CTX"""
_NAMED_OTHERWISE = {
    "BATCH": "--batch-size",
    "CHECKPOINT_MIN_SPACING_NT": "--checkpoint-min-step",
    "ENDPOINT_METRICS": "--metrics",
    "ENDPOINT_PROPS": "--props",
    "ENDPOINT_SLOTS": "--slots",
    "N_PARALLEL": "--parallel",
    "ROPE_SCALING_TYPE": "--rope-scaling",
    "SPEC_DRAFT_CACHE_TYPE_K": "--spec-draft-type-k",
    "SPEC_DRAFT_CACHE_TYPE_V": "--spec-draft-type-v",
    "SPEC_DRAFT_HF_REPO": "--spec-draft-hf",
    "STATIC_PATH": "--path",
    "THINK": "--reasoning-format",
    "THINK_BUDGET": "--reasoning-budget",
    "THINK_BUDGET_MESSAGE": "--reasoning-budget-message",
    "UBATCH": "--ubatch-size",
}
_PREFIX = "LLAMA_ARG_"


def variables() -> dict[str, str]:
    """Return the flag of each variable."""
    flags = {name: "--" + name.lower().replace("_", "-") for name in _NAMED_AS_FLAGS.split()}
    return {_PREFIX + name: flag for name, flag in (flags | _NAMED_OTHERWISE).items()}


def from_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the arguments that the variables stand for. `LLAMA_ARG_NO_…` negates a switch whatever its value is."""
    for variable, flag in variables().items():
        negation = "--no-" + flag.removeprefix("--")
        if negation in VALUELESS and variable.replace(_PREFIX, f"{_PREFIX}NO_") in environment:
            yield negation
        elif (value := environment.get(variable)) is not None:
            if flag not in VALUELESS:
                yield from (flag, value)
            elif value in ON:
                yield flag
            elif value in OFF and negation in VALUELESS:
                yield negation
