"""Stored responses, each of them visible only to its owner."""
