"""llama-server's `/tokenize` and `/detokenize`, and vLLM's `/tokenizer_info`."""
