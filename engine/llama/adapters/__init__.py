"""LoRA adapters and control vectors of a model."""
