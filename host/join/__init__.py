"""Joins: the contract of a join index, the matcher, and the order of pairs. Each family of indexes is a folder."""
