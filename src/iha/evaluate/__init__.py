"""RULER, GSM8K, MATH-500, MBPP and HumanEval for any Hugging Face causal LM, and the paper's tables.

`protocol` is what the parts agree on, `suites` lists the tasks, `run` evaluates a model, `tables` reads the results.
"""
