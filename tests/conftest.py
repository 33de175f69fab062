"""Settings that all tests share."""

from hypothesis import settings

# A busy machine, or the first call of a kernel, is no failure.
settings.register_profile("bace", deadline=None)
settings.load_profile("bace")
