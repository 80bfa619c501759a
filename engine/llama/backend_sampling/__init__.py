"""Backend sampling: the device of the output layer selects the best tokens of each row."""
