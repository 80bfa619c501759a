"""Ollama's API: `/api/chat`, `/api/generate`, embeddings and models."""
