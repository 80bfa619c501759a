"""The output of a choice: its text, and the details of its tokens."""
