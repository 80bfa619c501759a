"""Models that join while the server runs: their downloads, and their removal."""
