"""Grammars of texts that are inside of others: of JSON strings, or of tags."""
