"""Modules under the names of others, for programs that import those."""

import os

#: To be put first on the path of modules.
PATH = os.path.dirname(os.path.abspath(__file__))
