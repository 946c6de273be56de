"""Pure functions on tensors.

- One module per mechanism: interleaved, multihead, talking_heads, differential, multi_token, knocking_heads,
  simplicial, strassen. `reference` is the oracle of `interleaved`: the paper, line by line.
- `decoding`: one new token against a cache.
- Shared by the mechanisms: `visibility` and `masking` (which keys a query sees), `mixing` (alpha and R), `rotary`,
  `inputs` and `checks` (preparing and checking arguments), `precision`. `pairs` counts visible (query, key) pairs.
- `heap`: freed memory stays with the process.
- `backends`: the implementations of attention behind the mechanisms.
"""
