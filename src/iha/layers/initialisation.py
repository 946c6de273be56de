"""How the mixing weights alpha and the collapse R are initialised.

The paper does not say how, and the choice decides whether IHA trains well. Each initialisation fills alpha_q (H, H, P),
alpha_k and alpha_v (G, G, P) and a per-head R (H, P). A full R (H, H*P) gets the per-head one on its block diagonal.
Where H heads are mixed into another number H', no head is its own: "random" and "paired_heads" then fill all of R.
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from iha.ops.visibility import Causality

_NOISE = 0.02  # of one-hot routing and warm start: enough to make pseudo-heads differ, small compared with 1


def identity(alpha_q: Tensor, alpha_k: Tensor, alpha_v: Tensor, collapse: Tensor, causal: Causality) -> None:
    """Every pseudo-head is a copy of its head, R averages.

    Under token causality (with no RoPE or token RoPE) the pseudo-heads of a head then have equal gradients and stay
    equal for ever: the cost of P heads for the effect of one. For comparison, not for use.
    """
    for alpha in (alpha_q, alpha_k, alpha_v):
        alpha.copy_(_eye(alpha))
    collapse.fill_(1 / collapse.shape[1])


def random(alpha_q: Tensor, alpha_k: Tensor, alpha_v: Tensor, collapse: Tensor, causal: Causality) -> None:
    """Normal, scaled so that mixing preserves the variance of the heads, and R that of the pseudo-heads."""
    for alpha in (alpha_q, alpha_k, alpha_v):
        alpha.normal_(std=alpha.shape[0] ** -0.5)
    collapse.normal_(std=collapse.shape[1] ** -0.5)


def orthogonal(alpha_q: Tensor, alpha_k: Tensor, alpha_v: Tensor, collapse: Tensor, causal: Causality) -> None:
    """For each p, mixing is its own random orthogonal matrix over the heads; R averages."""
    for alpha in (alpha_q, alpha_k, alpha_v):
        for p in range(alpha.shape[2]):
            # Drawn in float32: the QR decomposition that it uses does not support half precision.
            alpha[:, :, p] = torch.nn.init.orthogonal_(torch.empty(alpha.shape[:2], device=alpha.device))
    collapse.fill_(1 / collapse.shape[1])


def one_hot(alpha_q: Tensor, alpha_k: Tensor, alpha_v: Tensor, collapse: Tensor, causal: Causality) -> None:
    """One-hot routing: pseudo-key and pseudo-value p of head h are the key and value of head h + p.

    Pseudo-queries are copies of their own head's query; R averages. With P = H every head starts with the keys and
    values of all heads, one per pseudo-head.
    """
    alpha_q.copy_(_eye(alpha_q) + _NOISE * torch.randn_like(alpha_q))
    G, P = alpha_k.shape[1:]
    heads = torch.arange(G, device=alpha_k.device)
    for alpha in (alpha_k, alpha_v):
        alpha.normal_(std=_NOISE)
        for p in range(P):
            alpha[(heads + p) % G, heads, p] += 1
    collapse.fill_(1 / collapse.shape[1])


def warm_start(alpha_q: Tensor, alpha_k: Tensor, alpha_v: Tensor, collapse: Tensor, causal: Causality) -> None:
    """Exactly multi-head attention at step 0, but pseudo-heads get different gradients.

    All pseudo-keys of a token are equal, so a query that sees all P of them gives them equal weight. Perturbations of
    the pseudo-values that sum to zero then cancel in the output. They do not cancel in the gradient of alpha_k. Under
    virtual causality only the last pseudo-query sees all P copies of its own token, so R selects it. Otherwise all P
    outputs are equal, and any R whose rows sum to 1 is exact. Entries of R that differ along p give the pseudo-queries
    different gradients. The perturbed values alone would leave those gradients equal for ever.
    """
    P = collapse.shape[1]
    for alpha in (alpha_q, alpha_k):
        alpha.copy_(_eye(alpha))
    alpha_v.copy_(_eye(alpha_v) + _centred(_NOISE * torch.randn_like(alpha_v)))
    if causal == "virtual":
        collapse.zero_()
        collapse[:, -1] = 1
    else:
        collapse.copy_(1 / P + _centred(torch.randn_like(collapse) / P))


def paired_heads(alpha_q: Tensor, alpha_k: Tensor, alpha_v: Tensor, collapse: Tensor, causal: Causality) -> None:
    """Pseudo-head p of head h' is the projected head p*H' + h', and R puts it back there, for H = H'*P.

    With P = 2 these are the paired heads of modded-nanogpt: q, k and v of H heads, viewed as H/2 heads of twice the
    tokens. `iha.layers.paired_heads` computes the same without weights to learn.
    """
    for alpha in (alpha_q, alpha_k, alpha_v):
        heads, mixed, P = alpha.shape
        one_hot = torch.eye(heads, device=alpha.device, dtype=alpha.dtype)
        alpha.copy_(one_hot.view(heads, P, mixed).transpose(1, 2))
    H, mixed, P = alpha_q.shape
    collapse.copy_(alpha_q.reshape(H, mixed * P))


Initialisation = Literal["identity", "random", "orthogonal", "one_hot", "warm_start", "paired_heads"]
INITIALISATIONS: dict[Initialisation, Callable[[Tensor, Tensor, Tensor, Tensor, Causality], None]] = {
    "identity": identity,
    "random": random,
    "orthogonal": orthogonal,
    "one_hot": one_hot,
    "warm_start": warm_start,
    "paired_heads": paired_heads,
}


def is_of_whole_collapse(init: str, num_heads: int, num_mixed_heads: int) -> bool:
    """Whether the initialisation fills all of a full R, and not only its block diagonal."""
    return init == "paired_heads" or num_mixed_heads != num_heads


def check_mixed_heads(
    heads: tuple[int, int],  # H and H'
    kv_heads: tuple[int, int],  # G and G'
    per_token: tuple[int, int],  # P_q and P_k
    collapse: str,
    init: str,
) -> None:
    """ValueError if H heads cannot be mixed into H' in this way, or not be initialised so."""
    (H, mixed), (G, mixed_kv) = heads, kv_heads
    if mixed < 1 or mixed * G != mixed_kv * H:
        raise ValueError(
            f"num_mixed_heads must be at least 1 and mix {G} k/v heads in the proportion of {H} heads, got {mixed}"
        )
    if init == "paired_heads" and (mixed * per_token[0] != H or mixed_kv * per_token[1] != G):
        raise ValueError(
            f"init='paired_heads' needs num_heads = num_mixed_heads * num_pseudo_heads, for keys too: got {H} heads "
            f"and {G} k/v heads, mixed into {mixed} and {mixed_kv}, with {per_token[0]} pseudo-queries and "
            f"{per_token[1]} pseudo-keys"
        )
    if mixed != H and init not in ("random", "paired_heads"):
        raise ValueError(f"init={init!r} keeps every head its own, but {H} heads are mixed into {mixed}")
    if is_of_whole_collapse(init, H, mixed) and collapse != "full":
        raise ValueError(f"{H} heads mixed into {mixed} with init={init!r} need collapse='full', got {collapse!r}")


def _eye(alpha: Tensor) -> Tensor:
    return torch.eye(alpha.shape[0], device=alpha.device, dtype=alpha.dtype)[:, :, None].expand_as(alpha)


def _centred(noise: Tensor) -> Tensor:
    """The noise, shifted to sum to zero over the pseudo-heads (the last axis)."""
    return noise - noise.mean(dim=-1, keepdim=True)
