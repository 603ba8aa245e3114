"""The simulator: integer time, every tie decided, the same bytes for the same input."""
