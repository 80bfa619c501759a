"""llama-server's `/tokenize` and `/detokenize`."""
