"""The attention explorer's place on the page; assets/explorer.js fills it."""

from iha.report.page.section import Missing, Section, Text

KIND = "inside"  # of the record that `iha.evaluate.inside.look_inside` fills
COMMAND = "iha reproduce"

_CONTROLS = """
<div id="explorer-app">
<div class="controls">
<label>text <select id="explorer-example"></select></label>
<label>layer <select id="explorer-layer"></select></label>
<label>head <select id="explorer-head"></select></label>
</div>
<p class="readout" id="explorer-readout" aria-live="polite"></p>
<div class="maps" id="explorer-maps"></div>
<h3>Between pseudo-heads</h3>
<p>The same weights, one picture per pair of pseudo-query and pseudo-key. Multi-head attention has one per head.</p>
<div class="maps" id="explorer-patterns"></div>
<h3>Mixing</h3>
<p id="explorer-mixing-note"></p>
<div class="maps" id="explorer-mixing"></div>
<h3>Algorithm 1, step by step</h3>
<ol class="steps" id="explorer-steps"></ol>
<p id="explorer-step-text"></p>
<div class="maps" id="explorer-step-maps"></div>
</div>
"""


def explorer_section(available: bool) -> Section:
    section = Section("explorer", "Attention explorer")
    section.paragraph(
        "IHA gives every head P pseudo-queries, pseudo-keys and pseudo-values, each a learned mixture of all heads, "
        "and lets them attend as P virtual tokens per token. Choose a text, a layer and a head of a small model that "
        "was trained for this report. Point at a cell, or move with the arrow keys, to read a weight."
    )
    section.add(Text(_CONTROLS) if available else Missing("no trained model to look into", COMMAND))
    return section
