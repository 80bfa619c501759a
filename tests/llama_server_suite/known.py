"""Tests of llama-server that fail here offline with the 260K model, and why."""

from collections.abc import Mapping

KNOWN: Mapping[str, tuple[str, ...]] = {
    "need another model; llama-server fails them with this one, too": (
        "test_basic.py::test_load_split_model",
        "test_embedding.py::test_embedding_usage_single",
        "test_embedding.py::test_embedding_usage_multiple",
        "test_infill.py::test_infill_without_input_extra",
        "test_infill.py::test_infill_with_input_extra",
        "test_rerank.py::test_rerank",
        "test_rerank.py::test_rerank_tei_format",
        "test_rerank.py::test_rerank_usage",
        "test_lora.py::test_lora",
        "test_lora.py::test_lora_per_request",
        "test_speculative.py::test_slot_ctx_not_exceeded",
        "test_speculative.py::test_with_ctx_shift",
        "test_speculative.py::test_multi_requests_parallel",
    ),
    "count the tokens of a draft model; here draft tokens come from the text, and seeded requests have none": (
        "test_speculative.py::test_with_and_without_draft",
        "test_speculative.py::test_synth_is_deterministic",
        "test_speculative.py::test_synth_ignores_target_tokens",
    ),
    "download a model; llama-server fails them without a network, too": (
        "test_router.py::test_router_chat_completion_stream",
        "test_router.py::test_router_unload_model",
        "test_router.py::test_router_models_max_evicts_lru",
        "test_router.py::test_router_queue_does_not_evict_busy_model",
        "test_router.py::test_router_queue_coalesces_requests_for_same_model",
        "test_router.py::test_router_queue_client_disconnect_keeps_model",
        "test_router.py::test_router_queue_is_fifo",
        "test_router.py::test_router_queue_two_waiters_share_one_eviction",
        "test_router.py::test_router_no_models_autoload",
        "test_router.py::test_router_api_key_required",
        "test_router.py::test_router_dedup_cache_models",
        "test_router.py::test_router_remote_preset",
        "test_router.py::test_router_download_model",
        "test_stream.py::test_stream_resume_and_stop_with_slashed_model_name",
        "test_stream.py::test_stream_stop_during_model_load",
        "test_stream.py::test_stream_resumes_after_reload_during_model_load",
    ),
    "send images; models here read text only": (
        "test_compat_anthropic.py::test_anthropic_tool_result_with_image",
        "test_compat_anthropic.py::test_anthropic_vision_format_accepted",
        "test_compat_anthropic.py::test_anthropic_vision_base64_with_multimodal_model",
        "test_security.py::test_local_media_file",
        "test_slot_save.py::test_slot_save_restore_with_image",
        "test_slot_save.py::test_slot_save_restore_with_two_images",
        "test_slot_save.py::test_slot_save_restore_with_image_across_restart",
        "test_slot_save.py::test_slot_save_restore_image_payload_larger_than_context",
        "test_slot_save.py::test_slot_restore_media_file_without_mmproj",
    ),
    "open llama-server's web page, its tools or its proxy, which this server does not have": (
        "test_basic.py::test_no_ui",
        "test_security.py::test_access_static_assets_without_api_key",
        "test_security.py::test_cors_origins_defaults_to_localhost_with_tools_enabled",
        "test_security.py::test_cors_proxy_only_forwards_explicit_proxy_headers",
    ),
    "start a router with a preset, or change its list of models; here the models are those of the start": (
        "test_router.py::test_router_props",
        "test_router.py::test_router_reload_models",
        "test_router.py::test_router_delete_model",
    ),
    "expect that metrics of a model outlive its unloading; the engine that counts them has ended": (
        "test_sleep.py::test_server_sleep_read_only_endpoints",
        "test_sleep.py::test_server_sleep_metrics_buckets",
    ),
    "ask for a vector of each token (`--pooling none`); here each text has one vector": (
        "test_embedding.py::test_embedding_pooling_none",
        "test_embedding.py::test_embedding_pooling_none_oai",
    ),
    "count the steps of a prompt by `--batch-size`; here the engine chooses their sizes": (
        "test_chat_completion.py::test_return_progress",
    ),
    "expect `response.completed` of an answer that was cut; here it is `response.incomplete`, as OpenAI has it": (
        "test_compat_oai_responses.py::test_responses_stream_with_llama_telemetry",
    ),
    "look for marks in llama-server's log": ("test_kv_keep_only_active.py::test_clear_and_restore",),
    "compare the order of probabilities, of which two are equal to 5 digits: a cached prompt rounds otherwise": (
        "test_completion.py::test_n_probs_post_backend_sampling",
    ),
}
"""Tests by the reason, without their parameters."""


def reason_of(test: str) -> str | None:
    """Return the reason for which a test fails, or None if it should pass. Parameters of the test do not count."""
    name = test.partition("[")[0]
    return next((reason for reason, tests in KNOWN.items() if name in tests), None)
