"""Parsing of layer selections as typed by users."""

_MOST_LAYERS = 100_000  # more than any model has; a typo must not fill the memory


def parse_layers(text: str) -> list[int]:
    """ "0-3,7" to [0, 1, 2, 3, 7]."""
    layers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        numbers = [first, last] if dash else [first]
        if not all(number.isascii() and number.isdigit() and len(number) < 10 for number in numbers):
            raise ValueError(f"layers must be numbers and ranges like 0-3,7; got {text!r}")
        start, stop = int(first), int(numbers[-1])
        if stop < start:
            raise ValueError(f"layers must be numbers and ranges like 0-3,7; got {text!r}")
        if stop >= _MOST_LAYERS:
            raise ValueError(f"no model has a layer {stop}; got {text!r}")
        layers |= set(range(start, stop + 1))
    return sorted(layers)
