"""For all tests."""

from hypothesis import settings

# Timing never decides a test: an example that a busy machine holds up is no failure.
settings.register_profile("calm", deadline=None)
settings.load_profile("calm")
