"""The ledger of KV slots: leases, prefixes kept for reuse, and moves between slots."""
