"""Finding better settings: the space to search, samplers, and the tuner that spends a budget."""
