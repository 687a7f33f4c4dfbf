"""Workers of the engine: valid rows to partial rankings, through the exchange, to rankings."""
