"""OpenAI's conversations: items that responses read and add to."""
