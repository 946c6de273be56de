"""Layers by number, as people write them."""


def parse_layers(text: str) -> list[int]:
    """ "0-3,7" to [0, 1, 2, 3, 7]."""
    layers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
            raise ValueError(f"layers must be numbers and ranges like 0-3,7; got {text!r}")
        layers |= set(range(int(first), int(last if dash else first) + 1))
    return sorted(layers)
