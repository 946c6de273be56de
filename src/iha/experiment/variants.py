"""The mechanisms that the scale model compares, and the ablations of IHA: each a few changes of a recipe."""

# The paper's five, by the names of its tables.
MECHANISMS: dict[str, tuple[str, ...]] = {
    "global": ("model.attention=global",),
    "global_local": ("model.attention=global_local",),
    "talking_heads": ("model.attention=talking_heads",),
    "differential": ("model.attention=differential",),
    "iha": ("model.attention=iha",),
}
LABELS = {
    "global": "Global",
    "global_local": "Global+Local",
    "talking_heads": "Talking Heads",
    "differential": "Diff Transformer",
    "iha": "IHA",
}

_TOKEN_INDEX = ("model.config.causal=token", "model.config.rope_positions=token")

# Ablations: each changes one setting of "iha". A window N/d is that part of the context; that of P is N/(2P²).
ABLATIONS: dict[str, tuple[str, ...]] = {
    "P=1": ("model.config.num_pseudo_heads=1",),
    # Local multi-head attention with mixed heads: what is left of IHA without pseudo-heads, in the same window.
    "P=1 in the window of P=2": ("model.config.num_pseudo_heads=1", "model.config.window=N/8"),
    "P=1 in the window of P=4": ("model.config.num_pseudo_heads=1", "model.config.window=N/32"),
    "P=1 in the window of P=8": ("model.config.num_pseudo_heads=1", "model.config.window=N/128"),
    "P=2 in the window of P=4": ("model.config.window=N/32",),
    "P=2 in the window of P=8": ("model.config.window=N/128",),
    "P=4": ("model.config.num_pseudo_heads=4",),
    # What keeps four pseudo-heads from learning to retrieve, where one in the same window does?
    "P=4 token RoPE": ("model.config.num_pseudo_heads=4", "model.config.rope_positions=token"),
    "P=4 init identity": ("model.config.num_pseudo_heads=4", "model.config.mixing_init=identity"),
    "P=4 init orthogonal": ("model.config.num_pseudo_heads=4", "model.config.mixing_init=orthogonal"),
    "P=8": ("model.config.num_pseudo_heads=8",),
    "init random": ("model.config.mixing_init=random",),
    "init orthogonal": ("model.config.mixing_init=orthogonal",),
    "init identity": ("model.config.mixing_init=identity",),
    "init warm start": ("model.config.mixing_init=warm_start", "model.config.rope_positions=token"),
    "token RoPE": ("model.config.rope_positions=token",),
    "token causality": ("model.config.causal=token",),
    "window halved": ("model.config.window=N/16",),
    "window doubled": ("model.config.window=N/4",),
    "all layers local": ("model.config.global_every=null",),
    "mixing rate x10": (),  # see MIXING_RATES
    "full collapse": ("model.config.collapse=full",),
    # Pseudo-heads from the start, and from one pseudo-head grown in training, which needs the token index: see GROWTHS.
    "P=2 token index": _TOKEN_INDEX,
    "P=2 grown everywhere": (*_TOKEN_INDEX, "model.config.num_pseudo_heads=1", "model.config.window=N/8"),
    "P=2 grown where asked": (*_TOKEN_INDEX, "model.config.num_pseudo_heads=1", "model.config.window=N/8"),
    "P=4 token index": (*_TOKEN_INDEX, "model.config.num_pseudo_heads=4"),
    "P=4 grown everywhere": (*_TOKEN_INDEX, "model.config.num_pseudo_heads=1", "model.config.window=N/32"),
    "P=4 grown where asked": (*_TOKEN_INDEX, "model.config.num_pseudo_heads=1", "model.config.window=N/32"),
    # P_q x P_k: the FLOPs and the window of two by two.
    "P=1x4 token index": (*_TOKEN_INDEX, "model.config.num_pseudo_heads=1", "model.config.num_pseudo_keys=4"),
    "P=4x1 token index": (*_TOKEN_INDEX, "model.config.num_pseudo_heads=4", "model.config.num_pseudo_keys=1"),
}

# What is left of a run of IHA without its pseudo-heads: one, in the same window. The difference is theirs.
CONTROLS = {
    "": "P=1 in the window of P=2", "P=4": "P=1 in the window of P=4", "P=8": "P=1 in the window of P=8",
    "P=2 in the window of P=4": "P=1 in the window of P=4", "P=2 in the window of P=8": "P=1 in the window of P=8",
    "P=2 token index": "P=1 in the window of P=2", "P=4 token index": "P=1 in the window of P=4",
    "P=1x4 token index": "P=1 in the window of P=2", "P=4x1 token index": "P=1 in the window of P=2",
}  # fmt: skip

MIXING_RATES = {"mixing rate x10": 10.0}  # ablations of the learning rate of alpha and R, in multiples of the others'

# Ablations that grow: P, and how many places grow at a time (None: all that are below P). Those that grow where the
# gradient asks may have layers of 2P, and cost no more than P in every layer costs. With these numbers all growths are
# made before half of the run.
GROWTHS: dict[str, tuple[int, int | None]] = {
    "P=2 grown everywhere": (2, None), "P=2 grown where asked": (2, 1),
    "P=4 grown everywhere": (4, None), "P=4 grown where asked": (4, 2),
}  # fmt: skip
