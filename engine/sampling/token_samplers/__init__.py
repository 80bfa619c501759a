"""The last stage of a draw: from adjusted logits to one token."""
