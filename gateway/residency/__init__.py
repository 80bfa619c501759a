"""Residency of models in memory: which are loaded, which make room, and who waits."""
