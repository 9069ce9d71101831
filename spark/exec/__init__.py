"""How batch joins run: broadcast or shuffle, and what each task does with its rows."""
