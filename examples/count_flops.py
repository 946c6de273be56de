"""What attention costs: one layer of each kind, a whole model, and the window that makes IHA cost what global costs."""

from iha.accounting import AttentionShape, layer_cache_bytes, layer_flops, matched_window, ratio_to_global
from iha.layers.schedule import LayerSpec, named_schedule

TOKENS = 8192


def main() -> None:
    shape = AttentionShape(2560, 20)  # width E, heads H: the paper's model
    for spec in (LayerSpec(), LayerSpec("iha", None, 2), LayerSpec("iha", 1024, 2), LayerSpec("talking_heads")):
        flops = layer_flops(shape, spec, TOKENS)
        cache = layer_cache_bytes(shape, spec, TOKENS, 2)
        reach = "global" if spec.window is None else f"W = {spec.window}"
        name = f"{spec.mechanism}, {reach}, P = {spec.num_pseudo_heads}"
        print(f"{name:28}  attention {flops.attention:.2e}  mixing {flops.mixing:.2e}  cache {cache} bytes")

    hybrid = named_schedule("iha", 26, num_pseudo_heads=2, window=1024)
    print(f"26 layers, IHA and global 4:1, over all global: {float(ratio_to_global(shape, hybrid, TOKENS)):.3f}")

    def pattern(window: int) -> tuple[LayerSpec, ...]:
        return (*(LayerSpec("iha", window, 2) for _ in range(4)), LayerSpec())

    found = matched_window(shape, TOKENS, pattern)
    print(f"equal cost at W = {found.window}: {float(found.ratio):.4f} of global attention")
    assert found.ratio <= 1


if __name__ == "__main__":
    main()
