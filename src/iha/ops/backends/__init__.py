"""How attention is computed, behind the mechanisms.

`attention.attend` computes standard attention with the backend that `dispatch` chooses. IHA calls `banded` directly,
because that backend includes mixing and collapse.

- sdpa: torch's fused kernel if no mask tensor is needed, otherwise `tiled`: the same kernel tile by tile
- banded: sliding-window IHA in segments, including mixing and collapse
- flash, flex: torch's GPU kernels: flash attention on packed sequences, and flex_attention with a block mask
- formula: the plain formula, with the attention weights

`tiles` cuts masked attention into kernel calls; `kernels` is a single call. Some mechanisms fit no fused kernel:
`query_rows` evaluates them in blocks of query rows. `simplicial_fused` runs 2-simplicial attention on the kernel of
ordinary attention.
"""
