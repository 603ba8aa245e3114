"""Pages people look at: self-contained html, no network."""
