"""A vision transformer: patches of an image as tokens with 2-D positions, in the layers of the encoder."""

from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput, ImageClassifierOutput
from transformers.utils import can_return_tuple
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from iha.layers.call import Shared
from iha.models.attention import backend_of
from iha.models.configuration import with_value_errors
from iha.models.encoder import IHAEncoderConfig
from iha.models.modeling import IHADecoderLayer, IHAPreTrainedModel
from iha.ops.rotary import Rotation, full_table, grid_table

POSITIONS = ("rotary", "learned")


@with_value_errors
@strict
class IHAVisionConfig(IHAEncoderConfig):
    """Configuration of the vision transformer. Its layers are those of `IHAEncoderConfig`; fields of text (vocabulary,
    token ids) have no effect. No layer has a window: tokens that are near in row order need not be near in the image.

    Args:
        image_size: pixels of a side; images are square.
        patch_size: pixels of a side of a patch; it divides image_size.
        num_channels: 1 for grey images, 3 for RGB.
        positions: "rotary", 2-D RoPE (`iha.ops.rotary.grid_table`), or "learned", the sum of a learned vector of the
            patch's row and one of its column. All P pseudo-heads of a patch are at its place.
    """

    model_type = "iha_vision"
    default_theta = 100.0  # rows and columns are few: the slowest features should turn within an image, too

    image_size: int = 32
    patch_size: int = 4
    num_channels: int = 3
    positions: str = "rotary"
    rope_positions: str = "token"
    window: int | None = 0
    global_every: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        for name in ("image_size", "patch_size", "num_channels"):
            if not 1 <= (size := getattr(self, name)) <= 1 << 16:
                raise ValueError(f"{name} must be at least 1 and at most {1 << 16}, got {size}")
        if self.image_size % self.patch_size:
            raise ValueError(f"patch_size must divide image_size: {self.patch_size}, {self.image_size}")
        if self.positions not in POSITIONS:
            raise ValueError(f"positions must be one of {POSITIONS}, got {self.positions!r}")
        if self.rope_positions != "token":
            raise ValueError(f"rope_positions={self.rope_positions!r}: the pseudo-heads of a patch are at its place")
        if self.classifier_pooling != "mean":
            raise ValueError(
                f"classifier_pooling={self.classifier_pooling!r}: an image has no first token, only a mean"
            )
        self.max_position_embeddings = self.num_patches
        super().__post_init__(**kwargs)
        if any(spec.window is not None for spec in self.layers):
            raise ValueError("a layer has a window: tokens that are near in row order need not be near in the image")
        if self.positions == "rotary" and (self.head_dim or 0) % 4:
            raise ValueError(
                f"2-D RoPE halves the pairs of features: head_dim must be a multiple of 4: {self.head_dim}"
            )
        if (self.rope_parameters or {})["rope_type"] != "default":
            raise ValueError(f"rope_parameters: 2-D RoPE has one rope_type, 'default', got {self.rope_parameters}")

    @property
    def patches_per_side(self) -> int:
        return self.image_size // self.patch_size

    @property
    def num_patches(self) -> int:
        return self.patches_per_side**2


class IHAVisionPreTrainedModel(IHAPreTrainedModel):
    config: IHAVisionConfig
    config_class = IHAVisionConfig
    main_input_name = "pixel_values"


class IHAVisionModel(IHAVisionPreTrainedModel):
    """Images (B, C, image_size, image_size) to hidden states of their patches, row by row."""

    def __init__(self, config: IHAVisionConfig) -> None:
        super().__init__(config)
        patch, side = config.patch_size, config.patches_per_side
        self.patch_embed = nn.Conv2d(config.num_channels, config.hidden_size, patch, stride=patch)
        learned = config.positions == "learned"
        self.row_embed = nn.Embedding(side, config.hidden_size) if learned else None
        self.column_embed = nn.Embedding(side, config.hidden_size) if learned else None
        self.layers = nn.ModuleList(IHADecoderLayer(config, index) for index in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.gradient_checkpointing = False
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.patch_embed

    @merge_with_config_defaults
    @capture_outputs
    def forward(self, pixel_values: Tensor, **kwargs: Any) -> BaseModelOutput:
        size = self.config.image_size
        if pixel_values.dim() != 4 or pixel_values.shape[1:] != (self.config.num_channels, size, size):
            raise ValueError(
                f"pixel_values must be (B, {self.config.num_channels}, {size}, {size}), got {tuple(pixel_values.shape)}"
            )
        hidden_states = self.patch_embed(pixel_values.to(self.patch_embed.weight.dtype))  # (B, E, rows, columns)
        hidden_states = hidden_states.flatten(2).transpose(1, 2)  # (B, N, E)
        if self.row_embed is not None and self.column_embed is not None:
            places = self.row_embed.weight[:, None] + self.column_embed.weight  # (rows, columns, E)
            hidden_states = hidden_states + places.flatten(0, 1)
        implementation = self.config._attn_implementation or "sdpa"
        shared = Shared({1: self._rotation(hidden_states)}, backend_of(implementation), implementation == "eager")
        for layer in self.layers:
            hidden_states = layer(hidden_states, shared)
        return BaseModelOutput(last_hidden_state=self.norm(hidden_states))

    def _rotation(self, like: Tensor) -> Rotation | None:
        if self.config.positions != "rotary":
            return None
        assert self.config.rope_parameters is not None
        assert self.config.head_dim is not None
        side, theta = self.config.patches_per_side, self.config.rope_parameters["rope_theta"]
        table = full_table(*grid_table(side, side, self.config.head_dim, theta, torch.float32))  # (N, D) each
        cos, sin = (t.to(like.device)[None, :, None] for t in table)  # (1, N, 1, D)
        return Rotation((cos, sin))


class IHAForImageClassification(IHAVisionPreTrainedModel):
    """One label per image, from the mean of its patches."""

    def __init__(self, config: IHAVisionConfig) -> None:
        super().__init__(config)
        self.num_labels: int = config.num_labels  # type: ignore[assignment]
        self.model = IHAVisionModel(config)
        self.classifier = nn.Linear(config.hidden_size, self.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(self, pixel_values: Tensor, labels: Tensor | None = None, **kwargs: Any) -> ImageClassifierOutput:
        outputs = self.model(pixel_values, **kwargs)
        logits = self.classifier(outputs.last_hidden_state.mean(dim=1))
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        return ImageClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )
