"""Scripts that compute and draw the figures, and their tests."""
