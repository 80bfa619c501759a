"""The memory of a context: what llama.cpp allocates for it, and the longest context that fits."""
