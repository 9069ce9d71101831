"""How streaming joins run: plan, packed batches, state, runs and the stateful operator."""
