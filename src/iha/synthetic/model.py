"""The one-layer transformer of the synthetic tasks; only its attention differs between mechanisms."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from iha.layers.base import SelfAttention
from iha.layers.mechanisms import find_mechanism
from iha.synthetic.state_attention import attend_states, fits
from iha.synthetic.state_kernels import GeluDot, Tokens
from iha.synthetic.tasks import Task

POSITIONS = ("1d", "2d", "1d_size")
MODELS = ("ours", "paper")
NORMS = ("pre", "post")
# Initialisation of all matrices but alpha and R: PyTorch's own of each layer; normal with 0.02, as GPT-2; Xavier's
# uniform, as torch.nn.Transformer. The latter two start with biases of zero.
WEIGHTS = ("torch", "normal", "xavier")
# Added to the second keys and values of 2-simplicial attention: nothing, as in its formula, or 1/D and 1, as in its
# published kernels, where it starts close to ordinary attention over the first keys.
OFFSETS = ("none", "published")


class SyntheticModel(nn.Module):
    """Embed, one attention block, one MLP, read out: (B, N, F) to (B, N, num_outputs).

    "paper" is the model that the parameter counts in the paper's figure legends identify (docs/synthetic.md): two
    layer norms, biases in the projections (of IHA only in the output's), and the collapse of IHA over all heads,
    (H, HP). The counts do not say whether its norms come before or after the two blocks. "ours" was our first
    reading: pre-norm with a third norm before the read-out, no biases, per-head collapse.

    The paper leaves positions open. "1d" is the faithful reading: one learned vector per place in the flattened
    sequence. Note that the row and column of a place depend on m, and that a query cannot know m before it has
    attended. "1d_size" adds a learned vector for the size, "2d" gives the row and the column instead.
    """

    def __init__(
        self,
        task: Task,
        mechanism: str,
        *,
        width: int,
        num_heads: int,
        num_pseudo_heads: int = 1,
        num_pseudo_keys: int | None = None,
        init: str = "one_hot",
        positions: str = "1d",
        model: str = "ours",
        norm: str = "pre",
        window: int | None = None,
        offsets: str = "none",
        weights: str = "torch",
    ) -> None:
        super().__init__()
        self.task, self.positions, self.norm = task, positions, norm
        if task.vocabularies:
            self.embed = nn.ModuleList(nn.Embedding(vocabulary, width) for vocabulary in task.vocabularies)
        else:
            self.features = nn.Linear(task.num_features, width)
        largest, longest = max(task.sizes), task.length(max(task.sizes))
        places = {"1d": [longest], "2d": [largest, largest], "1d_size": [longest, largest + 1]}
        self.places = nn.ModuleList(nn.Embedding(count, width) for count in places[positions])
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.final_norm = nn.LayerNorm(width) if model == "ours" else nn.Identity()
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.read_out = nn.Linear(width, task.num_outputs)
        draw_weights(self, weights)
        # Created last, so that one seed gives every mechanism the same initial weights everywhere else.
        self.attention = build_attention(
            mechanism, width, num_heads, num_pseudo_heads, init, model, num_pseudo_keys, window, offsets
        )
        draw_weights(self.attention, weights)

    def forward(self, inputs: Tensor, size: int, lengths: Tensor | None = None) -> Tensor:
        """All examples of one size; or right-padded ones of several, with `lengths` (B,), for 1-D positions only."""
        N = inputs.shape[1]
        x = sum(table(inputs[..., f]) for f, table in enumerate(self.embed)) if self.task.vocabularies else None
        x = self.features(inputs) if x is None else x
        x = x + self._places(N, size, inputs.device)
        mask = None if lengths is None else torch.arange(N, device=inputs.device) < lengths[:, None]
        if self.norm == "pre":
            x = x + self.attention(self.attention_norm(x), key_padding_mask=mask)
            x = x + self.mlp(self.mlp_norm(x))
        else:
            x = self.attention_norm(x + self.attention(x, key_padding_mask=mask))
            x = self.mlp_norm(x + self.mlp(x))
        return self.read_out(self.final_norm(x))

    def has_states(self) -> bool:
        """Whether tokens have few distinct vectors before attention (id x place) and its kernels can use that."""
        if len(self.task.vocabularies) != 1 or self.positions != "1d":
            return False
        num_states = self.task.vocabularies[0] * self.task.length(max(self.task.sizes))
        return fits(self.attention, num_states)

    def forward_states(self, parts: Sequence[Tensor]) -> Tensor:
        """Examples of several sizes at once, ids (B, N, 1) each: outputs (F, num_outputs) of all their F tokens."""
        table, places = self.embed.get_parameter("0.weight"), self.places.get_parameter("0.weight")
        tokens = Tokens.of(parts, len(table), len(places))
        states = (table[:, None] + places).flatten(0, 1)  # (S, E)
        x = F.embedding(tokens.state, states)  # (rows, E): more than F, see Tokens
        if self.norm == "pre":
            x = x + attend_states(self.attention, self.attention_norm(states), tokens)
            if isinstance(self.final_norm, nn.Identity) and self.read_out.out_features == 1:
                return self._read_out(x)[: tokens.count]
            x = x + self.mlp(self.mlp_norm(x))
        else:
            x = self.attention_norm(x + attend_states(self.attention, states, tokens))
            x = self.mlp_norm(x + self.mlp(x))
        return self.read_out(self.final_norm(x))[: tokens.count]

    def _read_out(self, x: Tensor) -> Tensor:
        """The MLP and one output, (F, E) to (F, 1): with nothing between them, two products are one."""
        last, last_bias = self.mlp.get_parameter("2.weight"), self.mlp.get_parameter("2.bias")
        hidden = self.mlp[0](self.mlp_norm(x))  # (F, 4E)
        row, bias = self.read_out.weight, self.read_out.bias
        added = GeluDot.apply(hidden, (row @ last)[0])  # (F,)
        return F.linear(x, row, bias + row @ last_bias) + added[:, None]

    def _places(self, N: int, size: int, device: torch.device) -> Tensor:
        place = torch.arange(N, device=device)
        if self.positions == "2d":
            return self.places[0](place // size) + self.places[1](place % size)
        vectors = self.places[0](place)
        if self.positions == "1d_size":
            vectors = vectors + self.places[1](torch.full_like(place, size))
        return vectors

    def mixing_parameters(self) -> list[nn.Parameter]:
        """alpha and R, which may have a separate learning rate."""
        names = ("alpha_q", "alpha_k", "alpha_v", "collapse")
        return [p for name, p in self.attention.named_parameters() if name in names]


@torch.no_grad()
def draw_weights(module: nn.Module, weights: str) -> None:
    """Initial weights of all linear layers and embeddings inside, one of WEIGHTS."""
    if weights == "torch":
        return
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Embedding):
            if weights == "normal":
                layer.weight.normal_(std=0.02)
            else:
                nn.init.xavier_uniform_(layer.weight)
            if isinstance(layer, nn.Linear) and layer.bias is not None:
                layer.bias.zero_()


def build_attention(
    mechanism: str,
    width: int,
    num_heads: int,
    num_pseudo_heads: int,
    init: str,
    model: str = "ours",
    num_pseudo_keys: int | None = None,
    window: int | None = None,
    offsets: str = "none",
) -> SelfAttention:
    """Bidirectional self-attention of any mechanism: the tasks are not causal. `window` and `offsets` are those of the
    second keys of 2-simplicial attention."""
    found = find_mechanism(mechanism)
    options: dict[str, Any] = {"causal": None}
    if window is not None:
        options["window"] = (None, window)
    if offsets == "published":
        options |= {"key_offset": num_heads / width, "value_offset": 1.0}  # 1/D
    if found.has_pseudo_heads:
        options |= {"num_pseudo_heads": num_pseudo_heads, "num_pseudo_keys": num_pseudo_keys, "init": init}
    if found.has_pseudo_heads and init == "paired_heads":
        options |= {"num_mixed_heads": num_heads // num_pseudo_heads, "collapse": "full"}
    if model == "paper":
        options |= {"out_bias": True, "collapse": "full"} if found.has_pseudo_heads else {"bias": True}
    return found.layer(width, num_heads, **options)
