"""Training of the embedded model: corpus, network, optimisation, export, evaluation."""
