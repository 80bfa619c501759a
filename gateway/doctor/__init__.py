"""The command `llama-gateway doctor`: this machine, the installed llama.cpp, a model, and how it would be served."""
