"""Responses and conversations in a PostgreSQL database that several gateways share."""
