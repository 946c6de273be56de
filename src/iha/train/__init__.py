"""Training: the synthetic tasks (`iha.train.synthetic`) and language models."""
