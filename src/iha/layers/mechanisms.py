"""The one table of attention mechanisms. To add a mechanism, write its layer and add a row here."""

from dataclasses import dataclass

from iha.layers.base import SelfAttention
from iha.layers.differential import DifferentialAttention
from iha.layers.interleaved import InterleavedHeadAttention
from iha.layers.knocking_heads import KnockingHeadsAttention
from iha.layers.multi_token import MultiTokenAttention
from iha.layers.multihead import MultiHeadAttention
from iha.layers.paired_heads import PairedHeadsAttention
from iha.layers.simplicial import SimplicialAttention
from iha.layers.strassen import StrassenAttention
from iha.layers.talking_heads import TalkingHeadsAttention
from iha.ops.backends.dispatch import BACKENDS


@dataclass(frozen=True)
class Mechanism:
    name: str
    layer: type[SelfAttention]
    label: str  # as in the paper's tables

    @property
    def knows_depth(self) -> bool:
        """Whether the layer takes `depth`, its index in the model."""
        return self.layer.knows_depth

    @property
    def can_be_cached(self) -> bool:
        return self.layer.cache_obstacle is None

    @property
    def has_pseudo_heads(self) -> bool:
        """Whether the layer takes `num_pseudo_heads`."""
        return self.layer.has_pseudo_heads

    @property
    def backends(self) -> tuple[str, ...]:
        """Valid values of the layer's `backend` argument; () if no attention kernel computes the mechanism."""
        return BACKENDS if self.layer.kernel_obstacle is None else ()


MECHANISMS: dict[str, Mechanism] = {
    mechanism.name: mechanism
    for mechanism in (
        Mechanism("iha", InterleavedHeadAttention, "IHA"),
        Mechanism("multihead", MultiHeadAttention, "MHA"),
        Mechanism("paired_heads", PairedHeadsAttention, "Paired heads"),
        Mechanism("talking_heads", TalkingHeadsAttention, "Talking heads"),
        Mechanism("differential", DifferentialAttention, "Differential"),
        Mechanism("simplicial", SimplicialAttention, "2-simplicial"),
        Mechanism("knocking_heads", KnockingHeadsAttention, "Knocking heads"),
        Mechanism("multi_token", MultiTokenAttention, "Multi-token"),
        Mechanism("strassen", StrassenAttention, "Strassen"),
    )
}
_OLDER_NAMES = {"mha": "multihead"}  # in older files, configurations and commands


def find_mechanism(name: str) -> Mechanism:
    """The mechanism of this name, or of this older name."""
    name = _OLDER_NAMES.get(name, name) if isinstance(name, str) else name
    if not isinstance(name, str) or name not in MECHANISMS:
        raise ValueError(f"mechanism must be one of {tuple(MECHANISMS)}, got {name!r}")
    return MECHANISMS[name]
