"""The recipe of the embedded model: corpus, network, training, export, evaluation."""
