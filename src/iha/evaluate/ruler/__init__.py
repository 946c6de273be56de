"""RULER's 13 tasks at any length, for any tokenizer: NVIDIA's templates and parameters, our own generator.

`tasks` is where they meet the rest, `lengths` fills a sample up to the length asked for, `needles`, `tracking`,
`counting` and `reading` write the samples, `materials` finds essays, words and documents.
"""
