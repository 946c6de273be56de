"""Knocking-heads attention (Zhou et al. 2025, arXiv 2510.23052): one small projection, shared by all heads.

After the head-specific projections and before RoPE and attention, every head's features pass through the same matrix

    linear:  x̃[h] = x[h] T                                     for queries, keys and values, T (D, D)
    mlp:     ṽ[h] = 2 · (v[h] up ⊙ sigmoid(v[h] gate)) down     for values only, three matrices (D, D)

and attention follows as usual. The heads are not mixed with each other. They interact only through the shared matrix,
which is trained by all of them. T, up and down start as the identity and gate as zero: at step 0 nothing changes.
"""

from torch import Tensor

from iha.ops.precision import wide


def knock_linear(x: Tensor, projection: Tensor) -> Tensor:
    """Apply the shared projection (D, D) to every head of x (B, N, H, D)."""
    _check(x, projection=projection)
    return x @ projection


def knock_mlp(x: Tensor, up: Tensor, gate: Tensor, down: Tensor) -> Tensor:
    """Apply the shared gated MLP to every head of x (B, N, H, D); each matrix is (D, D)."""
    _check(x, up=up, gate=gate, down=down)
    opened = 2 * (x @ gate).to(wide(x.dtype)).sigmoid()  # 1 where the gate is zero
    return ((x @ up) * opened).to(x.dtype) @ down


def _check(x: Tensor, **matrices: Tensor) -> None:
    D = x.shape[-1]
    for name, matrix in matrices.items():
        if matrix.shape != (D, D):
            raise ValueError(f"{name} must be (D, D) = ({D}, {D}), got {tuple(matrix.shape)}")
