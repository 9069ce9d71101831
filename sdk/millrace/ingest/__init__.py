"""What users pass in: tables, columns, durations and arguments, checked and converted once."""
