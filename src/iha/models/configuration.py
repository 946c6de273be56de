"""The configuration of the language model: the fields of `LlamaConfig`, plus what interleaved head attention adds."""

from dataclasses import asdict
from functools import wraps
from typing import Any, TypeVar

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig

from iha.layers.mechanisms import find_mechanism
from iha.layers.schedule import LOCAL_WINDOW, LayerSpec, Schedule, flop_matched_window, repeated, with_global_layers
from iha.models.field_checks import check_dtype, check_fields, check_rope
from iha.ops.checks import CAUSALITIES, check_dropout
from iha.ops.visibility import Visibility

LAYER_MECHANISMS = ("iha", "multihead", "talking_heads", "differential")  # those that the model is tested with
ROPE_TYPES = ("default", "linear", "llama3", "yarn")  # those whose angles are linear in the position


Config = TypeVar("Config", bound=type)


def with_value_errors(config: Config) -> Config:
    """Errors of `@strict` beyond our own checks become ValueError, like every other error in a config.json."""
    strict_init = config.__init__  # type: ignore[misc]

    @wraps(strict_init)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            strict_init(self, *args, **kwargs)
        except (StrictDataclassError, TypeError, AttributeError, KeyError, OverflowError, RecursionError) as error:
            raise ValueError(f"not a configuration of this model: {' '.join(str(error).split())}") from error

    config.__init__ = init  # type: ignore[misc]
    return config


@with_value_errors
@strict
class IHAConfig(PreTrainedConfig):
    """Configuration of `IHAForCausalLM`.

    Fields named as in `LlamaConfig` mean what they mean there. Ours:

    Args:
        attention: "iha" (local IHA layers and global multi-head layers, 4:1), "global" (multi-head attention),
            "global_local" (sliding-window and global multi-head layers, 4:1), "talking_heads" or "differential".
        num_pseudo_heads: P of the IHA layers, one number or one per layer (1 for a layer that is not IHA).
        window: of the local layers, in tokens, including the query's own. None: max_position_embeddings / (2 P²) for
            IHA, as in the paper, and 512 for "global_local". 0: no layer is local.
        global_every: every `global_every`-th layer is global multi-head attention; None: none is.
        layer_schedule: each layer explicitly, instead of the four fields above, as dictionaries
            {"mechanism": "iha" | "multihead" | "talking_heads" | "differential", "window": int | None,
            "num_pseudo_heads": int}. Filled in from those four fields if None.
        causal: "virtual" (Algorithm 1) or "token", of the IHA layers.
        rope_positions: "virtual" (Algorithm 1) or "token", of the IHA layers.
        collapse: "per_head" (Algorithm 1) or "full" (Definition 3).
        mixing_init: initialisation of alpha and R, one of `iha.layers.initialisation.INITIALISATIONS`.
        gated_mlp: True for up, gate and down matrices (Llama), False for up and down (the paper's parameter count).
        attention_out_bias: bias of the output projection, if it differs from attention_bias.
        qk_norm: RMS norm of queries and keys, per head, before RoPE (Qwen3).
        attention_gate: "headwise" or "elementwise" multiplies the output of every attention layer by a sigmoid of the
            hidden state, per head or per feature (gated attention, arXiv 2505.06708); None: no gate.
        exclusive_attention: whether every attention layer removes the component of its output along the token's own
            value (exclusive self-attention, arXiv 2603.09078).
        converted_from: the source's config.json, if `iha.convert` made this model.
    """

    model_type = "iha"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012
    # Mixing needs all heads, so attention must not be sharded by heads; the feed-forward may be sharded.
    base_model_tp_plan = {  # noqa: RUF012
        "layers.*.mlp.gate_proj": "colwise",
        "layers.*.mlp.up_proj": "colwise",
        "layers.*.mlp.down_proj": "rowwise",
    }
    base_model_pp_plan = {  # noqa: RUF012
        "embed_tokens": (["input_ids"], ["inputs_embeds"]),
        "layers": (["hidden_states"], ["hidden_states"]),
        "norm": (["hidden_states"], ["hidden_states"]),
    }

    vocab_size: int = 32000
    hidden_size: int = 256
    intermediate_size: int = 1024
    num_hidden_layers: int = 5
    num_attention_heads: int = 8
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    tie_word_embeddings: bool = True
    rope_parameters: dict[str, Any] | None = None
    attention_bias: bool = False
    attention_dropout: int | float | None = 0.0
    mlp_bias: bool = False

    attention: str = "iha"
    num_pseudo_heads: int | list[int] = 2
    window: int | None = None
    global_every: int | None = 5
    layer_schedule: list[dict[str, Any]] | None = None
    causal: str | None = "virtual"
    rope_positions: str = "virtual"
    collapse: str = "per_head"
    mixing_init: str = "one_hot"
    gated_mlp: bool = True
    attention_out_bias: bool | None = None
    qk_norm: bool = False
    attention_gate: str | None = None
    exclusive_attention: bool = False
    converted_from: dict[str, Any] | None = None
    # Read by the caches of `transformers`; derived from layer_schedule.
    layer_types: list[str] | None = None
    sliding_window: int | None = None

    default_theta = 500_000.0
    causalities = CAUSALITIES[:2]  # that `causal` may have; None is for encoders

    def __post_init__(self, **kwargs: Any) -> None:
        check_fields(self)
        check_dtype(kwargs.get("dtype", kwargs.get("torch_dtype", self.dtype)))
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.head_dim is None:
            self.head_dim = self.hidden_size // self.num_attention_heads
        if self.layer_schedule is None:
            self.layer_schedule = [asdict(spec) for spec in self._schedule()]
        # As plain data for config.json, with current mechanism names.
        self.layer_schedule = [asdict(spec) for spec in self._checked(self.layer_schedule)]
        reaches = [self._visibility(spec).reach_back for spec in self.layers]
        self.layer_types = ["full_attention" if reach is None else "sliding_attention" for reach in reaches]
        # One number for all local layers: a cache may keep more tokens than a layer can see. At least 2: with a window
        # of 1, the caches of `transformers` slice [-0:] and keep everything.
        self.sliding_window = max((max(reach, 1) + 1 for reach in reaches if reach is not None), default=None)
        super().__post_init__(**kwargs)
        self.validate_architecture()  # `@strict` calls it too, but wraps its ValueError in another error

    @property
    def layers(self) -> Schedule:
        """`layer_schedule` as `LayerSpec` objects; the field itself is plain data for config.json."""
        return tuple(LayerSpec(**layer) for layer in self.layer_schedule or [])

    def visibility(self, layer_idx: int) -> Visibility:
        """Which tokens a layer sees."""
        return self._visibility(self.layers[layer_idx])

    def _visibility(self, spec: LayerSpec) -> Visibility:
        own_rule = spec.is_interleaved or self.causal is None
        return spec.visibility(self.causal if own_rule else "virtual")  # type: ignore[arg-type]

    def _schedule(self) -> Schedule:
        L = self.num_hidden_layers
        pseudo_heads = self.num_pseudo_heads if isinstance(self.num_pseudo_heads, list) else [self.num_pseudo_heads] * L
        if len(pseudo_heads) != L:
            raise ValueError(f"num_pseudo_heads must be one number or {L}, one a layer; got {pseudo_heads}")
        if self.attention == "global":
            return repeated((LayerSpec(),), L)
        if self.attention in ("iha", "global_local"):
            with_alpha = self.attention == "iha"
            local = (LayerSpec("iha", self._window(P), P) if with_alpha else LayerSpec(window=self._window(P))
                     for P in pseudo_heads)  # fmt: skip
            return with_global_layers(tuple(local), self.global_every)
        return repeated((LayerSpec(self.attention),), L)

    def _window(self, P: int) -> int | None:
        if self.window == 0:
            return None
        if self.window is not None:
            return self.window
        if self.attention == "global_local":
            return LOCAL_WINDOW
        return flop_matched_window(self.max_position_embeddings, P)

    def _checked(self, schedule: list[dict[str, Any]]) -> Schedule:
        if len(schedule) != self.num_hidden_layers:
            raise ValueError(
                f"layer_schedule has {len(schedule)} layers, num_hidden_layers is {self.num_hidden_layers}"
            )
        specs = []
        for index, layer in enumerate(schedule):
            if not isinstance(layer, dict) or set(layer) != {"mechanism", "window", "num_pseudo_heads"}:
                raise ValueError(
                    f"layer {index} of layer_schedule must be {{'mechanism': one of {LAYER_MECHANISMS}, "
                    f"'window': int or None, 'num_pseudo_heads': int}}, got {layer}"
                )
            try:
                specs.append(LayerSpec(**layer))
            except ValueError as error:
                raise ValueError(f"layer {index} of layer_schedule: {error}") from error
            if specs[-1].mechanism not in LAYER_MECHANISMS:
                raise ValueError(
                    f"layer {index} of layer_schedule: mechanism must be one of {LAYER_MECHANISMS}, "
                    f"got {specs[-1].mechanism!r}"
                )
        return tuple(specs)

    def validate_architecture(self) -> None:
        """Called by `@strict` on every new configuration."""
        P = max(spec.num_pseudo_heads for spec in self.layers)
        if self.mixing_init == "warm_start" and self.rope_positions == "virtual" and P > 1:
            raise ValueError(
                f"mixing_init='warm_start' cannot be exact with rope_positions='virtual' and {P} pseudo-heads: "
                "the copies of a key would be rotated by different angles; use rope_positions='token'"
            )
        if self.num_attention_heads % (self.num_key_value_heads or 1):
            heads = f"{self.num_key_value_heads}, {self.num_attention_heads}"
            raise ValueError(f"num_key_value_heads must divide num_attention_heads: {heads}")
        if (self.head_dim or 0) < 2:
            raise ValueError(f"hidden_size {self.hidden_size} leaves heads of {self.head_dim} features; give head_dim")
        if (self.head_dim or 0) % 2:
            raise ValueError(f"RoPE rotates pairs of features: head_dim must be even, got {self.head_dim}")
        check_dropout(self.attention_dropout or 0.0)
        without = sorted({s.mechanism for s in self.layers if not find_mechanism(s.mechanism).layer.takes_dropout})
        if self.attention_dropout and without:
            raise ValueError(f"attention_dropout is {self.attention_dropout}, but {without[0]} layers have no dropout")
        check_rope(self.rope_parameters or {}, ROPE_TYPES)
