"""Bindings: model, contexts, runner and embedder on llama.cpp."""
