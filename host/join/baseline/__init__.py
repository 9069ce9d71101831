"""The baselines: nested loop (`scan`) and a B+-tree per side (`btree`)."""
