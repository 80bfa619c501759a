"""Where the weights go: devices, layers, single tensors, and how the file is read."""
