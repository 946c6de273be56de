"""Pure functions on tensors. `reference` is the oracle: the paper, line by line."""
