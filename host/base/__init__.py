"""The lowest layer: errors, array types, and the encoding of keys as order-preserving words."""
