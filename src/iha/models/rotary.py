"""RoPE tables of the model, computed once per forward and shared by all layers.

They use float32 and the formula of `transformers`, not float64 as in `iha.ops.rotary`. A converted model must give the
logits of its original, and at position 2048 the angles of the two differ by 1e-4 rad.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from iha.models.configuration import ROPE_TYPES, IHAConfig
from iha.models.field_checks import check_rope

Table = tuple[Tensor, Tensor]  # cos and sin


class IHARotaryEmbedding(nn.Module):
    def __init__(self, config: IHAConfig) -> None:
        super().__init__()
        self.config = config
        assert config.rope_parameters is not None
        check_rope(config.rope_parameters, ROPE_TYPES)  # may have been set after the configuration was checked
        self.rope_type = config.rope_parameters["rope_type"]
        frequencies, self.attention_scaling = self.frequencies()
        self.inv_freq: Tensor
        self.register_buffer("inv_freq", frequencies, persistent=False)  # (D/2,)

    def frequencies(self) -> tuple[Tensor, float]:
        """Radians per position for each pair of features, and the scale of cos and sin in long-context RoPE types."""
        if self.rope_type != "default":
            return ROPE_INIT_FUNCTIONS[self.rope_type](self.config)
        assert self.config.rope_parameters is not None
        assert self.config.head_dim is not None
        exponents = torch.arange(0, self.config.head_dim, 2, dtype=torch.float) / self.config.head_dim
        return 1.0 / (self.config.rope_parameters["rope_theta"] ** exponents), 1.0

    def _apply(self, fn: Callable, recurse: bool = True) -> "IHARotaryEmbedding":
        # model.bfloat16() would round the frequencies: at position 2048 angles would be off by full rotations.
        super()._apply(fn, recurse)
        if self.inv_freq.dtype != torch.float32:
            self.inv_freq = self.frequencies()[0].to(self.inv_freq.device)
        return self

    @torch.no_grad()
    def forward(self, x: Tensor, position_ids: Tensor) -> Table:
        """As in `transformers`: position_ids (1 or B, N) to cos and sin, (1 or B, N, D) each, in x's dtype."""
        cos, sin = self.table(position_ids)
        return torch.cat((cos, cos), dim=-1).to(x.dtype), torch.cat((sin, sin), dim=-1).to(x.dtype)

    @torch.no_grad()
    def table(self, positions: Tensor) -> Table:
        """positions (...) to cos and sin, (..., D/2) each, in float32."""
        cos, sin = self.offsets(positions)
        return cos * self.attention_scaling, sin * self.attention_scaling

    @torch.no_grad()
    def offsets(self, positions: Tensor) -> Table:
        """The same without `attention_scaling`, to rotate further what is already rotated and scaled."""
        angle = positions[..., None].float() * self.inv_freq.float()
        return angle.cos(), angle.sin()
