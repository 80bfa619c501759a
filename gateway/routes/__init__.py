"""One file per route: parse, run, encode."""
