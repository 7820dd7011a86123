"""Prints what to put first on PYTHONPATH."""

from . import PATH

print(PATH)
