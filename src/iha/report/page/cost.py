"""What attention costs, by formula: FLOPs against N and P, and the FLOP-matched window."""

from iha.accounting.flops import layer_flops, schedule_flops
from iha.accounting.mechanisms import AttentionShape
from iha.layers.schedule import LayerSpec, named_schedule
from iha.report.page.charts import lines
from iha.report.page.section import Chart, Section

COMMAND = "iha flops"
PAPER = AttentionShape(2560, 20)  # the 2.4B model: width, heads
PAPER_TOKENS = 8192
PAPER_LAYERS = 26
LENGTHS = tuple(2**exponent for exponent in range(10, 18))
PSEUDO_HEADS = (1, 2, 4, 8)


def cost_section() -> Section:
    section = Section("cost", "Cost")
    section.paragraph(
        "P pseudo-heads make N·P virtual tokens of N, so global IHA costs P² times multi-head attention. The paper "
        "therefore gives four of five layers a window of N/(2P²) tokens. The curves are counts of exact formulas for "
        "the paper's 2.4B model, one forward pass, attention and mixing, relative to global multi-head attention."
    )
    baseline = {N: layer_flops(PAPER, LayerSpec(), N).attention for N in LENGTHS}
    rows = []
    for P in PSEUDO_HEADS:
        for N in LENGTHS:
            whole = layer_flops(PAPER, LayerSpec("iha", None, P), N)
            rows.append(
                {"layer": f"global IHA, P = {P}", "N": N, "ratio": (whole.attention + whole.mixing) / baseline[N]}
            )
    section.add(
        Chart(
            "cost-global", "One global IHA layer against multi-head attention",
            lines(rows, "N", "ratio", "layer", x_title="tokens N", y_title="FLOPs, multi-head = 1", number=".2f"),
            "FLOPs of a global IHA layer relative to multi-head attention for P of 1, 2, 4 and 8: about P squared.",
            COMMAND, log_axes=("x", "y"),
        )
    )  # fmt: skip
    rows = []
    for P in PSEUDO_HEADS:
        for N in LENGTHS:
            schedule = named_schedule("iha", PAPER_LAYERS, num_pseudo_heads=P, num_tokens=N)
            cost = schedule_flops(PAPER, schedule, N)
            rows.append(
                {"P": f"P = {P}", "N": N, "ratio": (cost.attention + cost.mixing) / (PAPER_LAYERS * baseline[N])}
            )
    section.add(
        Chart(
            "cost-matched", "The paper's 4:1 schedule against global attention in every layer",
            lines(rows, "N", "ratio", "P", x_title="tokens N", y_title="FLOPs, global = 1", number=".3f"),
            "FLOPs of the FLOP-matched schedule of local IHA and global layers relative to global attention.",
            COMMAND, log_axes=("x",),
        )
    )  # fmt: skip
    return section
