"""How attention is computed, behind the mechanisms.

`attention.attend` is the one entrance: it asks `dispatch` for a backend.

- sdpa: torch's fused kernel where no mask is needed, else `tiled`, the same kernel tile by tile
- banded: a sliding window of interleaved heads in segments, mixing and collapse included
- flex, flash: GPU kernels of torch and of the flash-attn package
- formula: the plain formula, with the attention weights

`tiles` cuts a masked attention into kernel calls, `kernels` is one call. `query_rows` evaluates mechanisms that no
fused kernel computes in blocks of query rows; `simplicial_fused` runs 2-simplicial attention on the kernel of
ordinary attention.
"""
