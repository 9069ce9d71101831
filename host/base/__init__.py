"""What everything else rests on: errors, array types, and keys as order-preserving words."""
