"""Runs streaming joins: plan, packed batches, state, runs and the stateful operator."""
