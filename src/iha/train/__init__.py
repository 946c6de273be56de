"""Training of language models. The one-layer experiments of appendix D are in `iha.synthetic`."""
