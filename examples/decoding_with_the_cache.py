"""Prefill a prompt in chunks, then decode token by token. The cache holds un-mixed heads, so it is of ordinary size."""

import torch

import iha


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    layer = iha.InterleavedHeadAttention(64, 4, 2, num_kv_heads=2, window=24, rope_theta=10_000.0)
    x = torch.randn(1, 100, 64)  # (B, N, E)
    whole = layer(x)

    cache = iha.KVCache()
    outputs = [layer(x[:, start : start + 32], cache=cache) for start in (0, 32)]  # prefill in chunks of 32
    outputs += [layer(x[:, n : n + 1], cache=cache) for n in range(64, 100)]  # then token by token
    error = (torch.cat(outputs, dim=1) - whole).abs().max().item()
    print(f"cached decoding differs from the full forward by {error:.1e}")
    print(f"seen {cache.num_tokens_seen} tokens, kept {cache.num_tokens_kept}: no later token sees beyond the window")
    assert error < 1e-5


if __name__ == "__main__":
    main()
