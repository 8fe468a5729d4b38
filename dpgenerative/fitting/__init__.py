"""One private fit, from rows to a released model."""
