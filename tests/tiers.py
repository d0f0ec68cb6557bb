"""What ./test leaves to ./test --full: tests that are @full, and the counts that are larger where FULL is set."""
import os
import unittest

FULL = bool(os.environ.get("PELTON_FULL"))
full = unittest.skipUnless(FULL, "PELTON_FULL=1 opens this")
