"""Conversations without any API's words: templates, tools, output formats."""
