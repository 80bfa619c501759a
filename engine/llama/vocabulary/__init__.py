"""The vocabulary of a model: texts and token ids, within what llama.cpp can tokenise."""
