"""DataFrames in, lazy DataFrames out; nothing here runs an action unless its first line says so."""
