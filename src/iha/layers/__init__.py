"""Attention mechanisms as nn.Module, one file a mechanism, one interface (`base.SelfAttention`)."""
