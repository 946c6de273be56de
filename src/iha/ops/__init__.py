"""Pure functions on tensors.

- One module per mechanism: interleaved, multihead, talking_heads, differential, multi_token, knocking_heads,
  simplicial, strassen. `reference` is the oracle of `interleaved`: the paper, line by line.
- `decoding`: one new token against a cache.
- What they share: `visibility` and `masking` (what is seen), `mixing` (alpha and R), `rotary`, `inputs` and `checks`
  (what comes in), `precision`. `pairs` counts what is seen.
- `backends`: how attention is computed, behind all of them.
"""
