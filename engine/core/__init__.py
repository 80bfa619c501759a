"""Policy: scheduling, planning and the KV ledger. Pure: no clock, no I/O, no C."""
