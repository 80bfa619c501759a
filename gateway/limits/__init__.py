"""Limits of API keys: rates, requests at once, and budgets of tokens."""
