"""Trimtab tunes a GPU cluster's scheduler from the cluster's own job history."""

__version__ = "0.1.0"
