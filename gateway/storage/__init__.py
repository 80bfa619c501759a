"""SQL databases, on SQLite or PostgreSQL: of API keys, of their limits and usage, and of stored responses."""
