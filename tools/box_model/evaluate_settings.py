"""What the tools that ask held-out conversations must agree on."""
DATE, SEED = "2026-11-21", 2027  # the date that the server tells the model; the seed of the held-out conversations
