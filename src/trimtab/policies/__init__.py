"""Schedulers: each a pure function of what a scheduler may know."""
