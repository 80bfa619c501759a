"""Policy: who runs, who waits, what a pass computes. Pure: no clock, no I/O, no C."""
