"""Grammars of texts that are inside of JSON strings."""
