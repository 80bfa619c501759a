"""Files of models, read without llama.cpp: names of parts, headers, and what the headers say of the KV cache."""
