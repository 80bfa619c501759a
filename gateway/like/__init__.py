"""Command lines of other programs, understood as those programs do."""
