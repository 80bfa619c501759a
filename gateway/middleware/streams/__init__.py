"""Streamed responses: their events, their silences, and their life after their client."""
