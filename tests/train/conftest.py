"""Lets the tests here share `runs.py` and `soak.py`: under importlib mode a test's directory is not on the path."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
