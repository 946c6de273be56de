"""The attention explorer's place on the page; assets/explorer.js fills it.

A record of two small trained models ships with the package (assets/inside.json), so the explorer always has one to
show. They are the pre-trained models of the scale model, seed 0:

    iha experiment scale-model --phases pretrain --mechanisms global,iha
    iha inspect IHA=out/scale-model/pretrain-iha-s0/export MHA=out/scale-model/pretrain-global-s0/export --tokens 22
"""

from importlib.resources import as_file, files

from iha.evaluate.inside import KIND
from iha.records import Record, read_record
from iha.report.page.results import Results
from iha.report.page.section import Section, Text, repeat

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


def explored(results: Results) -> Record:
    """The record to show: of this run, the committed one, or the one that ships with the package."""
    found = results.best(KIND)
    return shipped() if found is None else found.record


def shipped() -> Record:
    """IHA, and multi-head attention beside it; the commands are above."""
    with as_file(files("iha.report.page") / "assets" / "inside.json") as path:
        return read_record(path, KIND)


def explorer_section(record: Record) -> Section:
    section = Section("explorer", "Attention explorer")
    section.paragraph(
        "IHA gives every head P pseudo-queries, pseudo-keys and pseudo-values, each a learned mixture of all heads, "
        "and lets them attend as P virtual tokens per token. Choose a text, a layer and a head of a small model that "
        "was trained for this report. Point at a cell, or move with the arrow keys, to read a weight."
    )
    section.add(Text(_CONTROLS), Text(repeat(record.command)))
    return section
