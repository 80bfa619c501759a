"""Embedding steps and their scheduler."""
