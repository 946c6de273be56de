"""`generate` of `transformers`, and what of it would silently give something else here: refused by name."""

from functools import wraps
from typing import Any

from transformers import GenerationMixin

_NO_CONTINUOUS_BATCHING = (
    "continuous batching (generate_batch) is not supported: its paged attention would run without the mixing of heads; "
    "use generate with a left-padded batch"
)
_NO_ASSISTED_ATTENTIONS = (
    "output_attentions is not supported in assisted generation: transformers cuts the weights at tokens, and those of "
    "this model are between virtual tokens; generate without an assistant, or without output_attentions"
)


class IHAGenerationMixin(GenerationMixin):
    def generate_batch(self, *args: Any, **kwargs: Any) -> Any:
        """Continuous batching is refused: its paged attention works on single heads and does not mix them."""
        raise ValueError(_NO_CONTINUOUS_BATCHING)

    def init_continuous_batching(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError(_NO_CONTINUOUS_BATCHING)

    @wraps(GenerationMixin._assisted_decoding)  # `generate` looks at its signature
    def _assisted_decoding(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        options = kwargs["generation_config"]
        if options.output_attentions and options.return_dict_in_generate and self._has_virtual_tokens():
            raise ValueError(_NO_ASSISTED_ATTENTIONS)
        return super()._assisted_decoding(*args, **kwargs)  # type: ignore[misc]

    def _has_virtual_tokens(self) -> bool:
        """Whether a layer's attention weights have more rows than there are tokens."""
        config = self.config  # type: ignore[attr-defined]
        return getattr(config, "cross_attention", None) == "iha" or any(
            spec.per_token != (1, 1) or spec.mechanism == "paired_heads" for spec in config.layers
        )
