"""Forecasts, made from nothing later than the present."""
