"""The theorems of arXiv 2602.21371 as checks: build the weights, run the operator, compare, count the parameters.

One file per theorem, to be read beside appendix B and C; `verify` runs them all and `iha verify` prints the verdicts.
What the paper gets wrong is numbered E1, E2, … as in docs/paper-errata.md.
"""
