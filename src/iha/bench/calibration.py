"""How long single attention layers take on this machine, in units of global multi-head attention."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from iha.accounting.mechanisms import AttentionShape
from iha.bench.measure import Quiet, Watch, take_turns
from iha.layers.schedule import LayerSpec
from iha.records import Progress, silent

ROUNDS = 6  # three runs of two


@dataclass
class Calibration:
    """Measures the layers that it is called with: one forward over one sequence of N tokens, projections included.

    RoPE is left out: at token positions it costs every layer the same.
    """

    num_tokens: int  # N
    rounds: int = ROUNDS
    device: torch.device | str = "cpu"
    dtype: torch.dtype = torch.float32
    progress: Progress = silent
    quiet: Quiet | None = field(default=None, init=False)  # how reliable the last call's times are

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds must be at least 1, got {self.rounds}")

    @torch.no_grad()
    def __call__(self, shape: AttentionShape, specs: Sequence[LayerSpec]) -> dict[LayerSpec, float]:
        """Each layer in turns with global multi-head attention on the same input; the best round of each counts."""
        watch, place = Watch(), {"device": self.device, "dtype": self.dtype}
        x = torch.randn(1, self.num_tokens, shape.embed_dim, **place)  # type: ignore[call-overload]
        baseline = built(shape, LayerSpec(), **place)
        found, spreads = {}, []
        with self.progress.task("timing layers", total=len(specs)) as bar:
            for spec in specs:
                layer = built(shape, spec, **place)
                sides = {"this": lambda layer=layer: layer(x), "multihead": lambda: baseline(x)}  # type: ignore[misc]
                times = take_turns(sides, self.rounds)
                found[spec] = 1.0 if spec == LayerSpec() else times.ratio("this", "multihead")
                spreads.append(times.spread("this", "multihead"))
                bar.advance(1)
        self.quiet = watch.judge(spreads)
        return found


def built(shape: AttentionShape, spec: LayerSpec, **place: Any) -> torch.nn.Module:
    """The layer with random weights."""
    own: dict[str, Any] = {"collapse": shape.collapse} if spec.is_interleaved else {}
    if spec.num_mixed_heads is not None:
        own["init"] = "random"  # one that any number of mixed heads has
    return spec.build(
        shape.embed_dim, shape.num_heads, num_kv_heads=shape.num_kv_heads, head_dim=shape.head_dim, bias=shape.bias,
        causal=shape.causal if spec.is_interleaved else "virtual", gate=shape.gate, **own, **place,
    )  # fmt: skip
