"""Deciding whether a better setting is worth a change, and what was decided, round by round."""
