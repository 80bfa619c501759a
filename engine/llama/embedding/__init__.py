"""Embeddings and relevance scores by llama.cpp."""
