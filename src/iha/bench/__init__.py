"""Time and memory as they are: measured side by side, in one process, and recorded as ratios."""
