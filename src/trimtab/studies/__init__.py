"""Whole studies, which use every stage: walk-forward evaluation and single searches."""
