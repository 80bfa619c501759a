"""Sampling: how the next token is drawn from logits."""
