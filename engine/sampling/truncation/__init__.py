"""Draws by truncation and temperature: the same as with llama.cpp's samplers, for several rows at once."""
