"""Job histories: every public format in, one columnar `Trace` out, each row accounted for."""
