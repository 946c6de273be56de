"""Appendix D of the paper: one-layer models on synthetic tasks, in sweeps that survive being killed."""
