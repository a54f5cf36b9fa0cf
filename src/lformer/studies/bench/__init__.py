"""What things cost on this machine: the training loop, and dense against tensor for a layer and for a model."""
