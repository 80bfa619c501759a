"""The engine process: everything that touches llama.cpp."""
