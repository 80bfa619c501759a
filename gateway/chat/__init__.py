"""Conversations in a form that no API owns: chat templates, tools, output formats."""
